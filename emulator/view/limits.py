"""What limits a run, the rates that lifting it would give, and what to try next, as a command to be
pasted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from ..cluster import Cluster
from ..common import either, format_time_ps, number, percent, toml_value
from ..mapping import can_take, cut_pieces
from ..plan import ChainPlan
from ..run import (
    Cause,
    SteadyState,
    Usage,
    busy_shares,
    draining_limits,
    draining_share,
    is_waiting,
)
from ..schedule import Engines, Transport, pipelines
from .answer import Line
from .terminal import ignored


def limit_lines(plan: ChainPlan, state: SteadyState, cause: Cause) -> list[Line]:
    """Return what limits the rate, and the rates that lifting it would give, all of the steady
    state.
    """
    slowest, note, share = (
        _slowest(state, cause),
        ignored(state.missing_bytes),
        draining_share(plan, state),
    )
    wider = [Line(text) for text in wider_links(state, cause)]
    if share > 0:
        full = number(state.replicas * 1e12 / plan.timing.interval_ps)
        exchange = " and exchanges" if state.replicas > 1 else ""
        waits = (
            f"each update drains the chain{exchange}, {percent(share)} of the time; without: {full}"
            f" {state.noun}s/s with this cut{note}"
        )
        first, second = (waits, slowest) if draining_limits(plan, state) else (slowest, waits)
        return [Line(f"limit: {first}"), Line(f"then: {second}"), *wider]
    lines = [Line(f"limit: {slowest}"), *wider]
    if not note:
        return [*lines, *(Line(text, optional=bool(wider)) for text in _if_free(state))]
    free = [
        f"If {kind} were free, with this cut: {number(rate)} {state.noun}s/s{note}"
        for kind, rate in rates_without(state).items()
    ]
    return [
        *lines,
        *(Line(text, optional=place > 0 or bool(wider)) for place, text in enumerate(free)),
    ]


def _slowest(state: SteadyState, cause: Cause) -> str:
    bottleneck = state.bottleneck
    ties = (
        f" ({bottleneck.ties:,} other{'s' * (bottleneck.ties > 1)} equally slow)"
        if bottleneck.ties
        else ""
    )
    duration = format_time_ps(bottleneck.slowest.sample_ps)
    return f"{bottleneck.slowest.name}, {duration}/sample{ties}{cut_setting(state, cause)}"


def cut_setting(state: SteadyState, cause: Cause) -> str:
    """Return what sets the cut where that is not what is slowest in it, after a comma; else
    nothing.
    """
    sets = {"link": "links set", "memory": "memory sets"}.get(cause.kind)
    return (
        ""
        if sets is None or cause.kind == state.bottleneck.slowest.kind
        else f", in a cut that {sets}"
    )


def wider_links(state: SteadyState, cause: Cause) -> list[str]:
    """Return a line with the rate with wider links and a new cut, where links are the cause; else
    none.
    """
    wider = cause.wider
    if wider is None:
        return []
    brings = (
        f"steady {number(wider.images_per_s)} {state.noun}s/s with a new cut, now"
        f" {number(state.images_per_s)}"
    )
    return [f"If links had {wider.gbps:g} Gb/s: {brings}{ignored(state.missing_bytes)}"]


def _if_free(state: SteadyState) -> list[str]:
    """Return a line with the rates if engines, links, … took no time, the highest first; none if
    there is one kind.

    They are those of this cut. Where several kinds are equally slow, the line says that.
    """
    times = state.bottleneck.times_ps
    tied = [kind for kind, time_ps in times.items() if time_ps == max(times.values())]
    if len(tied) > 1:
        *firsts, last = tied
        return [
            f"With this cut, {', '.join(firsts)} and {last} limit equally: lifting only one of them"
            " gains nothing"
        ]
    kinds: dict[str, list[str]] = {}
    for kind, rate in rates_without(state).items():
        kinds.setdefault(number(rate), []).append(kind)
    if not kinds:
        return []
    (first, images_per_s), *others = ((either(alike), shown) for shown, alike in kinds.items())
    rest = "".join(f"; if {names} were: {shown}" for names, shown in others)
    return [f"If {first} were free, with this cut: {images_per_s} {state.noun}s/s{rest}"]


def rates_without(state: SteadyState) -> dict[str, float]:
    """Return the rates that would be reached if all of a kind (engines, links, …) took no time,
    highest first.
    """
    slowest = state.bottleneck.times_ps
    rates = {}
    for kind in filter(slowest.get, slowest):
        left_ps = max(time_ps for other, time_ps in slowest.items() if other != kind)
        if left_ps:
            rates[kind] = state.replicas * 1e12 / left_ps
    return dict(sorted(rates.items(), key=lambda entry: -entry[1]))


_ENGINES = {
    Engines.TURNS: "one action at a time",
    Engines.SHARED: "F and B share a pool",
    Engines.SPLIT: "F, B and W side by side",
}


def stage_lines(plan: ChainPlan, usage: Usage) -> list[Line]:
    """Return what limits a run, its busiest stage or link, or waits where none is busy for half of
    the time.
    """
    stages, uses = plan.stages, busy_shares(plan, usage)
    assert stages is not None
    machine, samples = stages.machine, stages.samples
    said = {use: f"{use.name}, busy for {percent(use.share)} of the time" for use in uses}
    busiest = next(use for use in uses if use.kind == "engine")
    work_ps = {
        stage: stages.costs(stage, samples).work_ps for stage in plan.fold.stages(busiest.device)
    }
    stage = max(work_ps, key=lambda number: work_ps[number])
    costs = stages.costs(stage, samples)
    said[busiest] += (
        f"; stage {stage} takes F {format_time_ps(costs.forward_ps)}, B"
        f" {format_time_ps(costs.backward_ps)} a"
        f" micro-batch of {samples}"
        f"{'; its memory port is the cause' if stages.stage(stage, samples).bound_by_memory else ''}"
    )
    link = [use for use in uses if use.kind == "link"][:1]
    texts = [said[use] for use in uses if use is busiest or use in link]
    if is_waiting(uses[0].share):
        texts.insert(
            0,
            f"waits in the order of {plan.config.schedule.name}: nothing is busy for half of the"
            " time",
        )
    first, *others = texts
    lines = [
        Line(f"limit: {first}"),
        *(Line(f"then: {text}", optional=place > 0) for place, text in enumerate(others)),
    ]
    waits = (
        "messages leave when an action is done"
        if machine.transport is Transport.STORED
        else "messages are hidden"
    )
    return [*lines, Line(f"machine: {_ENGINES[machine.engines]}; {waits}", optional=True)]


def order_line(plan: ChainPlan) -> list[Line]:
    """Return a line where a schedule's order costs nothing, because rows are streamed from engines
    of their own.
    """
    meant = pipelines().get(plan.config.schedule.name)
    if not plan.times_rows or meant is None:
        return []
    engines = meant.machine.engines.value
    return [
        Line(
            f"order: no effect, since rows stream from split engines; {plan.config.schedule.name}"
            f" is meant for `--engines {engines}`"
        )
    ]


def next_changes(plan: ChainPlan, cause: Cause) -> dict[str, object]:
    """Return the flags of `simulate` that would lift what limits, with their values.

    More boards where engines limit and more boards are faster, faster links where links do or keep
    more boards from being faster, a faster clock where neither helps, larger mini-batches where
    exchanges limit, and a schedule that does not drain where draining does, or instead of a
    schedule from a file, which has one size.
    """
    config, replicates = plan.config, plan.config.schedule.replicates
    if config.schedule.file is not None and cause.wider is None:
        return {"schedule": "fpdeep", "devices": plan.devices}
    cuts_layers = plan.network.recurs and plan.devices > len(plan.network.layers)
    if cause.kind == "draining" and not replicates and not cuts_layers:
        return {"schedule": "fpdeep"}
    if cause.kind in ("draining", "exchange"):
        return {"batch": 2 * config.batch}
    if cause.wider is not None:
        return {"what_if": f"link.bandwidth_gbps={cause.wider.gbps:g}"}
    return _more_devices(plan)


def other_schedule(plan: ChainPlan, flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags of a run with another schedule, to try where boards take actions as a
    whole.
    """
    assert plan.stages is not None
    hides = plan.stages.machine.transport is Transport.HIDDEN
    first, second = ("fbp-as", "1f1b-as") if hides else ("1f1b-so", "zero-bubble")
    kept = {key: value for key, value in flags.items() if key not in ("chunks", "warm_up")}
    own = {} if plan.config.schedule.file is None else {"devices": plan.devices}
    return {**kept, **own, "schedule": second if plan.config.schedule.name == first else first}


def _more_devices(plan: ChainPlan) -> dict[str, object]:
    if plan.config.schedule.replicates:
        batch = plan.config.batch
        devices = 2 * plan.data_parallel.replicas
        return {"devices": devices, **({"batch": 2 * batch} if batch % devices else {})}
    layers, whole = plan.network.layers, plan.network.recurs and not plan.config.schedule.aligned
    parts = len(layers)
    if not whole:
        parts = sum(cut_pieces(layer, plan.config.precision) for layer in layers)
    more = min(2 * plan.devices, parts)
    if more > plan.devices and _may_be_faster(plan, more, plan.cluster):
        return {"devices": more, **({} if plan.config.cut is None else {"cut": None})}
    links = [plan.cluster.link, *plan.cluster.own_links]
    wider = plan.cluster.with_bandwidth(2 * max(link.bandwidth_mbps for link in links))
    if plan.devices > 1 and _may_be_faster(plan, plan.devices, wider):
        return {"what_if": f"link.bandwidth_gbps={wider.link.bandwidth_gbps:g}"}
    return {"what_if": f"board.clock_mhz={round(2 * plan.cluster.boards[0].clock_mhz)}"}


def _may_be_faster(plan: ChainPlan, devices: int, cluster: Cluster) -> bool:
    """Return whether some boards, whatever their memory, take a sample in less time than the
    plan's.
    """
    return can_take(plan.network, cluster, devices, plan.timing.interval_ps - 1)


def command_line(command: str, config_file: str | None, flags: Mapping[str, object]) -> str:
    """Return a command of emuchain with a configuration's file or, of the flags, the network as its
    first word.
    """
    words = ["emuchain", command]
    first = config_file or flags.get("network")
    if first is not None:
        words.append(str(first))
    for key, value in _by_flag(flags):
        if value is not None and (key != "network" or config_file is not None):
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [_spelt(value)])]
    return shlex.join(words)


def _by_flag(flags: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield flags with their values; a table has a flag for each of its keys."""
    for key, value in flags.items():
        if key == "changes" and isinstance(value, Mapping):
            yield from (("set", f"{name}={toml_value(changed)}") for name, changed in value.items())
        elif isinstance(value, Mapping):
            yield from (
                (key if name == "format" else f"{key}.{name}", of_key)
                for name, of_key in value.items()
            )
        else:
            yield key, value


def _spelt(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
