"""An exploration as text (an answer, the steps, the stages and the candidates), or as one JSON object."""

from __future__ import annotations

from typing import Any

from ...common import format_bytes, format_time_ps, number, percent, plural
from ...explore import DATA_PARALLEL, FURTHEST, Candidate, Exploration, Question
from ...schedule import Engines, Transport
from ...studies import Explored
from ...view import Line, at_values, command_line, next_line, print_answer, range_lines, say, table


def print_exploration(
    devices: str, question: Question, exploration: Exploration, run: dict[str, object] | None, sure: Explored | None
) -> None:
    """Print the answer, each step with its reason, the stages of the winner, and the candidates.

    `run` are the flags of a simulation of these boards, None where there are only profiles. `sure` says how sure the
    answer is, None without ranges.
    """
    values = at_values(None if sure is None else sure.sure)
    first, *others = _answer(devices, question, exploration, values)
    print_answer([first, *_sure(sure, exploration), *others, *_next(question, exploration, run)])
    cut = exploration.best_cut
    print(f"\nSteps to the cut of {cut.name}:" if cut is not None else "")
    steps = cut.partition.steps if cut is not None and cut.partition is not None else ()
    for place, step in enumerate(steps, 1):
        say(f"{place}. {step.name}: {step.reason}")
    say(f"{len(steps) + 1}. schedule: {_choice(exploration)}")
    _print_stages(question, exploration.winner)
    _print_candidates(exploration)


def _sure(sure: Explored | None, exploration: Exploration) -> list[Line]:
    """Return the range of the winner's rate, and in what share of draws it wins; nothing without ranges."""
    if sure is None:
        return []
    lines = range_lines(sure.sure)
    if exploration.runner_up is None:
        return lines
    names = ", ".join((exploration.winner.name, *sure.rivals))
    alike = f"not distinguishable: {names}; " if sure.rivals else ""
    return [*lines, Line(f"choice: {alike}best in {percent(sure.best_share)} of draws", beside=True)]


def _answer(devices: str, question: Question, exploration: Exploration, values: str) -> list[Line]:
    winner, stages = exploration.winner, question.stages_of(exploration.winner.samples)
    lines = [
        Line(
            f"{winner.name}, {_sizes(winner)}: {stages.name} on {devices}: {_time(winner)} for a mini-batch of"
            f" {question.batch:,}, {_rate(question, winner)}{values}"
        ),
        Line(f"limit: {winner.limit}, {_limit_ps(winner)}"),
        Line(f"runner-up: {_runner_up(exploration)}"),
        Line(f"changes: {_turn(question, exploration)}"),
    ]
    every = "all work spread over all devices" if question.bounds_work(winner) else _every_cut(question, winner)
    gap = f"gap: {percent(exploration.gap)} above {format_time_ps(exploration.bound_ps)}, a bound for {every}"
    lines.append(Line(gap, optional=True))
    return lines


def _next(question: Question, exploration: Exploration, run: dict[str, object] | None) -> list[Line]:
    """Return the command that simulates the winner, which takes the same time there, if there is one."""
    winner = exploration.winner
    if run is None:
        return []
    flags = {**run, "batch": question.batch, "samples": question.batch, "micro_batch": winner.samples}
    machine = question.machine_of(winner)
    if machine is not None:
        flags |= {"schedule": winner.name, "engines": machine.engines.value, "transport": machine.transport.value}
        if question.whole_layers:
            flags["stages"] = "layers"
    elif len({*winner.dealt}) == 1 and len({*question.stages_of(winner.samples).kinds}) == 1:
        flags |= {"devices": 1, "replicas": len(winner.dealt), "schedule": "gpipe"}
        flags |= {"engines": Engines.TURNS.value, "transport": Transport.HIDDEN.value}
    else:
        return []  # a run deals equally many samples to boards of one kind
    return [next_line(command_line("simulate", None, flags))]


def _every_cut(question: Question, winner: Candidate) -> str:
    where = "every cut between layers" if question.whole_layers else "every cut"
    return f"{where} and every synchronous schedule of {plural(winner.micro_batches, 'micro-batch')}"


def _sizes(candidate: Candidate) -> str:
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
    slowest = max(max(cost.work_ps for cost in costs), max((cost.transfer_ps for cost in costs[:-1]), default=0))
    return f"{format_time_ps(slowest)} a micro-batch"


def _runner_up(exploration: Exploration) -> str:
    other = exploration.runner_up
    if other is None or exploration.margin is None:
        return "none that fits"
    said = f"{other.name}, {_sizes(other)}: {_time(other)}"
    if other.time_ps != exploration.winner.time_ps:
        return f"{said}, {100 * exploration.margin:.2f} % longer"
    return f"{said}, equally long; {exploration.winner.name} sends less at a time, or stores less"


def _turn(question: Question, exploration: Exploration) -> str:
    if exploration.turn is not None:
        turn = exploration.turn
        return f"at {turn.parameter} = {turn.value:g} {turn.winner} wins"
    if not question.wires.links:
        return "one device has no links"
    gbps = min(link.bandwidth_gbps for link in question.wires.links)
    return f"the winner is the same for link.bandwidth_gbps from {gbps / FURTHEST:.3g} to {gbps * FURTHEST:.3g}"


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
            [str(n), kind, str(count)] for n, (kind, count) in enumerate(zip(stages.kinds, winner.dealt, strict=True))
        ]
        table("Devices", ["device", "on", "micro-batches"], rows, names=("on",))
        return
    rows, cut = [], winner.partition
    for stage, ((begin, end), costs) in enumerate(zip(cut.cut.spans, cut.costs, strict=True)):
        kept = winner.timeline.features[stage]
        rows.append(
            [
                str(stage),
                stages.kinds[stage],
                stages.said(begin, end),
                format_time_ps(costs.forward_ps),
                format_time_ps(costs.backward_ps),
                format_time_ps(costs.transfer_ps) if end != stages.end else "",
                format_bytes(int(kept * costs.feature_bytes)),
                format_bytes(costs.parameter_bytes),
            ]
        )
    columns = ["stage", "on", "layers", "F", "B", "SR", "features kept", "parameters"]
    table(f"Stages of {winner.name}, times of a micro-batch", columns, rows, left=("layers",), names=("on",))


def _print_candidates(exploration: Exploration) -> None:
    rows = []
    for best in _best_of_names(exploration):
        bubble = "" if best.timeline is None else percent(float(best.timeline.bubble))
        excess = "" if best.time_ps is None else f"{100 * (best.time_ps / (exploration.winner.time_ps or 1) - 1):.2f} %"
        rows.append([best.name, str(best.samples), _time(best), excess, bubble, best.limit])
    columns = ["schedule", "micro-batch", "mini-batch", "more", "bubble", "limit"]
    table(
        "Candidates, each with its best micro-batch", columns, rows, left=("mini-batch", "limit"), names=("schedule",)
    )


def exploration_as_json(
    devices: str, question: Question, exploration: Exploration, sure: Explored | None
) -> dict[str, Any]:
    """Return an exploration as one JSON object; times in ps."""
    winner, cut = exploration.winner, exploration.best_cut
    return {
        "network": question.stages_of(winner.samples).name,
        "devices": devices,
        "batch": question.batch,
        "winner": _candidate(question, winner),
        "runner_up": None if exploration.runner_up is None else _candidate(question, exploration.runner_up),
        "margin": exploration.margin,
        "bound_ps": exploration.bound_ps,
        "gap": exploration.gap,
        "turn": None
        if exploration.turn is None
        else {
            "parameter": exploration.turn.parameter,
            "value": exploration.turn.value,
            "winner": exploration.turn.winner,
        },
        "steps": [
            {"step": step.name, "reason": step.reason}
            for step in (cut.partition.steps if cut and cut.partition else ())
        ],
        "candidates": [_candidate(question, candidate) for candidate in exploration.candidates],
        **({} if sure is None else sure.to_dict()),
    }


def _candidate(question: Question, candidate: Candidate) -> dict[str, Any]:
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
            "compute_ps": candidate.compute_ps,
            "exchange_ps": candidate.exchange_ps,
        }
    cut, timeline = candidate.partition, candidate.timeline
    if cut is None or timeline is None:
        return said
    stages = question.stages_of(candidate.samples)
    return {
        **said,
        "bubble": float(timeline.bubble),
        "tied_ps": candidate.tied_ps,
        "stages": [
            {
                "on": stages.kinds[number],
                "layers": stages.said(begin, end),
                "forward_ps": costs.forward_ps,
                "backward_ps": costs.backward_ps,
                "transfer_ps": costs.transfer_ps,
                "feature_bytes": int(kept * costs.feature_bytes),
                "parameter_bytes": costs.parameter_bytes,
            }
            for number, ((begin, end), costs, kept) in enumerate(
                zip(cut.cut.spans, cut.costs, timeline.features, strict=True)
            )
        ],
    }
