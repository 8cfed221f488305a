"""The decoder-only transformer. Block.forward has no ``if``: the placement receives the branch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from experiments import placements
from experiments.branches import BRANCHES, Attention, BranchModule, CrossAttention
from experiments.config import ModelConfig, NormConfig
from experiments.norms import norm_maker
from experiments.placements.base import Placement, Site, Stream

Watcher = Callable[[int, Stream], None]  # called with (point, stream) at each of the N = L + 1 points of the stream


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
        options = cast("ModelConfig", OmegaConf.to_object(model))  # a DictConfig takes a tenth of building to read
        norms = cast("NormConfig", OmegaConf.to_object(norm))
        vocab, positions = options.vocab or shape.vocab, options.max_positions or shape.context
        self.depth, self.checkpointing = options.depth, options.checkpointing
        self.watchers: tuple[Watcher, ...] = ()
        self.wte = nn.Embedding(vocab, options.width)
        self.wpe = nn.Embedding(positions, options.width) if options.positions == "learned" else None
        self.drop = nn.Dropout(options.dropout)
        placement, make_norm = placements.find(norms.placement), norm_maker(norms, options.bias)
        self.blocks = nn.ModuleList()
        for layer in range(options.depth):
            branches = [BRANCHES[name](options, norms, shape.context) for name in options.branches]
            n = len(branches)
            joins = [
                placement(make_norm, Site(options.width, layer, options.depth, branch.kind, n * layer + k, n * options.depth))
                for k, branch in enumerate(branches)
            ]
            for join, branch in zip(joins, branches, strict=True):
                join.fit(branch)
            self.blocks.append(Block(joins, branches))
        wants_norm = placement.final_norm if options.final_norm is None else options.final_norm
        self.final_norm = make_norm(options.width) if wants_norm else nn.Identity()
        self.head = nn.Linear(options.width, vocab, bias=False)
        if options.tied:
            self.head.weight = self.wte.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.drop(self.embed(tokens_BT))
        self._watch(0, x_BTD)
        joins = [join for _, join, _ in self.sites()]
        stream = joins[0].enter(x_BTD)
        for point, block in enumerate(self.blocks, start=1):
            recompute = self.checkpointing and torch.is_grad_enabled()
            stream = checkpoint(block, stream, use_reentrant=False) if recompute else block(stream)
            stream = separate(stream)
            self._watch(point, stream)
        return self.head(joins[-1].leave(stream, self.final_norm))

    def embed(self, tokens_BT: Tensor) -> Tensor:
        """Point 0 of the stream, before dropout and the placement's ``enter``."""
        x_BTD: Tensor = self.wte(tokens_BT)
        return x_BTD if self.wpe is None else x_BTD + self.wpe.weight[: tokens_BT.shape[1]]

    def sites(self) -> Iterator[tuple[int, Placement, BranchModule]]:
        """(layer, join, branch) of every residual branch, in the order of the forward pass."""
        for layer, block in enumerate(cast("list[Block]", self.blocks)):
            for join, branch in zip(block.joins, block.branches, strict=True):
                yield layer, cast("Placement", join), cast("BranchModule", branch)

    def _watch(self, point: int, stream: Stream) -> None:
        for watch in self.watchers:
            watch(point, stream)


def separate(stream: Stream) -> Stream:
    """The same values, each stream a tensor of its own: one that was computed from another has a gradient apart from it."""
    return tuple(x.view_as(x) for x in stream) if isinstance(stream, tuple) else stream


def count_parameters(model: nn.Module) -> int:
    """Number of learnable entries; a tied matrix counts once."""
    return sum(p.numel() for p in model.parameters())


def flops_per_token(model: Transformer, context: int) -> float:
    """Floating-point operations of one forward and backward pass per token: 6 per weight of a matrix product, and
    the attention scores and sums, 12 T D per attention (Chowdhery et al. 2022, arXiv:2204.02311, appendix B); norms,
    activations, embedding look-ups and the keys and values of a fixed memory are left out."""
    branches = [branch for _, _, branch in model.sites()]
    memories = [branch for branch in branches if isinstance(branch, CrossAttention)]
    maps = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear))
    maps -= sum(branch.wk.weight.numel() + branch.wv.weight.numel() for branch in memories)
    read = context * sum(isinstance(branch, Attention) for branch in branches) + sum(len(m.memory_MD) for m in memories)
    return 6.0 * maps + 12.0 * read * model.wte.embedding_dim
