"""Laws: a class computes the equation of its file in conf/norm."""

from functools import partial

import torch
from built import DEPTHS, WIDTH, built, gradients, joins, move, normal, options, tokens
from law import same
from reference import Reference, Streams, stream_of, streams_of
from torch import Tensor, nn
from torch.func import functional_call

from experiments.placements.base import Placement, Site

AXES = (
    {"kind": "rmsnorm", "qk": "rmsnorm", "qk_axis": "head", "ffn": "swiglu", "positions": "rope"},
    {"kind": "layernorm", "qk": "layernorm", "qk_axis": "projection", "bias": False, "ffn": "silu"},
    {"kind": "dyt", "qk": "l2", "qk_axis": "head", "positions": "none"},
    {"kind": "none", "qk": "rmsnorm", "qk_axis": "projection", "ffn": "relu"},
)
SPREAD = 0.5  # of the numbers that stand for a stream, so that a norm changes them


def compare(reference: Reference, join: Placement, site: Site, ours: Streams, theirs: Streams) -> None:
    texts = {"x": reference.equation.x, **reference.equation.streams}
    for name in theirs:
        what = (
            f"layer {site.layer} of {site.depth}, {site.branch}: {type(join).__name__} does not compute {name}: {texts[name]}"
        )
        same(ours[name], theirs[name], what)


@torch.no_grad()
def test_joins(variant: str) -> None:
    """Every join computes the formula of its file, and so do the way in and the way out."""
    for depth in (3, 8):
        reference = built(variant, perturbed=True, depth=depth)
        model, equation, sites = reference.model, reference.equation, list(reference.sites())
        site, join, _ = sites[0]
        x_BTD = reference.embedded(tokens())
        streams = reference.enter(x_BTD, site, join)
        ours = streams_of(equation, join.enter(x_BTD))
        for name, value in streams.items():
            same(ours[name], value, f"enter does not compute {name}: {equation.enter.get(name, 'x')}")
        for site, join, branch in sites:
            after = reference.after(streams, site, join, partial(reference.branch, branch))
            same(branch(streams["x"]), reference.branch(branch, streams["x"]), f"layer {site.layer}: the {site.branch} branch")
            compare(reference, join, site, streams_of(equation, join(stream_of(streams), branch)), after)
            streams = after
        left = sites[-1][1].leave(stream_of(streams), model.final_norm)
        same(left, reference.out(streams, *sites[-1][:2]), f"leave does not compute out: {equation.out}")


def agree(reference: Reference, setting: str = "") -> None:
    """The logits of the whole model and the gradient of every parameter."""
    model, parameters = reference.model, dict(reference.model.named_parameters())
    ours, theirs = model(tokens()), reference.logits(tokens())
    same(ours, theirs, f"logits{setting} of {reference.options.depth} blocks")
    with torch.no_grad():
        evaluated = model.eval()(tokens())
    model.train()
    same(evaluated, theirs, f"logits{setting} of {reference.options.depth} blocks in evaluation mode")
    expected = gradients(theirs, parameters)
    for name, value in gradients(ours, parameters).items():
        zero = torch.zeros_like(parameters[name])
        wanted = expected[name]
        same(zero if value is None else value, zero if wanted is None else wanted, f"gradient{setting} of {name}")


def test_gradients(variant: str) -> None:
    """Logits, in training and in evaluation, and the gradient of every parameter are those of the formula."""
    for depth in (3, 8):
        agree(built(variant, perturbed=True, depth=depth))


def test_axes(variant: str) -> None:
    """They are so under every kind of norm, of QK-norm over either axis, and of feed-forward."""
    for axes in AXES:
        names = ", ".join(f"{key}={value}" for key, value in axes.items())
        agree(built(variant, perturbed=True, depth=4, **axes), f" with {names}")


def mixed(x_BTD: Tensor) -> Tensor:
    """A branch that is quick to evaluate."""
    return torch.tanh(x_BTD.flip(-1) + 0.5 * x_BTD)


@torch.no_grad()
def test_constants(variant: str) -> None:
    """Every join computes the formula, with its constants, at depths 6, 24 and 96, beside cross-attention too."""
    for depth, kinds in ((6, ["attn", "cross", "ffn"]), *((depth, ["attn", "ffn"]) for depth in DEPTHS)):
        model_options, norm = options(variant, depth=depth, width=4)
        reference = Reference(nn.Module(), model_options, norm)
        streams = {name: SPREAD * normal(1, 3, 4, seed=i) for i, name in enumerate(("x", *norm.equation.streams))}
        for site, join in joins(variant, depth, branches=kinds):
            move(join)
            ours = streams_of(norm.equation, join(stream_of(streams), mixed))
            compare(reference, join, site, ours, reference.after(streams, site, join, mixed))


def test_finite_differences(variant: str) -> None:
    """Gradients of a block, with respect to its input and its parameters, are its finite differences."""
    reference = built(variant, perturbed=True, depth=4)
    streams = [normal(1, 3, WIDTH, seed=i).requires_grad_() for i in range(1 + len(reference.equation.streams))]
    for layer in (0, 3):
        block = reference.model.blocks[layer]
        names, values = zip(*block.named_parameters(), strict=True)

        def output(*tensors: Tensor, block: nn.Module = block, names: tuple[str, ...] = names) -> object:
            stream = tensors[: len(streams)] if len(streams) > 1 else tensors[0]
            return functional_call(block, dict(zip(names, tensors[len(streams) :], strict=True)), (stream,))

        inputs = (*streams, *(value.detach().clone().requires_grad_() for value in values))
        torch.autograd.gradcheck(output, inputs, atol=1e-6, fast_mode=True)
