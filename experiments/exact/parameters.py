"""C13: parameters of Pre-LN and Post-LN blocks and models."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch

from experiments.exact.check import Check, transformer
from experiments.model import Shape, count_parameters

GPT2_SMALL = 124_439_808  # entries of the published weights (Radford et al. 2019), the readout tied


@dataclass(frozen=True)
class Count:
    """square d² + linear d parameters of a block."""

    ffn: str
    width: int
    bias: bool
    square: int
    linear: Fraction

    @property
    def expected(self) -> float:
        return float(self.square * self.width**2 + self.linear * self.width)


COUNTS = (
    Count("gelu", 64, True, 12, Fraction(13)),  # matrices 4 + 8; biases 4 + 5, two norms 4
    Count("gelu", 64, False, 12, Fraction(2)),  # two gains
    Count("gelu", 768, True, 12, Fraction(13)),
    Count("swiglu", 768, True, 12, Fraction(43, 3)),  # 8 d / 3 = 2048 wide; biases 4 + 2 · 8/3 + 1, two norms 4
    Count("swiglu", 768, False, 12, Fraction(2)),
    Count("swiglu", 64, True, 10, Fraction(13)),  # 8 d / 3 = 170 floors to 128: matrices 4 + 6; biases 4 + 5, two norms 4
    Count("swiglu", 64, False, 10, Fraction(2)),
)


def checks() -> Iterator[Check]:
    for placement in ("pre", "post"):
        for count in COUNTS:
            yield of_block(placement, count)
    yield final_norm()
    yield gpt2_small()


def of_block(placement: str, count: Count) -> Check:
    with torch.device("meta"):
        block = transformer(placement, depth=1, width=count.width, ffn=count.ffn, bias=count.bias).blocks[0]
    biases = "with" if count.bias else "without"
    name = f"{placement}_block_{count.ffn}_d{count.width}_{biases}_biases"
    quantity = f"parameters of a block; {count.square} d² + {count.linear} d"
    setting = f"{placement}, {count.ffn}, d = {count.width}, {biases} biases"
    return Check("C13", name, quantity, setting, count.expected, float(count_parameters(block)), 0.0)


def final_norm() -> Check:
    """The final norm is all that a Pre-LN model has more than a Post-LN one."""
    with torch.device("meta"):
        pre, post = (count_parameters(transformer(placement, depth=3, width=64)) for placement in ("pre", "post"))
    quantity = "parameters of a Pre-LN model less those of a Post-LN one; 2 d"
    return Check("C13", "final_norm", quantity, "3 blocks, d = 64, gelu, with biases", 2.0 * 64, float(pre - post), 0.0)


def gpt2_small() -> Check:
    shape = Shape(vocab=50257, context=1024)
    with torch.device("meta"):
        model = transformer("pre", shape, depth=12, width=768, n_head=12, ffn="gelu_tanh", tied=True)
    setting = "pre, 12 blocks, d = 768, 50257 tokens, context 1024, readout tied"
    return Check("C13", "gpt2_small", "parameters of a model", setting, float(GPT2_SMALL), float(count_parameters(model)), 0.0)
