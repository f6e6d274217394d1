"""`emuchain simulate` and `emuchain plan` under the schedules of a GPU, alone or with an FPGA."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ... import view
from ...common import WholeFile, format_bytes, format_time_ps, number, percent, plural
from ...config import Config, settings_config
from ...plan import PairPlan, make_pair_plan
from ...run import rate_range
from ...schedule import Offload
from ...studies import parse_what_if
from ...timing.pair import PairTimes, gpu_bytes
from ..frame.command import Answer

_OTHERS = {Offload.OVERLAPPED: "farnn-no-overlap"}
"""The schedule to try beside one; `farnn` beside all others on pairs."""


def simulate_pair(
    config: Config,
    flags: dict[str, Any],
    what_if: Sequence[str],
    trace: Mapping[str, str | None],
    ranged: bool = True,
) -> Answer:
    """Return the time of a mini-batch; with `what_if`, compare.

    Raises:
        InputError: a value does not suit a pair, or the trace cannot be written.
    """
    alternative = parse_what_if(what_if)
    with view.pair_trace(**trace) or contextlib.nullcontext() as traced:
        plan, other = _plan(config, {}), None
        if what_if:
            changed = settings_config(
                {**config.model_dump(exclude_unset=True), **alternative.config}
            )
            other = _plan(changed, alternative.cluster)
        if traced is not None:
            view.write_trace(traced, view.pair_timeline(plan))

    def show() -> None:
        view.print_answer(_answer(plan, other, str(alternative), flags, ranged))
        if traced is not None:
            view.say(f"trace in {traced.path}; open it with https://ui.perfetto.dev")
        _print_resources(plan.times)
        _print_layers(plan.times)
        print()
        samples = plural(plan.samples, plan.network.sample_noun)
        view.say(
            f"{plan.title}, {config.schedule.name}, batch {config.batch}, {samples} an epoch,"
            " timing only"
        )
        view.say(f"mini-batch: {view.time_and_ps(plan.times.mini_batch_ps)}")

    def as_json() -> dict[str, Any]:
        values = _as_json(plan, ranged)
        if other is None:
            return values
        changes = {**alternative.cluster, **alternative.config}
        return {**values, "what_if": {"changes": changes, "run": other.to_dict()}}

    return Answer(show, as_json, functools.partial(_draw, plan))


def plan_pair(config: Config, flags: dict[str, Any], ranged: bool = True) -> Answer:
    """Return what recurrent layers take of a pair, with its timeline as the picture.

    Raises:
        InputError: a value does not suit a pair.
    """
    plan = _plan(config, {})

    def show() -> None:
        view.print_answer(_answer(plan, None, "", flags, ranged))
        _print_needs(plan)
        _print_resources(plan.times)

    return Answer(show, lambda: _as_json(plan, ranged), functools.partial(_draw, plan))


def _draw(plan: PairPlan, picture: WholeFile) -> None:
    view.draw_chart(
        view.pair_chart(plan.times, f"{plan.title}, {plan.config.schedule.name}"), picture
    )


def _plan(config: Config, changes: dict[str, object]) -> PairPlan:
    """Return a plan whose samples are known, so that all that is wrong is found here."""
    plan = make_pair_plan(config, changes)
    _ = plan.samples
    return plan


def _answer(
    plan: PairPlan, other: PairPlan | None, changes: str, flags: dict[str, Any], ranged: bool
) -> list[view.Line]:
    first, *others = map(view.Line, plan.answer)
    if other is not None:
        ratio = number(plan.times.mini_batch_ps / other.times.mini_batch_ps)
        changed = format_time_ps(other.times.mini_batch_ps)
        others.insert(0, view.Line(f"if {changes}: {changed}; {ratio} times as fast"))
    schedule = _OTHERS.get(plan.offload, "farnn" if plan.pair.fpga else "gpu-standard")
    if plan.offload is Offload.STANDARD:
        schedule = "gpu-persistent"
    kept = {key: value for key, value in flags.items() if key != "network"}
    to_try = view.command_line(
        "simulate", None, {"network": plan.config.network, **kept, "schedule": schedule}
    )
    sure = rate_range(plan, plan.samples_per_s) if ranged else None

    def batch_time(rate: float) -> str:
        return format_time_ps(round(1e12 * plan.workload.batch / rate))

    ranged_lines = view.range_lines(None if sure is None else sure.reversed, batch_time)
    return [
        view.Line(first.text + view.at_values(sure)),
        *ranged_lines,
        *others,
        view.next_line(to_try),
    ]


def _as_json(plan: PairPlan, ranged: bool) -> dict[str, Any]:
    """Return a pair's plan as JSON has it, with the range of its rate."""
    return {**plan.to_dict(), **(rate_range(plan, plan.samples_per_s).to_dict() if ranged else {})}


def _print_resources(times: PairTimes) -> None:
    rows = [
        [
            resource.value,
            format_time_ps(busy.busy_ps),
            percent(busy.busy_ps / times.mini_batch_ps),
            busy.longest.name,
        ]
        for resource, busy in times.busy.items()
    ]
    columns = ["resource", "busy", "of the time", "longest task"]
    view.table(
        "Resources in a mini-batch", columns, rows, left=["longest task"], names=["resource"]
    )


def _print_layers(times: PairTimes) -> None:
    """Print the time of each layer's tasks, by what they do."""
    parts = list(dict.fromkeys(timed.task.part for timed in times.timed))
    sums: dict[tuple[str, str], dict[Any, int]] = {}
    for task in (timed.task for timed in times.timed):
        durations = sums.setdefault((task.phase.value, task.layer), {})
        durations[task.part] = durations.get(task.part, 0) + task.duration_ps
    rows = []
    for (phase, layer), durations in sums.items():
        cells = [format_time_ps(durations[part]) if part in durations else "-" for part in parts]
        rows.append([f"{phase} {layer}", *cells])
    view.table("Tasks", ["layer", *(part.value for part in parts)], rows, names=["layer"])


def _print_needs(plan: PairPlan) -> None:
    print()
    has = plan.pair.gpu.off_chip_memory_bytes
    capacity = "" if has is None else f" of {format_bytes(has)}"
    needed = format_bytes(gpu_bytes(plan.workload, plan.pair))
    view.say(f"{plan.pair.gpu.name}: {needed}{capacity} for weights and recurrent layers")
    if not plan.needs:
        return
    rows = [
        [
            f"{phase} {layer.work.name}",
            f"{cycles.recurrent:,}",
            f"{cycles.unsplit:,}",
            f"{cycles.projection:,}" if cycles.projection else "-",
            f"{cycles.total:,}",
            f"{cycles.pe_words:,}",
        ]
        for layer in plan.needs
        for phase, cycles in (("FW", layer.forward), ("BW", layer.backward))
    ]
    array = plan.pair.array
    columns = ["layer", "R-MVM", "unsplit", "projection", "step", "words of the fullest PE"]
    title = (
        f"Cycles of a time step on {array.units} MVM units of {array.pes:,} PEs with"
        f" {array.words:,} words each"
    )
    view.table(title, columns, rows, names=["layer"])
    names = ("weight", "values_in", "values_out", "errors_in", "errors_out", "kept")
    rows = []
    for need in plan.needs:
        sizes = [format_bytes(getattr(need, f"{name}_bytes")) for name in names]
        rows.append([need.work.name, f"{need.words_of_a_pe:,}", *sizes])
    columns = [
        "layer",
        "words of a PE",
        "weights",
        "FW in",
        "FW out",
        "BW in",
        "BW out",
        "kept off chip",
    ]
    title = (
        "Memory and transfers of a mini-batch; weights go to the FPGA in FW and in BW, with biases"
        " in FW"
    )
    view.table(title, columns, rows, names=["layer"])
