"""The profiling pass: Admin's shortcuts against its formula, and nothing for placements that ask for none."""

import pytest
import torch
from compose import config

from experiments.calibration import calibrate
from experiments.init import initialise
from experiments.model import Shape, Transformer


def transformer(*overrides: str) -> Transformer:
    cfg = config("norm=admin", "model.depth=4", "model.width=16", "model.n_head=2", "init=xavier", *overrides)
    model = Transformer(cfg.model, cfg.norm, Shape(13, 9))
    initialise(model, cfg.init, 0)
    return model.double()


TOKENS = torch.randint(0, 13, (3, 9), generator=torch.Generator().manual_seed(0))


def post_ln_variances(model: Transformer) -> list[float]:
    """Var f of every branch when all shortcuts are 1, from hooks on the branches."""
    seen: list[float] = []
    hooks = [
        b.register_forward_hook(lambda _m, _a, y: seen.append(float(y.detach().var(correction=0))))
        for _, _, b in model.sites()
    ]
    model.eval()(TOKENS)
    for hook in hooks:
        hook.remove()
    model.train()
    return seen


@pytest.mark.parametrize("branches", ["[attn,ffn]", "[ffn]", "[attn,cross,ffn]"])
def test_admins_shortcut_starts_at_the_root_of_one_plus_the_variances_before_it(branches: str) -> None:
    model = transformer(f"model.branches={branches}")
    variances = post_ln_variances(model)
    calibrate(model, TOKENS)
    for k, (_, join, _) in enumerate(model.sites()):
        expected = (1 + sum(variances[:k])) ** 0.5
        torch.testing.assert_close(join.omega.detach(), torch.full((16,), expected, dtype=torch.float64), rtol=1e-9, atol=0)


def test_calibration_draws_nothing_and_leaves_the_mode_as_it_was() -> None:
    model = transformer("model.dropout=0.3").train()
    state = torch.get_rng_state()
    calibrate(model, TOKENS)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    again = transformer("model.dropout=0.3")
    calibrate(again, TOKENS)
    for ours, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_other_placements_cost_no_pass() -> None:
    model = transformer("norm=pre")
    calls: list[None] = []
    model.wte.register_forward_hook(lambda *_: calls.append(None))
    calibrate(model, TOKENS)
    assert not calls
