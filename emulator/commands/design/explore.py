"""`emuchain explore`: cut, schedule and micro-batch of a pipeline for a network on unequal devices.

What is known of the devices makes a question, and the exploration that answers it is shown as text
(an answer, the steps, the stages and the candidates), or as one JSON object.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from ... import view
from ...common import InputError, format_bytes, format_time_ps, number, percent, plural
from ..frame.command import (
    CHANGES,
    Answer,
    FileCommand,
    attributes,
    drawn_in,
    json_option,
    plot_option,
    set_option,
)
from ..frame.flags import range_option
from ..frame.kernels import starting
from ..frame.named import (
    NETWORK,
    OPTIMIZER,
    OUTPUT,
    cluster_option,
    count_option,
    profile_option,
    switch,
    word_option,
)
from ..frame.output import tell
from .explored import of_boards, of_profile
from .searched import write_order

if TYPE_CHECKING:
    from ...common import WholeFile
    from ...explore import Candidate, Exploration, Question
    from ...run import RankedRanges
    from ...timing import Course

_MOST_DEVICES = 64
_MOST_ACTIONS = 200_000
_ACTION_S, _LONG_S = 2e-3, 120
"""Time that each micro-batch on a device takes, with all bandwidths that are tried; and time before
a warning.
"""
_UNIT_PS = 10**6
"""A microsecond, the unit of pictures."""
_USUAL = {"precision": "fp32", "optimizer": "sgd"}
"""Defaults of flags that a run takes, too."""


def _format_name(name: str) -> str:
    from ...number import named_format

    try:
        return named_format(name).name
    except ValueError as error:
        raise click.BadParameter(f"{name!r}: {error}") from None


@click.command(cls=FileCommand)
@click.argument("network", type=NETWORK, required=False)
@cluster_option(required=True)
@profile_option("FILE", "Measured times: a TOML file, or PipeDream's graph.txt.")
@count_option(
    "--devices",
    "Devices of the chain.  [default: as many as the cluster lists]",
    most=_MOST_DEVICES,
)
@count_option("--batch", "Samples of a mini-batch.", default=128, show_default=True)
@word_option(
    "--micro-batch",
    "N|search",
    "Samples of a micro-batch; search tries the powers of two, or profiled sizes, that divide"
    " --batch.",
    default="search",
    show_default=True,
)
@word_option(
    "--precision",
    "NAME",
    "Format of all values, such as fp16.",
    default="fp32",
    show_default=True,
    callback=lambda ctx, option, name: _format_name(name),
)
@click.option(
    "--optimizer",
    type=OPTIMIZER,
    metavar="NAME",
    default="sgd",
    show_default=True,
    help="Optimizer, such as adam; its state takes memory, too.",
)
@click.option(
    "--engines",
    type=click.Choice(["turns", "shared"]),
    help="What runs on a board at the same time.  [default: the cluster's, or both]",
)
@click.option(
    "--transport",
    type=click.Choice(["hidden", "stored"]),
    help=(
        "Send messages while they are computed, or after.  [default: the cluster's, or hidden;"
        " stored with a profile]"
    ),
)
@word_option(
    "--schedule",
    "NAME",
    "Explore this schedule alone; `search` searches an order of F, B and W for the times.",
)
@word_option(
    "--memory",
    "BYTES",
    "What weights, gradients, the optimizer's state and features may take of a device, such as"
    " 4GiB.",
)
@word_option(
    "--recompute",
    "LAYERS",
    "Let a searched order have R: features of these layers, or of all, computed again.",
)
@click.option(
    "-o", "--out", type=OUTPUT, metavar="FILE.csv", help="Write a searched order, for --schedule."
)
@switch("--whole-layers", "Cut between layers only.")
@json_option()
@plot_option(
    "Draw the winner's timeline and memory, as .svg, .pdf or .png.  [needs matplotlib]", "FILE"
)
@range_option
@set_option
def explore(network: str | None, ranged: bool, **flags: Any) -> Answer:
    """Find the fastest cut, schedule and micro-batch to train NETWORK on a chain of devices, which
    may differ.

    Follows BaPipe: profile, cut between layers, coarse or within layers, memory; then schedules and
    micro-batches, each timed and compared with data parallelism. NETWORK may be left out if a
    profile describes it.
    """
    with starting():
        from ...explore import explore as best_of
        from ...run import explored_ranges

    explored = of_boards(network, flags) if flags["profile"] is None else of_profile(network, flags)
    devices, question = explored.devices, explored.question({})
    _heed_work(question)
    exploration = best_of(question)
    out = flags["out"]
    if out is not None:
        write_order(exploration.winner.order, out)
    sure = (
        explored_ranges(question, exploration, explored.constants, explored.question)
        if ranged
        else None
    )
    named = {
        "cluster": flags["cluster"],
        "devices": question.stages_of(exploration.winner.samples).devices,
    }
    others = {key: flags[key] for key, usual in _USUAL.items() if flags[key] != usual}
    others |= {CHANGES: flags[CHANGES]} if flags[CHANGES] else {}
    run = {"network": network, **named, **others} if flags["profile"] is None else None
    if exploration.winner.order is not None:
        # A run reads a searched order from its file.
        run = None if run is None or out is None else {**run, "schedule": out}
        if run is not None and exploration.winner.recomputes and flags["recompute"] != "all":
            run["recompute"] = flags["recompute"]
    return Answer(
        lambda: _print_exploration(devices, question, exploration, run, sure),
        lambda: _exploration_as_json(devices, question, exploration, sure),
        lambda picture: _draw(question, exploration.winner, picture),
    )


def _heed_work(question: Question) -> None:
    """Say how long an exploration takes, if that is long.

    Raises:
        InputError: a candidate has too many micro-batches.
    """
    from ...plan import duration

    devices = question.stages_of(question.micro_batches[0]).devices
    counts = [question.batch // samples for samples in question.micro_batches]
    most = _MOST_ACTIONS // devices
    if max(counts) > most:
        size = (
            f"micro-batches of {plural(min(question.micro_batches), 'sample')} on"
            f" {plural(devices, 'device')}"
        )
        raise InputError(
            f"`batch` = {question.batch}: {max(counts):,} {size}, at most {most:,}; give fewer"
            " samples, or larger micro-batches by --micro-batch"
        )
    seconds = _ACTION_S * devices * sum(counts)
    if seconds > _LONG_S:
        tell(
            f"emuchain: warning: exploring {sum(counts):,} micro-batches takes about"
            f" {duration(seconds)}; see --batch"
        )


def _print_exploration(
    devices: str,
    question: Question,
    exploration: Exploration,
    run: dict[str, object] | None,
    sure: RankedRanges | None,
) -> None:
    """Print the answer, each step with its reason, the stages of the winner, and the candidates.

    `run` are the flags of a simulation of these boards, None where there are only profiles. `sure`
    says how sure the answer is, None without ranges.
    """
    values = view.at_values(None if sure is None else sure.best)
    first, *others = _answer(devices, question, exploration, values)
    view.print_answer(
        [first, *_sure(sure, exploration), *others, *_next(question, exploration, run)]
    )
    cut = exploration.best_cut
    print(f"\nSteps to the cut of {cut.name}:" if cut is not None else "")
    steps = cut.partition.steps if cut is not None and cut.partition is not None else ()
    for place, step in enumerate(steps, 1):
        view.say(f"{place}. {step.name}: {step.reason}")
    view.say(f"{len(steps) + 1}. schedule: {_choice(exploration)}")
    _print_stages(question, exploration.winner)
    _print_candidates(exploration)
    if drawn_in() is not None:
        print(f"\ndrawn in {drawn_in()}")


def _sure(sure: RankedRanges | None, exploration: Exploration) -> list[view.Line]:
    """Return the range of the winner's rate, and in what share of draws it wins; nothing without
    ranges.
    """
    if sure is None:
        return []
    lines = view.range_lines(sure.best)
    if exploration.runner_up is None:
        return lines
    choice = view.choice_text([exploration.winner.name, *sure.rivals], sure.best_share)
    return [*lines, view.Line(choice, beside=True)]


def _answer(
    devices: str, question: Question, exploration: Exploration, values: str
) -> list[view.Line]:
    winner, stages = exploration.winner, question.stages_of(exploration.winner.samples)
    lines = [
        view.Line(
            f"{winner.name}, {_micro_batches(winner)}: {stages.name} on {devices}: {_time(winner)}"
            f" for a mini-batch of {question.batch:,}, {_rate(question, winner)}{values}"
        ),
        view.Line(f"limit: {winner.limit}, {_limit_ps(winner)}"),
        view.Line(f"runner-up: {_runner_up(exploration)}"),
        view.Line(f"changes: {_turn(question, exploration)}"),
    ]
    every = (
        "all work spread over all devices"
        if question.bounds_work(winner)
        else _every_cut(question, winner)
    )
    lines += _order_lines(winner)
    gap = (
        f"gap: {percent(exploration.gap)} above {format_time_ps(exploration.bound_ps)}, a bound for"
        f" {every}"
    )
    lines.append(view.Line(gap, optional=True))
    return lines


def _order_lines(winner: Candidate) -> list[view.Line]:
    """Return how near a searched order is to the bound of all orders on its cut."""
    if not winner.order_bound_ps or winner.timeline is None:
        return []
    time_ps, bound_ps = winner.timeline.makespan_ps, winner.order_bound_ps
    near = (
        "no order of this cut is shorter"
        if time_ps == bound_ps
        else f"within {percent(time_ps / bound_ps - 1)} of {format_time_ps(bound_ps)}, which no"
        " order of this cut is below"
    )
    return [view.Line(f"order: {near}; -o FILE.csv writes it, for --schedule")]


def _next(
    question: Question, exploration: Exploration, run: dict[str, object] | None
) -> list[view.Line]:
    """Return the command that simulates the winner, which takes the same time there, if there is
    one.
    """
    from ...schedule import Engines, Transport

    winner = exploration.winner
    if run is None:
        return []
    flags = {
        **run,
        "batch": question.batch,
        "samples": question.batch,
        "micro_batch": winner.samples,
    }
    machine = question.machine_of(winner)
    if machine is not None:
        flags |= {
            "schedule": winner.name if winner.order is None else run["schedule"],
            "engines": machine.engines.value,
            "transport": machine.transport.value,
        }
        if question.whole_layers:
            flags["stages"] = "layers"
    elif len({*winner.dealt}) == 1 and len({*question.stages_of(winner.samples).kinds}) == 1:
        flags |= {"devices": 1, "replicas": len(winner.dealt), "schedule": "gpipe"}
        flags |= {"engines": Engines.TURNS.value, "transport": Transport.HIDDEN.value}
    else:
        return []  # a run deals equally many samples to boards of one kind
    return [view.next_line(view.command_line("simulate", None, flags))]


def _every_cut(question: Question, winner: Candidate) -> str:
    where = "every cut between layers" if question.whole_layers else "every cut"
    return (
        f"{where} and every synchronous schedule of {plural(winner.micro_batches, 'micro-batch')}"
    )


def _micro_batches(candidate: Candidate) -> str:
    return f"micro-batches of {plural(candidate.samples, 'sample')}"


def _time(candidate: Candidate) -> str:
    return candidate.why_not if candidate.time_ps is None else format_time_ps(candidate.time_ps)


def _rate(question: Question, candidate: Candidate) -> str:
    assert candidate.time_ps is not None
    return f"{number(question.batch * 1e12 / candidate.time_ps)} samples/s"


def _limit_ps(winner: Candidate) -> str:
    if winner.partition is None:
        return format_time_ps(max(winner.compute_ps, winner.exchange_ps))
    if winner.timeline is not None and winner.tied_ps > winner.timeline.makespan_ps:
        return format_time_ps(winner.tied_ps)
    costs = winner.partition.costs
    work_ps = max(cost.work_ps for cost in costs)
    transfer_ps = max((cost.transfer_ps for cost in costs[:-1]), default=0)
    slowest = max(work_ps, transfer_ps)
    return f"{format_time_ps(slowest)} a micro-batch"


def _runner_up(exploration: Exploration) -> str:
    other = exploration.runner_up
    if other is None or exploration.margin is None:
        return "none that fits"
    said = f"{other.name}, {_micro_batches(other)}: {_time(other)}"
    if other.time_ps != exploration.winner.time_ps:
        return f"{said}, {100 * exploration.margin:.2f} % longer"
    return f"{said}, equally long; {exploration.winner.name} sends less at a time, or stores less"


def _turn(question: Question, exploration: Exploration) -> str:
    from ...explore import FURTHEST

    if exploration.turn is not None:
        turn = exploration.turn
        return f"at {turn.parameter} = {turn.value:g} {turn.winner} wins"
    if question.is_of_one:
        return "no other schedule is explored"
    if not question.wires.links:
        return "one device has no links"
    gbps = min(link.bandwidth_gbps for link in question.wires.links)
    return (
        f"the winner is the same for link.bandwidth_gbps from {gbps / FURTHEST:.3g} to"
        f" {gbps * FURTHEST:.3g}"
    )


def _choice(exploration: Exploration) -> str:
    tried = [f"{best.name} {_time(best)}" for best in _best_of_names(exploration)]
    return f"{exploration.winner.name} is the fastest of {', '.join(tried)}"


def _best_of_names(exploration: Exploration) -> list[Candidate]:
    """Return the best candidate of each name."""
    best: dict[str, Candidate] = {}
    for candidate in exploration.candidates:
        best.setdefault(candidate.name, candidate)
    return list(best.values())


def _print_stages(question: Question, winner: Candidate) -> None:
    stages = question.stages_of(winner.samples)
    if winner.partition is None or winner.timeline is None:
        rows = [
            [str(n), kind, str(count)]
            for n, (kind, count) in enumerate(zip(stages.kinds, winner.dealt, strict=True))
        ]
        view.table("Devices", ["device", "on", "micro-batches"], rows, names=("on",))
        return
    rows = []
    r = {"recompute_ps": "R"} if winner.recomputes else {}
    in_ps = {"forward_ps": "F", "backward_ps": "B", **r, "transfer_ps": "SR"}
    for n, stage in enumerate(_stages_as_json(question, winner)):
        times = [format_time_ps(stage[key]) for key in in_ps]
        sizes = [format_bytes(stage[key]) for key in ("feature_bytes", "parameter_bytes")]
        rows.append([str(n), stage["on"], stage["layers"], *times, *sizes])
    rows[-1][2 + len(in_ps)] = ""  # nothing is sent behind the last one
    columns = ["stage", "on", "layers", *in_ps.values(), "features kept", "parameters"]
    view.table(
        f"Stages of {winner.name}, times of a micro-batch",
        columns,
        rows,
        left=("layers",),
        names=("on",),
    )


def _print_candidates(exploration: Exploration) -> None:
    rows = []
    for best in _best_of_names(exploration):
        bubble = "" if best.timeline is None else percent(float(best.timeline.bubble))
        excess = (
            ""
            if best.time_ps is None
            else f"{100 * (best.time_ps / (exploration.winner.time_ps or 1) - 1):.2f} %"
        )
        rows.append([best.name, str(best.samples), _time(best), excess, bubble, best.limit])
    columns = ["schedule", "micro-batch", "mini-batch", "more", "bubble", "limit"]
    view.table(
        "Candidates, each with its best micro-batch",
        columns,
        rows,
        left=("mini-batch", "limit"),
        names=("schedule",),
    )


def _exploration_as_json(
    devices: str, question: Question, exploration: Exploration, sure: RankedRanges | None
) -> dict[str, Any]:
    """Return an exploration as one JSON object; times in ps."""
    winner, cut = exploration.winner, exploration.best_cut
    steps = cut.partition.steps if cut and cut.partition else ()
    reasons = [{"step": step.name, "reason": step.reason} for step in steps]
    return {
        "network": question.stages_of(winner.samples).name,
        "devices": devices,
        "batch": question.batch,
        "winner": {
            **_candidate(question, winner),
            "memory": view.courses_as_json(_courses(question, winner)),
        },
        "runner_up": (
            None if exploration.runner_up is None else _candidate(question, exploration.runner_up)
        ),
        **attributes(exploration, "margin", "bound_ps", "gap"),
        "turn": exploration.turn and dataclasses.asdict(exploration.turn),
        "steps": reasons,
        "candidates": [_candidate(question, candidate) for candidate in exploration.candidates],
        **({} if sure is None else sure.to_dict()),
    }


def _courses(question: Question, candidate: Candidate) -> tuple[Course, ...]:
    """Return the features that devices keep over time; none of data parallelism."""
    machine = question.machine_of(candidate)
    return () if machine is None else candidate.courses(machine)


def _draw(question: Question, winner: Candidate, picture: WholeFile) -> None:
    """Draw the winner's mini-batch, and what its devices keep meanwhile.

    Raises:
        InputError: it is data-parallel, or the file cannot be written.
    """
    from ...schedule import Shape

    machine, cut, timeline = question.machine_of(winner), winner.partition, winner.timeline
    if machine is None or cut is None or timeline is None:
        raise InputError(
            f"`plot` = {str(picture.path)!r}: {winner.name} wins, which has no timeline; leave it"
            " out, or explore another --schedule"
        )
    shape = Shape(len(cut.costs), winner.micro_batches, cut.costs, machine)
    drawing = view.PipelineDrawing(shape, timeline, _UNIT_PS, _courses(question, winner))
    name = question.stages_of(winner.samples).name
    chart = drawing.chart(f"{name}, {winner.name}: {_time(winner)} for a mini-batch")
    axis = "time, µs; numbers are micro-batches"
    view.draw_chart(dataclasses.replace(chart, axis=axis), picture)


def _candidate(question: Question, candidate: Candidate) -> dict[str, Any]:
    from ...explore import DATA_PARALLEL

    said: dict[str, Any] = {
        "schedule": candidate.name,
        "micro_batch": candidate.samples,
        "micro_batches": candidate.micro_batches,
        "time_ps": candidate.time_ps,
        "why_not": candidate.why_not or None,
        "limit": candidate.limit or None,
    }
    if candidate.name == DATA_PARALLEL:
        return {
            **said,
            "micro_batches_by_device": list(candidate.dealt),
            **attributes(candidate, "compute_ps", "exchange_ps"),
        }
    if candidate.timeline is None:
        return said
    bubble = float(candidate.timeline.bubble)
    stages = _stages_as_json(question, candidate)
    bound = {} if candidate.order is None else {"order_bound_ps": candidate.order_bound_ps}
    return {**said, "bubble": bubble, "tied_ps": candidate.tied_ps, **bound, "stages": stages}


def _stages_as_json(question: Question, candidate: Candidate) -> list[dict[str, Any]]:
    """Return the stages of a pipeline that fits."""
    stages, cut = question.stages_of(candidate.samples), candidate.partition
    assert cut is not None
    r = ("recompute_ps",) if candidate.recomputes else ()
    return [
        {
            "on": kind,
            "layers": stages.said(begin, end),
            **attributes(costs, "forward_ps", "backward_ps", *r, "transfer_ps"),
            "feature_bytes": course.peak_bytes,
            "parameter_bytes": costs.parameter_bytes,
        }
        for kind, (begin, end), costs, course in zip(
            stages.kinds, cut.cut.spans, cut.costs, _courses(question, candidate), strict=True
        )
    ]
