"""Laws of a variant at initialisation."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate

import torch
from built import CONTEXT, DEPTHS, WIDTH, built, gradients, joins, norm_of, normal, options, tokens
from compose import config
from law import LawError, require, same
from omegaconf import OmegaConf
from reference import Reference, Streams, constants, stream_of, streams_of
from torch import nn

from experiments.formula import evaluate
from experiments.init import generator, initialise
from experiments.model import Shape, Transformer

Note = Callable[[str], None]
GAINED = {"wv", "wo", "w1", "w2", "wg"}


def test_start_values(variant: str) -> None:
    """Gains start at 1, biases at 0, and learnt parameters of a join where its formula says, at any depth."""
    norm = norm_of(variant)
    learnt = {"weight": 1.0, "bias": 0.0, "alpha": norm.dyt_alpha}
    stale = norm.equation.start.keys() - {name for _, join in joins(variant, 6) for name, _ in join.named_parameters()}
    require(not stale, f"start: {', '.join(sorted(stale))} is no parameter of the class")
    for depth in (*range(1, 33), *DEPTHS):
        for site, join in joins(variant, depth) if depth in DEPTHS else [next(joins(variant, depth))]:
            names = constants(norm.equation, site) | {"V": 0.0}
            for name, value in join.named_parameters():
                if "." not in name and name not in norm.equation.start:
                    raise LawError(f"{name} is learnt; say where it starts, as  start: {{{name}: 1}}")
                wanted = learnt[name.rpartition(".")[2]] if "." in name else evaluate(norm.equation.start[name], names)
                what = f"layer {site.layer} of {depth}, {site.branch}: {name} does not start at {wanted:.6g}"
                same(value.detach(), torch.full_like(value, wanted), what, 1e-6)


def test_calibration(variant: str) -> None:
    """The profiling pass sets learnt parameters as the formula says, V being the variance of all branches before."""
    norm, depth = norm_of(variant), 6
    variances = [0.1 + 0.07 * k for k in range(2 * depth)]
    before = [0.0, *accumulate(variances)]
    for site, join in joins(variant, depth):
        join.calibrate(variances)
        names = constants(norm.equation, site) | {"V": before[site.index]}
        for name, value in join.named_parameters(recurse=False):
            text = norm.equation.start.get(name, "1")
            what = f"layer {site.layer} of {depth}, {site.branch}: after calibrate {name} is not {text}"
            same(value.detach(), torch.full_like(value, evaluate(text, names)), what, 1e-6)


def test_initial_matrices(variant: str) -> None:
    """W_V, W_O, W_1, W_2, W_G start at their scheme's std times the gain of the formula, W_Q and W_K without it."""
    norm = norm_of(variant)
    for depth in DEPTHS:
        for site, join in joins(variant, depth):
            wanted = evaluate(norm.equation.gain, constants(norm.equation, site))
            what = f"layer {site.layer} of {depth}, {site.branch}: branch_gain is {join.branch_gain:.6g}"
            require(abs(join.branch_gain - wanted) < 1e-9 * wanted, f"{what}, gain: {norm.equation.gain} is {wanted:.6g}")
    for init, depth in (("xavier", 24), ("gpt2_scaled", 6), ("gpt2_scaled", 24)):
        drawn(variant, init, depth)


def drawn(variant: str, init: str, depth: int) -> None:
    """Every matrix of a model against the numbers that its generator draws."""
    model_options, norm = options(variant, depth=depth, width=4, n_head=1, ffn="swiglu")
    model = Transformer(OmegaConf.structured(model_options), OmegaConf.structured(norm), Shape(5, 3))
    initialise(model, config(f"init={init}").init, seed=0)
    for site, _, branch in Reference(model, model_options, norm).sites():
        gain = evaluate(norm.equation.gain, constants(norm.equation, site))
        for name, linear in branch.named_children():
            if isinstance(linear, nn.Linear):
                normal_ = torch.empty(linear.weight.shape).normal_(generator=generator(0, site.layer, name))
                std = (2 / sum(linear.weight.shape)) ** 0.5 if init == "xavier" else 0.02
                scaled = (2 * depth) ** -0.5 if init == "gpt2_scaled" and name in {"wo", "w2"} else 1.0
                wanted = std * scaled * (gain if name in GAINED else 1.0)
                what = f"init={init}, layer {site.layer} of {depth}: {name} has not std {wanted:.4g}"
                same(linear.weight.detach() / wanted, normal_, what, 1e-5)


def beginnings(reference: Reference) -> Streams:
    """Unlike streams, as the input of a block."""
    return {name: normal(2, CONTEXT, WIDTH, seed=i) for i, name in enumerate(("x", *reference.equation.streams))}


@torch.no_grad()
def test_identity(variant: str) -> None:
    """No block is the identity at initialisation unless its formula is one there."""
    reference = built(variant, depth=4)
    sites = list(reference.sites())
    for layer, block in enumerate(reference.model.blocks):
        before = after = beginnings(reference)
        for site, join, branch in sites[2 * layer : 2 * layer + 2]:
            after = reference.after(after, site, join, partial(reference.branch, branch))
        returned = streams_of(reference.equation, block(stream_of(before)))
        is_identity, should = (all(torch.equal(x[name], before[name]) for name in before) for x in (returned, after))
        require(is_identity <= should, f"block {layer} of 4 returns its input; x: {reference.equation.x} does not")


@torch.no_grad()
def test_zeroed_branch(variant: str, note: Note) -> None:
    """A branch that returns 0 leaves a normalised stream alone, as far as the formula does (LayerNorm, RMSNorm)."""
    for kind in ("layernorm", "rmsnorm"):
        model_options, norm = options(variant, depth=6, width=4, kind=kind, eps=1e-12)
        reference, x = Reference(nn.Module(), model_options, norm), normal(1, 5, 4)
        x = x - x.mean(-1, keepdim=True) if kind == "layernorm" else x
        x = x / (x * x).mean(-1, keepdim=True).sqrt()
        sites = list(joins(variant, 6, kind=kind, eps=1e-12))
        theirs, ours = reference.enter(x, *sites[0]), sites[0][1].enter(x)
        for site, join in sites:
            theirs, ours = reference.after(theirs, site, join, torch.zeros_like), join(ours, torch.zeros_like)
            if not torch.allclose(theirs["x"], x, atol=1e-6):
                note(f"not by its formula with {kind}: {norm.equation.x}")
                break
            what = f"layer {site.layer}, {site.branch}, {kind}: a zeroed branch changes the stream"
            same(streams_of(norm.equation, ours)["x"], x, what, 1e-6)


def test_gradients_reach(variant: str, note: Note) -> None:
    """Every parameter gets a finite gradient at initialisation, exactly zero only where the formula's is."""
    reference = built(variant)
    parameters = dict(reference.model.named_parameters())
    ours, theirs = (gradients(f(tokens()), parameters) for f in (reference.model, reference.logits))
    sizes = [{name: 0.0 if g is None else float(g.abs().max()) for name, g in found.items()} for found in (ours, theirs)]
    for name, size in sizes[0].items():
        require(ours[name] is not None, f"no gradient reaches {name}")
        require(size < float("inf"), f"the gradient of {name} is not finite")
    smallest = 1e-13 * max(sizes[1].values())
    zero, wanted = ({name for name, size in found.items() if size < smallest} for found in sizes)
    for name in sorted(zero ^ wanted):
        raise LawError(f"the gradient of {name} is {sizes[0][name]:.2g}, the formula's {sizes[1][name]:.2g}")
    for line in reasons(reference, zero):
        note(line)


def reasons(reference: Reference, zero: set[str]) -> Iterator[str]:
    """Why gradients are zero, a line for parameters of a kind."""
    if keys := {name for name in zero if name.endswith("wk.bias")}:
        yield f"zero gradient of {kinds(keys)}: a key bias shifts all logits of a query alike"
    if rest := zero - keys:
        off = {name for _, join, _ in reference.sites() for name, p in join.named_parameters(recurse=False) if not p.any()}
        reason = f"{', '.join(sorted(off))} starts at 0" if off else "by the formula"
        yield f"zero gradient of {kinds(rest)}: {reason}"


def kinds(names: set[str]) -> str:
    """Names without their layers; the parameters of a branch as one where there are many."""
    short = {re.sub(r"^blocks\.\d+\.", "blocks.*.", name) for name in names}
    branches = {name for name in short if ".branches." in name}
    if len(branches) > 4:
        short = short - branches | {f"{name.rpartition('branches.')[0]}branches.*" for name in branches}
    return ", ".join(sorted(short))
