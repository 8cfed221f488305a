"""A variant's equations, formulas in Python's notation, in mathematical notation for one block."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from analysis.anatomy.words import symbol

Names = Mapping[str, float]
OPERATORS: Mapping[type, Callable[[Any, Any], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
}  # fmt: skip
FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "sqrt": math.sqrt, "log": math.log, "floor": math.floor, "min": min, "max": max,
}  # fmt: skip
BRANCHES = {"attn": "attention", "cross": "cross-attention", "ffn": "feed-forward"}
SUM, PRODUCT, POWER, ATOM = 1, 2, 3, 4  # how tightly an expression holds together


def tex(formula: str, names: Names) -> str:
    """The formula as it is where ``names`` have these values: a condition that they decide is left out."""
    return _tex(ast.parse(formula.strip(), mode="eval").body, names)[0]


def _tex(node: ast.expr, names: Names) -> tuple[str, int]:
    """The expression, and how tightly it holds together."""
    match node:
        case ast.Constant(value=value):
            found = str(value), ATOM
        case ast.Name(id=name):
            found = symbol(name), ATOM
        case ast.IfExp():
            found = _choice(node, names)
        case ast.Call(func=ast.Name(id="sqrt"), args=[inner]):
            found = rf"\sqrt{{{_tex(inner, names)[0]}}}", ATOM
        case ast.Call(func=ast.Name(id=name), args=arguments):
            found = f"{symbol(name)}({', '.join(_tex(argument, names)[0] for argument in arguments)})", ATOM
        case ast.BinOp():
            found = _binary(node, names)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            found = f"-{_held(inner, PRODUCT, names)}", SUM
        case _:
            found = rf"\mathrm{{{ast.unparse(node)}}}", 0
    return found


def _choice(node: ast.IfExp, names: Names) -> tuple[str, int]:
    known = _value(node.test, names)
    if known is not None:
        return _tex(node.body if known else node.orelse, names)
    body, test, other = (_tex(part, names)[0] for part in (node.body, node.test, node.orelse))
    return rf"{body}\ \mathrm{{if}}\ {test}\ \mathrm{{else}}\ {other}", 0


def _binary(node: ast.BinOp, names: Names) -> tuple[str, int]:
    left, right = node.left, node.right
    match node.op:
        case ast.Mult() if isinstance(left, ast.Constant) and left.value == 0:
            found = "0", ATOM
        case ast.Pow():
            found = f"{_held(left, ATOM, names)}^{{{_tex(right, names)[0]}}}", POWER
        case ast.Mult():
            between = r" \cdot " if isinstance(right, ast.Constant) else r"\,"
            found = f"{_held(left, PRODUCT, names)}{between}{_held(right, PRODUCT, names)}", PRODUCT
        case ast.Div():
            found = f"{_held(left, PRODUCT, names)}/{_held(right, POWER, names)}", PRODUCT
        case ast.Sub():
            found = f"{_held(left, SUM, names)} - {_held(right, PRODUCT, names)}", SUM
        case _:
            found = f"{_held(left, SUM, names)} + {_held(right, SUM, names)}", SUM
    return found


def _held(node: ast.expr, tightly: int, names: Names) -> str:
    text, held = _tex(node, names)
    return text if held >= tightly else f"({text})"


def _value(node: ast.expr, names: Names) -> float | None:
    """A number, or None where a name has none."""
    found: float | None = None
    match node:
        case ast.Constant(value=bool() | int() | float() as number):
            found = float(number)
        case ast.Name(id=name):
            found = names.get(name)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            known = _value(test, names)
            found = None if known is None else _value(body if known else orelse, names)
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in FUNCTIONS:
            values = [_value(argument, names) for argument in arguments]
            found = None if None in values else float(FUNCTIONS[name](*values))
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            a, b = _value(left, names), _value(right, names)
            if a is not None and b is not None and type(op) in OPERATORS:
                found = float(OPERATORS[type(op)](a, b))
    return found


def sentence(trace: Mapping[str, Any]) -> str:
    """The block's update of every stream, for each kind of branch where they differ, and the constants."""
    equation, depth = trace["equation"], trace["size"]["depth"]
    formulas = {"x": equation["x"], **equation["streams"]}
    said: dict[str, list[str]] = {}
    for join, kind in enumerate(trace["branches"]):
        site = {"N": float(depth), "l": trace["layer"] + 1.0, "k": float(trace["layer"] * len(trace["branches"]) + join + 1)}
        names = site | {other: float(other == kind) for other in ("attn", "ffn", "cross")}
        updates = [rf"{symbol(stream)} \leftarrow {tex(formula, names)}" for stream, formula in formulas.items()]
        said.setdefault(r",\quad ".join(updates), []).append(kind)
    constants = [rf"{symbol(name)} = {tex(formula, {})}" for name, formula in equation["where"].items()]
    if len(said) > 1:
        parts = [f"{' and '.join(BRANCHES[kind] for kind in kinds)}: ${text}$" for text, kinds in said.items()]
    else:
        parts = [f"${text}$" for text in said]
    return ",   ".join([*parts, *(f"${text}$" for text in constants)])
