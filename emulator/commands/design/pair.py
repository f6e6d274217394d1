"""`emuchain simulate` and `emuchain plan` under the schedules of a GPU, alone or with an FPGA."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...common import format_bytes, format_time_ps, number, percent, plural
from ...config import Config, settings_config
from ...plan import PairPlan, make_pair_plan
from ...run import pair_range
from ...schedule import Offload
from ...studies import parse_what_if
from ...timing.pair import PairTimes, gpu_bytes
from ...view import (
    Line,
    at_values,
    command_line,
    draw_chart,
    next_line,
    pair_chart,
    pair_timeline,
    pair_trace,
    picture_file,
    print_answer,
    range_lines,
    say,
    table,
    time_and_ps,
    write_trace,
)

_OTHERS = {Offload.OVERLAPPED: "farnn-no-overlap"}
"""The schedule to try beside one; `farnn` beside all others on pairs."""


def simulate_pair(
    config: Config,
    flags: dict[str, Any],
    what_if: Sequence[str],
    as_json: bool,
    trace: Mapping[str, str | None],
    plot: str | None,
    ranged: bool = True,
) -> None:
    """Print the time of a mini-batch as an answer with tables, or as JSON; with `what_if`, compare.

    Raises:
        InputError: a value does not suit a pair, or the trace cannot be written.
    """
    alternative = parse_what_if(what_if)
    with pair_trace(**trace) or contextlib.nullcontext() as traced, picture_file(plot, "--plot") as picture:
        plan, other = _plan(config, {}), None
        if what_if:
            changed = settings_config({**config.model_dump(exclude_unset=True), **alternative.config})
            other = _plan(changed, alternative.cluster)
        if picture is not None:
            draw_chart(pair_chart(plan.times, f"{plan.title}, {config.schedule.name}"), picture)
        if traced is not None:
            write_trace(traced, pair_timeline(plan))
    if as_json:
        values = {**plan.to_dict(), **_sure(plan, ranged)}
        if other is not None:
            values["what_if"] = {"changes": {**alternative.cluster, **alternative.config}, "run": other.to_dict()}
        print(json.dumps(values, indent=2))
        return
    print_answer(_answer(plan, other, str(alternative), flags, ranged))
    if traced is not None:
        say(f"trace in {traced.path}; open it with https://ui.perfetto.dev")
    _print_resources(plan.times)
    _print_layers(plan.times)
    print()
    samples = plural(plan.samples, plan.network.sample_noun)
    say(f"{plan.title}, {config.schedule.name}, batch {config.batch}, {samples} an epoch, timing only")
    say(f"mini-batch: {time_and_ps(plan.times.mini_batch_ps)}")


def plan_pair(config: Config, flags: dict[str, Any], as_json: bool, plot: str | None, ranged: bool = True) -> None:
    """Print what recurrent layers take of a pair, as an answer with tables, or as JSON; draw the timeline.

    Raises:
        InputError: a value does not suit a pair.
    """
    with picture_file(plot, "--plot") as picture:
        plan = _plan(config, {})
        if picture is not None:
            draw_chart(pair_chart(plan.times, f"{plan.title}, {config.schedule.name}"), picture)
    if as_json:
        print(json.dumps({**plan.to_dict(), **_sure(plan, ranged)}, indent=2))
        return
    print_answer(_answer(plan, None, "", flags, ranged))
    _print_needs(plan)
    _print_resources(plan.times)


def _plan(config: Config, changes: dict[str, object]) -> PairPlan:
    """Return a plan whose samples are known, so that all that is wrong is found here."""
    plan = make_pair_plan(config, changes)
    _ = plan.samples
    return plan


def _answer(plan: PairPlan, other: PairPlan | None, changes: str, flags: dict[str, Any], ranged: bool) -> list[Line]:
    first, *others = map(Line, plan.answer)
    if other is not None:
        ratio = number(plan.times.mini_batch_ps / other.times.mini_batch_ps)
        changed = format_time_ps(other.times.mini_batch_ps)
        others.insert(0, Line(f"if {changes}: {changed}; {ratio} times as fast"))
    schedule = _OTHERS.get(plan.offload, "farnn" if plan.pair.fpga else "gpu-standard")
    if plan.offload is Offload.STANDARD:
        schedule = "gpu-persistent"
    to_try = command_line("simulate", None, {**_to_try(plan, flags), "schedule": schedule})
    sure = pair_range(plan).times(plan.samples_per_s) if ranged else None

    def batch_time(rate: float) -> str:
        return format_time_ps(round(1e12 * plan.workload.batch / rate))

    ranged_lines = range_lines(None if sure is None else sure.reversed, batch_time)
    return [Line(first.text + at_values(sure)), *ranged_lines, *others, next_line(to_try)]


def _sure(plan: PairPlan, ranged: bool) -> dict[str, Any]:
    """Return the range of a pair's rate as JSON has it."""
    return pair_range(plan).times(plan.samples_per_s).to_dict() if ranged else {}


def _to_try(plan: PairPlan, flags: dict[str, Any]) -> dict[str, Any]:
    return {"network": plan.config.network, **{key: value for key, value in flags.items() if key != "network"}}


def _print_resources(times: PairTimes) -> None:
    rows = [
        [resource.value, format_time_ps(busy.busy_ps), percent(busy.busy_ps / times.mini_batch_ps), busy.longest.name]
        for resource, busy in times.busy.items()
    ]
    columns = ["resource", "busy", "of the time", "longest task"]
    table("Resources in a mini-batch", columns, rows, left=["longest task"], names=["resource"])


def _print_layers(times: PairTimes) -> None:
    """Print the time of each layer's tasks, by what they do."""
    parts = list(dict.fromkeys(timed.task.part for timed in times.timed))
    sums: dict[tuple[str, str], dict[Any, int]] = {}
    for task in (timed.task for timed in times.timed):
        durations = sums.setdefault((task.phase.value, task.layer), {})
        durations[task.part] = durations.get(task.part, 0) + task.duration_ps
    rows = [
        [f"{phase} {layer}", *(format_time_ps(durations[part]) if part in durations else "-" for part in parts)]
        for (phase, layer), durations in sums.items()
    ]
    table("Tasks", ["layer", *(part.value for part in parts)], rows, names=["layer"])


def _print_needs(plan: PairPlan) -> None:
    print()
    has = plan.pair.gpu.off_chip_memory_bytes
    capacity = "" if has is None else f" of {format_bytes(has)}"
    needed = format_bytes(gpu_bytes(plan.workload, plan.pair))
    say(f"{plan.pair.gpu.name}: {needed}{capacity} for weights and recurrent layers")
    if not plan.needs:
        return
    rows = []
    for layer in plan.needs:
        for phase, cycles in (("FW", layer.forward), ("BW", layer.backward)):
            rows.append(
                [
                    f"{phase} {layer.work.name}",
                    f"{cycles.recurrent:,}",
                    f"{cycles.unsplit:,}",
                    f"{cycles.projection:,}" if cycles.projection else "-",
                    f"{cycles.total:,}",
                    f"{cycles.pe_words:,}",
                ]
            )
    array = plan.pair.array
    columns = ["layer", "R-MVM", "unsplit", "projection", "step", "words of the fullest PE"]
    title = f"Cycles of a time step on {array.units} MVM units of {array.pes:,} PEs with {array.words:,} words each"
    table(title, columns, rows, names=["layer"])
    rows = [
        [
            need.work.name,
            f"{need.words:,}",
            format_bytes(need.weight_bytes),
            format_bytes(need.in_bytes),
            format_bytes(need.out_bytes),
            format_bytes(need.errors_in_bytes),
            format_bytes(need.errors_out_bytes),
            format_bytes(need.kept_bytes),
        ]
        for need in plan.needs
    ]
    columns = ["layer", "words of a PE", "weights", "FW in", "FW out", "BW in", "BW out", "kept off chip"]
    title = "Memory and transfers of a mini-batch; weights go to the FPGA in FW and in BW, with biases in FW"
    table(title, columns, rows, names=["layer"])
