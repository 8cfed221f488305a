"""The initial scale of a block's weight matrices, from the config of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.meanfield.moments import Values

BRANCHES = ["attn", "ffn"]  # of a block, where a config does not say
RESIDUAL_OUT = ("wo", "w2")  # what writes to the stream, and what gpt2_scaled scales


class UncoveredError(ValueError):
    """The theory does not cover this config. The message names the value and what is covered."""


@dataclass(frozen=True)
class Weights:
    """Standard deviations of the entries of a block's matrices and of their biases, by name, and the block's widths."""

    width: int
    hidden: int
    std: Mapping[str, float]
    bias: Mapping[str, float]

    def square(self, name: str) -> float:
        """Variance of an entry of the matrix."""
        return self.std[name] ** 2

    def linear(self, name: str, fan_in: int, R_TT: Values) -> Values:
        """Covariance over tokens of W x + bias, for an input of fan_in features with covariance R_TT."""
        return self.square(name) * fan_in * R_TT + self.bias[name] ** 2


def kinds(config: Mapping[str, Any]) -> list[str]:
    """Names of the branches of one block, in order."""
    return list(config["model"].get("branches", BRANCHES))


def weights(config: Mapping[str, Any]) -> Weights:
    """What experiments/init.py draws for the matrices of every block, by the names there."""
    model, init = config["model"], config["init"]
    width, hidden = model["width"], model["d_ff"] or _hidden_width(model["width"], model["ffn"])
    shape = {"wv": (width, width), "wo": (width, width), "w1": (hidden, width), "w2": (width, hidden), "wg": (hidden, width)}
    count = len(kinds(config)) * model["depth"]
    std = {name: _std(init, count, name, shape[name]) for name in shape}
    biased = init["name"] == "torch" and model["bias"]  # every other scheme starts biases at zero
    zeroed = {name: 0.0 if name in init.get("zero", ()) else std[name] for name in shape}
    return Weights(width, hidden, zeroed, std if biased else dict.fromkeys(shape, 0.0))


def _std(init: Mapping[str, Any], count: int, name: str, shape: tuple[int, int]) -> float:
    fan_out, fan_in = shape
    match init["name"]:
        case "xavier":
            return (2 / (fan_in + fan_out)) ** 0.5
        case "gpt2":
            return init["std"]
        case "gpt2_scaled":
            return init["std"] * (count**-0.5 if name in RESIDUAL_OUT else 1.0)
        case "torch":
            return (3 * fan_in) ** -0.5
    raise UncoveredError(f"init.name={init['name']} is not among xavier, gpt2, gpt2_scaled, torch")


def _hidden_width(width: int, ffn: str) -> int:
    exact = 8 * width // 3
    return 4 * width if ffn != "swiglu" else exact // 64 * 64 or exact
