"""Expressions for the number of warm-up forwards, such as `2(N-i)+1`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from ..common import InputError

_MOST_CHARACTERS = 200
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}
_ALLOWED = "must be of whole numbers, N, M, i (stages, micro-batches, the stage from 1 on), + - * //, min and max"


def warm_ups(expression: str, stages: int, micro_batches: int) -> tuple[int, ...]:
    """Return the warm-up forwards of each stage that an expression of N, M and i gives; `2(N-i)` is `2*(N-i)`.

    Raises:
        InputError: the expression cannot be read, or is less than 1 for a stage.
    """
    times = re.sub(r"(?<=[0-9)])\s*(?=[NMi(])(?!in\b)", "*", expression)
    try:
        if len(expression) > _MOST_CHARACTERS:
            raise SyntaxError
        tree = ast.parse(times.strip(), mode="eval").body
        found = [_value(tree, {"N": stages, "M": micro_batches, "i": i}) for i in range(1, stages + 1)]
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError):
        raise InputError(f"`warm_up` = {expression!r}: {_ALLOWED}") from None
    for stage, forwards in enumerate(found, 1):
        if forwards < 1:
            raise InputError(f"`warm_up` = {expression!r}: is {forwards} at stage {stage}; must be at least 1")
    return tuple(found)


def _value(node: ast.expr, names: dict[str, int]) -> int:
    """Return the value of an expression.

    Raises:
        ValueError: it has a part that is not allowed.
    """
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(each, names) for each in args))
    raise ValueError
