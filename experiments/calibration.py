"""The profiling pass of placements whose constants depend on what branches return at initialisation."""

import torch
from torch import Tensor

from experiments import walk
from experiments.gauge import exact_dtype
from experiments.model import Transformer
from experiments.placements.base import Placement


@torch.no_grad()
def calibrate(model: Transformer, tokens_BT: Tensor) -> None:
    """Tell every join the output variance of every branch, if the model's placement asks for it. Draws no random number.

    The variance is over all entries of a branch's output on these tokens, in evaluation mode. Costs one forward pass, and
    nothing for other placements.
    """
    sites = list(model.sites())
    if all(type(join).calibrate is Placement.calibrate for _, join, _ in sites):
        return
    variance_K = []
    with walk.apart(model):
        stream = walk.enter(model, model.embed(tokens_BT))
        for _, join, branch in sites:
            stream, y_BTD = walk.joined(join, branch, stream)
            variance_K.append(float(y_BTD.to(exact_dtype(y_BTD.device)).var(correction=0)))
    for _, join, _ in sites:
        join.calibrate(variance_K)
