"""BaPipe's figures of schedules as timelines, and its Tables III to VI as bars, published next to ours."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping

from ...emulator.schedule import Kind, Machine, Transport
from ...emulator.view import PipelineDrawing, draw_chart, new_figure, save_figure
from ..claim import Measure, Value, load_claims
from ..run import Draw, measures
from . import boards, speedups
from .schedules import FIG_3, FIG_4, Case, run, shape_of

_WIDTH, _HEIGHT = 9, 4
_FORWARD, _MESSAGE, _PUBLISHED, _OURS = "#9ec9e8", "#c9e3b4", "#bbbbbb", "#3b76af"
_HALF = 0.4
"""Half the height of a box."""
_UNIT_PS = 10
FIG_2 = Case(2, 4, 20, 40, 8)


def draw_execution(path: pathlib.Path) -> None:
    """Draw Fig. 2: inference on two accelerators, with messages that leave as they are computed, or after it."""
    figure = new_figure(_WIDTH, 4.5, "--pictures")
    modes = ((Transport.HIDDEN, "(a) asynchronous"), (Transport.STORED, "(b) synchronous"))
    for axes, (transport, title) in zip(figure.subplots(2, 1, sharex=True), modes, strict=True):
        timeline = run("gpipe", FIG_2, Machine(transport=transport))
        forwards = [action for action in timeline.timed if action.step.kind is Kind.FORWARD]
        for action in forwards:
            height = action.device - _HALF, 2 * _HALF
            axes.broken_barh([(action.start_ps, FIG_2.f)], height, color=_FORWARD, edgecolor="grey", linewidth=0.5)
            at = action.start_ps + FIG_2.f / 2, action.device
            axes.text(*at, str(action.step.micro_batch), ha="center", va="center", fontsize=7)
            if action.device == 0:
                begin = action.end_ps - (FIG_2.sr if transport is Transport.HIDDEN else 0)
                axes.broken_barh([(begin, FIG_2.sr)], (0.42, 0.16), color=_MESSAGE, edgecolor="grey", linewidth=0.5)
        axes.set_xlim(0, max(action.end_ps for action in forwards) + FIG_2.sr)
        axes.set_yticks(range(FIG_2.n), [f"accelerator {device + 1}" for device in range(FIG_2.n)], fontsize=7)
        axes.set_ylim(FIG_2.n - 0.5, -0.5)
        axes.set_xticks([])
        axes.set_title(f"{title}; green: a message", fontsize=9)
    save_figure(figure, path, "--pictures")


def draw_schedule(schedule: str, case: Case, path: pathlib.Path) -> None:
    """Draw Fig. 3 or 4: the timeline of a schedule."""
    timeline = run(schedule, case)
    times = {"F": case.f, "B": case.b, **({"SR": case.sr} if case.sr else {}), "mini-batch": timeline.makespan_ps}
    title = f"{schedule}: {', '.join(f'{name} = {time / _UNIT_PS:g}' for name, time in times.items())}"
    draw_chart(PipelineDrawing(shape_of(schedule, case), timeline, _UNIT_PS).chart(title), path, "--pictures")


def _bars(path: pathlib.Path, panels: Mapping[str, Mapping[str, tuple[float, float]]]) -> None:
    """Draw pairs of bars, published and ours; a panel for each unit."""
    counts = [len(rows) for rows in panels.values()]
    figure = new_figure(max(_WIDTH, 0.45 * sum(counts)), _HEIGHT, "--pictures")
    drawn = figure.subplots(1, len(panels), squeeze=False, gridspec_kw={"width_ratios": counts})[0]
    for axes, (label, rows) in zip(drawn, panels.items(), strict=True):
        for place, (name, colour) in enumerate((("published", _PUBLISHED), ("ours", _OURS))):
            left = [row + 0.4 * place - 0.2 for row in range(len(rows))]
            axes.bar(left, [pair[place] for pair in rows.values()], 0.4, color=colour, label=name)
        axes.set_xticks(range(len(rows)), list(rows), rotation=90, fontsize=7)
        axes.set_ylabel(label)
    drawn[0].legend(fontsize=8)
    save_figure(figure, path, "--pictures")


def _pairs(measures: Mapping[str, Measure], begin: str) -> dict[str, tuple[float, float]]:
    """Return the published figure and ours, of a list the first, of rows by what follows `begin` in their ids."""
    claims, pairs = load_claims("bapipe"), {}
    for name, measure in measures.items():
        value = claims[name].value
        if name.startswith(f"bapipe-{begin}") and isinstance(value, (int, float, list)):
            pairs[name.removeprefix(f"bapipe-{begin}")] = _first(value), _first(measure().ours)
    return pairs


def _first(value: Value) -> float:
    return float(value[0] if isinstance(value, list) else value)


def draw_speedups(path: pathlib.Path) -> None:
    """Draw Table III."""
    networks = ("vgg16", "resnet50", "gnmt8")
    pairs = {
        name: pair
        for network in networks
        for name, pair in _named(network, _pairs(speedups.MEASURES, f"t3-{network}-")).items()
    }
    _bars(path, {"throughput over DP with B = 64": pairs})


def _named(network: str, pairs: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {f"{network} {name}": pair for name, pair in pairs.items()}


def draw_platforms(path: pathlib.Path) -> None:
    """Draw Table IV: DSPs, on-chip memory, bandwidth of DDR4."""
    rows = {"dsp": "DSP slices", "ram": "on-chip RAM / Mb", "ddr": "DDR4 / GB/s"}
    panels: dict[str, dict[str, tuple[float, float]]] = {label: {} for label in rows.values()}
    for board in ("vcu118", "vcu129"):
        for row, pair in _pairs(measures("bapipe"), f"t4-{board}-").items():
            if row in rows:
                panels[rows[row]][board] = pair
    _bars(path, panels)


def draw_largest(path: pathlib.Path) -> None:
    """Draw Table V: layers of the largest GNMT-L."""
    methods = ("dp-", "pipedream-", "gpipe-", "bapipe-")
    pairs = {
        f"{method}{gpus}": pair
        for method in methods
        for gpus, pair in _pairs(measures("bapipe"), f"t5-{method}").items()
        if gpus.isdigit()
    }
    _bars(path, {"layers of the largest GNMT-L": pairs})


def draw_fpgas(path: pathlib.Path) -> None:
    """Draw Table VI: speed-up over DP of ResNet-50 on FPGAs."""
    pairs = _pairs(measures("bapipe"), "t6-")
    _bars(path, {"ResNet-50: speed-up over DP": {name: pairs[name] for name in boards.CLUSTERS}})


FIGURES: dict[str, Draw] = {
    "fig2": draw_execution,
    "fig3a": functools.partial(draw_schedule, "1f1b-as", FIG_3),
    "fig3b": functools.partial(draw_schedule, "fbp-as", FIG_3),
    "fig4a": functools.partial(draw_schedule, "1f1b-sno", FIG_4),
    "fig4b": functools.partial(draw_schedule, "1f1b-so", FIG_4),
    "table3": draw_speedups,
    "table4": draw_platforms,
    "table5": draw_largest,
    "table6": draw_fpgas,
}
