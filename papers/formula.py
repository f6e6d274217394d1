"""Formulas of claims: arithmetic over a paper's constants, and its functions with arguments; no code is run.

    measure = "2 * applications.CARD_LANES / applications.XEON_LANES"
    measure = "board('vcu118', 'on_chip_memory_kbit') / 1024"
    measure = "deviation(3, 'dh0', 'dx')"

`FILE.NAME` is a constant in capitals of a file in the paper's folder. Functions are `min`, `max`, `ceil`, `floor`,
`sqrt`, `board` (a key of a board's file), and those that the paper's files list in `FUNCTIONS`.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..emulator.cluster import board_keys
from ..emulator.common import InputError
from .claim import Measured, Value
from .constants import Constant, in_use

_LARGEST_POWER = 64
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def board(kind: str, key: str) -> Value:
    """Return a key of a board that comes with emuchain."""
    return board_keys(kind)[key]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{"min": min, "max": max, "ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt},
    "board": board,
}


@dataclasses.dataclass(frozen=True)
class Formulas:
    """What the formulas of a paper may name: constants of its files, and functions."""

    files: Mapping[str, ModuleType]
    functions: Mapping[str, Callable[..., Any]]

    @classmethod
    def of_files(cls, files: Sequence[ModuleType]) -> Formulas:
        """Return those of a paper's files."""
        own = {name: function for file in files for name, function in getattr(file, "FUNCTIONS", {}).items()}
        return cls({file.__name__.rpartition(".")[2]: file for file in files}, {**_FUNCTIONS, **own})

    def measure(self, formula: str, how: str = "") -> Measured:
        """Return the value of a formula; `how` is the note of one that is no call of a paper's function.

        Raises:
            InputError: it is no formula, or names what the paper does not have.
        """
        try:
            value = self._value(ast.parse(formula, mode="eval").body)
        except (SyntaxError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise InputError(f"`measure` = {formula!r}: {error}") from None
        return value if isinstance(value, Measured) else Measured(value, how)

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | float() | str() as value):
                return value
            case ast.List(elts=parts):
                return [self._value(part) for part in parts]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._number(operand)
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
                one, other = self._number(left), self._number(right)
                if isinstance(sign, ast.Pow) and abs(other) > _LARGEST_POWER:
                    raise TypeError(f"powers go to {_LARGEST_POWER}")
                return _OPERATORS[type(sign)](one, other)
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _OPERATORS:
                return _OPERATORS[type(sign)](self._number(left), self._number(right))
            case ast.Attribute(value=ast.Name(id=file), attr=name) if name.isupper():
                value = getattr(self.files[file], name)
                return in_use(value) if isinstance(value, Constant) else value
            case ast.Subscript(value=whole, slice=key):
                return self._value(whole)[self._value(key)]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in self.functions:
                return self.functions[name](*map(self._value, arguments))
        raise TypeError(f"{ast.unparse(node)!r} is no number, operator, constant or function of a formula")

    def _number(self, node: ast.expr) -> Any:
        value = self._value(node)
        if not isinstance(value, (int, float)):
            raise TypeError(f"{ast.unparse(node)!r} is no number")
        return value
