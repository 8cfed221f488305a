"""Gradient norms of the parameters, per matrix type and layer; norms' gains and biases apart."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from experiments.model import Transformer
from experiments.probes.base import Column, Probe

MATRICES = {
    "wq": "query",
    "wk": "key",
    "wv": "value",
    "wo": "attention output",
    "w1": "first feed-forward",
    "w2": "last feed-forward",
    "wg": "gate (SwiGLU only)",
}
NOT_PROBED = "null where there is none or not probed"


@final
class GradientProbe(Probe):
    """Squares of the columns of a layer, and of the step's, add up to the square of the total."""

    columns: ClassVar[tuple[Column, ...]] = (
        *(
            Column(f"grad_{name}", "nats", f"Frobenius norm of the gradient of the {what} matrix")
            for name, what in MATRICES.items()
        ),
        Column("grad_cross", "nats", "joint norm of the gradients of the cross-attention matrices"),
        Column(
            "grad_norm_gain",
            "nats",
            "joint norm of the gradients of the block's norm gains and placements' parameters",
        ),
        Column("grad_norm_bias", "nats", "joint norm of the gradients of the block's norm biases"),
        Column("grad_bias", "nats", "joint norm of the gradients of the block's linear biases"),
        Column("nonfinite_grad", "count", "non-finite entries of the block's parameter gradients", dtype="int64"),
        Column(
            "grad_embedding",
            "nats",
            "joint norm of the gradients of the token and position embeddings; null where not probed",
            table="steps",
        ),
        Column("grad_head", "nats", "norm of the gradient of the readout; null where tied or not probed", table="steps"),
        Column("grad_final_norm", "nats", f"joint norm of the gradients of the final norm; {NOT_PROBED}", table="steps"),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        keys = [_address(model, name) for name, _ in model.named_parameters()]
        self.groups = sorted({column for column, _ in keys})
        flat = [self.groups.index(column) * model.depth + layer for column, layer in keys]
        self.group_P = torch.tensor(flat, device=self.device)
        self.nonfinite_L: Tensor | None = None

    def gradients(self, norm_P: Tensor, loss_scale: float) -> None:  # noqa: ARG002
        size = len(self.groups) * self.model.depth
        square = torch.zeros(size, dtype=self.dtype, device=self.device)
        square.index_add_(0, self.group_P, norm_P.to(self.dtype) ** 2)
        self.norm_GL = square.sqrt().view(len(self.groups), self.model.depth)
        self.nonfinite_L = torch.stack([_nonfinite(block) for block in self.model.blocks])

    def read(self) -> dict[str, Tensor]:
        if self.nonfinite_L is None:
            return {}
        tables = {column.name: column.table for column in self.columns}
        values = {
            name: norm_L[0] if tables[name] == "steps" else norm_L
            for name, norm_L in zip(self.groups, self.norm_GL, strict=True)
        }
        return values | {"nonfinite_grad": self.nonfinite_L}


def _address(model: Transformer, name: str) -> tuple[str, int]:
    """(column, layer) of a parameter; layer 0 for those outside the blocks."""
    top, *path = name.split(".")
    if top != "blocks":
        return {"wte": "grad_embedding", "wpe": "grad_embedding", "head": "grad_head"}.get(top, "grad_final_norm"), 0
    owner, leaf = model.get_submodule(name.rpartition(".")[0]), path[-1]
    if not isinstance(owner, nn.Linear):
        return f"grad_norm_{'bias' if leaf == 'bias' else 'gain'}", int(path[0])
    if leaf == "bias":
        return "grad_bias", int(path[0])
    branch = model.get_submodule(".".join([top, *path[:3]]))  # blocks.<layer>.branches.<k>
    return ("grad_cross" if branch.kind == "cross" else f"grad_{path[-2]}"), int(path[0])


def _nonfinite(block: nn.Module) -> Tensor:
    grads = [p.grad.flatten() for p in block.parameters() if p.grad is not None]
    flat = torch.cat(grads)
    return flat.numel() - flat.isfinite().sum()
