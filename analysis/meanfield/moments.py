"""Gaussian moments of activations: what a wide layer's hidden units do to the overlap of two inputs.

For (h, h') Gaussian of variance q and correlation ρ these are E[φ(h) φ(h')], which carries overlaps forward, and
E[φ'(h) φ'(h')], which carries overlaps of gradients backward (Poole et al. 2016, arXiv:1606.05340, eq. 3 and 5;
Schoenholz et al. 2017, arXiv:1611.01232, section 3). At ρ = 1 they are the second moments of one unit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.polynomial.hermite_e import hermegauss, hermevander
from numpy.polynomial.polynomial import polyval
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf, expit, gammaln

Values = NDArray[np.float64]
Function = Callable[[Values], Values]

NODES = 200  # of the quadrature: the moments of a unit are right to 1e-12 for q <= 4 and to 1e-5 at q = 16
TERMS = 49  # of the Hermite series, orders 0 to 48: what is left of its sum is below 3e-6 for q <= 4 and .003 at q = 16
TANH_SCALE, TANH_CUBE = (2 / np.pi) ** 0.5, 0.044715


@dataclass(frozen=True)
class Activation:
    """φ and φ', each from an array to an array of its shape."""

    value: Function
    slope: Function


def _gelu_slope(x: Values) -> Values:
    return 0.5 * (1 + erf(x / 2**0.5)) + x * np.exp(-(x**2) / 2) / (2 * np.pi) ** 0.5


def _gelu_tanh(x: Values) -> Values:
    return 0.5 * x * (1 + np.tanh(TANH_SCALE * (x + TANH_CUBE * x**3)))


def _gelu_tanh_slope(x: Values) -> Values:
    tanh = np.tanh(TANH_SCALE * (x + TANH_CUBE * x**3))
    return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * TANH_SCALE * (1 + 3 * TANH_CUBE * x**2)


# Hendrycks and Gimpel 2016 (arXiv:1606.08415): exact GELU, its tanh approximation, SiLU. ReLU has closed forms below.
SMOOTH: dict[str, Activation] = {
    "gelu": Activation(lambda x: 0.5 * x * (1 + erf(x / 2**0.5)), _gelu_slope),
    "gelu_tanh": Activation(_gelu_tanh, _gelu_tanh_slope),
    "silu": Activation(lambda x: x * expit(x), lambda x: expit(x) * (1 + x * expit(-x))),
}
KNOWN = ("relu", *SMOOTH)


def pair_moments(activation: str, q: float, rho: ArrayLike) -> tuple[Values, Values]:
    """E[φ(h) φ(h')] (units of h²) and E[φ'(h) φ'(h')] for h, h' of variance q >= 0 and correlations rho, any shape.

    Raises ValueError for an unknown activation. Rounding that takes rho beyond ±1 is cut off.
    """
    rho = np.clip(np.asarray(rho, dtype=np.float64), -1.0, 1.0)
    if activation == "relu":
        return _relu(q, rho)
    if activation not in SMOOTH:
        raise ValueError(f"activation {activation} is not among {', '.join(KNOWN)}")
    phi = SMOOTH[activation]
    return _series(phi.value, q, rho), _series(phi.slope, q, rho)


def _relu(q: float, rho: Values) -> tuple[Values, Values]:
    """The arc-cosine kernels (Cho and Saul 2009, eq. 3 to 6): q/2 and 1/2 at rho = 1."""
    angle = np.arccos(rho)
    return q / (2 * np.pi) * (np.sin(angle) + (np.pi - angle) * rho), (np.pi - angle) / (2 * np.pi)


def _series(function: Function, q: float, rho: Values) -> Values:
    """Σ a_n² ρ^n with a_n = E[f(√q z) He_n(z)] / √n! (Daniely et al. 2016, arXiv:1602.05897, lemma 11).

    What the terms leave of E[f²] is put on the last one, so that rho = 1 has the full quadrature's value.
    """
    node_Z, weight_Z, polynomial_ZN = _basis()
    value_Z = function(q**0.5 * node_Z)
    square_N = ((weight_Z * value_Z) @ polynomial_ZN) ** 2
    square_N[-1] += weight_Z @ value_Z**2 - square_N.sum()
    return np.asarray(polyval(rho, square_N), dtype=np.float64)


@cache
def _basis() -> tuple[Values, Values, Values]:
    """Nodes [Z] and weights [Z] of the Gaussian mean, and the normalised Hermite polynomials at the nodes [Z, N]."""
    node_Z, weight_Z = hermegauss(NODES)
    order_N = np.arange(TERMS)
    return node_Z, weight_Z / weight_Z.sum(), hermevander(node_Z, TERMS - 1) / np.exp(gammaln(order_N + 1) / 2)
