"""`emuchain simulate`: the virtual time of a run, as text or JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from ...comm.exchange import step_sizes
from ..common import format_time_ps
from ..config import blaming, load_config
from ..plan import describe_devices, epoch_samples, make_plan
from ..report import (
    device_rows,
    draw_steady_state,
    link_rows,
    percent,
    print_bottleneck,
    print_steady_state,
    print_steady_tables,
    steady_state_as_json,
    table,
    time_and_ps,
)
from ..run import Simulation, SteadyState, Usage, simulate, steady_state
from ..studies import Compared, compare_runs, parse_what_if

_Run = tuple[Simulation, SteadyState]


def run_simulation(
    config_file: str | None,
    flags: dict[str, Any],
    what_if: Sequence[str],
    epoch_images: int,
    as_json: bool,
    plot: str | None = None,
) -> None:
    """Simulate as configured and print tables, or JSON; with `what_if`, compare the run with these values.

    The steady state is drawn into the file `plot`, if one is given.

    Raises:
        InputError: the configuration or `what_if` is invalid.
    """
    asked = parse_what_if(what_if)
    run = _run(config_file, flags, {})
    other = _run(config_file, {**flags, **asked.config}, asked.cluster) if what_if else None
    rows = compare_runs(run, other, epoch_images) if other else []
    if plot is not None:
        plan = run[0].plan
        draw_steady_state(run[1], f"{plan.network.name} on {describe_devices(plan)}", plot)
    if as_json:
        found = _as_json(run, epoch_images)
        if other is not None:
            changes = {**asked.cluster, **asked.config}
            figures = {row.figure: {"before": row.before, "after": row.after, "ratio": row.ratio} for row in rows}
            found["what_if"] = {"changes": changes, "figures": figures, "run": _as_json(other, epoch_images)}
        print(json.dumps(found, indent=2))
        return
    _print(*run)
    print_steady_state(run[1], epoch_images)
    if other is not None:
        _print_comparison(str(asked), rows)
        print_bottleneck(other[1])


def _run(config_file: str | None, flags: dict[str, Any], cluster_changes: dict[str, object]) -> _Run:
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        blocks = config.model_copy(update={"micro_batch": config.batch})  # as `simulate` does it
        plan = dataclasses.replace(make_plan(blocks, 1, cluster_changes), config=config)
        samples = epoch_samples(plan)
    return simulate(plan, samples), steady_state(plan)


def _print(simulation: Simulation, steady: SteadyState) -> None:
    plan, samples, config = simulation.plan, simulation.samples, simulation.plan.config
    print(
        f"{plan.network.name} on {describe_devices(plan)}, {config.schedule.name}, "
        f"batch {config.batch}, {samples} images an epoch, timing only"
    )
    device_rows(simulation.usage)
    if simulation.usage.links:
        link_rows(simulation.usage)
    print_steady_tables(steady, plan.cluster.link.bandwidth_gbps)
    for epoch, end_ps in enumerate(simulation.epoch_ends_ps, 1):
        print(f"epoch {epoch}: virtual time {time_and_ps(end_ps)}")
    rate = simulation.images_per_s
    entry_ps = plan.timing.interval_ps if config.schedule.drains else round(steady.period_ps)
    where = "" if steady.replicas == 1 else " each replica"
    print(f"{rate:.1f} images/s; a sample enters{where} every {format_time_ps(entry_ps)}")
    print(f"{3600 * rate / samples:.4g} epochs an hour of {samples} images, filling and draining included")
    if simulation.exchange_ps:
        _print_exchange(simulation)
    if not config.schedule.drains:
        stale = [staleness.stale_samples for staleness in plan.steady.staleness]
        shown = stale if len(stale) <= 16 else f"{stale[0]} on the first to {stale[-1]} on the last"
        print(f"samples that see old weights, of {config.batch} in a mini-batch, by device: {shown}")


def _print_exchange(simulation: Simulation) -> None:
    config, codec = simulation.plan.config, simulation.plan.data_parallel.codec
    step = simulation.exchange_ps // (config.epochs * len(step_sizes(simulation.samples, config.batch)))
    print(
        f"exchange of gradients: {format_time_ps(step)} a mini-batch, the mean over devices;"
        f" {percent(simulation.exchange_share)} of the time"
        + ("" if config.schedule.drains else ", while further samples are computed")
    )
    if config.compress_ratio is None and codec.size_depends_on_values:
        print(f"a simulation has no gradients: {codec} is assumed to save nothing; `--compress-ratio` gives its ratio")


def _print_comparison(changes: str, rows: Sequence[Compared]) -> None:
    cells = [[row.figure, _number(row.before), _number(row.after), _number(row.ratio)] for row in rows]
    table(f"What if {changes}", ["figure", "as it is", "what if", "ratio"], cells, left=("figure",))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _as_json(run: _Run, epoch_images: int) -> dict[str, Any]:
    simulation, steady = run
    plan, rate = simulation.plan, simulation.images_per_s
    return {
        "config": {**plan.config.model_dump(), "devices": plan.devices, "samples": simulation.samples},
        "virtual_time_ps": simulation.virtual_time_ps,
        "epoch_ends_ps": list(simulation.epoch_ends_ps),
        "interval_ps": plan.timing.interval_ps,
        "exchange_ps": simulation.exchange_ps,
        "images_per_s": rate,
        "epochs_per_hour": 3600 * rate / simulation.samples,
        "stale_samples": [staleness.stale_samples for staleness in plan.steady.staleness],
        **usage_as_json(simulation.usage),
        "steady": steady_state_as_json(steady, epoch_images),
    }


def usage_as_json(usage: Usage) -> dict[str, Any]:
    """Return devices and links as JSON; data paths by number."""
    devices = [dataclasses.asdict(device) for device in usage.devices]
    links = [
        {
            "sender": link.sender,
            "receiver": link.receiver,
            "path_bytes": {str(path.value): count for path, count in link.path_bytes.items()},
            "utilisation": link.utilisation,
        }
        for link in usage.links
    ]
    return {"devices": devices, "links": links}
