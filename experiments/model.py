"""The decoder-only transformer. Block.forward has no ``if``: the placement receives the branch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from experiments import placements
from experiments.gauge import Gauge, attention_statistics, mean_square
from experiments.norms import norm_maker
from experiments.placements.base import Kind, Placement, Site, Stream

Watcher = Callable[[int, Stream], None]  # called with (point, stream) at each of the N = L + 1 points of the stream

# Hendrycks and Gimpel 2016 (arXiv:1606.08415): exact GELU and its tanh approximation; SiLU: the same, section 2.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
FEED_FORWARDS = (*ACTIVATIONS, "swiglu")


class Rotary(nn.Module):
    """Rotary position embedding, half-split: feature i turns with i + K/2 (Su et al. 2021, arXiv:2104.09864, eq. 34).

    The angle of pair i at position t is t / base^(2i/K).
    """

    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(self, context: int, head_width: int, base: float) -> None:
        super().__init__()
        frequency = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
        angle_TK = torch.outer(torch.arange(context, dtype=torch.float64), frequency).repeat(1, 2)
        self.register_buffer("cos_TK", angle_TK.cos().float(), persistent=False)
        self.register_buffer("sin_TK", angle_TK.sin().float(), persistent=False)

    def forward(self, x_BHTK: Tensor) -> Tensor:
        T = x_BHTK.shape[-2]
        low, high = x_BHTK.chunk(2, -1)
        turned = x_BHTK * self.cos_TK[:T] + torch.cat([-high, low], -1) * self.sin_TK[:T]
        return turned.to(x_BHTK.dtype)


class Attention(nn.Module):
    """Causal multi-head self-attention (Vaswani et al. 2017, section 3.2), x_BTD -> y_BTD."""

    kind: ClassVar[Kind] = "attn"

    def __init__(self, model: DictConfig, context: int) -> None:
        super().__init__()
        D, self.n_head, self.dropout = model.width, model.n_head, model.dropout
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(D, D, bias=model.bias) for _ in range(4))
        rope = model.positions == "rope"
        self.rotary = Rotary(context, D // self.n_head, model.rope_base) if rope else nn.Identity()
        self.norm_v: nn.Module = nn.Identity()  # sockets that a placement may fill
        self.norm_out: nn.Module = nn.Identity()
        self.drop = nn.Dropout(model.dropout)
        self.scores = Gauge(attention_statistics, size=2)
        self.output = Gauge(mean_square)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q_BHTK = self.rotary(self._heads(self.wq(x_BTD)))
        k_BHTK = self.rotary(self._heads(self.wk(x_BTD)))
        v_BHTK = self.norm_v(self._heads(self.wv(x_BTD)))
        dropout = self.dropout if self.training else 0.0
        y_BHTK = F.scaled_dot_product_attention(self.scores(q_BHTK, k_BHTK), k_BHTK, v_BHTK, dropout_p=dropout, is_causal=True)
        y_BTD = y_BHTK.transpose(1, 2).flatten(2)
        return self.output(self.drop(self.wo(self.norm_out(y_BTD))))

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (self.n_head, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """w2(act(w1 x)), or SwiGLU w2(SiLU(wg x) * w1 x) (Shazeer 2020, arXiv:2002.05202, eq. 6), x_BTD -> y_BTD."""

    kind: ClassVar[Kind] = "ffn"

    def __init__(self, model: DictConfig) -> None:
        super().__init__()
        D, width = model.width, model.d_ff or feed_forward_width(model.width, model.ffn)
        self.wg = nn.Linear(D, width, bias=model.bias) if model.ffn == "swiglu" else None
        self.w1 = nn.Linear(D, width, bias=model.bias)
        self.w2 = nn.Linear(width, D, bias=model.bias)
        self.act = ACTIVATIONS.get(model.ffn, F.silu)
        self.norm_out: nn.Module = nn.Identity()  # socket that a placement may fill
        self.drop = nn.Dropout(model.dropout)
        self.output = Gauge(mean_square)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTF = self.act(self.w1(x_BTD)) if self.wg is None else self.act(self.wg(x_BTD)) * self.w1(x_BTD)
        return self.output(self.drop(self.w2(self.norm_out(h_BTF))))


BranchModule = Attention | FeedForward


def feed_forward_width(width: int, ffn: str) -> int:
    """4 D, or for SwiGLU 8 D / 3 rounded down to a multiple of 64 (as it is where that would be 0)."""
    if ffn != "swiglu":
        return 4 * width
    exact = 8 * width // 3
    return exact // 64 * 64 or exact


class Block(nn.Module):
    """One layer: its branches, each joined to the stream by a placement."""

    def __init__(self, joins: Sequence[Placement], branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.joins = nn.ModuleList(joins)
        self.branches = nn.ModuleList(branches)

    def forward(self, stream: Stream) -> Stream:
        for join, branch in zip(self.joins, self.branches, strict=True):
            stream = join(stream, branch)
        return stream


@dataclass(frozen=True)
class Shape:
    """What the data decides of a model: number of token ids, longest sequence."""

    vocab: int
    context: int


class Transformer(nn.Module):
    """Decoder-only language model: tokens_BT -> logits_BTV.

    ``watchers`` are called with (point, stream) at point 0 (after the embedding, before the placement's ``enter``) to L
    (after the last block, before any final norm). Weights are torch's defaults until experiments.init fills them.
    """

    def __init__(self, model: DictConfig, norm: DictConfig, shape: Shape) -> None:
        super().__init__()
        self.depth, self.checkpointing = model.depth, model.checkpointing
        self.watchers: tuple[Watcher, ...] = ()
        self.wte = nn.Embedding(shape.vocab, model.width)
        self.wpe = nn.Embedding(shape.context, model.width) if model.positions == "learned" else None
        self.drop = nn.Dropout(model.dropout)
        placement, make_norm = placements.find(norm.placement), norm_maker(norm.kind, norm.eps, model.bias)
        self.blocks = nn.ModuleList()
        for layer in range(model.depth):
            branches: list[BranchModule] = [Attention(model, shape.context), FeedForward(model)]
            joins = [
                placement(make_norm, Site(model.width, layer, model.depth, branch.kind, 2 * layer + k, 2 * model.depth))
                for k, branch in enumerate(branches)
            ]
            for join, branch in zip(joins, branches, strict=True):
                join.fit(branch)
            self.blocks.append(Block(joins, branches))
        wants_norm = placement.final_norm if model.final_norm is None else model.final_norm
        self.final_norm = make_norm(model.width) if wants_norm else nn.Identity()
        self.head = nn.Linear(model.width, shape.vocab, bias=False)
        if model.tied:
            self.head.weight = self.wte.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.wte(tokens_BT)
        if self.wpe is not None:
            x_BTD = x_BTD + self.wpe.weight[: tokens_BT.shape[1]]
        x_BTD = self.drop(x_BTD)
        self._watch(0, x_BTD)
        joins = [join for _, join, _ in self.sites()]
        stream = joins[0].enter(x_BTD)
        for point, block in enumerate(self.blocks, start=1):
            recompute = self.checkpointing and torch.is_grad_enabled()
            stream = checkpoint(block, stream, use_reentrant=False) if recompute else block(stream)
            self._watch(point, stream)
        return self.head(joins[-1].leave(stream, self.final_norm))

    def sites(self) -> Iterator[tuple[int, Placement, BranchModule]]:
        """(layer, join, branch) of every residual branch, in the order of the forward pass."""
        for layer, block in enumerate(cast("list[Block]", self.blocks)):
            for join, branch in zip(block.joins, block.branches, strict=True):
                yield layer, cast("Placement", join), cast("BranchModule", branch)

    def _watch(self, point: int, stream: Stream) -> None:
        for watch in self.watchers:
            watch(point, stream)


def count_parameters(model: nn.Module) -> int:
    """Number of learnable entries; a tied matrix counts once."""
    return sum(p.numel() for p in model.parameters())


def flops_per_token(model: Transformer, context: int) -> float:
    """Floating-point operations of one forward and backward pass per token: 6 per weight of a matrix product, and
    the attention scores and sums, 12 T D per block (Chowdhery et al. 2022, arXiv:2204.02311, appendix B); norms,
    activations and embedding look-ups are left out."""
    maps = [m for m in model.modules() if isinstance(m, nn.Linear)]
    return 6.0 * sum(m.weight.numel() for m in maps) + 12.0 * model.depth * context * model.wte.embedding_dim
