"""`emuchain simulate` and `emuchain plan` under the schedules of a GPU, alone or with an FPGA."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..cluster import Cluster, load_cluster
from ..common import InputError, format_bytes, format_time_ps
from ..config import Config, settings_config
from ..network import load_network
from ..pair import LayerNeeds, Pair, PairTimes, Workload, all_needs, pair_of, time_mini_batch, workload_of
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

_OF_CHAINS = ("replicas", "groups", "chunks", "warm_up", "engines", "transport", "compress", "precision")
"""Keys that have no part in a pair."""

_OTHERS = {Offload.OVERLAPPED: "farnn-no-overlap"}
"""The schedule to try beside one; `farnn` beside all others on pairs."""


@dataclasses.dataclass(frozen=True)
class _Run:
    """A mini-batch on a pair, the last one of an epoch where it is smaller, and the samples of an epoch."""

    config: Config
    cluster: Cluster
    pair: Pair
    workload: Workload
    times: PairTimes
    tail: PairTimes | None
    needs: Sequence[LayerNeeds]

    @property
    def offload(self) -> Offload:
        assert self.config.schedule.offload is not None
        return self.config.schedule.offload

    @property
    def samples(self) -> int:
        """Samples of an epoch: of one mini-batch, if none are asked for."""
        return self.config.samples or self.config.batch

    @property
    def epoch_ps(self) -> int:
        """Time of an epoch; a mini-batch starts when the one before it is done."""
        whole = self.samples // self.config.batch
        return whole * self.times.mini_batch_ps + (self.tail.mini_batch_ps if self.tail else 0)

    @property
    def title(self) -> str:
        boards = self.pair.gpu.name + (f" + {self.pair.fpga.name}" if self.pair.fpga else "")
        return f"{self.workload.name} on {boards}"


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
    for flag, value in trace.items():
        if value is not None:
            raise InputError(
                f"`--{flag.replace('_', '-')}`: a pair has no rows of samples; `--plot` draws its timeline"
            )
    if plot is not None:
        check_picture(plot, "--plot")
    asked = parse_what_if(what_if)
    run = _run(config, {})
    other = None
    if what_if:
        changed = settings_config({**config.model_dump(exclude_unset=True), **asked.config})
        other = _run(changed, asked.cluster)
    if plot is not None:
        draw_pair(run.times, f"{run.title}, {config.schedule.name}", plot)
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
    say(f"{run.title}, {how}")
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
        draw_pair(run.times, f"{run.title}, {config.schedule.name}", picture)
    if as_json:
        print(json.dumps(_run_as_json(run), indent=2))
        return
    print_answer(_answer(run, None, "", flags))
    _print_needs(run)
    _print_resources(run.times)


def _run(config: Config, changes: dict[str, object]) -> _Run:
    kind = config.schedule
    assert kind.offload is not None
    defaults = settings_config({})
    for key in _OF_CHAINS:
        if getattr(config, key) != getattr(defaults, key):
            raise InputError(f"`{key}` has no part in `schedule` = {kind.name!r}; leave it out")
    cluster = load_cluster(config.cluster, changes, blame="--what-if")
    pair = pair_of(cluster, kind, config.devices)
    workload = workload_of(load_network(config.network), config.batch)
    times = time_mini_batch(workload, pair, kind.offload)
    left = (config.samples or 0) % config.batch
    tail = time_mini_batch(workload.of_batch(left), pair, kind.offload) if left else None
    return _Run(config, cluster, pair, workload, times, tail, all_needs(workload, pair, kind.offload))


def _run_as_json(run: _Run) -> dict[str, Any]:
    config = run.config
    ends = [(epoch + 1) * run.epoch_ps for epoch in range(config.epochs)]
    devices = 1 + (run.pair.fpga is not None)
    return {
        "config": {**config.model_dump(), "devices": devices, "samples": run.samples},
        "virtual_time_ps": ends[-1],
        "epoch_ends_ps": ends,
        **pair_times_as_json(run.times),
        **pair_needs_as_json(run.needs, run.pair),
    }


def _answer(run: _Run, other: _Run | None, changes: str, flags: dict[str, Any]) -> list[Line]:
    times, limit = run.times, run.times.limit
    parts = f"FW {format_time_ps(times.forward_ps)}, BW, GC and WU {format_time_ps(times.backward_ps)}"
    samples = plural(run.workload.batch, "sample")
    lines = [Line(f"{run.title}: {format_time_ps(times.mini_batch_ps)} for a mini-batch of {samples}")]
    if other is not None:
        ratio = number(times.mini_batch_ps / other.times.mini_batch_ps)
        lines.append(Line(f"if {changes}: {format_time_ps(other.times.mini_batch_ps)}; {ratio} times as fast"))
    lines.append(Line(parts))
    if run.config.samples:
        lines.append(Line(f"epoch of {plural(run.samples, 'sample')}: {format_time_ps(run.epoch_ps)}"))
    if times.utilisation is not None:
        lines.append(Line(f"utilisation: {percent(times.utilisation)} of I-MVM at the GPU's peak and R-MVM on all PEs"))
    share = percent(limit.busy_ps / times.mini_batch_ps)
    lines.append(Line(f"limit: {limit.resource.value}, busy {share} of the time; longest: {limit.longest.name}"))
    if run.needs:
        fullest = max(run.needs, key=lambda each: each.words)
        lines.append(
            Line(f"memory: fits, {fullest.words:,} of {run.pair.array.words:,} words of a PE in {fullest.work.name}")
        )
    schedule = _OTHERS.get(run.offload, "farnn" if run.pair.fpga else "gpu-standard")
    if run.offload is Offload.STANDARD:
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
    if not run.needs:
        return
    rows = []
    for each in run.needs:
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
    array = run.pair.array
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
        for each in run.needs
    ]
    columns = ["layer", "words of a PE", "weights", "FW in", "FW out", "BW in", "BW out", "kept off chip"]
    title = "Memory and transfers of a mini-batch; weights go to the FPGA in FW and in BW, with biases in FW"
    table(title, columns, rows, names=["layer"])
