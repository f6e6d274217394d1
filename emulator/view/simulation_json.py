"""A simulated run as JSON; every key names the unit of its figure."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..run import Cause, Simulation, SteadyState, Usage
from .mapping_json import mapping_as_json
from .stages import stages_as_json
from .steady_state import steady_state_as_json


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
