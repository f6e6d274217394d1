"""What BaPipe's schedules are (section III-A, Figs. 2 to 4), measured on timelines."""

from __future__ import annotations

import dataclasses
import itertools

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
from ...emulator.timing import PipelineResult, Timed, time_pipeline, time_shape
from ..claim import Measure, Measured
from .schedules import ASYNCHRONOUS, SCHEDULES, Case, run

FIG_3 = Case(3, 8, 10, 20)
FIG_4 = Case(3, 8, 10, 20, 5)


def _on(timeline: PipelineResult, device: int) -> list[Timed]:
    return [action for action in timeline.timed if action.device == device]


def _alternates() -> Measured:
    """Count pairs of actions of the same kind in a row, between a stage's first B and its last F."""
    wrong = pairs = 0
    for name in ("1f1b-as", "1f1b-sno", "1f1b-so"):
        timeline = run(name, FIG_4)
        for device in range(FIG_4.n):
            kinds = [action.step.kind for action in _on(timeline, device)]
            steady = kinds[kinds.index(Kind.BACKWARD) : len(kinds) - kinds[::-1].index(Kind.FORWARD)]
            wrong += sum(one is other for one, other in itertools.pairwise(steady))
            pairs += max(len(steady) - 1, 0)
    return Measured(wrong, f"pairs of the same kind, of {pairs}: 1F1B-AS, 1F1B-SNO, 1F1B-SO")


def _side_by_side(timeline: PipelineResult) -> list[float]:
    """Return the share of time in which each stage runs F and B at once, from its first B until its last F."""
    shares = []
    for device in sorted({action.device for action in timeline.timed}):
        forward, backward = (
            [action for action in _on(timeline, device) if action.step.kind is kind]
            for kind in (Kind.FORWARD, Kind.BACKWARD)
        )
        begin, end = backward[0].start_ps, forward[-1].end_ps
        both = sum(max(0, min(f.end_ps, b.end_ps) - max(f.start_ps, b.start_ps)) for f in forward for b in backward)
        shares.append(both / (end - begin) if end > begin else 0)
    return shares


def _parallel() -> Measured:
    """Measure how long F and B run at once on separate engines, as FPDeep has them."""
    case, pool = Case(3, 24, 10, 20), pipeline_kind("fbp-as").machine
    split, shared = (
        _side_by_side(run("fbp-as", case, dataclasses.replace(pool, engines=engines)))
        for engines in (Engines.SPLIT, Engines.SHARED)
    )
    said = ", ".join(f"{share:.2f}" for share in shared)
    return Measured(split, f"share of the time, stages 1 to 3, separate engines; on one pool {said}")


def _example() -> Measured:
    timelines = [run(name, FIG_3) for name in ASYNCHRONOUS]
    shapes = {(len(timeline.busy_ps), len({t.step.micro_batch for t in timeline.timed})) for timeline in timelines}
    times = ", ".join(
        f"{name} {timeline.makespan_ps / 10:g}" for name, timeline in zip(ASYNCHRONOUS, timelines, strict=True)
    )
    return Measured(list(min(shapes)), f"with F = 1, B = 2: {times}")


def _not_on_gpus() -> Measured:
    """Measure what a GPU makes of both: the share of time with F and B at once, and 1F1B-AS over 1F1B-SNO."""
    gpu = Machine(Engines.TURNS, Transport.STORED)
    both = max(_side_by_side(run("fbp-as", dataclasses.replace(FIG_4, m=24), gpu)))
    longer = run("1f1b-as", FIG_4, gpu).makespan_ps / run("1f1b-sno", FIG_4).makespan_ps
    return Measured([both, longer - 1], "FBP-AS's share of time with F and B at once; 1F1B-AS beyond 1F1B-SNO")


def _before_first_b(name: str, case: Case) -> list[int]:
    """Return the F that each stage starts before its first B."""
    timeline = run(name, case)
    counts = []
    for device in range(case.n):
        kinds = [action.step.kind for action in _on(timeline, device)]
        counts.append(kinds.index(Kind.BACKWARD))
    return counts


def _warm_up(more: str, less: str, less_over_more: bool = False) -> Measured:
    one, two = (_before_first_b(name, dataclasses.replace(FIG_4, m=24)) for name in (less, more))
    pairs = list(zip(two, one, strict=True))
    ratios = [b / a for a, b in pairs] if less_over_more else [a / b for a, b in pairs]
    return Measured(ratios, f"stages 1 to 3: {', '.join(map(str, two))} against {', '.join(map(str, one))}")


def _modes() -> Measured:
    transports = [pipeline_kind(name).machine.transport.value for name in SCHEDULES]
    return Measured(transports, ", ".join(SCHEDULES))


def _schedules_with(transport: str, *wanted: str) -> Measured:
    known = [name for name, kind in pipelines().items() if kind.machine.transport.value == transport]
    more = ", ".join(name for name in known if name not in wanted) or "no others"
    return Measured([name for name in wanted if name in known], f"{transport} transport; besides them {more}")


def _overlap() -> Measured:
    """Measure, on two accelerators, how long after F the next one gets its features; in SR."""
    case, gaps = Case(2, 1, 10, 20, 5), []
    for name in ("1f1b-as", "1f1b-sno"):
        first, second = (_on(run(name, case), device)[0] for device in range(2))
        gaps.append((second.start_ps - first.end_ps) / case.sr)
    return Measured(gaps, "waits of accelerator 2 after F of accelerator 1, in SR: asynchronous, synchronous")


def _one_transfer_time() -> Measured:
    """Measure the time between F and the next stage's F, and between B and the stage's before, in SR."""
    case = Case(4, 1, 10, 20, 5)
    end = {action.step: action for action in run("1f1b-sno", case).timed}
    gaps = set()
    for step, action in end.items():
        onwards = step._replace(stage=step.stage + (1 if step.kind is Kind.FORWARD else -1))
        if onwards in end:
            gaps.add((end[onwards].start_ps - action.end_ps) / case.sr)
    return Measured(sorted(gaps), "time from an action to the one that needs its message, in SR: F and B, 4 stages")


def _chain() -> Measured:
    """Measure the most distant device that a message comes from."""
    most_distant = max(
        abs(action.released_by.stage - action.step.stage)
        for name in SCHEDULES
        for action in run(name, Case(8, 16, 10, 20, 5)).timed
        if action.released_by is not None
    )
    return Measured(most_distant, "places between devices that exchange messages: the most, 8 devices")


def _whole_mini_batches(name: str) -> int:
    """Return the actions of three mini-batches that use other weights than those of their mini-batch."""
    order = schedules()[name].generate(EpochShape(4, 48, 16, 1))
    steps = {micro_batch.index: micro_batch.step for micro_batch in order.micro_batches}
    programs = order.programs(range(4))
    return sum(
        action.version != steps[action.index]
        for program in programs.values()
        for action in program
        if action.kind in (Kind.FORWARD, Kind.BACKWARD)
    )


def _intra_batch() -> Measured:
    wrong = [_whole_mini_batches(name) for name in SCHEDULES]
    return Measured(sum(wrong), "F and B that use other weights than all of their mini-batch, of three mini-batches")


def _gpipe_features() -> Measured:
    kept = run("gpipe", FIG_4).features
    return Measured([int(count) for count in kept], "micro-batches kept by each stage, M = 8")


def _slowest_stage() -> Measured:
    """Measure the time of a long mini-batch over that of its slowest stage's work."""
    costs = [StageCosts(10, 20), StageCosts(20, 40), StageCosts(5, 10)]
    timeline = time_shape(pipeline_kind("1f1b-so"), Shape(3, 400, costs, Machine()))
    return Measured(timeline.makespan_ps / (400 * 60), "stages of 30, 60 and 15, M = 400: over 400 times 60")


def _stash() -> Measured:
    """Count PipeDream's copies of the weights."""
    order = schedules()["pipedream"].generate(EpochShape(3, 24, 1, 1))
    copies = time_pipeline(order, (StageCosts(10, 20),) * 3, Machine()).weight_copies
    return Measured(list(copies), "versions that each of 3 stages keeps")


FUNCTIONS = {"warm_up": _warm_up, "schedules_with": _schedules_with}
MEASURES: dict[str, Measure] = {
    "bapipe-topology-chain": _chain,
    "bapipe-async-sync": _modes,
    "bapipe-1f1b-def": _alternates,
    "bapipe-fbp-def": _parallel,
    "bapipe-fig3-example": _example,
    "bapipe-gpu-no-fbp": _not_on_gpus,
    "bapipe-sr-assumption": _one_transfer_time,
    "bapipe-gpipe-memory": _gpipe_features,
    "bapipe-pipedream-stash": _stash,
    "bapipe-fig2-overlap": _overlap,
    "bapipe-intra-batch": _intra_batch,
    "bapipe-slowest-stage": _slowest_stage,
}
