"""`emuchain simulate`: the virtual time of a run, as an answer with tables, or as JSON."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....comm.exchange import step_sizes
from ... import view
from ...common import (
    IMAGENET_IMAGES,
    InputError,
    WholeFile,
    format_time_ps,
    number,
    percent,
    plural,
)
from ...config import blaming, load_config
from ...plan import (
    configured_network,
    describe_devices,
    epoch_samples,
    idle_settings,
    long_actions,
    long_plan,
    long_work,
    make_plan,
)
from ...run import (
    AnswerRange,
    Cause,
    FaultCosts,
    Simulation,
    SteadyState,
    cause_of,
    fault_costs,
    run_range,
    simulate,
    steady_state,
)
from ...studies import Compared, compare_runs, parse_what_if
from ...timing import TIMING_DRAWS
from ..frame.command import Answer
from ..frame.output import phases, tell_notes, tell_warning
from .pair import simulate_pair


class _Run(NamedTuple):
    """A simulated run, and its steady state."""

    simulation: Simulation
    steady: SteadyState | None
    """None where boards take actions as a whole."""
    cause: Cause | None
    """None where there is no steady state."""
    costs: FaultCosts | None
    """None without faults that cost time."""
    sure: AnswerRange | None
    """None where no range is asked for."""


def run_simulation(
    config_file: str | None,
    flags: dict[str, Any],
    what_if: Sequence[str],
    epoch_images: int | None,
    full: bool,
    trace: Mapping[str, str | None],
    ranged: bool = True,
    profile: str | None = None,
) -> Answer:
    """Simulate as configured; with `what_if`, compare with these values.

    `trace` has the flags of a trace; it shows the run as it is. Without `epoch_images`, text has an
    epoch of the network's data set, or none where that is not known, and JSON has one of ImageNet.

    The picture is that of the steady state. If it is `ranged`, the answer says how sure it is.
    `profile` is a file with measured times of the layers.

    Raises:
        InputError: the configuration, `what_if` or `trace` is invalid.
    """
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        if config.schedule.offload is not None:
            if profile is not None:
                raise InputError(
                    "`--profile`: times of layers on a chain of boards; leave it out on a GPU or a"
                    " pair"
                )
            return simulate_pair(config, flags, what_if, trace, ranged)
    alternative, traced = parse_what_if(what_if), view.TraceRequest.of(**trace)
    with traced or contextlib.nullcontext():
        run = _run(config_file, flags, {}, profile, traced, ranged=ranged)
        tell_notes(idle_settings(run.simulation.plan))
        other = None
        if what_if:
            changed = {**flags, **alternative.config}
            other = _run(config_file, changed, alternative.cluster, profile, ranged=ranged)
        known = epoch_images or run.simulation.plan.network.epoch_images
        counted = epoch_images or IMAGENET_IMAGES
        rows = compare_runs(run[:2], other[:2], counted) if other else []

    def show() -> None:
        view.print_answer(
            _answer(run, other, str(alternative), known, _to_try(run, config_file, flags))
        )
        if traced is not None:
            view.say(traced.written)
        if other is not None:
            _print_comparison(str(alternative), rows, other)
        _print_tables(run, full)
        print()
        _print_details(run, known)

    def as_json() -> dict[str, Any]:
        values = _as_json(run, counted)
        if other is None:
            return values
        changes = {**alternative.cluster, **alternative.config}
        figures = {
            row.figure: {"before": row.before, "after": row.after, "ratio": row.ratio}
            for row in rows
        }
        return {
            **values,
            "what_if": {"changes": changes, "figures": figures, "run": _as_json(other, counted)},
        }

    return Answer(show, as_json, functools.partial(_draw, run))


def _draw(run: _Run, picture: WholeFile) -> None:
    if run.steady is None:
        run.simulation.plan.needs_rows("`--plot`")
    assert run.steady is not None
    view.draw_steady_state(run.steady, run.simulation.plan.title, picture)


def _run(
    config_file: str | None,
    flags: dict[str, Any],
    cluster_changes: dict[str, object],
    profile: str | None,
    trace: view.TraceRequest | None = None,
    *,
    ranged: bool,
) -> _Run:
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        with phases(
            f"mapping {config.network} on {plural(config.devices or 1, 'device')}, and its steady"
            " pipeline"
        ) as show:
            measured = None if profile is None else pathlib.Path(profile)
            network = configured_network(config)
            tell_notes([long_plan(config, network)])
            plan = make_plan(
                config, 1, cluster_changes, network=network, timing_only=True, profile=measured
            )
            samples = epoch_samples(plan)
            warning = long_work(config, plan.network, samples, numbers=False)
            if not plan.times_rows:
                warning = warning or long_actions(plan, samples, TIMING_DRAWS if ranged else 0)
            tell_warning(warning)
            show(
                f"simulating {plural(samples, plan.network.sample_noun)} on"
                f" {plural(plan.nodes, 'device')}"
            )
            simulation = simulate(plan, samples, trace=trace)
            costs = None
            if plan.faults.in_time:
                show("simulating without faults, and with each one separately")
                costs = fault_costs(plan, samples, simulation.virtual_time_ps)
            show(f"steady state of {plural(plan.nodes, 'device')}")
            state = steady_state(plan) if plan.times_rows else None
            sure = run_range(simulation) if ranged else None
            return _Run(
                simulation, state, None if state is None else cause_of(plan, state), costs, sure
            )


def _as_json(run: _Run, epoch_images: int) -> dict[str, Any]:
    costs = {} if run.costs is None else {"faults": view.costs_as_json(run.costs)}
    sure = {} if run.sure is None else run.sure.to_dict()
    return {
        **view.simulation_as_json(run.simulation, run.steady, epoch_images, run.cause),
        **costs,
        **sure,
    }


def _answer(
    run: _Run, other: _Run | None, changes: str, epoch_images: int | None, to_try: str
) -> list[view.Line]:
    """Return the first screen: of the run, and of the one with changes, if there is one."""
    simulation, steady, cause, costs, sure = run
    plan, rate = simulation.plan, simulation.images_per_s
    missing, noun = plan.missing_bytes, plan.network.sample_noun
    lines = (
        [] if costs is None else [view.time_cost_line(costs), *view.death_lines(costs, plan.faults)]
    )
    lines += [view.rate_line(plan, rate, missing, view.at_values(sure)), *view.range_lines(sure)]
    if other is not None:
        after = other.simulation.images_per_s
        ratio = f"{number(after / rate)} times as fast"
        words = "; ".join(filter(None, (ratio, view.lut_words(other.simulation.plan))))
        lines.append(
            view.Line(
                f"if {changes}: {number(after)}"
                f" {noun}s/s{view.ignored(other.simulation.plan.missing_bytes)}; {words}"
            )
        )
    epoch_ps = simulation.virtual_time_ps // len(simulation.epoch_ends_ps)
    lines.append(view.epoch_line(plan, simulation.samples, epoch_ps, missing))
    if steady is None or cause is None:
        return [
            *lines,
            *view.stage_lines(plan, simulation.usage),
            view.memory_line(plan, missing),
            view.weights_line(plan),
            *view.logic_lines(plan),
            view.next_line(to_try),
        ]
    if epoch_images is not None:
        lines.append(
            view.epoch_line(
                plan, epoch_images, steady.epoch_ps(epoch_images), missing, optional=True
            )
        )
    return [
        *lines,
        *view.limit_lines(plan, steady, cause),
        *view.wide_lines(plan),
        view.memory_line(plan, missing),
        view.weights_line(plan),
        *view.order_line(plan),
        *view.logic_lines(plan),
        view.next_line(to_try),
    ]


def _to_try(run: _Run, config_file: str | None, flags: dict[str, Any]) -> str:
    """Return the command to try next: what holds the network, if it does not fit, or what lifts the
    limit.
    """
    plan = run.simulation.plan
    if run.steady is None or run.cause is None:
        return view.command_line("simulate", config_file, view.other_schedule(plan, flags))
    if not run.steady.fits:
        config = plan.config
        keys: dict[str, object] = {
            "network": config.network,
            "cluster": config.cluster,
            "batch": config.batch,
        }
        kept = {
            key: value
            for key, value in keys.items()
            if key == "network" or key in config.model_fields_set
        }
        return view.command_line("plan", None, {**kept, "devices": plan.devices})
    return view.command_line(
        "simulate", config_file, {**flags, **view.next_changes(plan, run.cause)}
    )


def _print_tables(run: _Run, full: bool) -> None:
    usage = run.simulation.usage
    if run.costs is not None:
        view.cost_rows(run.costs)
    view.usage_rows(usage, full)
    if run.steady is None:
        view.stage_rows(run.simulation.plan)
    else:
        view.print_steady_tables(run.steady, full)


def _print_details(run: _Run, epoch_images: int | None) -> None:
    simulation, steady = run.simulation, run.steady
    plan, samples, config = simulation.plan, simulation.samples, simulation.plan.config
    counted = plural(samples, plan.network.sample_noun)
    how = f"{config.schedule.name}, batch {config.batch}, {counted} an epoch"
    view.say(f"{describe_devices(plan)}, {how}, timing only")
    for epoch, end_ps in enumerate(simulation.epoch_ends_ps, 1):
        print(f"epoch {epoch}: virtual time {view.time_and_ps(end_ps)}")
    rate = simulation.images_per_s
    if steady is None:
        if simulation.exchange_ps:
            _print_exchange(simulation)
        return
    entry_ps = plan.timing.interval_ps if config.schedule.drains else round(steady.period_ps)
    where = "" if steady.replicas == 1 else " each replica"
    view.say(
        f"a sample enters{where} every"
        f" {format_time_ps(entry_ps)}{view.ignored(steady.missing_bytes)};"
        f" {number(3600 * rate / samples)} epochs an hour of {counted}, filling and draining"
        " included"
    )
    if simulation.exchange_ps:
        _print_exchange(simulation)
    if not config.schedule.drains:
        stale = [staleness.stale_samples for staleness in plan.steady.staleness]
        shown = (
            ", ".join(map(str, stale))
            if len(stale) <= 16
            else f"{stale[0]} on the first to {stale[-1]} on the last"
        )
        view.say(
            f"samples that use old weights, of {plan.batch} in a mini-batch, by device: {shown}"
        )
    view.print_steady_state(steady, epoch_images)


def _print_exchange(simulation: Simulation) -> None:
    config, codec = simulation.plan.config, simulation.plan.data_parallel.codec
    step = simulation.exchange_ps // (
        config.epochs * len(step_sizes(simulation.samples, config.batch))
    )
    what = "gradients and weights" if simulation.plan.data_parallel.shares_weights else "gradients"
    view.say(
        f"exchange of {what}: {format_time_ps(step)} a mini-batch, the mean over devices;"
        f" {percent(simulation.exchange_share)} of the time"
        + ("" if config.schedule.drains else ", while further samples are computed")
    )
    if config.compress_ratio is None and codec.size_depends_on_values:
        view.say(
            f"a simulation has no gradients: {codec} is assumed to save nothing; set its ratio with"
            " `--compress-ratio`"
        )


def _print_comparison(changes: str, rows: Sequence[Compared], other: _Run) -> None:
    noun = other.simulation.plan.network.sample_noun
    cells = [
        [
            row.figure.replace("image", noun),
            _number(row.before),
            _number(row.after),
            _number(row.ratio),
        ]
        for row in rows
    ]
    view.table(
        f"What if {changes}{view.ignored(other.simulation.plan.missing_bytes)}",
        ["figure", "as it is", "what if", "ratio"],
        cells,
        left=("figure",),
    )
    plan, steady, cause = other.simulation.plan, other.steady, other.cause
    if steady is None or cause is None:
        lines = view.stage_lines(plan, other.simulation.usage)
    else:
        lines = view.limit_lines(plan, steady, cause)
    for line in lines:
        view.say(line.text)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else number(value)
