"""`emuchain simulate`: the edge between the simulator and people."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ..config import about_data, blaming, load_config
from ..data.load import describe
from ..errors import InputError
from ..figures import Figures
from ..plan import Plan, check_data, make_plan
from ..simulate import Simulation, simulate
from ..tables import device_rows, link_rows, time_and_ps
from ..units import format_time_ps


def run_simulation(config_file: str | None, flags: dict[str, Any], as_json: bool) -> None:
    """Simulate as configured and print tables, or JSON.

    Raises:
        InputError: the configuration does not hold.
    """
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        plan = make_plan(config, 1)
        samples = _samples(plan)
    simulation = simulate(plan, samples)
    if as_json:
        print(json.dumps(_as_json(plan, samples, simulation), indent=2))
    else:
        _print(plan, samples, simulation)


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


def _print(plan: Plan, samples: int, simulation: Simulation) -> None:
    config = plan.config
    print(
        f"{plan.network.name} on {plan.devices} x {plan.cluster.boards[0].name}, {config.schedule}, "
        f"batch {config.batch}, {samples} images an epoch, timing alone"
    )
    device_rows(simulation.figures)
    if simulation.figures.links:
        link_rows(simulation.figures)
    stale = [sum(lag > 0 for lag in lags.forward) for lags in plan.steady.lags]
    for epoch, end_ps in enumerate(simulation.epoch_ends_ps, 1):
        print(f"epoch {epoch}: virtual time {time_and_ps(end_ps)}")
    rate = samples * config.epochs / (simulation.figures.virtual_time_ps * 1e-12)
    print(f"{rate:.1f} images/s; a sample enters every {format_time_ps(plan.timing.interval_ps)}")
    if config.schedule == "fpdeep":
        shown = stale if len(stale) <= 16 else f"{stale[0]} on the first to {stale[-1]} on the last"
        print(f"of {config.batch} samples in a mini-batch, see old weights (on each device): {shown}")


def _as_json(plan: Plan, samples: int, simulation: Simulation) -> dict[str, Any]:
    return {
        "config": {**plan.config.model_dump(), "devices": plan.devices, "samples": samples},
        "virtual_time_ps": simulation.figures.virtual_time_ps,
        "epoch_ends_ps": list(simulation.epoch_ends_ps),
        "interval_ps": plan.timing.interval_ps,
        "stale_samples": [sum(lag > 0 for lag in lags.forward) for lags in plan.steady.lags],
        **figures_as_json(simulation.figures),
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
