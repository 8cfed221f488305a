"""Weight initialisation. Every matrix is drawn from a generator of its own, seeded from (seed, layer, name), so layer 3 of
a 12-block Pre-LN is layer 3 of a 96-block Post-LN. Biases are zero (but for ``torch``), gains one."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from experiments.branches import CrossAttention
from experiments.model import Transformer

GAINED = frozenset({"wv", "wo", "w1", "w2", "wg"})  # what Placement.branch_gain multiplies
QUERY_KEY = frozenset({"wq", "wk"})  # what init.qk_gain multiplies
RESIDUAL_OUT = frozenset({"wo", "w2"})  # what writes to the residual stream


@dataclass(frozen=True)
class Matrix:
    """A linear map with its address. ``layer`` is -1 for the readout; ``count`` is the number of residual branches."""

    linear: nn.Linear
    layer: int
    kind: str  # of its branch
    name: str
    gain: float
    count: int

    @property
    def address(self) -> str:
        """Unique in its layer. That of self-attention and the feed-forward is the bare name."""
        return f"cross.{self.name}" if self.kind == "cross" else self.name


Scheme = Callable[[Matrix, float, torch.Generator], Tensor]  # matrix, init.std, generator -> weight [out, in]


def xavier(matrix: Matrix, _std: float, rng: torch.Generator) -> Tensor:
    """N(0, 2 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 12; normal instead of uniform)."""
    fan_out, fan_in = matrix.linear.weight.shape
    return (2 / (fan_in + fan_out)) ** 0.5 * _normal(matrix, rng)


def gpt2(matrix: Matrix, std: float, rng: torch.Generator) -> Tensor:
    """N(0, std²) for every matrix (Radford et al. 2018, section 4.1, std 0.02)."""
    return std * _normal(matrix, rng)


def gpt2_scaled(matrix: Matrix, std: float, rng: torch.Generator) -> Tensor:
    """As gpt2, with the matrices that write to the stream times 1 / sqrt(residual branches), 1 / sqrt(2 L) for blocks of
    attention and feed-forward (Radford et al. 2019, section 2.3)."""
    factor = matrix.count**-0.5 if matrix.name in RESIDUAL_OUT else 1.0
    return factor * gpt2(matrix, std, rng)


def torch_default(matrix: Matrix, _std: float, rng: torch.Generator) -> Tensor:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)), for biases too: what torch.nn.Linear does (LeCun et al. 1998, section 4.6)."""
    bound = matrix.linear.in_features**-0.5
    if matrix.linear.bias is not None:
        matrix.linear.bias.copy_(torch.empty(matrix.linear.bias.shape).uniform_(-bound, bound, generator=rng))
    return torch.empty(matrix.linear.weight.shape).uniform_(-bound, bound, generator=rng)


SCHEMES: dict[str, Scheme] = {"xavier": xavier, "gpt2": gpt2, "gpt2_scaled": gpt2_scaled, "torch": torch_default}


@torch.no_grad()
def initialise(model: Transformer, init: DictConfig, seed: int) -> None:
    """Fill all weights of a model, in place. Draws are made on the CPU in float32, whatever the model's device."""
    scheme = SCHEMES[init.name]
    for matrix in matrices(model):
        if matrix.linear.bias is not None:
            matrix.linear.bias.zero_()
        rng = generator(seed, matrix.layer, matrix.address)
        matrix.linear.weight.copy_(_factor(matrix, init) * scheme(matrix, init.std or 0.0, rng))
    for _, _, branch in model.sites():
        if isinstance(branch, CrossAttention):  # all layers read one memory
            M, D = branch.memory_MD.shape
            branch.memory_MD.copy_(memory(M, D, branch.cosine, generator(seed, -1, "memory")))
    tables = {name: table for name in ("wte", "wpe") if (table := getattr(model, name)) is not None}
    std = len(tables) ** -0.5 if init.embedding_std is None else init.embedding_std
    for name, table in tables.items():
        table.weight.copy_(std * torch.empty(table.weight.shape).normal_(generator=generator(seed, -1, name)))


def matrices(model: Transformer) -> Iterator[Matrix]:
    """All linear maps of the blocks, and the readout unless it is tied to the embedding."""
    sites = list(model.sites())
    for layer, join, branch in sites:
        for name, linear in branch.named_children():
            if isinstance(linear, nn.Linear):
                yield Matrix(linear, layer, branch.kind, name, join.branch_gain if name in GAINED else 1.0, len(sites))
    if model.head.weight is not model.wte.weight:
        yield Matrix(model.head, -1, "head", "head", 1.0, len(sites))


def generator(seed: int, layer: int, name: str) -> torch.Generator:
    """A CPU generator that depends on nothing but its address."""
    digest = hashlib.blake2b(f"{seed}/{layer}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def memory(tokens: int, width: int, cosine: float, rng: torch.Generator) -> Tensor:
    """Gaussian tokens of unit variance [M, D], two of them with this expected cosine: a common part and one of their own."""
    common_D, own_MD = (torch.empty(size).normal_(generator=rng) for size in ((width,), (tokens, width)))
    return cosine**0.5 * common_D + (1 - cosine) ** 0.5 * own_MD


def _factor(matrix: Matrix, init: DictConfig) -> float:
    if matrix.name in init.zero:
        return 0.0
    return matrix.gain * (init.qk_gain if matrix.name in QUERY_KEY else 1.0)


def _normal(matrix: Matrix, rng: torch.Generator) -> Tensor:
    return torch.empty(matrix.linear.weight.shape).normal_(generator=rng)
