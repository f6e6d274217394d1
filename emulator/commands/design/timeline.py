"""`emuchain timeline`: a chart of a chain's first samples, or of a pair's mini-batch, as text and
as a picture.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import view
from ...common import InputError, format_time_ps
from ...config import Config, blaming, load_config
from ...plan import ChainPlan, configured_network, long_plan, long_work, make_pair_plan, make_plan
from ...run import simulate, steady_actions, steady_state
from ...timing import Course
from ..frame.command import Answer, drawn_in
from ..frame.output import tell_notes, tell_warning

_PIPE_WIDTH = 80
_LAST_SAMPLE = 999_999
_SHOWN = "0-7"


def run_timeline(
    config_file: str | None,
    flags: dict[str, Any],
    shown: str | None,
    width: int | None,
    all_lanes: bool,
) -> Answer:
    """Simulate a run for long enough, and return the chart of the shown samples.

    Raises:
        InputError: the configuration is invalid, or the run has none of the samples.
    """
    window = view.Window.parse(shown or _SHOWN, "samples_shown")
    if window.last > _LAST_SAMPLE:
        raise InputError(f"`samples_shown` = '{window}': must be samples 0 to {_LAST_SAMPLE:,}")
    columns = width or view.terminal_width(_PIPE_WIDTH)
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        if config.schedule.offload is not None:
            return _pair(config, columns, samples_shown=shown, all_lanes=all_lanes)
        network = configured_network(config)
        tell_notes([long_plan(config, network)])
        plan = make_plan(config, 1, network=network, timing_only=True)
        plan.needs_all_alive("a timeline")
    chart, shown_window = _chart(plan, window, all_lanes)
    title = f"{plan.title}, {config.schedule.name}: samples {shown_window}"
    return _charted(chart, columns, [*_answer(plan), title])


def _pair(config: Config, width: int, *, samples_shown: str | None, all_lanes: bool) -> Answer:
    """Return the chart of a mini-batch on a GPU, alone or with an FPGA.

    Raises:
        InputError: a value does not suit a pair, or samples or lanes are asked for.
    """
    for flag, given in (("samples-shown", samples_shown), ("all-lanes", all_lanes or None)):
        if given is not None:
            raise InputError(
                f"`--{flag}`: the timeline of a pair has the tasks of a mini-batch; leave it out"
            )
    plan = make_pair_plan(config)
    chart = view.pair_chart(plan.times, f"{plan.title}, {config.schedule.name}")
    return _charted(chart, width, [plan.answer[0], f"{config.schedule.name}: {plan.answer[1]}"])


def _charted(chart: view.Chart, width: int, above: list[str]) -> Answer:
    """Return a chart as text below lines that say what it shows, and as a picture."""
    picture = drawn_in()
    below = [] if picture is None else [f"drawn in {picture}"]

    def show() -> None:
        for line in [*above, *view.gantt(chart, width), *below]:
            print(line)

    return Answer(show, draw=lambda file: view.draw_chart(chart, file))


class Recorded(NamedTuple):
    """A run that was recorded, and what is shown of it."""

    run: view.RecordedRun
    recorder: view.SpanRecorder
    shown: view.Window

    @classmethod
    def of(cls, plan: ChainPlan) -> Recorded:
        """Return a mini-batch of a plan, or where the pipeline does not drain, as many as fill it,
        and one more.
        """
        once = plan.while_all_live.with_epochs(1)
        fill = 0 if plan.config.schedule.drains else -(-_meeting(once) // plan.batch)
        samples = (fill + 1) * plan.config.batch
        of_run = view.RunSamples.of(once, samples)
        shown = view.Window(0, of_run.number - 1)
        run = view.recorded_run(of_run, shown)
        recorder = run.recorder()
        simulate(once, samples, recorder)
        return cls(run, recorder, shown)

    @property
    def chart(self) -> view.Chart:
        """What runs when."""
        return self.run.chart([self.recorder], self.shown, all_lanes=False)

    @property
    def courses(self) -> tuple[Course, ...]:
        """The features that boards keep over time."""
        return self.run.courses([self.recorder])


def _meeting(plan: ChainPlan) -> int:
    """Return the most samples that meet on a device."""
    return max(plan.steady.in_flight if plan.stages is None else plan.stages.kept_samples)


def _chart(plan: ChainPlan, window: view.Window, all_lanes: bool) -> tuple[view.Chart, view.Window]:
    """Return the chart of a window, from a run that ends no sooner than the samples that meet those
    of the window.
    """
    meeting = _meeting(plan)
    batches = -(-(window.last + 1 + meeting) // plan.batch)
    once = plan.with_epochs(1)
    samples = min(plan.config.samples or batches * plan.config.batch, batches * plan.config.batch)
    warning = long_work(once.config, plan.network, samples, numbers=False)
    tell_warning(warning)
    first = view.RunSamples.of(once, samples)
    shown = window.within(first.number, "samples_shown")
    run = view.recorded_run(first, shown.around(meeting).within(first.number, "samples_shown"))
    recorder = run.recorder()
    simulate(once, samples, recorder)
    return run.chart([recorder], shown, all_lanes=all_lanes), shown


def _answer(plan: ChainPlan) -> list[str]:
    """Return how long the pipeline takes to fill, and how often a sample leaves it then; for
    actions, what limits.
    """
    if not plan.times_rows:
        rate, usage = steady_actions(plan)
        return [
            line.text
            for line in (view.rate_line(plan, rate, 0), *view.stage_lines(plan, usage))
            if not line.optional
        ]
    filled = f"pipeline full after {format_time_ps(plan.steady.fill_ps)}"
    every = f"a sample every {format_time_ps(round(steady_state(plan).period_ps))}"
    drains = plan.config.schedule.drains
    return [
        f"{filled}; {every} on average, as it drains at each update"
        if drains
        else f"{filled}, then {every}"
    ]
