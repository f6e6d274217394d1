"""`emuchain simulate` and `emuchain plan` under the schedules of a GPU, alone or with an FPGA."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..common import InputError, format_bytes, format_time_ps
from ..config import Config, settings_config
from ..pair import PairTimes, gpu_bytes
from ..plan import PairPlan, epoch_samples, make_pair_plan
from ..report import (
    Line,
    check_picture,
    command_line,
    draw_pair,
    next_line,
    number,
    pair_needs_as_json,
    pair_times_as_json,
    percent,
    plural,
    print_answer,
    say,
    table,
    time_and_ps,
)
from ..schedule import Offload
from ..studies import parse_what_if

_OTHERS = {Offload.OVERLAPPED: "farnn-no-overlap"}
"""The schedule to try beside one; `farnn` beside all others on pairs."""


@dataclasses.dataclass(frozen=True)
class _Run:
    """A plan, and the samples of an epoch."""

    plan: PairPlan
    samples: int

    @property
    def config(self) -> Config:
        return self.plan.config

    @property
    def times(self) -> PairTimes:
        return self.plan.times

    @property
    def epoch_ps(self) -> int:
        return self.plan.epoch_ps(self.samples)


def simulate_pair(
    config: Config,
    flags: dict[str, Any],
    what_if: Sequence[str],
    as_json: bool,
    trace: Mapping[str, str | None],
    plot: str | None,
) -> None:
    """Print the time of a mini-batch as an answer with tables, or as JSON; with `what_if`, compare.

    Raises:
        InputError: a value does not suit a pair.
    """
    refuse_trace(trace)
    if plot is not None:
        check_picture(plot, "--plot")
    asked = parse_what_if(what_if)
    run = _run(config, {})
    other = None
    if what_if:
        changed = settings_config({**config.model_dump(exclude_unset=True), **asked.config})
        other = _run(changed, asked.cluster)
    if plot is not None:
        draw_pair(run.times, f"{run.plan.title}, {config.schedule.name}", plot)
    if as_json:
        found = _run_as_json(run)
        if other is not None:
            found["what_if"] = {"changes": {**asked.cluster, **asked.config}, "run": _run_as_json(other)}
        print(json.dumps(found, indent=2))
        return
    print_answer(_answer(run, other, str(asked), flags))
    _print_resources(run.times)
    _print_layers(run.times)
    print()
    how = f"{config.schedule.name}, batch {config.batch}, {plural(run.samples, 'sample')} an epoch, timing only"
    say(f"{run.plan.title}, {how}")
    say(f"mini-batch: {time_and_ps(run.times.mini_batch_ps)}")


def plan_pair(config: Config, flags: dict[str, Any], as_json: bool, picture: str | None) -> None:
    """Print what recurrent layers take of a pair, as an answer with tables, or as JSON; draw the timeline.

    Raises:
        InputError: a value does not suit a pair.
    """
    if picture is not None:
        check_picture(picture, "--plot")
    run = _run(config, {})
    if picture is not None:
        draw_pair(run.times, f"{run.plan.title}, {config.schedule.name}", picture)
    if as_json:
        print(json.dumps(_run_as_json(run), indent=2))
        return
    print_answer(_answer(run, None, "", flags))
    _print_needs(run)
    _print_resources(run.times)


def refuse_trace(trace: Mapping[str, str | None]) -> None:
    """Check that no trace is asked for.

    Raises:
        InputError: one is.
    """
    for flag, value in trace.items():
        if value is not None:
            raise InputError(
                f"`--{flag.replace('_', '-')}`: a pair has no rows of samples; `emuchain simulate --plot` draws its"
                " timeline"
            )


def _run(config: Config, changes: dict[str, object]) -> _Run:
    """Return a run; without `samples` and `data`, an epoch is one mini-batch."""
    plan = make_pair_plan(config, changes)
    return _Run(plan, config.samples or (epoch_samples(plan) if config.data else config.batch))


def _run_as_json(run: _Run) -> dict[str, Any]:
    config = run.config
    ends = [(epoch + 1) * run.epoch_ps for epoch in range(config.epochs)]
    return {
        "config": {**config.model_dump(), "devices": run.plan.devices, "samples": run.samples},
        "virtual_time_ps": ends[-1],
        "epoch_ends_ps": ends,
        **pair_times_as_json(run.times),
        "gpu_bytes": gpu_bytes(run.plan.workload, run.plan.pair),
        **pair_needs_as_json(run.plan.needs, run.plan.pair),
    }


def limit_line(plan: PairPlan) -> Line:
    """Return the line that says which resource is busy longest."""
    limit = plan.times.limit
    share = percent(limit.busy_ps / plan.times.mini_batch_ps)
    return Line(f"limit: {limit.resource.value}, busy {share} of the time; longest: {limit.longest.name}")


def memory_lines(plan: PairPlan) -> list[Line]:
    """Return the line about the memory of the FPGA's PEs, if there is an FPGA."""
    if not plan.needs:
        return []
    fullest, words = max(plan.needs, key=lambda each: each.words), plan.pair.array.words
    return [Line(f"memory: fits, {fullest.words:,} of {words:,} words of a PE in {fullest.work.name}")]


def _answer(run: _Run, other: _Run | None, changes: str, flags: dict[str, Any]) -> list[Line]:
    times = run.times
    parts = f"FW {format_time_ps(times.forward_ps)}, BW, GC and WU {format_time_ps(times.backward_ps)}"
    samples = plural(run.plan.workload.batch, "sample")
    lines = [Line(f"{run.plan.title}: {format_time_ps(times.mini_batch_ps)} for a mini-batch of {samples}")]
    if other is not None:
        ratio = number(times.mini_batch_ps / other.times.mini_batch_ps)
        lines.append(Line(f"if {changes}: {format_time_ps(other.times.mini_batch_ps)}; {ratio} times as fast"))
    lines.append(Line(parts))
    if run.config.samples:
        lines.append(Line(f"epoch of {plural(run.samples, 'sample')}: {format_time_ps(run.epoch_ps)}"))
    if times.utilisation is not None:
        lines.append(Line(f"utilisation: {percent(times.utilisation)} of I-MVM at the GPU's peak and R-MVM on all PEs"))
    lines += [limit_line(run.plan), *memory_lines(run.plan)]
    schedule = _OTHERS.get(run.plan.offload, "farnn" if run.plan.pair.fpga else "gpu-standard")
    if run.plan.offload is Offload.STANDARD:
        schedule = "gpu-persistent"
    return [*lines, next_line(command_line("simulate", None, {**_to_try(run, flags), "schedule": schedule}))]


def _to_try(run: _Run, flags: dict[str, Any]) -> dict[str, Any]:
    return {"network": run.config.network, **{key: value for key, value in flags.items() if key != "network"}}


def _print_resources(times: PairTimes) -> None:
    rows = [
        [resource.value, format_time_ps(busy.busy_ps), percent(busy.busy_ps / times.mini_batch_ps), busy.longest.name]
        for resource, busy in times.busy.items()
    ]
    columns = ["resource", "busy", "of the time", "longest task"]
    table("Resources in a mini-batch", columns, rows, left=["longest task"], names=["resource"])


def _print_layers(times: PairTimes) -> None:
    """Print the time of each layer's tasks, by what they do."""
    parts = list(dict.fromkeys(each.task.part for each in times.timed))
    sums: dict[tuple[str, str], dict[Any, int]] = {}
    for task in (each.task for each in times.timed):
        of = sums.setdefault((task.phase.value, task.layer), {})
        of[task.part] = of.get(task.part, 0) + task.duration_ps
    rows = [
        [f"{phase} {layer}", *(format_time_ps(of[part]) if part in of else "-" for part in parts)]
        for (phase, layer), of in sums.items()
    ]
    table("Tasks", ["layer", *(part.value for part in parts)], rows, names=["layer"])


def _print_needs(run: _Run) -> None:
    plan = run.plan
    print()
    has = plan.pair.gpu.off_chip_memory_bytes
    of = "" if has is None else f" of {format_bytes(has)}"
    needed = format_bytes(gpu_bytes(plan.workload, plan.pair))
    say(f"{plan.pair.gpu.name}: {needed}{of} for weights and recurrent layers")
    if not plan.needs:
        return
    rows = []
    for each in run.plan.needs:
        for phase, cycles in (("FW", each.forward), ("BW", each.backward)):
            rows.append(
                [
                    f"{phase} {each.work.name}",
                    f"{cycles.recurrent:,}",
                    f"{cycles.unsplit:,}",
                    f"{cycles.projection:,}" if cycles.projection else "-",
                    f"{cycles.total:,}",
                    f"{cycles.pe_words:,}",
                ]
            )
    array = run.plan.pair.array
    columns = ["layer", "R-MVM", "unsplit", "projection", "step", "words of the fullest PE"]
    title = f"Cycles of a time step on {array.units} MVM units of {array.pes:,} PEs with {array.words:,} words each"
    table(title, columns, rows, names=["layer"])
    rows = [
        [
            each.work.name,
            f"{each.words:,}",
            format_bytes(each.weight_bytes),
            format_bytes(each.in_bytes),
            format_bytes(each.out_bytes),
            format_bytes(each.errors_in_bytes),
            format_bytes(each.errors_out_bytes),
            format_bytes(each.kept_bytes),
        ]
        for each in run.plan.needs
    ]
    columns = ["layer", "words of a PE", "weights", "FW in", "FW out", "BW in", "BW out", "kept off chip"]
    title = "Memory and transfers of a mini-batch; weights go to the FPGA in FW and in BW, with biases in FW"
    table(title, columns, rows, names=["layer"])
