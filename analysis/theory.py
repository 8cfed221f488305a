"""Mean-field theory of the stream's variance and of the gradient at initialisation: branch gains, composed by the placement.

With v the stream's variance, c and b the gains of a branch (analysis/gains.py) and g the gradient of the loss,

    Pre-LN:   v' = v + c,                 ||g||² = ||g'||² (1 + b/v),  and 1/sqrt(v_L) from the final norm
    Post-LN:  v' = 1 (1 + c before it),   ||g||² = ||g'||² (1 + b)/(1 + c).

If b = c, Pre-LN's product telescopes to v_L / v_l, so ||g_l|| falls as 1/sqrt(v_l), and Post-LN's factor is one. The sums of
variances are those of Xiong et al. 2020 (arXiv:2002.04745, lemma 2), who drop b; the products with it are derived here.

`predict` follows a typical token and holds the tokens' coherence fixed. It leaves out that attention aligns tokens and
gradients as depth goes on, and that early tokens average over fewer. `predict_mixing` follows the covariances of all pairs of
tokens instead; it leaves out only what analysis/gains.py names. Without attention the two agree.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from analysis.meanfield.gains import INCOHERENT, Averaging, Branch, CausalMean, Coherence, Gain, TypicalToken, block
from analysis.meanfield.moments import Values
from analysis.meanfield.weights import UncoveredError, kinds

Pull = Callable[[Values], Values]  # covariance of the gradient after a branch -> before it, [T, T]
Join = Callable[[Values, Branch, float], tuple[Values, Pull]]  # stream, branch, eps -> stream after the branch, pull


@dataclass(frozen=True)
class Prediction:
    """What the theory says of the N = L + 1 points of the stream, 0 after the embedding and L after the last block.

    stream_var_N : mean over tokens of the variance over features.
    gradient_N : ||dLoss/dx_l|| in units of that at the readout's input: 1 at L without a final norm, 1/sqrt(v_L) with one.
    token_cosine_N : mean cosine between two different tokens; NaN where it is not predicted.
    """

    stream_var_N: Values
    gradient_N: Values
    token_cosine_N: Values


@dataclass(frozen=True)
class Deviation:
    """How far a prediction is from what was measured, in ln(scale × predicted / measured): 0.05 is five per cent.

    rms, largest : over the points that could be compared.
    scale : what the prediction was multiplied by.
    left_out : points where one of the two is zero, negative or not finite; with no other point rms and largest are NaN.
    """

    rms: float
    largest: float
    scale: float
    left_out: int


def predict(config: Mapping[str, Any], *, coherence: Coherence = INCOHERENT) -> Prediction:
    """The theory of a typical token, for the resolved config of a run as in run.json.

    coherence : of all points alike; without it only the token-incoherent part of what attention does is left.
    Raises UncoveredError for a placement, norm, init or branch that the theory does not cover.
    """
    one = np.ones((1, 1))
    return _compose(config, TypicalToken(_tokens(config), coherence), one, one)


def predict_mixing(config: Mapping[str, Any], *, coherence: Coherence = INCOHERENT) -> Prediction:
    """The theory with token mixing: covariances of all T × T pairs of tokens, with attention weights that are flat.

    coherence : of the first point's stream and the last point's gradient, see `data_coherence`.
    Cost: about 50 T² operations a branch and gigabytes from T = 1024 on. Raises UncoveredError as `predict`.
    """
    T = _tokens(config)
    stream_TT, gradient_TT = (np.full((T, T), c) + (1 - c) * np.eye(T) for c in (coherence.stream, coherence.gradient))
    return _compose(config, CausalMean(T), stream_TT, gradient_TT)


def branch_gains(config: Mapping[str, Any], *, coherence: Coherence = INCOHERENT) -> dict[str, Gain]:
    """c and b of each branch of a block for a typical token of unit variance, by the branch's name.

    Raises UncoveredError as `predict`: other placements scale the weights of their branches, or have norms inside.
    """
    _placement(config)
    branches = block(config, TypicalToken(_tokens(config), coherence))
    return {name: branch.gain for name, branch in zip(kinds(config), branches, strict=True)}


def data_coherence(config: Mapping[str, Any], *, first_cosine: float, vocab: int) -> Coherence:
    """Coherence at the two ends of the network that comes from tokens occurring twice in a sequence.

    first_cosine : token_cosine measured at point 0. Times the number of embedding tables this is the probability P that two
        tokens of a sequence are the same, since positions never are.
    The gradient at the readout's input is W_headᵀ (p - onehot) with p about uniform: two of them have cosine
    (P - 1/V) / (1 - 1/V).
    """
    same = _tables(config) * first_cosine
    return Coherence(first_cosine, (same - 1 / vocab) / (1 - 1 / vocab))


def relative_error(predicted_N: ArrayLike, measured_N: ArrayLike, *, free_scale: bool = False) -> Deviation:
    """Deviation of a prediction from measured values, shape [N]; with free_scale up to the factor that fits best.

    That factor is the geometric mean of measured over predicted. Gradients need it: the theory has them up to a constant.
    """
    predicted, measured = np.asarray(predicted_N, dtype=np.float64), np.asarray(measured_N, dtype=np.float64)
    if predicted.shape != measured.shape:
        raise ValueError(f"a prediction of shape {predicted.shape} cannot be compared with values of shape {measured.shape}")
    usable = np.isfinite(predicted) & np.isfinite(measured) & (predicted > 0) & (measured > 0)
    left_out = int(np.sum(~usable))
    if not usable.any():
        return Deviation(np.nan, np.nan, np.nan, left_out)
    log_N = np.log(predicted[usable]) - np.log(measured[usable])
    shift = float(log_N.mean()) if free_scale else 0.0
    log_N = log_N - shift
    return Deviation(float(np.sqrt(np.mean(log_N**2))), float(np.max(np.abs(log_N))), float(np.exp(-shift)), left_out)


def _compose(config: Mapping[str, Any], averaging: Averaging, stream_TT: Values, gradient_TT: Values) -> Prediction:
    """Forward through all branches and back. stream_TT has unit diagonal; gradient_TT is that at the readout's input."""
    join, final_norm = _placement(config)
    eps, branches = config["norm"]["eps"], block(config, averaging)
    stream_TT = _embedding_variance(config) * stream_TT
    points, pulls = [_summary(stream_TT)], []
    for _ in range(config["model"]["depth"]):
        for branch in branches:
            stream_TT, pull = join(stream_TT, branch, eps)
            pulls.append(pull)
        points.append(_summary(stream_TT))
    if final_norm:
        gradient_TT = gradient_TT * _scale(stream_TT, eps)
    squares = [np.mean(np.diag(gradient_TT))]
    for pull in reversed(pulls):
        gradient_TT = pull(gradient_TT)
        squares.append(np.mean(np.diag(gradient_TT)))
    variance_N, cosine_N = np.array(points).T
    return Prediction(variance_N, np.sqrt(squares[:: -len(branches)]), cosine_N)


def _pre(stream_TT: Values, branch: Branch, eps: float) -> tuple[Values, Pull]:
    """x + f(norm(x))"""
    scale_TT = _scale(stream_TT, eps)
    normal_TT = stream_TT * scale_TT

    def pull(G_TT: Values) -> Values:
        return G_TT + scale_TT * branch.pullback(normal_TT, G_TT)

    return stream_TT + branch.covariance(normal_TT), pull


def _post(stream_TT: Values, branch: Branch, eps: float) -> tuple[Values, Pull]:
    """norm(x + f(x))"""
    sum_TT = stream_TT + branch.covariance(stream_TT)
    scale_TT = _scale(sum_TT, eps)

    def pull(G_TT: Values) -> Values:
        inner_TT = scale_TT * G_TT
        return inner_TT + branch.pullback(stream_TT, inner_TT)

    return sum_TT * scale_TT, pull


JOINS: dict[str, tuple[Join, bool]] = {"pre": (_pre, True), "post": (_post, False)}  # join, and whether a final norm is needed


def _placement(config: Mapping[str, Any]) -> tuple[Join, bool]:
    norm, model = config["norm"], config["model"]
    if norm["placement"] not in JOINS:
        raise UncoveredError(f"the theory covers the placements {', '.join(JOINS)}, not {norm['placement']}")
    if norm["kind"] not in ("layernorm", "rmsnorm"):
        raise UncoveredError(f"the theory covers norms that divide by a standard deviation, not norm.kind={norm['kind']}")
    if (qk := norm.get("qk", "none")) != "none":
        raise UncoveredError(f"the theory has flat attention, without norms of queries and keys; norm.qk={qk}")
    if model["dropout"]:
        raise UncoveredError(f"the theory leaves out dropout; model.dropout={model['dropout']}")
    join, needed = JOINS[norm["placement"]]
    return join, needed if model["final_norm"] is None else model["final_norm"]


def _scale(stream_TT: Values, eps: float) -> Values:
    """1 / (σ_s σ_t) of what a norm divides by."""
    inverse_T = (np.diag(stream_TT) + eps) ** -0.5
    return np.outer(inverse_T, inverse_T)


def _summary(stream_TT: Values) -> tuple[float, float]:
    """Mean variance, and mean cosine between different tokens."""
    T = len(stream_TT)
    std_T = np.sqrt(np.diag(stream_TT))
    cosines = np.sum(stream_TT / np.outer(std_T, std_T)) - T
    return float(np.mean(std_T**2)), float(cosines / (T * (T - 1))) if T > 1 else np.nan


def _tokens(config: Mapping[str, Any]) -> int:
    return config["train"]["context"]


def _tables(config: Mapping[str, Any]) -> int:
    """Number of embedding tables that are summed at point 0."""
    return 2 if config["model"]["positions"] == "learned" else 1


def _embedding_variance(config: Mapping[str, Any]) -> float:
    std = config["init"]["embedding_std"]
    return 1.0 if std is None else _tables(config) * std**2
