"""Laws of a variant however it is run: causal, checkpointed, compiled, deep, probed."""

import shutil
import warnings
from collections.abc import Callable

import numpy as np
import probed
import pytest
import torch
import torch.nn.functional as F
from built import CONTEXT, VOCAB, built, gradients, tokens
from law import require, same
from omegaconf import OmegaConf
from reference import Reference
from torch import Tensor, nn

from experiments.loop import Loop
from experiments.model import Transformer

NEEDS_COMPILER = pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="no C++ compiler")
COMPILER_WARNS = pytest.mark.filterwarnings("default")  # torch.compile itself uses what torch deprecates
BLOCKS = 4
Note = Callable[[str], None]


@torch.no_grad()
def test_causal(variant: str) -> None:
    """A token's logits do not depend on later tokens."""
    model, one = built(variant, perturbed=True).model, tokens()
    for first in range(1, CONTEXT):
        two = one.clone()
        two[:, first:] = (two[:, first:] + 1) % VOCAB
        a, b = model(one), model(two)
        same(a[:, :first], b[:, :first], f"tokens from {first} on change the logits before", 1e-12)
        require(not torch.allclose(a[:, first], b[:, first]), f"token {first} does not change its own logits")


def results(model: Transformer) -> dict[str, Tensor]:
    """Logits, and the gradients of a combination of them, zeros where there are none."""
    parameters, logits = dict(model.named_parameters()), model(tokens())
    found = gradients(logits, parameters)
    zeros = {name: torch.zeros_like(parameters[name]) if g is None else g for name, g in found.items()}
    return {"logits": logits} | {f"gradient of {name}": g for name, g in zeros.items()}


def test_checkpointing(variant: str) -> None:
    """Recomputing blocks in the backward pass changes neither logits nor gradients."""
    plain, recomputed = (results(built(variant, checkpointing=checkpointing).model) for checkpointing in (False, True))
    for name, value in plain.items():
        same(recomputed[name], value, f"recomputed {name}", 1e-12)


@pytest.mark.slow
@NEEDS_COMPILER
@COMPILER_WARNS
def test_compiled(variant: str) -> None:
    """Compiled blocks give the same logits and gradients, without a break and without a graph for every layer."""
    plain = results(built(variant, depth=BLOCKS).model)
    compiled = built.__wrapped__(variant, depth=BLOCKS).model
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in compiled.blocks:
            block.compile()
        found = results(compiled)
    for name, value in plain.items():
        same(found[name], value, f"compiled {name}", 1e-8)
    counters = torch._dynamo.utils.counters
    require(not counters["graph_break"], f"graph break: {next(iter(counters['graph_break']), '')}")
    graphs = counters["stats"]["unique_graphs"]
    require(graphs < BLOCKS, f"{graphs} graphs for {BLOCKS} blocks; keep numbers that differ between layers in buffers")


@pytest.mark.slow
def test_96_blocks(variant: str, note: Note) -> None:
    """Logits and gradients of 96 blocks are finite, in fp32 and bf16, where the formula's are within a float's range."""
    for dtype in (torch.float32, torch.bfloat16):
        model = built.__wrapped__(variant, depth=96).model.to(dtype)
        for name, value in results(model).items():
            if not bool(value.isfinite().all()):
                largest = reach(built.__wrapped__(variant, depth=96))
                require(largest > torch.finfo(dtype).max, f"{name} is not finite in {str(dtype).removeprefix('torch.')}")
                note("not finite in fp32 and bf16: by its formula the stream outgrows a float")
                return


def reach(reference: Reference) -> float:
    """Largest square of the stream times largest gradient, in float64: what attention's backward pass multiplies."""
    with torch.no_grad():
        stream = max(float(x.abs().max()) for streams in reference.points(tokens()) for x in streams.values())
    return stream**2 * max(float(g.detach().abs().max()) for g in results(reference.model).values())


def expected(loop: Loop, reference: Reference) -> dict[str, list[float]]:
    """The probes' columns from autograd on the reference, for the batch of step 0."""
    train = loop.cfg.train
    tokens_BT = torch.from_numpy(loop.source.batch(loop.cfg.seed, 0, train.batch, train.context))
    points = reference.points(tokens_BT[:, :-1])
    loss = F.cross_entropy(reference.read(points[-1]).flatten(0, 1), tokens_BT[:, 1:].flatten())
    variances = [float(streams["x"].detach().var(-1, correction=0).mean()) for streams in points]
    columns = {"stream_var": variances, "grad_stream": [joint(loss, list(streams.values())) for streams in points]}
    for _, _, branch in reference.sites():
        for name, linear in branch.named_children():
            if isinstance(linear, nn.Linear):
                columns.setdefault(f"grad_{name}", []).append(joint(loss, [linear.weight]))
    return columns


def joint(loss: Tensor, tensors: list[Tensor]) -> float:
    """Frobenius norm of the loss's gradient with respect to several tensors, each counted once."""
    once = [tensor for tensor in {id(tensor): tensor for tensor in tensors}.values() if tensor.requires_grad]
    grads = torch.autograd.grad(loss, once, retain_graph=True, allow_unused=True)
    return float(torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads if g is not None])))


def test_probes(variant: str) -> None:
    """Stream variances, and gradients of the stream and of every matrix, are measured as autograd has them."""
    loop, panel = probed.make(f"norm={variant}", names=["stream", "gradient"])
    model_options, norm = (OmegaConf.to_object(part) for part in (loop.cfg.model, loop.cfg.norm))
    columns = expected(loop, Reference(loop.model, model_options, norm))
    panel.open()
    loop._step(0, panel)
    values = panel.read()
    for name, wanted in columns.items():
        right = np.allclose(values[name], wanted, rtol=1e-6, atol=1e-15)
        require(right, f"{name} by layer is {np.round(values[name], 9)}, autograd has {np.round(wanted, 9)}")
