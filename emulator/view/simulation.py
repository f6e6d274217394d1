"""A simulated run as JSON, whose keys name units, and what faults cost it, in time and in accuracy."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..common import format_time_ps, percent, plural
from ..faults import Faults
from ..run import Cause, Death, FaultCosts, Simulation, SteadyState, Usage
from .answer import Line
from .layout import mapping_as_json
from .stages import stages_as_json
from .steady import steady_state_as_json
from .table import table


def simulation_as_json(
    simulation: Simulation, steady: SteadyState | None, epoch_images: int, cause: Cause | None = None
) -> dict[str, Any]:
    """Return what `emuchain simulate --json` prints; `epoch_images` are those of the epoch whose hours it has.

    Where boards take actions as a whole, there are stages in place of a steady state.
    """
    plan, rate = simulation.plan, simulation.images_per_s
    return {
        "config": {**plan.config.model_dump(), "devices": plan.devices, "samples": simulation.samples},
        "replicas": plan.data_parallel.replicas,
        "virtual_time_ps": simulation.virtual_time_ps,
        "epoch_ends_ps": list(simulation.epoch_ends_ps),
        "interval_ps": None if steady is None else plan.timing.interval_ps,
        "exchange_ps": simulation.exchange_ps,
        "images_per_s": rate,
        "epochs_per_hour": 3600 * rate / simulation.samples,
        "fits": plan.fits,
        "missing_bytes": plan.missing_bytes,
        "fits_lut": plan.fits_lut,
        "stale_samples": plan.stale_samples,
        "mapping": mapping_as_json(plan.timing),
        **_usage_as_json(simulation.usage),
        **({} if plan.stages is None else {"pipeline": stages_as_json(plan.stages)}),
        "steady": None if steady is None else steady_state_as_json(steady, epoch_images, cause),
    }


def _usage_as_json(usage: Usage) -> dict[str, Any]:
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


def time_cost_line(costs: FaultCosts) -> Line:
    """Return what all faults cost in time, and which alone costs most."""
    line = f"faults cost {format_time_ps(costs.cost_ps)}, {percent(costs.share)} of"
    line += f" {format_time_ps(costs.without_ps)} without"
    if len(costs.each) > 1:
        what, cost_ps = max(costs.each, key=lambda cost: cost[1])
        line += f"; most: {what}, {format_time_ps(cost_ps)}"
    elif costs.each:
        line += f": {costs.each[0][0]}"
    return Line(line)


def death_lines(costs: FaultCosts, faults: Faults) -> list[Line]:
    """Return what each board's death took: work that is lost, and the time until the others go on."""
    lines = [_death_line(death) for death in costs.deaths]
    late = faults.in_order[len(costs.deaths) :]
    return [*lines, *(Line(f"{death}: after the end of the run, so nothing is lost") for death in late)]


def _death_line(death: Death) -> Line:
    first, last = death.leg.first + 1, death.leg.last
    where = f"mini-batch {last}" if first == last else f"mini-batches {first} to {last}"
    fault, left = death.fault, plural(death.left, "board")
    return Line(
        f"{fault}, in {where} of epoch {death.at.epoch + 1}: {format_time_ps(death.lost_ps)} of work lost,"
        f" {format_time_ps(fault.detect_ps)} to detect it, {format_time_ps(fault.reload_ps)} to reload; {left} continue"
    )


def accuracy_cost_line(faults: Faults, accuracy: float, without: float) -> Line:
    """Return what flips cost in accuracy: that of a run with them, and of one without, as fractions."""
    points = 100 * (accuracy - without)
    flips = f"{len(faults.flips)} kinds of flips" if len(faults.flips) > 1 else str(faults.flips[0])
    change = f"change test accuracy by {points:+.2f} points, {100 * without:.2f} % without"
    return Line(f"flips {change}: {flips}")


def cost_rows(costs: FaultCosts) -> None:
    """Print what each fault costs alone."""
    if len(costs.each) > 1:
        rows = [
            [what, format_time_ps(cost_ps), percent(cost_ps / costs.without_ps)]
            for what, cost_ps in [*costs.each, ("all together", costs.cost_ps)]
        ]
        table("Cost of each fault by itself", ["fault", "time", "share"], rows, left=("fault",))


def costs_as_json(costs: FaultCosts) -> dict[str, Any]:
    """Return the costs of faults as JSON."""
    return {
        "without_ps": costs.without_ps,
        "cost_ps": costs.cost_ps,
        "each": [{"fault": what, "cost_ps": cost_ps} for what, cost_ps in costs.each],
        "deaths": [_death_as_json(death) for death in costs.deaths],
    }


def _death_as_json(death: Death) -> dict[str, int]:
    fault, at = death.fault, death.at
    return {
        "board": fault.board,
        "at_ps": fault.at_ps,
        "epoch": at.epoch + 1,
        "mini_batches_done": at.step,
        "lost_ps": death.lost_ps,
        "detect_ps": fault.detect_ps,
        "reload_ps": fault.reload_ps,
        "devices_left": death.left,
    }
