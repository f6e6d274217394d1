"""`emuchain rtl`: SystemVerilog of each device of a plan, and its simulation against the
emulator.
"""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Sequence
from typing import Any

from ..cluster import Resources
from ..common import (
    InputError,
    WholeFile,
    format_time_ps,
    own_folder,
    plural,
    scratch_folder,
    validate,
)
from ..config import Config
from ..number import NARROW
from ..plan import ChainPlan, make_plan
from ..rtl import (
    MINI_BATCHES,
    MODULES,
    DeviceResources,
    Rtl,
    RtlResult,
    Tools,
    build_models,
    device_resources,
    drawn_images,
    find_tools,
    find_yosys,
    needs_compiler,
    planned_engines,
    simulate_rtl,
    sources,
    waves_file,
    write_engines,
)
from ..run import trained_mini_batches
from ..view import Line, print_answer, table
from .frame.command import Answer
from .frame.output import phases

_BATCH = 2


def write_rtl(
    flags: dict[str, Any],
    out: str,
    latency: int,
    simulate: bool,
    waves: str | None,
    synthesise: bool = False,
) -> Answer:
    """Write the RTL of a plan into the folder `out`; simulate and synthesise it where asked. The
    status is 1 where a bit or a cycle of the simulation is wrong.

    Raises:
        InputError: the network has no RTL or does not fit, or a tool is missing.
    """
    if waves is not None and not simulate:
        raise InputError(f"--waves {waves}: waveforms need a simulation; add --simulate")
    batch = flags.get("batch", _BATCH)
    sizes = {"batch": batch, "samples": MINI_BATCHES * batch, "micro_batch": batch}
    settings = {**flags, "schedule": "sync", **sizes}
    config = validate(Config, settings, "command line")
    if config.precision.dot and any(config.precision.format(kind).block for kind in NARROW):
        if simulate or synthesise:
            raise InputError(
                f"`precision` = {str(config.precision)!r}: RTL has engines that add products of"
                " numbers with scales in blocks, and no devices of them, since PG needs other"
                " scales; leave out --simulate and --synthesise"
            )
        return _write_engines(make_plan(config, 1), out, latency)
    tools = None
    if simulate:
        tools = find_tools()
        needs_compiler(tools)
    yosys = find_yosys() if synthesise else None
    with contextlib.ExitStack() as files, phases("working out the plan and its RTL") as phase:
        rtl = Rtl.of(make_plan(config, 1), latency)
        names = (
            [] if waves is None else [waves_file(waves, device.number) for device in rtl.devices]
        )
        to = [files.enter_context(WholeFile(name, "waves", "run.vcd")) for name in names]
        tops = rtl.write(files.enter_context(own_folder(out)))
        result, built_s = (None, 0.0) if tools is None else _simulated(rtl, tops, tools, to, phase)
        taken = [] if yosys is None else _synthesised(rtl, tops, yosys, phase)
    answer = [*_written(rtl, out), *map(_taken, taken)]
    if result is not None:
        answer += _answer(rtl, result, built_s, names)

    def show() -> None:
        print_answer(answer)
        if result is not None:
            _print_rows(result)
        if taken:
            _print_resources(taken)

    return Answer(show, status=0 if result is None or result.is_right else 1)


def _write_engines(plan: ChainPlan, out: str, latency: int) -> Answer:
    """Write FP and EB of each slice whose products are added in blocks."""
    engines = planned_engines(plan, latency)
    with own_folder(out) as folder:
        write_engines(engines, folder)
    what = f"{plan.network.name} on {plan.devices} x {plan.cluster.boards[0].name}"
    said = (
        f"{what}: {plural(len(engines), 'engine')} of {plan.config.precision.accumulate} and"
        f" {len(MODULES)} modules in {out}; devices of them have no RTL"
    )
    rows = [
        [
            f"{planned.engine.phase} of {planned.engine.part} on device {planned.device}",
            f"{planned.multipliers:,}",
            str(planned.engine.units),
            f"{2 * planned.engine.dot * planned.engine.units:,}",
            f"{planned.engine.design.row_cycles:,}",
            f"{planned.planned_cycles:,}",
        ]
        for planned in engines
    ]
    columns = ["engine", "planned", "units", "multipliers", "cycles a row", "planned cycles"]

    def show() -> None:
        print_answer([Line(said)])
        table("Engines", columns, rows, names=("engine",))

    return Answer(show)


def _synthesised(
    rtl: Rtl, tops: list[pathlib.Path], yosys: str, show: Any
) -> list[DeviceResources]:
    taken = []
    for device, top in enumerate(tops):
        show(f"synthesising device {device} of {len(tops)} with Yosys")
        with scratch_folder() as folder:
            taken.append(device_resources(yosys, rtl, device, top, folder))
    return taken


def _simulated(
    rtl: Rtl, tops: list[pathlib.Path], tools: Tools, waves: Sequence[WholeFile], show: Any
) -> tuple[RtlResult, float]:
    show(f"building {plural(len(tops), 'model')} with Verilator")
    with scratch_folder() as folder:
        begun = time.perf_counter()
        libraries = build_models(rtl, tops, tools, folder, waves=bool(waves))
        built_s = time.perf_counter() - begun
        show(f"training {plural(MINI_BATCHES, 'mini-batch')} on them")
        return (
            simulate_rtl(
                rtl, libraries, trained_mini_batches(rtl.plan, drawn_images(rtl.plan)), waves
            ),
            built_s,
        )


def _written(rtl: Rtl, out: str) -> list[Line]:
    plan = rtl.plan
    what = f"{plan.network.name} on {plan.devices} x {plan.cluster.boards[0].name}"
    slowed = [
        f"{design.part} {phase} x{engine.every}"
        for device in rtl.devices
        for design in device.slices
        for phase, engine in (("FP", design.fp), ("EB", design.eb), ("PG", design.pg))
        if engine is not None and engine.every > 1
    ]
    lines = [
        Line(f"{what}: {plural(len(rtl.devices), 'device')} and {len(sources())} modules in {out}")
    ]
    if slowed:
        lines.append(Line(f"slower, since too few sums hide the latency: {', '.join(slowed)}"))
    return lines


def _answer(
    rtl: Rtl, result: RtlResult, built_s: float, waves: Sequence[pathlib.Path]
) -> list[Line]:
    wrong = {name: count for name, count in result.wrong.items() if count}
    late = [engine for engine in result.engines if not engine.is_right]
    rows = sum(len(engine.done) for engine in result.engines)
    trained = (
        f"{plural(len(result.updated_ps), 'mini-batch')} of"
        f" {plural(rtl.plan.config.batch, 'sample')}"
    )
    if wrong:
        listed = ", ".join(f"{count:,} of {name}" for name, count in wrong.items())
        bits = f"weights: after {trained} they DIFFER from those of training: {listed}"
    else:
        bits = (
            f"weights: after {trained} all {result.values:,} are bit-identical to `emuchain"
            " train`'s"
        )
    if late:
        first = late[0]
        cycles = (
            f"rows: NOT in the expected cycles: {', '.join(engine.name for engine in late)};"
            f" {_first_wrong(first)}"
        )
    else:
        cycles = f"rows: all {rows:,} in the cycle that the time model gives for the RTL's pipeline"
    updated = (
        f"updated after {_times(result.updated_ps)}; in the time model after"
        f" {_times(result.modelled_ps)}"
    )
    rate = result.cycles / result.seconds
    speed = (
        f"built in {built_s:.1f} s; simulated {result.cycles:,} device cycles, {rate:,.0f} per"
        " second"
    )
    lines = [Line(bits), Line(cycles), Line(updated), Line(speed)]
    if waves:
        lines.append(Line(f"waves: {', '.join(map(str, waves))}"))
    return lines


def _times(times_ps: Sequence[int]) -> str:
    return " and ".join(map(format_time_ps, times_ps))


def _first_wrong(engine: Any) -> str:
    for row, (done, expected) in enumerate(zip(engine.done, engine.expected, strict=False)):
        if done != expected:
            return f"row {row} of {engine.name} in cycle {done}, not {expected}"
    return f"{plural(len(engine.done), 'row')} of {engine.name}, not {len(engine.expected)}"


def _print_rows(result: RtlResult) -> None:
    rows = [
        [
            engine.name,
            str(len(engine.done)),
            str(engine.design.tiles),
            f"{engine.design.row_cycles:,}",
            str(engine.design.tail),
            _range(*engine.later),
        ]
        for engine in result.engines
    ]
    columns = [
        "engine",
        "rows",
        "tiles",
        "cycles a row",
        "pipeline",
        "later than the model, cycles",
    ]
    table("Rows", columns, rows, names=("engine",))


def _taken(resources: DeviceResources) -> Line:
    counts = zip(
        ("DSPs", "LUTs", "FFs", "banks of block RAM"),
        _counts(resources.built),
        _counts(resources.planned),
        strict=True,
    )
    said = ", ".join(
        f"{built:,} {name} where the plan has {planned:,}" for name, built, planned in counts
    )
    return Line(f"device {resources.device} takes {said}")


def _counts(resources: Resources) -> tuple[int, int, int, int]:
    return resources.dsp, resources.lut, resources.ff, resources.bram_banks


def _print_resources(taken: list[DeviceResources]) -> None:
    rows = []
    for device in taken:
        planned = {"tiles": device.engines, "memories": device.buffers}
        for part, built in sorted(device.parts.items(), key=lambda entry: -entry[1].lut):
            rows.append([str(device.device), part, *_cells(built, planned.get(part))])
        rows.append([str(device.device), "all", *_cells(device.built, device.planned)])
        pairs = zip(_counts(device.built), _counts(device.planned), strict=True)
        times = [f"x{built / planned:.1f}" if planned else "-" for built, planned in pairs]
        rows.append([str(device.device), "all, times the plan", *times, *["-"] * 4])
    kinds = ["DSP", "LUT", "FF", "BRAM"]
    table(
        "Resources",
        ["device", "part", *kinds, *(f"plan {kind}" for kind in kinds)],
        rows,
        names=("part",),
    )


def _cells(built: Resources, planned: Resources | None) -> list[str]:
    cells = [f"{count:,}" for count in _counts(built)]
    return cells + ([f"{count:,}" for count in _counts(planned)] if planned else ["-"] * 4)


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
