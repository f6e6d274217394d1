"""Tables I and II of BaPipe: closed forms against the timeline engine, on equal stages.

N is 1 to 8, M up to 32, with nine sets of F, B and SR in the range where the form is exact. A measure counts what
differs, and says what differs beyond the range. FBP-AS's row mixes two machines: its time wants a pool of multipliers
that F and B share, where the features of both tables are the warm-up's, and fixed engines would take longer.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from fractions import Fraction

from ...emulator.schedule import Engines, Machine, Shape, StageCosts, pipeline_kind
from ...emulator.timing import PipelineResult, schedule_of, time_shape
from ..claim import Measure, Measured

STAGES, MICRO_BATCHES = range(1, 9), (1, 2, 3, 5, 8, 9, 16, 21, 32)
ASYNCHRONOUS, SYNCHRONOUS = ("1f1b-as", "fbp-as"), ("1f1b-sno", "1f1b-so")
SCHEDULES = (*ASYNCHRONOUS, *SYNCHRONOUS)
WORK = ((1, 2), (2, 2), (3, 2))
"""F and B."""
_FORWARD, _BACKWARD = 10, 20


@dataclasses.dataclass(frozen=True)
class Case:
    """A mini-batch of M micro-batches on N equal stages."""

    n: int
    m: int
    f: int
    b: int
    sr: int = 0


def cases(ratios: tuple[Fraction, ...], least: Callable[[int, int], int]) -> Iterator[Case]:
    """Yield cases with SR as shares of what bounds it, a function of F and B; times are multiples of 12 ps."""
    for n in STAGES:
        for m in MICRO_BATCHES:
            for forward, backward in WORK:
                f, b = 12 * forward, 12 * backward
                yield from (Case(n, m, f, b, int(share * least(f, b))) for share in ratios)


def shape_of(schedule: str, case: Case, machine: Machine | None = None) -> Shape:
    """Return a case for the engine, on the schedule's own machine or another one."""
    costs = (StageCosts(case.f, case.b, transfer_ps=case.sr),) * case.n
    return Shape(case.n, case.m, costs, machine or pipeline_kind(schedule).machine)


@functools.cache
def run(schedule: str, case: Case, machine: Machine | None = None) -> PipelineResult:
    """Return a case on the timeline engine."""
    return time_shape(pipeline_kind(schedule), shape_of(schedule, case, machine))


def table_ps(schedule: str, case: Case, machine: Machine | None = None) -> int:
    """Return the time by the formula of Table I or II, which the schedule has as its closed form."""
    _, form = schedule_of(pipeline_kind(schedule), shape_of(schedule, case, machine))
    assert form is not None
    return form.time_ps


_BOUNDS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "1f1b-as": ("SR <= min(F, B)", min),
    "fbp-as": ("SR <= min(F, B)", min),
    "1f1b-sno": ("SR <= F + B", int.__add__),
    "1f1b-so": ("SR <= min(F, B)", min),
}
_WITHIN = (Fraction(0), Fraction(1, 3), Fraction(1))
_BEYOND = (Fraction(3, 2),)


def _valid(schedule: str) -> list[Case]:
    return list(cases(_WITHIN, _BOUNDS[schedule][1]))


def _time(schedule: str) -> Measured:
    """Count the cases in which the engine's time is not the formula's."""
    said, least = _BOUNDS[schedule]
    valid = _valid(schedule)
    wrong = sum(run(schedule, case).makespan_ps != table_ps(schedule, case) for case in valid)
    beyond = list(cases(_BEYOND, least))
    off = sum(run(schedule, case).makespan_ps != table_ps(schedule, case) for case in beyond)
    how = f"of {len(valid)} with {said}; with SR half as long again {off} of {len(beyond)}"
    if schedule == "fbp-as":
        split = dataclasses.replace(pipeline_kind(schedule).machine, engines=Engines.SPLIT)
        apart = [case for case in valid if case.sr == 0 and case.m >= 2 * case.n]
        longer = sum(run(schedule, c, split).makespan_ps == table_ps(schedule, c, split) for c in apart)
        how += f"; separate engines for F and B take (M + 2N - 1)(F + B) in {longer} of {len(apart)} with M >= 2N"
    return Measured(wrong, how)


def _bubble(schedule: str) -> Measured:
    """Count the cases in which the engine's idle share is not the table's."""
    valid = _valid(schedule)
    wrong = sum(
        run(schedule, case).bubble != 1 - Fraction(case.m * (case.f + case.b), table_ps(schedule, case))
        for case in valid
    )
    return Measured(wrong, f"of {len(valid)}: (time - M (F + B)) / time")


def _full(schedule: str) -> list[Case]:
    """Return cases with enough micro-batches for a whole warm-up."""
    return [case for case in _valid(schedule) if case.m >= 2 * case.n]


def _features(schedule: str, warm_up: int) -> Measured:
    """Count the stages that keep another number of micro-batches than warm_up (N - i + 1)."""
    wrong, stages = 0, 0
    for case in _full(schedule):
        kept = run(schedule, case).features
        wrong += sum(count != warm_up * (case.n - stage) for stage, count in enumerate(kept))
        stages += case.n
    how = f"of {stages} stages, M >= 2N"
    if schedule == "fbp-as":
        split = dataclasses.replace(pipeline_kind(schedule).machine, engines=Engines.SPLIT)
        kept = run(schedule, Case(3, 8, 12, 24), split).features
        how += f"; N = 3, M = 8: {', '.join(map(str, kept))} with separate engines, too"
    return Measured(wrong, how)


def _weights(schedule: str) -> Measured:
    """Measure the most copies of a stage's weights and gradients."""
    copies = [copy_count + 1 for case in _full(schedule) for copy_count in run(schedule, case).weight_copies]
    return Measured([min(copies), max(copies)], "versions of the weights, and one gradient: least, most")


def _bandwidth(schedule: str) -> Measured:
    """Count the cases in which the rate that hides messages is not the table's; of chains with inner stages, B >= F."""
    full = [case for case in _full(schedule) if case.n > 2 and case.b >= case.f]
    by_table = {"fbp-as": lambda case: Fraction(2, case.f + case.b)}
    table = by_table.get(schedule, lambda case: Fraction(1, case.f))
    wrong = sum(run(schedule, case).send_peak != table(case) for case in full)
    return Measured(wrong, f"of {len(full)} with B >= F; where B < F, 1F1B's errors need a/B")


def _same_time() -> Measured:
    valid = _valid("1f1b-as")
    wrong = sum(run("1f1b-as", case).makespan_ps != run("fbp-as", case).makespan_ps for case in valid)
    return Measured(wrong, f"cases that differ, of {len(valid)}")


def _memory_ratio(more: str, less: str) -> Measured:
    ratios = [
        float(two / one)
        for case in _full(less)
        for two, one in zip(run(more, case).features, run(less, case).features, strict=True)
    ]
    return Measured([min(ratios), max(ratios)], "stages, M >= 2N: least, most")


def _bandwidth_order() -> Measured:
    by_work = {(f, b): Case(4, 16, 12 * f, 12 * b) for f, b in WORK}
    ratios = {work: float(run("1f1b-as", c).send_peak / run("fbp-as", c).send_peak) for work, c in by_work.items()}
    others = ", ".join(f"{ratios[work]:.2f} with F : B = {work[0]} : {work[1]}" for work in WORK[1:])
    return Measured(ratios[1, 2], f"with B = 2 F; {others}")


def _smaller_micro_batches() -> Measured:
    """Compare FBP-AS with half the micro-batch and twice the M: what is so of the four that the text says."""
    half, whole = Case(4, 32, 12, 24), Case(4, 16, 24, 48)
    fbp, as_1f1b = run("fbp-as", half), run("1f1b-as", whole)
    said = {
        "faster": fbp.makespan_ps < as_1f1b.makespan_ps,
        "smaller bubble": fbp.bubble < as_1f1b.bubble,
        "less feature memory": fbp.features[0] < 2 * as_1f1b.features[0],
        "more bandwidth": fbp.send_peak > 2 * as_1f1b.send_peak,
    }
    return Measured([name for name, holds in said.items() if holds], "FBP-AS with M = 32, 1F1B-AS with M = 16, N = 4")


def _overlap_gain() -> Measured:
    """Measure 1F1B-SO over 1F1B-SNO, time and bubble, where messages take time and there is a steady state."""
    overlapping = [case for case in _valid("1f1b-so") if case.sr and case.n > 1 and case.m > case.n]
    pairs = [(run("1f1b-so", case), run("1f1b-sno", case)) for case in overlapping]
    ratios = [so.makespan_ps / sno.makespan_ps for so, sno in pairs] + [
        float(so.bubble / sno.bubble) for so, sno in pairs
    ]
    return Measured(
        [min(ratios), max(ratios)], f"time and bubble over 1F1B-SNO's, M > N, {len(overlapping)} cases: least, most"
    )


def _extra() -> Measured:
    """Measure the time that 1F1B-SNO takes beyond 1F1B-SO with twice the micro-batches."""
    extra = {}
    for m in (160, 320):
        case = Case(4, m, _FORWARD, _BACKWARD, 5)
        extra[m] = run("1f1b-sno", case).makespan_ps - run("1f1b-so", case).makespan_ps
    return Measured(extra[320] / extra[160], "time beyond 1F1B-SO's, M = 320 over M = 160, N = 4")


FUNCTIONS = {
    "time": _time,
    "bubble": _bubble,
    "features": _features,
    "weights": _weights,
    "bandwidth": _bandwidth,
    "memory_ratio": _memory_ratio,
}
MEASURES: dict[str, Measure] = {
    "bapipe-as-same-time": _same_time,
    "bapipe-as-bandwidth-order": _bandwidth_order,
    "bapipe-fbp-smaller-m": _smaller_micro_batches,
    "bapipe-so-faster": _overlap_gain,
    "bapipe-sno-extra-prop-m": _extra,
}
