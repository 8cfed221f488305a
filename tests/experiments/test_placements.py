"""Laws of placements, for every file in conf/norm, and the joints that harder variants need."""

import inspect

import pytest
import torch
from compose import config
from torch import Tensor, nn

from experiments import placements
from experiments.config import CONF, ConfigError
from experiments.exact.check import norm
from experiments.init import initialise
from experiments.model import Block, Shape, Transformer
from experiments.norms import norm_maker
from experiments.placements.base import Branch, Placement, Site

VARIANTS = sorted(path.stem for path in (CONF / "norm").glob("*.yaml"))


def transformer(*overrides: str) -> Transformer:
    cfg = config("model.depth=3", "model.width=16", "model.n_head=2", "init=xavier", *overrides)
    model = Transformer(cfg.model, cfg.norm, Shape(13, 9))
    initialise(model, cfg.init, 0)
    return model.double()


def stream(seed: int = 0) -> Tensor:
    return torch.randn(2, 9, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_pre_minus_identity_is_the_branch_of_the_normed_input() -> None:
    block, x = transformer("norm=pre").blocks[0], stream()
    for join, branch in zip(block.joins, block.branches, strict=True):
        normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        torch.testing.assert_close(join(x, branch) - x, branch(normed), rtol=0, atol=1e-12)
        torch.testing.assert_close(join(x, torch.zeros_like), x, rtol=0, atol=0)


def test_post_normalises_the_sum_of_stream_and_branch() -> None:
    block, x = transformer("norm=post").blocks[0], stream()
    for join, branch in zip(block.joins, block.branches, strict=True):
        total = x + branch(x)
        normed = (total - total.mean(-1, keepdim=True)) / (total.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        torch.testing.assert_close(join(x, branch), normed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_norm_kind_and_eps_reach_every_norm(kind: str) -> None:
    model = transformer("norm=pre", f"norm.kind={kind}", "norm.eps=0.5")
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm)]
    assert len(norms) == 3 * 2 + 1
    assert {type(m) for m in norms} == {{"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}[kind]}
    assert {m.eps for m in norms} == {0.5}


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_block_is_the_identity_and_all_gradients_are_right(variant: str) -> None:
    block = transformer(f"norm={variant}").blocks[1]
    x = stream()[:1, :3].requires_grad_()
    assert not torch.allclose(block(x), x)
    assert torch.autograd.gradcheck(block, (x,), atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_share_no_module(variant: str) -> None:
    model = transformer(f"norm={variant}")
    assert len({id(p) for p in model.parameters()}) == sum(1 for _ in model.named_parameters(remove_duplicate=False))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_96_blocks_are_finite(variant: str, dtype: torch.dtype) -> None:
    model = transformer(f"norm={variant}", "model.depth=96").to(dtype)
    logits = model(torch.randint(0, 13, (2, 9), generator=torch.Generator().manual_seed(0)))
    logits.float().square().mean().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_unknown_placement_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=r"norm.placement=sideways.*post.*pre"):
        placements.find("sideways")


class TwoStreams(Placement):
    """ResiDual's update (arXiv:2304.14802, section 3): p' = norm(p + f(p)), d' = d + f(p), out p + norm(d)."""

    final_norm = True

    def __init__(self, make_norm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)

    def forward(self, stream, branch: Branch):
        p, d = stream
        y = branch(p)
        return self.norm(p + y), d + y

    def enter(self, x_BTD: Tensor):
        return x_BTD, x_BTD

    def leave(self, stream, final_norm: nn.Module) -> Tensor:
        return stream[0] + final_norm(stream[1])


class NormedOutput(Placement):
    """Sub-LN's socket: a norm before W_O and W_2 (arXiv:2210.06423, figure 2)."""

    final_norm = True

    def __init__(self, make_norm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm, self.make_norm = make_norm(site.width), make_norm

    def fit(self, branch: nn.Module) -> None:
        out = branch.wo if hasattr(branch, "wo") else branch.w2
        branch.norm_out = self.make_norm(out.in_features)

    def forward(self, stream, branch: Branch):
        return stream + branch(self.norm(stream))


def build(kind: type[Placement], monkeypatch: pytest.MonkeyPatch) -> Transformer:
    monkeypatch.setattr(placements, "find", lambda _name: kind)
    return transformer()


def test_a_two_stream_placement_fits_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(TwoStreams, monkeypatch)
    tokens = torch.randint(0, 13, (2, 9), generator=torch.Generator().manual_seed(0))
    p = d = model.wte(tokens) + model.wpe.weight[:9]
    for block in model.blocks:
        for join, branch in zip(block.joins, block.branches, strict=True):
            y = branch(p)
            p, d = join.norm(p + y), d + y
    torch.testing.assert_close(model(tokens), model.head(p + model.final_norm(d)), rtol=0, atol=1e-12)


def test_a_placement_may_fill_the_sockets_of_its_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    block = build(NormedOutput, monkeypatch).blocks[0]
    seen = []
    for branch, out in zip(block.branches, ("wo", "w2"), strict=True):
        getattr(branch, out).register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    block(stream())
    for y in seen:
        torch.testing.assert_close(y.var(-1, correction=0), torch.ones_like(y[..., 0]), rtol=1e-2, atol=0)


def test_tuple_that_no_one_merges_is_an_error() -> None:
    join = placements.find("pre")(norm_maker(norm(), True), Site(4, 0, 1, "attn", 0, 2))
    with pytest.raises(TypeError, match="PreLN keeps 2 streams"):
        join.leave((torch.zeros(1), torch.zeros(1)), nn.Identity())


def test_block_forward_has_no_branching() -> None:
    assert not {"if", "elif"} & set(inspect.getsource(Block.forward).split())
