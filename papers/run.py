"""All claims of a paper, measured and judged one by one; and the formulas that measure some of
them.

A formula is arithmetic over a paper's constants, and its functions with arguments; no code is run.

    measure = "2 * applications.CARD_LANES / applications.XEON_LANES"
    measure = "board('vcu118', 'on_chip_memory_kbit') / 1024"
    measure = "equations.deviation(3, 'dh0', 'dx')"
    how = "FARNN-13P; FARNN-9P has {synthetic.speed_up('9P', 1600):.2f}"

`FILE.NAME` is a constant in capitals of a file in the paper's folder, and `FILE.function(...)`
calls one of its public functions; `.name` after a call or an index is a field. Others are `min`,
`max`, `ceil`, `floor`, `sqrt`, and `board` (a key of a board's file). Braces in `how` hold formulas
with a format.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import functools
import math
import operator
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..emulator.cluster import board_keys
from ..emulator.common import InputError
from ..kernels import modules
from .claim import Claim, Expect, Measure, Measured, NoEvidence, Value, load_claims
from .constants import Constant, in_force, in_use

# Higher powers of integers, as 9 ** 9 ** 9, could take all memory.
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
    """What the formulas of a paper may name: constants and functions of its files, and functions of
    all papers.
    """

    files: Mapping[str, ModuleType]
    functions: Mapping[str, Callable[..., Any]]

    @classmethod
    def of_files(cls, files: Sequence[ModuleType]) -> Formulas:
        """Return those of a paper's files."""
        return cls({file.__name__.rpartition(".")[2]: file for file in files}, dict(_FUNCTIONS))

    def measure(self, formula: str, how: str = "") -> Measured:
        """Return the value of a formula; `how` is the note of one whose function has none.

        Raises:
            InputError: it is no formula, or names what the paper does not have.
        """
        try:
            value = self._value(ast.parse(formula, mode="eval").body)
        except (SyntaxError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise InputError(f"`measure` = {formula!r}: {error}") from None
        return value if isinstance(value, Measured) else Measured(value, self._note(how))

    def _note(self, how: str) -> str:
        """Return a note, with the values of the formulas in its braces."""
        parts = string.Formatter().parse(how)
        return "".join(
            text + (format(self.measure(formula).ours, form or "") if formula else "")
            for text, formula, form, _ in parts
        )

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
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if (
                type(sign) in _OPERATORS
            ):
                return _OPERATORS[type(sign)](self._number(left), self._number(right))
            case ast.Attribute(value=ast.Name(id=file), attr=name) if name.isupper():
                value = getattr(self.files[file], name)
                return in_use(value) if isinstance(value, Constant) else value
            case ast.Attribute(value=ast.Call() | ast.Subscript() as whole, attr=name) if (
                # No private names: by way of `__class__` a formula could reach all of Python.
                not name.startswith("_")
            ):
                return getattr(self._value(whole), name)
            case ast.Subscript(value=whole, slice=key):
                return self._value(whole)[self._value(key)]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if (
                name in self.functions
            ):
                return self.functions[name](*map(self._value, arguments))
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=file), attr=name), args=arguments, keywords=[]
            ):
                return self._function(file, name)(*map(self._value, arguments))
        raise TypeError(
            f"{ast.unparse(node)!r} is no number, operator, constant or function of a formula"
        )

    def _function(self, file: str, name: str) -> Callable[..., Any]:
        """Return a public function of a file, not one that it imports."""
        function = getattr(self.files[file], name)
        is_own = getattr(function, "__module__", None) == self.files[file].__name__
        if name.startswith("_") or not is_own or isinstance(function, type):
            raise TypeError(f"{file}.{name} is no function of a formula")
        return function

    def _number(self, node: ast.expr) -> Any:
        value = self._value(node)
        if not isinstance(value, (int, float)):
            raise TypeError(f"{ast.unparse(node)!r} is no number")
        return value


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "at_least": lambda ours, bound: ours >= bound,
    "at_most": lambda ours, bound: ours <= bound,
    "above": lambda ours, bound: ours > bound,
    "below": lambda ours, bound: ours < bound,
}


class Verdict(enum.Enum):
    """The outcome of a claim: values are within a tolerance or off; all other claims hold or do
    not.
    """

    WITHIN = "within"
    OFF = "off"
    HOLDS = "holds"
    FAILS = "does not hold"
    NOT_RUN = "not run"

    @property
    def is_good(self) -> bool:
        """Whether the claim is confirmed."""
        return self in (Verdict.WITHIN, Verdict.HOLDS)


def judge(expect: Expect, ours: Value) -> tuple[Verdict, float | None]:
    """Return the verdict, and for values the deviation as a share: the largest of a list, with its
    sign.
    """
    ((key, wanted),) = expect.said.items()
    if key == "near" and expect.points is not None:
        good = _apart(_as_list(wanted), _as_list(ours)) <= expect.points
        return (Verdict.WITHIN if good else Verdict.OFF), None
    if key == "near":
        deviation = _deviation(_as_list(wanted), _as_list(ours))
        return (Verdict.WITHIN if abs(deviation) <= expect.tolerance else Verdict.OFF), deviation
    if key == "equals":
        good = ours == wanted
    elif key == "between":
        # `all` of nothing is true, but an empty measure confirms nothing.
        good = bool(_as_list(ours)) and all(
            wanted[0] <= number <= wanted[1] for number in _as_list(ours)
        )
    else:
        good = bool(_as_list(ours)) and all(
            _COMPARISONS[key](number, wanted) for number in _as_list(ours)
        )
    return (Verdict.HOLDS if good else Verdict.FAILS), None


def _as_list(value: Value) -> list[float]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _apart(wanted: list[float], ours: list[float]) -> float:
    """Return the largest difference, in the unit of both; infinite if lengths differ."""
    if len(wanted) != len(ours):
        return math.inf
    return max(
        (abs(mine - theirs) for mine, theirs in zip(ours, wanted, strict=True)), default=math.inf
    )


def _deviation(wanted: list[float], ours: list[float]) -> float:
    """Return the largest deviation as a share; a single wanted figure applies to every measure."""
    if len(wanted) == 1:
        wanted = wanted * len(ours)
    if len(wanted) != len(ours) or not ours:
        return math.inf
    return max((mine / theirs - 1 for mine, theirs in zip(ours, wanted, strict=True)), key=abs)


@functools.cache
def measures(paper: str) -> Mapping[str, Measure]:
    """Return a paper's measures by the ids of its claims."""
    formulas = Formulas.of_files(modules(f"{__package__}.{paper}"))
    return {
        name: functools.partial(formulas.measure, claim.measure, claim.how)
        for name, claim in load_claims(paper).items()
        if claim.measure is not None
    }


@dataclasses.dataclass(frozen=True)
class Result:
    """A claim, its measured value, how (or why not), the deviation as a share (for values only),
    and the verdict.

    `guess_is_good` says whether the claim's `null` would be confirmed, too; None without one.
    """

    claim: Claim
    ours: Value
    how: str
    deviation: float | None
    verdict: Verdict
    guess_is_good: bool | None = None

    @property
    def is_run(self) -> bool:
        """Whether the claim was measured."""
        return self.verdict is not Verdict.NOT_RUN

    @property
    def is_counted(self) -> bool:
        """Whether summaries count the row: it was measured, and is no other row's claim once
        more.
        """
        return self.is_run and self.claim.same_as is None

    @property
    def is_confirmed(self) -> bool:
        """Whether the measure is good, and a guess would not be."""
        return self.verdict.is_good and not self.guess_is_good


def select(paper: str, prefix: str = "") -> list[Claim]:
    """Return the claims of a paper whose ids begin with `prefix`, with or without the paper's name.

    Raises:
        InputError: there is no such paper or no such claim.
    """
    claims = load_claims(paper)
    chosen = [c for name, c in claims.items() if name.startswith((prefix, f"{paper}-{prefix}"))]
    if not chosen:
        raise InputError(
            f"`--only` {prefix}: no claim id of {paper} begins with it; the first is"
            f" {next(iter(claims))}"
        )
    return chosen


def validate(
    paper: str, claims: Iterable[Claim], changes: Mapping[str, object] | None = None
) -> Iterator[Result]:
    """Yield the results of a paper's claims, each measured and judged on demand.

    `changes` are other values of the constants that its measures rest on, by their keys:
    {"board.dsp_share": 0.85}.
    """
    for claim in claims:
        with in_force(changes) if changes else contextlib.nullcontext():
            result = _result(paper, claim)
        # Outside of the context: a constant is changed for a measure, not for who reads the result.
        yield result


def _result(paper: str, claim: Claim) -> Result:
    """Return the result of a claim, with the constants in force."""
    if claim.expect is None:
        return judged(claim, None, claim.not_run or "")
    try:
        measured = measures(paper)[claim.id]()
    except NoEvidence as error:
        return judged(claim, None, str(error))
    return judged(claim, measured.ours, measured.how)


def judged(claim: Claim, ours: Value, how: str) -> Result:
    """Return the result of a claim whose measure is `ours`; None if it was not run, and `how` says
    why.
    """
    if claim.expect is None or ours is None:
        return Result(claim, None, how, None, Verdict.NOT_RUN)
    verdict, deviation = judge(claim.expect, ours)
    guess = None if claim.null is None else judge(claim.expect, claim.null)[0].is_good
    return Result(claim, ours, how, deviation, verdict, guess)
