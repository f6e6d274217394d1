"""BaPipe's schedules: Tables I and II, closed forms against the timeline engine, and what they are
(section III-A).

Stages are equal, N is 1 to 8, M up to 32, with nine sets of F, B and SR in the range where the form
is exact. A measure counts what differs, and says what differs beyond the range. FBP-AS's row mixes
two machines: its time wants a pool of multipliers that F and B share, where the features of both
tables are the warm-up's, and fixed engines would take longer.

What schedules are (Figs. 2 to 4) is measured on timelines.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Iterator
from fractions import Fraction

from ...emulator.schedule import (
    Engines,
    EpochShape,
    Kind,
    Machine,
    Shape,
    StageCosts,
    Transport,
    pipeline_kind,
    pipelines,
    schedules,
)
from ...emulator.timing import PipelineResult, Timed, schedule_of, time_pipeline, time_shape
from ...emulator.view import PipelineDrawing, draw_chart, new_figure, save_figure
from ..claim import Measured
from ..pictures import Draw

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
    """Yield cases with SR as shares of what bounds it, a function of F and B; times are multiples
    of 12 ps.
    """
    for n in STAGES:
        for m in MICRO_BATCHES:
            for forward, backward in WORK:
                # 12, so that thirds and halves of these times are whole picoseconds.
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
    """Return the time by the formula of Table I or II, which the schedule has as its closed
    form.
    """
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


def time(schedule: str) -> Measured:
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
        longer = sum(
            run(schedule, c, split).makespan_ps == table_ps(schedule, c, split) for c in apart
        )
        how += (
            f"; separate engines for F and B take (M + 2N - 1)(F + B) in {longer} of {len(apart)}"
            " with M >= 2N"
        )
    return Measured(wrong, how)


def bubble(schedule: str) -> Measured:
    """Count the cases in which the engine's idle share is not the table's."""
    valid = _valid(schedule)
    wrong = sum(
        run(schedule, case).bubble
        != 1 - Fraction(case.m * (case.f + case.b), table_ps(schedule, case))
        for case in valid
    )
    return Measured(wrong, f"of {len(valid)}: (time - M (F + B)) / time")


def _full(schedule: str) -> list[Case]:
    """Return cases with enough micro-batches for a whole warm-up."""
    return [case for case in _valid(schedule) if case.m >= 2 * case.n]


def features(schedule: str, warm_up: int) -> Measured:
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


def weights(schedule: str) -> Measured:
    """Measure the most copies of a stage's weights and gradients."""
    copies = [
        copy_count + 1
        for case in _full(schedule)
        for copy_count in run(schedule, case).weight_copies
    ]
    return Measured(
        [min(copies), max(copies)], "versions of the weights, and one gradient: least, most"
    )


def bandwidth(schedule: str) -> Measured:
    """Count the cases in which the rate that hides messages is not the table's; of chains with
    inner stages, B >= F.
    """
    full = [case for case in _full(schedule) if case.n > 2 and case.b >= case.f]
    by_table = {"fbp-as": lambda case: Fraction(2, case.f + case.b)}
    table = by_table.get(schedule, lambda case: Fraction(1, case.f))
    wrong = sum(run(schedule, case).send_peak != table(case) for case in full)
    return Measured(wrong, f"of {len(full)} with B >= F; where B < F, 1F1B's errors need a/B")


def same_time() -> Measured:
    """Count the cases in which the asynchronous schedules take different times."""
    valid = _valid("1f1b-as")
    wrong = sum(
        run("1f1b-as", case).makespan_ps != run("fbp-as", case).makespan_ps for case in valid
    )
    return Measured(wrong, f"cases that differ, of {len(valid)}")


def memory_ratio(more: str, less: str) -> Measured:
    """Measure the features that one schedule keeps over those of another."""
    ratios = [
        float(two / one)
        for case in _full(less)
        for two, one in zip(run(more, case).features, run(less, case).features, strict=True)
    ]
    return Measured([min(ratios), max(ratios)], "stages, M >= 2N: least, most")


def bandwidth_order() -> Measured:
    """Measure the rate that hides messages, 1F1B-AS over FBP-AS."""
    by_work = {(f, b): Case(4, 16, 12 * f, 12 * b) for f, b in WORK}
    ratios = {
        work: float(run("1f1b-as", c).send_peak / run("fbp-as", c).send_peak)
        for work, c in by_work.items()
    }
    others = ", ".join(
        f"{ratios[work]:.2f} with F : B = {work[0]} : {work[1]}" for work in WORK[1:]
    )
    return Measured(ratios[1, 2], f"with B = 2 F; {others}")


def smaller_micro_batches() -> Measured:
    """Compare FBP-AS with half the micro-batch and twice the M: what is so of the four that the
    text says.
    """
    half, whole = Case(4, 32, 12, 24), Case(4, 16, 24, 48)
    fbp, as_1f1b = run("fbp-as", half), run("1f1b-as", whole)
    said = {
        "faster": fbp.makespan_ps < as_1f1b.makespan_ps,
        "smaller bubble": fbp.bubble < as_1f1b.bubble,
        "less feature memory": fbp.features[0] < 2 * as_1f1b.features[0],
        "more bandwidth": fbp.send_peak > 2 * as_1f1b.send_peak,
    }
    return Measured(
        [name for name, holds in said.items() if holds],
        "FBP-AS with M = 32, 1F1B-AS with M = 16, N = 4",
    )


def overlap_gain() -> Measured:
    """Measure 1F1B-SO over 1F1B-SNO, time and bubble, where messages take time and there is a
    steady state.
    """
    overlapping = [case for case in _valid("1f1b-so") if case.sr and case.n > 1 and case.m > case.n]
    pairs = [(run("1f1b-so", case), run("1f1b-sno", case)) for case in overlapping]
    ratios = [so.makespan_ps / sno.makespan_ps for so, sno in pairs]
    ratios += [float(so.bubble / sno.bubble) for so, sno in pairs]
    return Measured(
        [min(ratios), max(ratios)],
        f"time and bubble over 1F1B-SNO's, M > N, {len(overlapping)} cases: least, most",
    )


def extra() -> Measured:
    """Measure the time that 1F1B-SNO takes beyond 1F1B-SO with twice the micro-batches."""
    extra = {}
    # A ratio of 2 says that the difference grows with M; filling and draining do not.
    for m in (160, 320):
        case = Case(4, m, _FORWARD, _BACKWARD, 5)
        extra[m] = run("1f1b-sno", case).makespan_ps - run("1f1b-so", case).makespan_ps
    return Measured(extra[320] / extra[160], "time beyond 1F1B-SO's, M = 320 over M = 160, N = 4")


FIG_3 = Case(3, 8, 10, 20)
FIG_4 = Case(3, 8, 10, 20, 5)


def _on(timeline: PipelineResult, device: int) -> list[Timed]:
    return [action for action in timeline.timed if action.device == device]


def alternates() -> Measured:
    """Count pairs of actions of the same kind in a row, between a stage's first B and its last
    F.
    """
    wrong = pairs = 0
    for name in ("1f1b-as", "1f1b-sno", "1f1b-so"):
        timeline = run(name, FIG_4)
        for device in range(FIG_4.n):
            kinds = [action.step.kind for action in _on(timeline, device)]
            steady = kinds[
                # Up to behind the last F, which is found from the end.
                kinds.index(Kind.BACKWARD) : len(kinds) - kinds[::-1].index(Kind.FORWARD)
            ]
            wrong += sum(one is other for one, other in itertools.pairwise(steady))
            pairs += max(len(steady) - 1, 0)
    return Measured(wrong, f"pairs of the same kind, of {pairs}: 1F1B-AS, 1F1B-SNO, 1F1B-SO")


def _side_by_side(timeline: PipelineResult) -> list[float]:
    """Return the share of time in which each stage runs F and B at once, from its first B until its
    last F.
    """
    shares = []
    for device in sorted({action.device for action in timeline.timed}):
        actions = list(_on(timeline, device))
        forward = [action for action in actions if action.step.kind is Kind.FORWARD]
        backward = [action for action in actions if action.step.kind is Kind.BACKWARD]
        begin, end = backward[0].start_ps, forward[-1].end_ps
        both = sum(
            max(0, min(f.end_ps, b.end_ps) - max(f.start_ps, b.start_ps))
            for f in forward
            for b in backward
        )
        shares.append(both / (end - begin) if end > begin else 0)
    return shares


def parallel() -> Measured:
    """Measure how long F and B run at once on separate engines, as FPDeep has them."""
    case, pool = Case(3, 24, 10, 20), pipeline_kind("fbp-as").machine
    split, shared = (
        _side_by_side(run("fbp-as", case, dataclasses.replace(pool, engines=engines)))
        for engines in (Engines.SPLIT, Engines.SHARED)
    )
    said = ", ".join(f"{share:.2f}" for share in shared)
    return Measured(
        split, f"share of the time, stages 1 to 3, separate engines; on one pool {said}"
    )


def example() -> Measured:
    """Measure the accelerators and the micro-batches of Fig. 3."""
    timelines = [run(name, FIG_3) for name in ASYNCHRONOUS]
    shapes = set()
    for timeline in timelines:
        micro_batches = {timed.step.micro_batch for timed in timeline.timed}
        shapes.add((len(timeline.busy_ps), len(micro_batches)))
    times = ", ".join(
        f"{name} {timeline.makespan_ps / 10:g}"
        for name, timeline in zip(ASYNCHRONOUS, timelines, strict=True)
    )
    return Measured(list(min(shapes)), f"with F = 1, B = 2: {times}")


def not_on_gpus() -> Measured:
    """Measure what a GPU makes of both: the share of time with F and B at once, and 1F1B-AS over
    1F1B-SNO.
    """
    gpu = Machine(Engines.TURNS, Transport.STORED)
    both = max(_side_by_side(run("fbp-as", dataclasses.replace(FIG_4, m=24), gpu)))
    longer = run("1f1b-as", FIG_4, gpu).makespan_ps / run("1f1b-sno", FIG_4).makespan_ps
    return Measured(
        [both, longer - 1], "FBP-AS's share of time with F and B at once; 1F1B-AS beyond 1F1B-SNO"
    )


def _before_first_b(name: str, case: Case) -> list[int]:
    """Return the F that each stage starts before its first B."""
    timeline = run(name, case)
    counts = []
    for device in range(case.n):
        kinds = [action.step.kind for action in _on(timeline, device)]
        counts.append(kinds.index(Kind.BACKWARD))
    return counts


def warm_up(more: str, less: str, less_over_more: bool = False) -> Measured:
    """Measure the F before the first B of each stage, one schedule over another."""
    one, two = (_before_first_b(name, dataclasses.replace(FIG_4, m=24)) for name in (less, more))
    over, under = (one, two) if less_over_more else (two, one)
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return Measured(
        ratios, f"stages 1 to 3: {', '.join(map(str, two))} against {', '.join(map(str, one))}"
    )


def modes() -> Measured:
    """Return the transport of each schedule."""
    transports = [pipeline_kind(name).machine.transport.value for name in SCHEDULES]
    return Measured(transports, ", ".join(SCHEDULES))


def schedules_with(transport: str, *wanted: str) -> Measured:
    """Return which of the wanted schedules have a transport."""
    known = [
        name for name, kind in pipelines().items() if kind.machine.transport.value == transport
    ]
    more = ", ".join(name for name in known if name not in wanted) or "no others"
    return Measured(
        [name for name in wanted if name in known], f"{transport} transport; besides them {more}"
    )


def overlap() -> Measured:
    """Measure, on two accelerators, how long after F the next one gets its features; in SR."""
    case, gaps = Case(2, 1, 10, 20, 5), []
    for name in ("1f1b-as", "1f1b-sno"):
        first, second = (_on(run(name, case), device)[0] for device in range(2))
        gaps.append((second.start_ps - first.end_ps) / case.sr)
    return Measured(
        gaps, "waits of accelerator 2 after F of accelerator 1, in SR: asynchronous, synchronous"
    )


def one_transfer_time() -> Measured:
    """Measure the time between F and the next stage's F, and between B and the stage's before, in
    SR.
    """
    case = Case(4, 1, 10, 20, 5)
    end = {action.step: action for action in run("1f1b-sno", case).timed}
    gaps = set()
    for step, action in end.items():
        onwards = step._replace(stage=step.stage + (1 if step.kind is Kind.FORWARD else -1))
        if onwards in end:
            gaps.add((end[onwards].start_ps - action.end_ps) / case.sr)
    return Measured(
        sorted(gaps),
        "time from an action to the one that needs its message, in SR: F and B, 4 stages",
    )


def chain() -> Measured:
    """Measure the most distant device that a message comes from."""
    most_distant = max(
        abs(action.released_by.stage - action.step.stage)
        for name in SCHEDULES
        for action in run(name, Case(8, 16, 10, 20, 5)).timed
        if action.released_by is not None
    )
    return Measured(
        most_distant, "places between devices that exchange messages: the most, 8 devices"
    )


def _whole_mini_batches(name: str) -> int:
    """Return the actions of three mini-batches that use other weights than those of their
    mini-batch.
    """
    order = schedules()[name].generate(EpochShape(4, 48, 16, 1))
    steps = {micro_batch.index: micro_batch.step for micro_batch in order.micro_batches}
    programs = order.programs(range(4))
    return sum(
        action.version != steps[action.index]
        for program in programs.values()
        for action in program
        if action.kind in (Kind.FORWARD, Kind.BACKWARD)
    )


def intra_batch() -> Measured:
    """Count the actions that use other weights than those of their mini-batch."""
    wrong = [_whole_mini_batches(name) for name in SCHEDULES]
    return Measured(
        sum(wrong),
        "F and B that use other weights than all of their mini-batch, of three mini-batches",
    )


def gpipe_features() -> Measured:
    """Measure the micro-batches that each stage of GPipe keeps."""
    kept = run("gpipe", FIG_4).features
    return Measured([int(count) for count in kept], "micro-batches kept by each stage, M = 8")


def slowest_stage() -> Measured:
    """Measure the time of a long mini-batch over that of its slowest stage's work."""
    costs = [StageCosts(10, 20), StageCosts(20, 40), StageCosts(5, 10)]
    timeline = time_shape(pipeline_kind("1f1b-so"), Shape(3, 400, costs, Machine()))
    return Measured(
        timeline.makespan_ps / (400 * 60), "stages of 30, 60 and 15, M = 400: over 400 times 60"
    )


def stash() -> Measured:
    """Count PipeDream's copies of the weights."""
    order = schedules()["pipedream"].generate(EpochShape(3, 24, 1, 1))
    copies = time_pipeline(order, (StageCosts(10, 20),) * 3, Machine()).weight_copies
    return Measured(list(copies), "versions that each of 3 stages keeps")


_WIDTH, _HALF = 9, 0.4
"""Of pictures; half the height of a box."""
_BOX, _MESSAGE = "#9ec9e8", "#c9e3b4"
_UNIT_PS = 10
FIG_2 = Case(2, 4, 20, 40, 8)


def draw_execution(path: pathlib.Path) -> None:
    """Draw Fig. 2: inference on two accelerators, with messages that leave as they are computed, or
    after it.
    """
    figure = new_figure(_WIDTH, 4.5, "--pictures")
    modes = ((Transport.HIDDEN, "(a) asynchronous"), (Transport.STORED, "(b) synchronous"))
    for axes, (transport, title) in zip(figure.subplots(2, 1, sharex=True), modes, strict=True):
        timeline = run("gpipe", FIG_2, Machine(transport=transport))
        forwards = [action for action in timeline.timed if action.step.kind is Kind.FORWARD]
        for action in forwards:
            height = action.device - _HALF, 2 * _HALF
            axes.broken_barh(
                [(action.start_ps, FIG_2.f)], height, color=_BOX, edgecolor="grey", linewidth=0.5
            )
            at = action.start_ps + FIG_2.f / 2, action.device
            axes.text(*at, str(action.step.micro_batch), ha="center", va="center", fontsize=7)
            if action.device == 0:
                begin = action.end_ps - (FIG_2.sr if transport is Transport.HIDDEN else 0)
                axes.broken_barh(
                    [(begin, FIG_2.sr)],
                    (0.42, 0.16),
                    color=_MESSAGE,
                    edgecolor="grey",
                    linewidth=0.5,
                )
        axes.set_xlim(0, max(action.end_ps for action in forwards) + FIG_2.sr)
        axes.set_yticks(
            range(FIG_2.n), [f"accelerator {device + 1}" for device in range(FIG_2.n)], fontsize=7
        )
        axes.set_ylim(FIG_2.n - 0.5, -0.5)
        axes.set_xticks([])
        axes.set_title(f"{title}; green: a message", fontsize=9)
    save_figure(figure, path, "--pictures")


def draw_schedule(schedule: str, case: Case, path: pathlib.Path) -> None:
    """Draw Fig. 3 or 4: the timeline of a schedule."""
    timeline = run(schedule, case)
    times = {
        "F": case.f,
        "B": case.b,
        **({"SR": case.sr} if case.sr else {}),
        "mini-batch": timeline.makespan_ps,
    }
    title = (
        f"{schedule}: {', '.join(f'{name} = {time / _UNIT_PS:g}' for name, time in times.items())}"
    )
    draw_chart(
        PipelineDrawing(shape_of(schedule, case), timeline, _UNIT_PS).chart(title),
        path,
        "--pictures",
    )


FIGURES: dict[str, Draw] = {
    "fig2": draw_execution,
    "fig3a": functools.partial(draw_schedule, "1f1b-as", FIG_3),
    "fig3b": functools.partial(draw_schedule, "fbp-as", FIG_3),
    "fig4a": functools.partial(draw_schedule, "1f1b-sno", FIG_4),
    "fig4b": functools.partial(draw_schedule, "1f1b-so", FIG_4),
}
