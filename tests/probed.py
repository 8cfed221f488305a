"""A small loop with its panel of probes, for tests."""

import numpy as np
import torch
from compose import config

from experiments.data import make_source
from experiments.loop import Loop
from experiments.optim import make_optimizer
from experiments.probes.base import Panel
from experiments.run import build, make_panel

SMALL = (
    "model.depth=3",
    "model.width=16",
    "model.n_head=2",
    "train.context=12",
    "data=random",
    "data.vocab=29",
    "init=xavier",
)


def make(*overrides: str, dtype: torch.dtype = torch.float64, names: list[str] | None = None) -> tuple[Loop, Panel]:
    cfg = config(*SMALL, *overrides)
    source = make_source(cfg)
    model = build(cfg, source.vocab, torch.device("cpu")).to(dtype)
    panel = make_panel(cfg.probe.names if names is None else names, model, source, cfg.train)
    return Loop(cfg, model, make_optimizer(cfg.optim, model), source), panel


def measured(*overrides: str, step: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Loop, dict[str, np.ndarray], dict]:
    loop, panel = make(*overrides, dtype=dtype)
    panel.open()
    row = loop._step(step, panel)
    return loop, panel.read(), row
