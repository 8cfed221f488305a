"""What each residual branch does to the stream's covariance and to a gradient's, at initialisation and infinite width.

A branch f maps the covariance R_TT of its input (R_st = x_s·x_t / D, units of the stream's variance) to the covariance of its
output, and that of a gradient at its output, G_TT, to the one at its input. For one token (T = 1) and an input of unit
variance these are the branch's gains c = Var(f) and b = E||Jᵀg||² / ||g||².

Averages are over independent weights of zero mean, so cross terms between a branch and its identity path vanish. Left out are
terms of relative order 1/D a branch: the variance over features is 1 - 1/D of the mean square, LayerNorm's Jacobian removes
two of D directions, and gains scatter between draws. Over n branches they add up to order n/D in ln ||g||².
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from analysis.meanfield.moments import KNOWN, Values, pair_moments
from analysis.meanfield.weights import UncoveredError, Weights, kinds, weights


@dataclass(frozen=True)
class Gain:
    """c and b of a branch: Var(f) over the variance of its input, and the mean of ||Jᵀg||² / ||g||²."""

    forward: float
    backward: float


@dataclass(frozen=True)
class Coherence:
    """Mean cosine between two different tokens of a sequence: of the stream, and of the gradient at the readout's input."""

    stream: float = 0.0
    gradient: float = 0.0


INCOHERENT = Coherence()


class Averaging(Protocol):
    """What flat attention weights do to a covariance over tokens, and their transpose to a gradient's."""

    def average(self, R_TT: Values) -> Values: ...

    def spread(self, G_TT: Values) -> Values: ...


class CausalMean:
    """Token t (from 1) reads the mean of tokens 1 to t: A R Aᵀ forward, Aᵀ G A backward."""

    def __init__(self, tokens: int) -> None:
        self.A_TT = np.tril(np.ones((tokens, tokens))) / np.arange(1, tokens + 1)[:, None]

    def average(self, R_TT: Values) -> Values:
        return self.A_TT @ R_TT @ self.A_TT.T

    def spread(self, G_TT: Values) -> Values:
        return self.A_TT.T @ G_TT @ self.A_TT


class TypicalToken:
    """CausalMean averaged over the tokens of a sequence, if every two of them have one cosine. Acts on T = 1.

    With H = 1 + 1/2 + ... + 1/T, the incoherent part is multiplied by H/T both ways, and the coherent part is kept: forward
    this is exact; backward the sum over tokens is kept, but it moves to early tokens, which all later ones read. That move
    raises the squared norm of a gradient that is spread evenly by 2 - H/T once, and is left out here.
    """

    def __init__(self, tokens: int, coherence: Coherence) -> None:
        share = float(np.mean(1 / np.arange(1, tokens + 1)))
        self.forward, self.backward = (share + (1 - share) * cosine for cosine in (coherence.stream, coherence.gradient))

    def average(self, R_TT: Values) -> Values:
        return self.forward * R_TT

    def spread(self, G_TT: Values) -> Values:
        return self.backward * G_TT


class Branch(ABC):
    """A residual branch at initialisation."""

    @abstractmethod
    def covariance(self, R_TT: Values) -> Values:
        """Covariance of the output over tokens [T, T], for an input of covariance R_TT with equal diagonal entries."""

    @abstractmethod
    def pullback(self, R_TT: Values, G_TT: Values) -> Values:
        """Covariance of Jᵀg over tokens [T, T], for a gradient g of covariance G_TT at the output."""

    @property
    def gain(self) -> Gain:
        """c and b for one token of unit variance."""
        one = np.ones((1, 1))
        return Gain(self.covariance(one).item(), self.pullback(one, one).item())


@dataclass(frozen=True)
class FeedForward(Branch):
    """W_2 φ(W_1 x)."""

    weights: Weights
    activation: str

    def covariance(self, R_TT: Values) -> Values:
        overlap, _ = self._moments("w1", R_TT)
        return self.weights.linear("w2", self.weights.hidden, overlap)

    def pullback(self, R_TT: Values, G_TT: Values) -> Values:
        _, slope = self._moments("w1", R_TT)
        w = self.weights
        return w.hidden * w.width * w.square("w1") * w.square("w2") * slope * G_TT

    def _moments(self, name: str, R_TT: Values) -> tuple[Values, Values]:
        hidden_TT = self.weights.linear(name, self.weights.width, R_TT)
        std_T = np.sqrt(np.diag(hidden_TT))
        scale = np.outer(std_T, std_T)
        rho_TT = np.divide(hidden_TT, scale, out=np.zeros_like(scale), where=scale > 0)
        return pair_moments(self.activation, float(np.mean(std_T**2)), rho_TT)


@dataclass(frozen=True)
class GatedFeedForward(FeedForward):
    """W_2 (φ(W_g x) * W_1 x); the two factors are independent."""

    def covariance(self, R_TT: Values) -> Values:
        overlap, _ = self._moments("wg", R_TT)
        return self.weights.linear("w2", self.weights.hidden, overlap * self.weights.linear("w1", self.weights.width, R_TT))

    def pullback(self, R_TT: Values, G_TT: Values) -> Values:
        overlap, slope = self._moments("wg", R_TT)
        w = self.weights
        through = w.square("wg") * slope * w.linear("w1", w.width, R_TT) + w.square("w1") * overlap
        return w.hidden * w.width * w.square("w2") * through * G_TT


@dataclass(frozen=True)
class Attention(Branch):
    """W_O A W_V x with flat weights A, or A W_V x without W_O.

    Left out: what logits of finite variance σ² = D² Var(w_q) Var(w_k) add (1 for Xavier, 1/9 for torch): the weights are then
    uneven, which averages about e^σ² times fewer tokens, and gradients also flow through queries and keys.
    """

    weights: Weights
    averaging: Averaging
    value_only: bool

    def covariance(self, R_TT: Values) -> Values:
        w = self.weights
        value_TT = w.linear("wv", w.width, self.averaging.average(R_TT))
        return value_TT if self.value_only else w.linear("wo", w.width, value_TT)

    def pullback(self, R_TT: Values, G_TT: Values) -> Values:  # noqa: ARG002 - flat weights do not see the input
        w = self.weights
        output = 1.0 if self.value_only else w.width * w.square("wo")
        return w.width * w.square("wv") * output * self.averaging.spread(G_TT)


@dataclass(frozen=True)
class CrossAttention(Branch):
    """W_O W_V m with the mean m of the memory's tokens: the same at every position, and no gradient returns to the stream."""

    weights: Weights
    memory_variance: float

    def covariance(self, R_TT: Values) -> Values:
        w = self.weights
        return w.linear("wo", w.width, w.linear("wv", w.width, np.full_like(R_TT, self.memory_variance)))

    def pullback(self, R_TT: Values, G_TT: Values) -> Values:  # noqa: ARG002 - the value comes from the memory
        return np.zeros_like(G_TT)


def block(config: Mapping[str, Any], averaging: Averaging) -> tuple[Branch, ...]:
    """The branches of one block of a run's resolved config, in order. UncoveredError for a branch the theory lacks."""
    return tuple(_branch(name, config["model"], weights(config), averaging) for name in kinds(config))


def _branch(name: str, model: Mapping[str, Any], weight: Weights, averaging: Averaging) -> Branch:
    match name:
        case "ffn" if model["ffn"] == "swiglu":
            return GatedFeedForward(weight, "silu")
        case "ffn" if model["ffn"] in KNOWN:
            return FeedForward(weight, model["ffn"])
        case "attn":
            return Attention(weight, averaging, model.get("value_only", False))
        case "cross":
            tokens, cosine = model["memory_tokens"], model["memory_cosine"]
            return CrossAttention(weight, 1 / tokens + (1 - 1 / tokens) * cosine)
    raise UncoveredError(f"the theory has no branch {name} with model.ffn={model['ffn']}")
