"""Laws of the joints between model and placements. Those of every variant are in tests/conformance."""

import inspect

import pytest
import torch
from compose import config
from torch import nn

from experiments import placements
from experiments.config import ConfigError
from experiments.exact.check import norm
from experiments.model import Block, Shape, Transformer
from experiments.norms import norm_maker
from experiments.placements.base import Site


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_norm_kind_and_eps_reach_every_norm(kind: str) -> None:
    cfg = config("norm=pre", f"norm.kind={kind}", "norm.eps=0.5", "model.depth=3")
    model = Transformer(cfg.model, cfg.norm, Shape(13, 9))
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm)]
    assert len(norms) == 3 * 2 + 1
    assert {type(m) for m in norms} == {{"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}[kind]}
    assert {m.eps for m in norms} == {0.5}


def test_unknown_placement_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=r"norm.placement=sideways.*post.*pre"):
        placements.find("sideways")


def test_tuple_that_no_one_merges_is_an_error() -> None:
    join = placements.find("pre")(norm_maker(norm(), True), Site(4, 0, 1, "attn", 0, 2))
    with pytest.raises(TypeError, match="PreLN keeps 2 streams"):
        join.leave((torch.zeros(1), torch.zeros(1)), nn.Identity())


def test_block_forward_has_no_branching() -> None:
    assert not {"if", "elif"} & set(inspect.getsource(Block.forward).split())
