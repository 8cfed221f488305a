"""A language model that is not ours beside ours: where each of our weights stands in it, and how far the two differ."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from compose import config
from torch import Tensor, nn
from torch.func import functional_call

from experiments.model import Shape, Transformer

DEPTH, WIDTH, HEADS, D_FF, VOCAB, CONTEXT = 3, 16, 2, 24, 29, 11
EPS = 0.01  # of norms, large: where it stands in the formula must show
FLOOR = 1e-3  # a gradient below it counts as rounding, as that of a bias of keys, which shifts all logits of a query alike
OURS = (f"model.depth={DEPTH}", f"model.width={WIDTH}", f"model.n_head={HEADS}", f"model.d_ff={D_FF}", f"norm.eps={EPS}")

# Address of one of our modules or parameters -> the parameter of theirs that holds it, and how to read ours from that.
# {p} is weight or bias; {l} the block; {a} and {f} its attention and feed-forward among all branches.
View = Callable[[Tensor], Tensor]
Table = Mapping[str, str | tuple[str, View]]
Run = Callable[[nn.Module, Tensor], tuple[Tensor, list[Tensor]]]  # tokens -> logits and the stream's points 0 to L


@dataclass(frozen=True)
class Pair:
    """A model of theirs, its weights moved away from 0 and 1, and the overrides that make ours the same."""

    theirs: nn.Module
    run: Run
    table: Table
    overrides: tuple[str, ...]
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        perturb(self.theirs.double().eval())

    def ours(self, *overrides: str) -> Transformer:
        cfg = config(*OURS, *self.overrides, *overrides)
        return Transformer(cfg.model, cfg.norm, Shape(VOCAB, CONTEXT)).double().eval()


def read(table: Table, theirs: nn.Module, ours: nn.Module) -> dict[str, Tensor]:
    """Each parameter of ours, by name, as it stands in theirs."""
    weights, found = dict(theirs.named_parameters()), {}
    for name, _ in ours.named_parameters():
        layer, address, leaf = re.fullmatch(r"(?:blocks\.(\d+)\.)?(.+)\.(\w+)", name).groups()
        entry = (
            table.get(f"{address}.{leaf}") or table.get(address) or table[address.removesuffix(".1")]
        )  # a norm after its gauge
        path, view = (entry, nn.Identity()) if isinstance(entry, str) else entry
        block = int(layer or 0)
        found[name] = view(weights[path.format(l=block, a=2 * block, f=2 * block + 1, p=leaf)])
    return found


@torch.no_grad()
def perturb(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))


def tokens(seed: int = 0) -> Tensor:
    return torch.randint(0, VOCAB, (2, CONTEXT), generator=torch.Generator().manual_seed(seed))


def difference(pair: Pair, *overrides: str) -> dict[str, float]:
    """Largest difference over the largest entry of theirs: of the logits, of the stream's points, and of the loss's gradient
    with respect to those points and to every parameter of theirs, through our model's reading of it."""
    ours, weights = pair.ours(*overrides), dict(pair.theirs.named_parameters())
    runs, results = (run(ours, read(pair.table, pair.theirs, ours)), pair.run(pair.theirs, tokens())), []
    for logits_BTV, points in runs:
        loss = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), tokens()[:, 1:].flatten())
        gradients = torch.autograd.grad(loss, [*points, *weights.values()], allow_unused=True)
        results.append([logits_BTV, *points, *gradients])
    stream = [f"stream at point {point}" for point in range(DEPTH + 1)]
    names = ["logits", *stream, *(f"gradient of {name}" for name in [*stream, *weights])]
    return {name: relative(mine, other) for name, mine, other in zip(names, *results, strict=True)}


def relative(ours: Tensor | None, theirs: Tensor | None) -> float:
    """Largest difference over the largest entry of theirs, or over FLOOR; inf where only one has a gradient, and for NaN."""
    if ours is None or theirs is None:
        return 0.0 if ours is theirs else torch.inf
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=FLOOR)).nan_to_num(nan=torch.inf).item()


def worst(differences: dict[str, float]) -> tuple[float, str]:
    return max((value, name) for name, value in differences.items())


def run(ours: Transformer, weights: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Logits and the stream's points, with these weights for its own."""
    points: list[Tensor] = []
    ours.watchers = (lambda _point, stream: points.append(stream),)
    return functional_call(ours, weights, (tokens(),)), points
