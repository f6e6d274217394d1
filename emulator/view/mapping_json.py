"""A mapping as JSON: slices with their tiles, their off-chip data, and balanced parameters."""

from __future__ import annotations

from typing import Any

from ..cluster import Engine
from ..mapping import BalancedParameters, OffChip, Slice, SliceEngines
from ..timing import Timing


def mapping_as_json(timing: Timing) -> dict[str, Any]:
    """Return the devices of a chain with their slices, and balanced parameters: all that times of rows follow from.

    Boards that take actions as a whole have no tiles, and what of their data is off chip is said by stage.
    """
    return {
        "devices": [
            {
                "device": device,
                "board": timing.cluster.board(device).name,
                "slices": _slices(timing, device),
            }
            for device in range(len(timing.mapping.devices))
        ],
        "balanced_parameters": [block_as_json(block) for block in timing.blocks],
    }


def _slices(timing: Timing, device: int) -> list[dict[str, Any]]:
    if timing.stages is not None:
        return [_place(part) for part in timing.mapping.devices[device]]
    held = zip(timing.engines[device], timing.slices_off_chip(device), strict=True)
    return [{**slice_as_json(part, engines), **off_chip_as_json(off_chip)} for engines, (part, off_chip) in held]


def _place(part: Slice) -> dict[str, Any]:
    return {
        "layer": part.layer.name,
        "cut": part.cut.value,
        "begin_channel": part.begin,
        "end_channel": part.end,
    }


def slice_as_json(part: Slice, engines: SliceEngines) -> dict[str, Any]:
    """Return a slice, with the number of tiles of its engines."""
    tile = part.layer.engine_view.tile
    return {
        **_place(part),
        "tile_multipliers": tile,
        "tiles": {phase: engine.multipliers // tile for phase, engine in engines_by_phase(engines).items()},
    }


def engines_by_phase(engines: SliceEngines) -> dict[str, Engine]:
    """Return a slice's engines by the keys that JSON has for them; a layer that takes images has no `eb`."""
    by_phase = {"fp": engines.fp, "eb": engines.eb, "pg": engines.pg}
    return {phase: engine for phase, engine in by_phase.items() if engine is not None}


def off_chip_as_json(off_chip: OffChip) -> dict[str, Any]:
    """Return what of a slice is off chip."""
    return {"off_chip_channels": off_chip.channels, "off_chip_activations": off_chip.activations}


def block_as_json(block: BalancedParameters) -> dict[str, Any]:
    """Return a block of balanced parameters."""
    return {
        "layer": block.layer.name,
        "begin_channel": block.begin,
        "end_channel": block.end,
        "user_device": block.user_device,
        "store_device": block.store_device,
        "parameter_bytes": block.parameter_bytes,
    }
