"""Norms of the branches' Jacobians, by random vectors."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments import walk
from experiments.branches import BranchModule
from experiments.gauge import exact_norm
from experiments.model import Transformer
from experiments.placements.base import Placement, Stream, streams_of
from experiments.probes.base import Column, Probe

SEED = 211112143  # of the random vectors; with the number of times the probe was opened

Draw = Callable[[Tensor], Tensor]  # a Gaussian tensor like the one given


@final
class JacobianProbe(Probe):
    """||J^T u|| / ||u|| for the branch's own input, ||J v|| / ||v|| from point 0, on the held-out batch.

    Own: J = d branch output / d stream that enters its join (the norm of a Pre-LN is inside, that of a Post-LN is not);
    E||J^T u||² / E||u||² = ||J||_F² / n_out. From point 0: J = d branch output / d x_0, one forward-mode pass for all
    branches; E||J v||² / E||v||² = ||J||_F² / n_in. Here n_out = n_in = B T D. One Gaussian vector each: at B T D = 32768
    and 24 blocks the own ratio scatters by .5 % (feed-forward) to 3 % (attention), that from point 0 by up to 10 % in a Pre-LN
    and 40 % in a Post-LN, where few directions survive; the vector at point 0 is one for all branches, so they scatter
    together. Of a tuple of streams the norm is joint. Cross-attention is passed through and not measured. Costs about as much
    as three training steps, most of it forward mode.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        Column("jac_attn_own", "1", "||J^T u|| / ||u|| of the attention branch for the stream that enters its join"),
        Column("jac_ffn_own", "1", "||J^T u|| / ||u|| of the feed-forward branch for the stream that enters its join"),
        Column("jac_attn_first", "1", "||J v|| / ||v|| of the attention branch for point 0 of the stream"),
        Column("jac_ffn_first", "1", "||J v|| / ||v|| of the feed-forward branch for point 0 of the stream"),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        self.opened = 0
        self.values: dict[str, Tensor] = {}

    def open(self) -> None:
        rng = torch.Generator().manual_seed(SEED + self.opened)
        self.opened += 1
        self.values = {}

        def draw(like: Tensor) -> Tensor:
            return torch.empty(like.shape).normal_(generator=rng).to(like)

        with walk.apart(self.model):
            with torch.no_grad():
                x_BTD = self.model.embed(self.held_out_BT[:, :-1])
            for layer, branch, u_BTD, pulled in own_products(self.model, x_BTD, draw):
                self._keep(f"jac_{branch.kind}_own", layer, joint_norm(pulled) / exact_norm(u_BTD))
            v_BTD = draw(x_BTD)
            with forward_mode():
                for layer, branch, pushed in first_products(self.model, x_BTD, v_BTD):
                    self._keep(f"jac_{branch.kind}_first", layer, exact_norm(pushed) / exact_norm(v_BTD))

    def read(self) -> dict[str, Tensor]:
        return self.values

    def _keep(self, column: str, layer: int, value: Tensor) -> None:
        if column not in self.values:
            self.values[column] = value.new_full((self.model.depth,), torch.nan)
        self.values[column][layer] = value


def own_products(
    model: Transformer, x_BTD: Tensor, draw: Draw
) -> Iterator[tuple[int, BranchModule, Tensor, tuple[Tensor, ...]]]:
    """(layer, branch, u, J^T u) of every measured branch when point 0 of the stream is x_BTD; J^T u has one part for each
    stream of a tuple."""
    stream = walk.enter(model, x_BTD)
    for layer, join, branch in model.sites():
        stream, inputs, y_BTD = _from_leaves(join, branch, stream)
        if branch.kind != "cross":
            u_BTD = draw(y_BTD)
            yield layer, branch, u_BTD, torch.autograd.grad(y_BTD, inputs, u_BTD, materialize_grads=True)


@contextmanager
def forward_mode() -> Iterator[None]:
    """Forward-mode differentiation. Attention is computed by its definition: fused kernels have no forward mode."""
    with warnings.catch_warnings(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), forward_ad.dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch loads its rules with what it deprecates itself
        yield


def first_products(model: Transformer, x_BTD: Tensor, v_BTD: Tensor) -> Iterator[tuple[int, BranchModule, Tensor]]:
    """(layer, branch, J v) of every measured branch, J with respect to point 0 of the stream, x_BTD. In ``forward_mode``."""
    stream = walk.enter(model, forward_ad.make_dual(x_BTD, v_BTD))
    for layer, join, branch in model.sites():
        stream, y_BTD = walk.joined(join, branch, stream)
        if branch.kind != "cross":
            yield layer, branch, forward_ad.unpack_dual(y_BTD).tangent


def joint_norm(parts: tuple[Tensor, ...]) -> Tensor:
    """Frobenius norm of all tensors together."""
    return exact_norm(torch.stack([exact_norm(part) for part in parts]))


def _from_leaves(join: Placement, branch: BranchModule, stream: Stream) -> tuple[Stream, tuple[Tensor, ...], Tensor]:
    """The stream after the branch, cut from its past; the leaves that entered; the branch's output."""
    leaves = tuple(x.detach().requires_grad_() for x in streams_of(stream))
    with torch.enable_grad():
        after, y_BTD = walk.joined(join, branch, leaves if isinstance(stream, tuple) else leaves[0])
    return after, leaves, y_BTD
