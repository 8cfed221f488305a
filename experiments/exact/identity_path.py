"""C14: what reaches x_0 of the gradient at the output, past branches that do not look at their input."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from experiments import placements
from experiments.exact.check import EPS, ROUNDING, Check, norm
from experiments.norms import norm_maker
from experiments.placements.base import Kind, Placement, Site

X0 = (1.0, 1.0)
DELTAS: dict[Kind, tuple[float, float]] = {"attn": (0.1, 0.2), "ffn": (0.3, -0.1)}
GRADIENT = (2.0, 3.0)
OUTPUT = (1.4, 1.1)
SETTING = f"d = 2, x_0 = {X0}, constant branches {tuple(DELTAS.values())}, gradient {GRADIENT} at the output"


def checks() -> Iterator[Check]:
    yield from of_identity(placements.find("pre"))
    yield from of_post(placements.find("post"))


def of_identity(placement: type[Placement]) -> Iterator[Check]:
    """The gradient arrives whole, to the last bit, and the output is x_0 plus the branches."""
    gradient, output = past_constant_branches(placement)
    setting = f"{placement.__name__}, {SETTING}"
    for i in range(2):
        yield Check(
            "C14", f"pre_gradient_{i}", f"component {i} of the gradient at x_0", setting, GRADIENT[i], gradient[i], 0.0
        )
        yield Check("C14", f"pre_output_{i}", f"component {i} of the output", setting, OUTPUT[i], output[i], ROUNDING)


def of_post(placement: type[Placement]) -> Iterator[Check]:
    """It does not under Post-LN; what arrives instead is known in closed form."""
    (gradient, _), expected = past_constant_branches(placement), post_gradient()
    setting, tolerance = f"{placement.__name__}, {SETTING}, layernorm, eps {EPS}", 1e-9 * abs(expected[0])
    for i in range(2):
        quantity = f"component {i} of the gradient at x_0"
        yield Check("C14", f"post_gradient_{i}", quantity, setting, expected[i], gradient[i], tolerance)
    quantity = "||gradient at x_0 - gradient at the output||, which a whole identity path makes 0"
    law, deviation = math.dist(expected, GRADIENT), math.dist(gradient, GRADIENT)
    yield Check("C14", "post_gradient_deviation", quantity, setting, law, deviation, ROUNDING)


def past_constant_branches(placement: type[Placement]) -> tuple[list[float], list[float]]:
    """(gradient at x_0, output) of the joins of one block."""
    x0_D = torch.tensor(X0, dtype=torch.float64, requires_grad=True)
    x_D: Tensor = x0_D
    for index, (kind, delta) in enumerate(DELTAS.items()):
        join = placement(norm_maker(norm(), True), Site(2, 0, 1, kind, index, len(DELTAS))).double()
        delta_D = torch.tensor(delta, dtype=torch.float64)
        x_D = join(x_D, lambda _, delta_D=delta_D: delta_D)
    (gradient_D,) = torch.autograd.grad(x_D, x0_D, torch.tensor(GRADIENT, dtype=torch.float64))
    return gradient_D.tolist(), x_D.tolist()


def post_gradient() -> tuple[float, float]:
    """The gradient that arrives under Post-LN. Of two features a and b LayerNorm keeps u = (a - b) / 2 only, and returns
    ± u (u² + eps)^-1/2, whose slope in u is eps (u² + eps)^-3/2."""
    u, slope = (X0[0] - X0[1]) / 2, 1.0
    for a, b in DELTAS.values():
        u += (a - b) / 2
        slope *= EPS * (u * u + EPS) ** -1.5
        u *= (u * u + EPS) ** -0.5
    half = (GRADIENT[0] - GRADIENT[1]) / 2 * slope
    return half, -half
