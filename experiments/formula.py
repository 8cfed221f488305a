"""Formulas as data: a small part of Python's expressions, read without executing anything.

Numbers, names, + - * / **, comparisons, ``a if c else b``, and calls of the functions below or of a name's value. Values
may be numbers or tensors, so one reader serves constants and equations.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from experiments.config import ConfigError

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sqrt": math.sqrt,
    "log": math.log,
    "floor": math.floor,
    "min": min,
    "max": max,
}
OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: lambda base, power: (float(base) if isinstance(base, int) else base) ** power,  # of integers, it need not end
    ast.USub: operator.neg,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value of a formula. ConfigError names what is no formula, a name that has no value, or what cannot be computed."""
    try:
        return _value(_parse(text), {**FUNCTIONS, **names}, text)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{text!r} cannot be computed: {error}") from error


def names_in(text: str) -> frozenset[str]:
    """Names that a formula reads, functions above excluded. ConfigError as for ``evaluate``."""
    return frozenset(node.id for node in ast.walk(_parse(text)) if isinstance(node, ast.Name)) - FUNCTIONS.keys()


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ConfigError(f"{text!r} is no formula; write it as norm(x + f(x))") from None


def _value(node: ast.expr, names: Mapping[str, Any], text: str) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() as number):
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Name(id=name):
            raise ConfigError(f"{name!r} in {text!r} has no value; known are: {', '.join(sorted(names))}")
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]) if _known(op):
            return OPERATORS[type(op)](_value(left, names, text), _value(right, names, text))
        case ast.UnaryOp(op=op, operand=operand) if _known(op):
            return OPERATORS[type(op)](_value(operand, names, text))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names, text) else orelse, names, text)
        case ast.Call(func=ast.Name() as function, args=arguments, keywords=[]):
            return _value(function, names, text)(*(_value(argument, names, text) for argument in arguments))
    what = ast.unparse(node)
    raise ConfigError(f"{what!r} in {text!r} is not understood; use numbers, names, + - * / **, < >, if else, calls")


def _known(op: ast.AST) -> bool:
    return type(op) in OPERATORS
