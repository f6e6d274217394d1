"""`emuchain simulate`: the edge between the simulator and people."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from ...comm.exchange.groups import step_sizes
from ...kernels.codec.codec import Inceptionn
from ..common.errors import InputError
from ..common.units import format_time_ps
from ..config.config import about_data, blaming, load_config
from ..data.load import describe
from ..plan.plan import Plan, check_data, fleet_line, make_plan
from ..report.steady_state import Report, make_report
from ..report.tables import device_rows, link_rows, percent, time_and_ps
from ..report.text import (
    comparison_as_json,
    print_bottleneck,
    print_comparison,
    print_summary,
    print_tables,
    report_as_json,
)
from ..run.simulate import Simulation, simulate
from ..run.usage import Figures
from ..studies.what_if import compare, parse_what_if


@dataclasses.dataclass(frozen=True)
class _Run:
    """A plan and what came of it."""

    plan: Plan
    samples: int
    simulation: Simulation
    report: Report


def run_simulation(
    config_file: str | None, flags: dict[str, Any], what_if: Sequence[str], epoch_images: int, as_json: bool
) -> None:
    """Simulate as configured and print tables, or JSON; beside it the same with other values.

    Raises:
        InputError: the configuration does not hold, or what is asked for instead.
    """
    asked = parse_what_if(what_if)
    run = _run(config_file, flags, {})
    other = _run(config_file, {**flags, **asked.config}, asked.cluster) if what_if else None
    rows = compare((run.simulation, run.report), (other.simulation, other.report), epoch_images) if other else []
    if as_json:
        found = _as_json(run, epoch_images)
        if other is not None:
            changes = {**asked.cluster, **asked.config}
            figures = comparison_as_json(rows)
            found["what_if"] = {"changes": changes, "figures": figures, "run": _as_json(other, epoch_images)}
        print(json.dumps(found, indent=2))
        return
    _print(run)
    print_summary(run.report, epoch_images)
    if other is not None:
        print_comparison(str(asked), rows)
        print_bottleneck(other.report)


def _run(config_file: str | None, flags: dict[str, Any], cluster_changes: dict[str, object]) -> _Run:
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        blocks = config.model_copy(update={"micro_batch": config.batch})  # as `simulate` does it
        plan = dataclasses.replace(make_plan(blocks, 1, cluster_changes), config=config)
        samples = _samples(plan)
    return _Run(plan, samples, simulate(plan, samples), make_report(plan))


def _samples(plan: Plan) -> int:
    """The samples of an epoch: those asked for, which need no data set unless one is named, or the data set's."""
    config = plan.config
    if config.samples is not None and "data" not in config.model_fields_set:
        return config.samples
    with about_data(config):
        available, _, shape, classes = describe(config.data)
    try:
        check_data(plan, shape, classes, config.data)
    except InputError as error:
        raise InputError(f"{error}; with `samples` and without `data`, a run can be planned without images") from None
    if config.samples is not None and config.samples > available:
        raise InputError(f"`samples` = {config.samples}: but {config.data} has {available} training images")
    return config.samples or available


def _print(run: _Run) -> None:
    plan, samples, simulation = run.plan, run.samples, run.simulation
    config = plan.config
    print(
        f"{plan.network.name} on {fleet_line(plan)}, {config.schedule}, "
        f"batch {config.batch}, {samples} images an epoch, timing alone"
    )
    device_rows(simulation.figures)
    if simulation.figures.links:
        link_rows(simulation.figures)
    print_tables(run.report, plan.cluster.link.bandwidth_gbps)
    stale = [sum(lag > 0 for lag in lags.forward) for lags in plan.steady.lags]
    for epoch, end_ps in enumerate(simulation.epoch_ends_ps, 1):
        print(f"epoch {epoch}: virtual time {time_and_ps(end_ps)}")
    rate = _images_per_s(run)
    entry_ps = round(run.report.period_ps) if config.schedule == "fpdeep" else plan.timing.interval_ps
    where = "" if run.report.replicas == 1 else " each replica"
    print(f"{rate:.1f} images/s; a sample enters{where} every {format_time_ps(entry_ps)}")
    print(f"{3600 * rate / samples:.4g} epochs an hour of {samples} images, with filling and draining")
    if simulation.exchange_ps:
        step = simulation.exchange_ps // (config.epochs * len(step_sizes(samples, config.batch)))
        print(
            f"exchange of gradients: {format_time_ps(step)} a mini-batch, the mean over devices;"
            f" {percent(simulation.exchange_share)} of the time"
            + ("" if config.schedule != "fpdeep" else ", while further samples are computed")
        )
        if config.compress_ratio is None and isinstance(plan.data_parallel.codec, Inceptionn):
            print(
                f"{plan.data_parallel.codec} has no gradients here, and is taken to make nothing smaller;"
                " `--compress-ratio` says what it does"
            )
    if config.schedule == "fpdeep":
        shown = stale if len(stale) <= 16 else f"{stale[0]} on the first to {stale[-1]} on the last"
        print(f"of {config.batch} samples in a mini-batch, see old weights (on each device): {shown}")


def _images_per_s(run: _Run) -> float:
    """Of the whole run, with filling and draining."""
    return run.samples * run.plan.config.epochs / (run.simulation.figures.virtual_time_ps * 1e-12)


def _as_json(run: _Run, epoch_images: int) -> dict[str, Any]:
    plan, simulation = run.plan, run.simulation
    rate = _images_per_s(run)
    return {
        "config": {**plan.config.model_dump(), "devices": plan.devices, "samples": run.samples},
        "virtual_time_ps": simulation.figures.virtual_time_ps,
        "epoch_ends_ps": list(simulation.epoch_ends_ps),
        "interval_ps": plan.timing.interval_ps,
        "exchange_ps": simulation.exchange_ps,
        "images_per_s": rate,
        "epochs_per_hour": 3600 * rate / run.samples,
        "stale_samples": [sum(lag > 0 for lag in lags.forward) for lags in plan.steady.lags],
        **figures_as_json(simulation.figures),
        "steady": report_as_json(run.report, epoch_images),
    }


def figures_as_json(figures: Figures) -> dict[str, Any]:
    """Devices and links as JSON has them; data paths by number."""
    devices = [dataclasses.asdict(device) for device in figures.devices]
    links = [
        {
            "sender": link.sender,
            "receiver": link.receiver,
            "path_bytes": {str(path.value): count for path, count in link.path_bytes.items()},
            "utilisation": link.utilisation,
        }
        for link in figures.links
    ]
    return {"devices": devices, "links": links}
