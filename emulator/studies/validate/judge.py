"""The verdict: the measured value against the expected one."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

from .claim import Expect, Value

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
        good = bool(_as_list(ours)) and all(wanted[0] <= each <= wanted[1] for each in _as_list(ours))
    else:
        good = bool(_as_list(ours)) and all(_COMPARISONS[key](each, wanted) for each in _as_list(ours))
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
