"""Formulas mean what Python means by them, and nothing else can be said."""

import math

import pytest
import torch

from experiments.config import ConfigError
from experiments.formula import evaluate, names_in


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 + 3 * 4 ** 2", 50),
        ("-N ** 2", -144),
        ("(2 * N) ** (1/4)", 24**0.25),
        ("sqrt(log(2 * N))", math.sqrt(math.log(24))),
        ("floor(N / 5)", 2),
        ("0.1 if N <= 18 else 1e-5 if N <= 24 else 1e-6", 0.1),
        ("max(l, N) - min(l, N)", 9),
        ("l if attn else N", 3),
    ],
)
def test_numbers_are_those_of_python(text: str, expected: float) -> None:
    assert evaluate(text, {"N": 12, "l": 3, "attn": True}) == pytest.approx(expected)


def test_equations_take_functions_and_tensors() -> None:
    x = torch.randn(3, generator=torch.Generator().manual_seed(0))
    found = evaluate("norm(alpha * x + f(x))", {"x": x, "alpha": 2, "f": torch.tanh, "norm": lambda y: y / y.norm()})
    expected = 2 * x + x.tanh()
    torch.testing.assert_close(found, expected / expected.norm())


def test_only_the_branch_that_is_taken_is_evaluated() -> None:
    assert evaluate("1 if attn else missing(x)", {"attn": True}) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x +", "'x +' is no formula"),
        ("", "'' is no formula"),
        ("y + 1", "'y' in 'y + 1' has no value; known are: f, floor"),
        ("x.__class__", "'x.__class__' in 'x.__class__' is not understood"),
        ("__import__('os')", "'__import__' in"),
        ("[x for x in f]", "is not understood"),
        ("f(x, key=1)", "is not understood"),
        ("(lambda: 1)()", "is not understood"),
        ("'text'", "is not understood"),
        ("x = 1", "is no formula"),
        ("10 ** 10 ** 10", "'10 ** 10 ** 10' cannot be computed"),
        ("1 / 0", "cannot be computed: "),
        ("sqrt(-1)", "cannot be computed: "),
        ("x(1)", "cannot be computed: 'int' object is not callable"),
        ("(" * 500 + "x" + ")" * 500, "is no formula"),
    ],
)
def test_what_is_no_formula_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        evaluate(text, {"x": 1, "f": abs})
    assert words in str(raised.value)


def test_names_are_those_that_need_a_value() -> None:
    assert names_in("norm(alpha * x + f(x)) / sqrt(l)") == {"norm", "alpha", "x", "f", "l"}
