"""Laws of the Gaussian moments of activations."""

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.stats import multivariate_normal, norm

from analysis.meanfield.moments import SMOOTH, pair_moments

# By definition: GELU is x times the normal distribution's function, SiLU x times the logistic one.
DEFINITION = {
    "gelu": lambda x: x * norm.cdf(x),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_activations_are_what_their_names_say_and_slopes_are_their_derivatives(name: str) -> None:
    x, step = np.linspace(-6, 6, 49), 1e-5
    np.testing.assert_allclose(SMOOTH[name].value(x), DEFINITION[name](x), atol=1e-13)
    difference = (DEFINITION[name](x + step) - DEFINITION[name](x - step)) / (2 * step)
    np.testing.assert_allclose(SMOOTH[name].slope(x), difference, atol=1e-9)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize(("q", "tolerance"), [(0.01, 1e-12), (0.25, 1e-12), (1.0, 1e-12), (4.0, 1e-10), (16.0, 1e-4)])
def test_quadrature_agrees_with_adaptive_integration(name: str, q: float, tolerance: float) -> None:
    def integral(function: object) -> float:
        value, _ = quad(lambda z: function(np.sqrt(q) * z) ** 2 * norm.pdf(z), -13, 13, epsabs=1e-15, epsrel=1e-13, limit=500)
        return value

    found = pair_moments(name, q, 1.0)
    assert found == pytest.approx((integral(SMOOTH[name].value), integral(SMOOTH[name].slope)), rel=tolerance)


def test_gelu_at_unit_variance_has_the_known_moments() -> None:
    forward, backward = pair_moments("gelu", 1.0, 1.0)
    assert (round(float(forward), 3), round(float(backward), 3)) == (0.425, 0.456)


@pytest.mark.parametrize("q", [0.3, 1.0, 7.0])
def test_relu_has_half_the_variance_and_half_the_slope(q: float) -> None:
    assert pair_moments("relu", q, 1.0) == pytest.approx((q / 2, 1 / 2), rel=1e-14)


@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.4, 0.95])
def test_relu_of_a_pair_agrees_with_integration_over_the_quadrant(rho: float) -> None:
    q = 2.0
    pair = multivariate_normal(cov=q * np.array([[1, rho], [rho, 1]]))
    value, _ = dblquad(lambda y, x: x * y * pair.pdf([x, y]), 0, 14, 0, 14, epsabs=1e-7)
    both_positive = 0.25 + np.arcsin(rho) / (2 * np.pi)  # Sheppard 1899
    assert pair_moments("relu", q, rho) == pytest.approx((value, both_positive), abs=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("q", [0.4, 4.0])
def test_smooth_activations_of_a_pair_agree_with_a_product_rule(name: str, q: float) -> None:
    """The trapezoidal rule over the plane, which converges exponentially for analytic functions that decay."""
    z = np.linspace(-9, 9, 601)
    weight = norm.pdf(z) * (z[1] - z[0])
    for rho in (-0.6, 0.0, 0.5, 0.9):
        first, second = np.sqrt(q) * z[:, None], np.sqrt(q) * (rho * z[:, None] + np.sqrt(1 - rho**2) * z)
        expected = [weight @ (f(first) * f(second)) @ weight for f in (SMOOTH[name].value, SMOOTH[name].slope)]
        assert pair_moments(name, q, rho) == pytest.approx(expected, abs=1e-6)


def test_independent_units_have_the_square_of_the_mean() -> None:
    """E[GELU(z)] = 1 / (2 sqrt(pi)) and E[GELU'(z)] = 1/2 for unit variance."""
    assert pair_moments("gelu", 1.0, 0.0) == pytest.approx((1 / (4 * np.pi), 1 / 4), rel=1e-12)


def test_correlations_keep_their_shape_and_rounding_beyond_one_is_cut_off() -> None:
    rho = np.array([[1.0, 0.5], [0.5, 1 + 1e-12]])
    for name in ("relu", "gelu"):
        forward, backward = pair_moments(name, 1.0, rho)
        assert forward.shape == backward.shape == (2, 2)
        assert (forward[0, 0], backward[0, 0]) == (forward[1, 1], backward[1, 1])


def test_an_unknown_activation_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="mish is not among relu, gelu"):
        pair_moments("mish", 1.0, 1.0)
