"""Small random networks in plain numpy, with every Jacobian written out: what the mean-field theory is tested against.

Xavier weights, d_ff = 4 D, no biases, LayerNorm without eps, causal attention with flat weights.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

BLOCKS, NETWORKS = 12, 24
Pull = Callable[[np.ndarray], np.ndarray]
ACTIVATIONS: dict[str, tuple[Pull, Pull]] = {  # value, slope
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(float)),
    "gelu": (lambda x: x * ndtr(x), lambda x: ndtr(x) + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)),
}


def measured(norm: str, activation: str, kinds: list[str], shape: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """Variance, gradient norm and token cosine at 13 points, of 12 networks: means of variances, squares and cosines."""
    draws = [network(norm, activation, kinds, np.random.default_rng(seed), shape) for seed in range(NETWORKS)]
    variance_N, square_N, cosine_N = np.mean(draws, axis=0)
    return variance_N, square_N**0.5, cosine_N


def network(norm: str, activation: str, kinds: list[str], rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Rows variance, squared gradient and token cosine of one network; all Jacobians are written out."""
    T, D = shape
    x_TD = rng.normal(size=shape)
    rows, pulls = [statistics(x_TD)], list[tuple[np.ndarray, Pull]]()
    for kind in kinds * BLOCKS:
        n_TD = layer_norm(x_TD) if norm == "pre" else x_TD
        y_TD, pull_branch = branch(kind, activation, n_TD, rng)
        sum_TD = x_TD + y_TD
        pulls.append((x_TD if norm == "pre" else sum_TD, pull_branch))
        x_TD = sum_TD if norm == "pre" else layer_norm(sum_TD)
        rows.append(statistics(x_TD))
    g_TD = rng.normal(size=shape)
    g_TD = norm_pull(x_TD, g_TD) if norm == "pre" else g_TD
    squares = [np.sum(g_TD**2) / (T * D)]
    for at_TD, pull_branch in reversed(pulls):
        if norm == "pre":
            g_TD = g_TD + norm_pull(at_TD, pull_branch(g_TD))
        else:
            inner_TD = norm_pull(at_TD, g_TD)
            g_TD = inner_TD + pull_branch(inner_TD)
        squares.append(np.sum(g_TD**2) / (T * D))
    variance, cosine = np.array(rows)[:: len(kinds)].T
    return np.array([variance, squares[:: -len(kinds)], cosine])


def branch(kind: str, activation: str, x_TD: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, Pull]:
    """Output, and the map from a gradient there to the one at the input."""
    T, D = x_TD.shape
    if kind == "attn":
        mean_TT = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
        linear_DD = rng.normal(size=(D, D)) @ rng.normal(size=(D, D)) / D
        return mean_TT @ x_TD @ linear_DD.T, lambda g_TD: mean_TT.T @ g_TD @ linear_DD
    value, slope = ACTIVATIONS[activation]
    std = (2 / (5 * D)) ** 0.5
    up_FD, down_DF = std * rng.normal(size=(4 * D, D)), std * rng.normal(size=(D, 4 * D))
    h_TF = x_TD @ up_FD.T
    return value(h_TF) @ down_DF.T, lambda g_TD: ((g_TD @ down_DF) * slope(h_TF)) @ up_FD


def layer_norm(x_TD: np.ndarray) -> np.ndarray:
    return (x_TD - x_TD.mean(1, keepdims=True)) / x_TD.std(1, keepdims=True)


def norm_pull(x_TD: np.ndarray, g_TD: np.ndarray) -> np.ndarray:
    """Jᵀg with LayerNorm's Jacobian at x, (I - 11ᵀ/D - nnᵀ/D) / std."""
    n_TD = layer_norm(x_TD)
    outside_TD = g_TD - g_TD.mean(1, keepdims=True) - n_TD * np.mean(n_TD * g_TD, axis=1, keepdims=True)
    return outside_TD / x_TD.std(1, keepdims=True)


def statistics(x_TD: np.ndarray) -> tuple[float, float]:
    """Mean variance over features, and mean cosine between different tokens."""
    T = len(x_TD)
    unit_TD = x_TD / np.linalg.norm(x_TD, axis=1, keepdims=True)
    return float(x_TD.var(1).mean()), float((np.sum(unit_TD @ unit_TD.T) - T) / (T * (T - 1)))
