"""Laws of what a variant consists of: parameters, norms, what decays, its file."""

import re

import torch
from built import CONTEXT, HEADS, VOCAB, WIDTH, built, gradients, tokens
from compose import config
from law import LawError, require
from omegaconf import OmegaConf
from reference import PARAMETERS, Reference
from torch import Tensor, nn

from experiments.config import CONF, NormConfig
from experiments.formula import names_in
from experiments.optim import parameter_groups

MATRIX = re.compile(r"blocks\.\d+\.branches\.\d+\.w[a-z0-9]\.weight|head\.weight")


def norm_size(kind: str, width: int) -> int:
    return sum(1 if name == "alpha" else width for name in PARAMETERS[kind])


def joins_size(reference: Reference) -> int:
    """Entries of the norms that the formulas call, and of the parameters that they name, at every site."""
    total = 0
    called: set[str] = set()

    class Counting(Reference):
        def normed(self, module: nn.Module, name: str, x: Tensor) -> Tensor:
            called.add(name.partition(" ")[0])
            return super().normed(module, name, x)

    counting, equation = Counting(reference.model, reference.options, reference.norm), reference.equation
    sites = list(reference.sites())
    x_BTD = reference.embedded(tokens())
    streams = counting.enter(x_BTD, *sites[0][:2])
    for site, join, _ in sites:
        texts = [equation.x, *equation.streams.values()]
        streams = counting.after(streams, site, join, torch.sin)
        if site.index == 0:
            texts += equation.enter.values()
        if site.index == site.count - 1:
            texts.append(equation.out)
            counting.out(streams, site, join)
        total += norm_size(reference.norm.kind, WIDTH) * len(called - {"final_norm"})
        named = frozenset().union(*map(names_in, texts))
        total += sum(p.numel() for name, p in join.named_parameters(recurse=False) if name in named)
        called.clear()
    return total


def branches_size(norm: NormConfig, depth: int) -> int:
    """Entries of attention and a feed-forward of 4 D with biases, QK-norms and the norms inside, of all blocks."""
    D, F, K = WIDTH, 4 * WIDTH, WIDTH // HEADS
    qk_gain = {"head": K, "projection": D}[norm.qk_axis]
    qk = {"none": 0, "l2": 1, "layernorm": 2 * qk_gain, "rmsnorm": 2 * qk_gain}[norm.qk]
    values = norm_size(norm.kind, K) if "values" in norm.equation.inside else 0
    outputs = norm_size(norm.kind, D) + norm_size(norm.kind, F) if "output" in norm.equation.inside else 0
    return depth * (4 * D * D + 4 * D + 2 * D * F + F + D + qk + values + outputs)


def test_parameter_count(variant: str) -> None:
    """The model has as many parameters as its formulas name, with those of branches, embeddings, readout and final norm."""
    reference = built(variant)
    parameters = dict(reference.model.named_parameters())
    unused = [name for name, gradient in gradients(reference.logits(tokens()), parameters).items() if gradient is None]
    require(not unused, f"{', '.join(unused[:3])} is in the class and not in the formula; remove it or name it")
    final = norm_size(reference.norm.kind, WIDTH) if "final" in names_in(reference.equation.out) else 0
    outside = 2 * VOCAB * WIDTH + CONTEXT * WIDTH
    wanted = outside + final + joins_size(reference) + branches_size(reference.norm, reference.options.depth)
    count = sum(p.numel() for p in parameters.values())
    require(count == wanted, f"the model has {count} parameters, its formulas {wanted}")


def test_final_norm(variant: str) -> None:
    """There is a norm before the readout, beside those of the joins, exactly if the formula of the output has final(...)."""
    reference = built(variant, kind="layernorm")
    there, named = any(True for _ in reference.model.final_norm.parameters()), "final" in names_in(reference.equation.out)
    if there != named:
        has, remedy = ("a", "final_norm = False") if there else ("no", "final_norm = True")
        file = f"experiments/placements/{reference.norm.placement}.py"
        raise LawError(f"out: {reference.equation.out}, but the model has {has} final norm; set {remedy} in {file}")


def test_decay(variant: str) -> None:
    """Matrices of branches and the readout decay; gains, biases, learnt scales and embeddings do not; each is in one group."""
    for kind in (built(variant).norm.kind, "dyt"):
        model = built(variant, kind=kind, qk="l2").model
        names = {id(p): name for name, p in model.named_parameters()}
        optim = OmegaConf.merge(config().optim, {"weight_decay": 0.1})
        groups = [(names[id(p)], group["weight_decay"]) for group in parameter_groups(model, optim) for p in group["params"]]
        require(
            len(groups) == len(dict(groups)) and set(dict(groups)) == set(names.values()), "a parameter is not in one group"
        )
        for name, decay in groups:
            require((decay > 0) == bool(MATRIX.fullmatch(name)), f"{name} {'decays' if decay else 'does not decay'}")


def test_layers_are_their_own(variant: str) -> None:
    """Layers share no module and no parameter."""
    model = built(variant, depth=4).model
    for kind in (model.named_modules, model.named_parameters):
        seen: dict[int, str] = {}
        for name, part in kind(remove_duplicate=False):
            require(id(part) not in seen, f"{name} is the same object as {seen.get(id(part))}; make one for each")
            seen[id(part)] = name


def test_file(variant: str) -> None:
    """Its file says what it is, and has a label, and a colour with a line style, that no other variant has."""
    files = {path.stem: path for path in sorted((CONF / "norm").glob("*.yaml"))}
    first = files[variant].read_text().splitlines()[0]
    require(first.startswith("# ") and len(first) > 20, f"the first line is no comment with formula and source: {first}")
    norms = {name: OmegaConf.load(path) for name, path in files.items()}
    mine = norms.pop(variant)
    for key in ("name", "placement", "label", "color", "linestyle", "equation"):
        require(key in mine, f"{key} is missing")
    require(mine.name == variant, f"name: {mine.name}, but the file is {variant}.yaml")
    for name, other in norms.items():
        require(mine.label != other.get("label"), f"label: {mine.label} is that of {name}")
        line, others = ((norm.get("color", "").upper(), norm.get("linestyle")) for norm in (mine, other))
        require(line != others, f"colour {mine.color} with line style {mine.linestyle} is that of {name}")
