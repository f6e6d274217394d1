"""All claims of a paper, measured and judged one by one."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import importlib
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..emulator.common import InputError, own_folder
from ..kernels import modules
from .claim import Claim, Expect, Measure, NoEvidence, Value, load_claims
from .constants import in_force
from .formula import Formulas

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
