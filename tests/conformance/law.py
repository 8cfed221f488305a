"""What a law says where it does not hold."""

from torch import Tensor


class LawError(AssertionError):
    """A variant breaks a law. The message says where, by how much, and what was to be computed."""


def require(holds: bool, message: str) -> None:
    if not holds:
        raise LawError(message)


def same(ours: Tensor, theirs: Tensor, what: str, tolerance: float = 1e-9) -> None:
    """LawError, with the largest difference, unless two tensors agree, relative to the largest entry if that is above 1."""
    require(ours.shape == theirs.shape, f"{what}: shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}")
    ours, theirs = ours.detach(), theirs.detach()
    difference, scale = float((ours - theirs).abs().max()), max(1.0, float(theirs.abs().max()))
    require(difference <= tolerance * scale, f"{what}: largest difference {difference:.2g}")
