"""All claims of a paper, measured and judged one by one; and the formulas that measure some of them.

A formula is arithmetic over a paper's constants, and its functions with arguments; no code is run.

    measure = "2 * applications.CARD_LANES / applications.XEON_LANES"
    measure = "board('vcu118', 'on_chip_memory_kbit') / 1024"
    measure = "deviation(3, 'dh0', 'dx')"

`FILE.NAME` is a constant in capitals of a file in the paper's folder. Functions are `min`, `max`, `ceil`, `floor`,
`sqrt`, `board` (a key of a board's file), and those that the paper's files list in `FUNCTIONS`.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import functools
import importlib
import math
import operator
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..emulator.cluster import board_keys
from ..emulator.common import InputError, own_folder
from ..kernels import modules
from .claim import Claim, Expect, Measure, Measured, NoEvidence, Value, load_claims
from .constants import Constant, in_force, in_use

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


Draw = Callable[[pathlib.Path], None]
"""Draws a figure into a file; raises NoEvidence where there is nothing to draw."""

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "at_least": lambda ours, bound: ours >= bound,
    "at_most": lambda ours, bound: ours <= bound,
    "above": lambda ours, bound: ours > bound,
    "below": lambda ours, bound: ours < bound,
}


class Verdict(enum.Enum):
    """The outcome of a claim: values are within a tolerance or off; all other claims hold or do not."""

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
    """Return the verdict, and for values the deviation as a share: the largest of a list, with its sign."""
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
        good = bool(_as_list(ours)) and all(wanted[0] <= number <= wanted[1] for number in _as_list(ours))
    else:
        good = bool(_as_list(ours)) and all(_COMPARISONS[key](number, wanted) for number in _as_list(ours))
    return (Verdict.HOLDS if good else Verdict.FAILS), None


def _as_list(value: Value) -> list[float]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _apart(wanted: list[float], ours: list[float]) -> float:
    """Return the largest difference, in the unit of both; infinite if lengths differ."""
    if len(wanted) != len(ours):
        return math.inf
    return max((abs(mine - theirs) for mine, theirs in zip(ours, wanted, strict=True)), default=math.inf)


def _deviation(wanted: list[float], ours: list[float]) -> float:
    """Return the largest deviation as a share; a single wanted figure applies to every measure."""
    if len(wanted) == 1:
        wanted = wanted * len(ours)
    if len(wanted) != len(ours) or not ours:
        return math.inf
    return max((mine / theirs - 1 for mine, theirs in zip(ours, wanted, strict=True)), key=abs)


@functools.cache
def measures(paper: str) -> Mapping[str, Measure]:
    """Return a paper's measures by the ids of its claims: `MEASURES` of each module in its folder, and formulas."""
    topics = modules(f"{__package__}.{paper}")
    coded = {name: measure for topic in topics for name, measure in getattr(topic, "MEASURES", {}).items()}
    formulas = Formulas.of_files(topics)
    return coded | {
        name: functools.partial(formulas.measure, claim.measure, claim.how)
        for name, claim in load_claims(paper).items()
        if claim.measure is not None
    }


@dataclasses.dataclass(frozen=True)
class Result:
    """A claim, its measured value, how (or why not), the deviation as a share (for values only), and the verdict.

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
        """Whether summaries count the row: it was measured, and is no other row's claim once more."""
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
        raise InputError(f"`--only` {prefix}: no claim id of {paper} begins with it; the first is {next(iter(claims))}")
    return chosen


def draw_pictures(paper: str, folder: pathlib.Path, runs: pathlib.Path | None) -> list[pathlib.Path]:
    """Draw a paper's figures from our results; return their paths.

    `runs` is a folder with results of training, for figures that show convergence.

    Raises:
        InputError: matplotlib is not installed, `runs` has no results, or a file cannot be written.
    """
    drawn = []
    with own_folder(folder, "--pictures"):
        for name, draw in _figures(paper, runs).items():
            path = folder / f"{name}.png"
            with contextlib.suppress(NoEvidence):
                draw(path)
                drawn.append(path)
    return drawn


def _figures(paper: str, runs: pathlib.Path | None) -> Mapping[str, Draw]:
    """Return what draws a paper's figures, by their names; those of training only where there are runs."""
    pictures = importlib.import_module(f"{__package__}.{paper}.pictures")
    figures: dict[str, Draw] = dict(pictures.FIGURES)
    if runs is not None:
        of_runs = getattr(pictures, "FIGURES_OF_RUNS", {})
        figures |= {name: functools.partial(draw, runs) for name, draw in of_runs.items()}
    return figures


def validate(paper: str, claims: Iterable[Claim], changes: Mapping[str, object] | None = None) -> Iterator[Result]:
    """Yield the results of a paper's claims, each measured and judged on demand.

    `changes` are other values of the constants that its measures rest on, by their keys: {"board.dsp_share": 0.85}.
    """
    for claim in claims:
        with in_force(changes) if changes else contextlib.nullcontext():
            result = _result(paper, claim)
        yield result


def _result(paper: str, claim: Claim) -> Result:
    """Return the result of a claim, with the constants in force."""
    if claim.expect is None:
        return Result(claim, None, claim.not_run or "", None, Verdict.NOT_RUN)
    try:
        measured = measures(paper)[claim.id]()
    except NoEvidence as error:
        return Result(claim, None, str(error), None, Verdict.NOT_RUN)
    verdict, deviation = judge(claim.expect, measured.ours)
    guess = None if claim.null is None else judge(claim.expect, claim.null)[0].is_good
    return Result(claim, measured.ours, measured.how, deviation, verdict, guess)
