"""Sizes as monomials in B (sequences) and T (tokens), found by tracing one block at two pairs of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

PAIRS = ((2, 5), (3, 7))  # (B, T) of the two traces; no two monomials below grow alike between them
POWERS = tuple(product(range(2), range(3)))  # of B and T
SUPERSCRIPT = {1: "", 2: "²"}

Powers = tuple[int, int]
Counts = Mapping[Powers, int]  # a polynomial in B and T: powers of B and T -> coefficient
Value = TypeVar("Value")


@dataclass(frozen=True)
class Size:
    """factor * B^batch * T^tokens."""

    factor: int
    batch: int = 0
    tokens: int = 0

    @property
    def plain(self) -> int | str:
        """As it stands in a shape: 768, ``B``, ``T``, ``12 B``."""
        return self.factor if not (self.batch or self.tokens) else words(self.factor, (self.batch, self.tokens))


Shape = tuple[Size, ...]


def size(values: Sequence[int]) -> Size:
    """The monomial with these values at PAIRS. ValueError if there is none."""
    for batch, tokens in POWERS:
        factors = {divmod(value, B**batch * T**tokens) for value, (B, T) in zip(values, PAIRS, strict=True)}
        if len(factors) == 1 and (found := factors.pop())[1] == 0:
            return Size(found[0], batch, tokens)
    raise ValueError(f"{tuple(values)} at (B, T) = {PAIRS} is no number times powers of B and T")


def shape(sizes: Sequence[Sequence[int]]) -> Shape:
    """The shape with these sizes at PAIRS."""
    return tuple(size(values) for values in zip(*sizes, strict=True))


def words(factor: int, powers: Powers) -> str:
    """``3,538,944 B T``, ``1,536 B T²``; a factor 1 is left out before a letter."""
    letters = [letter + SUPERSCRIPT[power] for letter, power in zip("BT", powers, strict=True) if power]
    return " ".join([f"{factor:,}", *letters] if factor != 1 or not letters else letters)


def counts(sizes: Iterable[Size]) -> Counts:
    """Their sum."""
    return total([{(found.batch, found.tokens): found.factor} for found in sizes if found.factor])


def total(parts: Iterable[Counts]) -> Counts:
    """The sum of polynomials, by rising powers."""
    out: dict[Powers, int] = {}
    for part in parts:
        for powers, factor in part.items():
            out[powers] = out.get(powers, 0) + factor
    return dict(sorted(out.items()))


def count_words(found: Counts) -> str:
    """``7,077,888 B T + 3,072 B T²``; empty where nothing is counted."""
    return " + ".join(words(factor, powers) for powers, factor in found.items())


def shape_words(found: Sequence[int | str]) -> str:
    """``(B, 12, T, 64)``."""
    return f"({', '.join(map(str, found))})"
