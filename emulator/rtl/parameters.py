"""The parameters of the modules of a top module: those of `slice`, `bias`, `relu` and `max_pool` in `sv/`."""

from __future__ import annotations

from collections.abc import Mapping

from ..network import SfuStep
from ..network.operations.pool import MaxPool
from .design import BiasDesign, Room, SliceDesign

Pair = tuple[int, int]
_AXES = "ROWS", "COLUMNS"


def slice_parameters(of: SliceDesign, room: Room) -> Mapping[str, int]:
    """Return the parameters of a `slice`."""
    part, layer = of.part, of.layer
    kernel, stride, pad = ((1, 1), (1, 1), (0, 0)) if of.is_flat else layer.window
    eb = of.eb
    return {
        "ICP": int(of.is_icp),
        "IS_FIRST": int(part.is_first),
        "IS_LAST": int(part.is_last),
        "HAS_EB": int(eb is not None),
        "FLAT": int(of.is_flat),
        "ARRIVING": of.arriving,
        "INPUTS": len(part.in_channels),
        "BEFORE": of.before,
        "OUTPUTS": len(part.out_channels),
        "ROWS_IN": layer.input[1],
        "COLUMNS_IN": layer.input[2],
        "ROWS": layer.output[1],
        "COLUMNS": layer.output[2],
        **_window_parameters(kernel, stride, pad),
        "FP_TILES": of.fp.tiles,
        "FP_EVERY": of.fp.every,
        "EB_TILES": eb.tiles if eb else 1,
        "EB_EVERY": eb.every if eb else 1,
        "PG_TILES": of.pg.tiles,
        "PG_EVERY": of.pg.every,
        "LANES": of.lanes,
        "LATENCY": of.latency,
        "SLOTS": room.samples,
        "DEPTH": room.rows,
    }


def bias_parameters(of: SliceDesign, bias: BiasDesign, room: Room) -> Mapping[str, int]:
    """Return the parameters of a `bias`."""
    channels, rows, columns = of.layer.output
    return {
        "CHANNELS": channels,
        "ROWS": rows,
        "COLUMNS": columns,
        "ADD_LANES": bias.add_lanes,
        "SUM_LANES": bias.sums.tiles,
        "SUM_EVERY": bias.sums.every,
        "LANES": bias.lanes,
        "LATENCY": of.latency,
        "DEPTH": room.rows,
    }


def step_parameters(step: SfuStep, room: Room) -> Mapping[str, int]:
    """Return the parameters of a `relu` or a `max_pool`."""
    channels, rows_in, columns_in = step.input
    _, rows, columns = step.output
    operation = step.operation
    if not isinstance(operation, MaxPool):
        return {"VALUES": channels * columns, "DEPTH": rows * room.samples}
    return {
        "CHANNELS": channels,
        "ROWS_IN": rows_in,
        "COLUMNS_IN": columns_in,
        "ROWS": rows,
        "COLUMNS": columns,
        **_window_parameters(operation.kernel, operation.step, operation.pad),
        "DEPTH": rows * room.samples,
        "ERRORS": room.rows,
    }


def _window_parameters(kernel: Pair, stride: Pair, pad: Pair) -> Mapping[str, int]:
    pairs = {"KERNEL": kernel, "STRIDE": stride, "PAD": pad}
    return {f"{name}_{which}": size for name, pair in pairs.items() for which, size in zip(_AXES, pair, strict=True)}
