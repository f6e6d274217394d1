"""`emuchain timeline`: a chart of a chain's first samples, or of a pair's mini-batch, as text and as a picture."""

from __future__ import annotations

from typing import Any

from ..common import InputError, WholeFile, format_time_ps
from ..config import blaming, load_config
from ..plan import ChainPlan, describe_devices, long_work, make_plan
from ..report import picture_file, terminal_width
from ..run import simulate, steady_state
from ..timeline import Chart, Course, SpanRecorder, Window, chart_of, gantt, timeline_of
from .output import tell
from .pair import show_pair_timeline

_PIPE_WIDTH = 80
_LAST_SAMPLE = 999_999
_SHOWN = "0-7"


def show_timeline(
    config_file: str | None,
    flags: dict[str, Any],
    shown: str | None,
    width: int | None,
    all_lanes: bool,
    plot: str | None,
) -> None:
    """Simulate a run for long enough and print the chart of the shown samples; draw it too, if asked for.

    Raises:
        InputError: the configuration is invalid, the run has none of the samples, or the picture cannot be written.
    """
    window = Window.parse(shown or _SHOWN, "samples_shown")
    if window.last > _LAST_SAMPLE:
        raise InputError(f"`samples_shown` = '{window}': must be samples 0 to {_LAST_SAMPLE:,}")
    columns = width or terminal_width(_PIPE_WIDTH)
    with picture_file(plot, "plot") as picture:
        _show(config_file, flags, window, shown, columns, all_lanes, picture)


def _show(
    config_file: str | None,
    flags: dict[str, Any],
    window: Window,
    shown: str | None,
    columns: int,
    all_lanes: bool,
    picture: WholeFile | None,
) -> None:
    """Do what `show_timeline` says, for a window of samples and a line's width."""
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        if config.schedule.offload is not None:
            show_pair_timeline(config, columns, picture, samples_shown=shown, all_lanes=all_lanes)
            return
        plan = make_plan(config, 1)
        plan.needs_one_stage("a timeline")
        plan.needs_all_alive("a timeline")
    chart = _chart(plan, window, all_lanes)
    if picture is not None:  # first, for what is printed may not be read to its end
        from ..report import draw_timeline

        draw_timeline(chart, picture)
    print(_answer(plan))
    print(f"{plan.network.name} on {describe_devices(plan)}, {plan.config.schedule.name}: samples {chart.shown}")
    for line in gantt(chart, columns):
        print(line)
    if picture is not None:
        print(f"drawn in {picture.path}")


def _chart(plan: ChainPlan, window: Window, all_lanes: bool) -> Chart:
    """Return the chart of a window, from a run that ends no sooner than the samples that meet those of the window."""
    meeting = max(plan.steady.in_flight)
    batches = -(-(window.last + 1 + meeting) // plan.batch)
    once = plan.with_epochs(1)
    samples = min(plan.config.samples or batches * plan.config.batch, batches * plan.config.batch)
    warning = long_work(once.config, plan.network, samples, numbers=False)
    if warning is not None:
        tell(f"emuchain: warning: {warning}")
    course = Course.of(once, samples)
    shown = window.within(course.run_samples, "samples_shown")
    wide = Window(max(0, shown.first - meeting), shown.last + meeting).within(course.run_samples, "samples_shown")
    recorder = SpanRecorder(course, wide)
    simulate(course.plan, samples, recorder)
    return chart_of(timeline_of(course, wide, [recorder]), shown, all_lanes=all_lanes)


def _answer(plan: ChainPlan) -> str:
    """Return how long the pipeline takes to fill, and how often a sample leaves it then."""
    filled = f"pipeline full after {format_time_ps(plan.steady.fill_ps)}"
    every = f"a sample every {format_time_ps(round(steady_state(plan).period_ps))}"
    drains = plan.config.schedule.drains
    return f"{filled}; {every} on average, as it drains at each update" if drains else f"{filled}, then {every}"
