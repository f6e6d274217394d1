"""The ports and parameters of a device's top module.

Its data paths at both sides are ports (FPDeep, section 5.1); `slice`, `bias`, `relu` and `max_pool`
in `sv/` have parameters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from ..mapping import Stream, StreamKey
from ..network import SfuStep, Tensor
from ..network.operations.pool import MaxPool
from ..number import Precision
from .design import BiasDesign, DeviceDesign, Room, SliceDesign
from .engines import window_in_blocks
from .formats import by_chance, factors, seed_literal, stream_literal

IMAGES, OUTPUTS, ERRORS = "images", "outputs", "errors"
"""Ports to the host: what enters the chain, its outputs, and their errors."""


@dataclasses.dataclass(frozen=True)
class Port:
    """A stream of rows in or out: `channels` of `columns`, 32 bits each, in `rows` a sample.

    `key` is None where the host is beyond.
    """

    name: str
    channels: int
    columns: int
    rows: int
    key: StreamKey | None

    @property
    def words(self) -> int:
        """Values of a row."""
        return self.channels * self.columns


def inputs_of(device: DeviceDesign) -> tuple[Port, ...]:
    """Return the streams that a device takes in: from the left, then from the right."""
    walk = device.streams
    images = [_of_host(IMAGES, walk.slices[0].layer.reads)] if walk.is_chain_start else []
    errors = [_of_host(ERRORS, walk.slices[-1].layer.hands_on[0])] if walk.is_chain_end else []
    left, right = (
        _crossing(device.left, "in", forward=True),
        _crossing(device.right, "in", forward=False),
    )
    return *images, *left, *right, *errors


def outputs_of(device: DeviceDesign) -> tuple[Port, ...]:
    """Return the streams that a device sends: to the right, then to the left."""
    walk = device.streams
    outputs = [_of_host(OUTPUTS, walk.slices[-1].layer.hands_on[0])] if walk.is_chain_end else []
    right, left = (
        _crossing(device.right, "out", forward=True),
        _crossing(device.left, "out", forward=False),
    )
    return *outputs, *right, *left


def _of_host(name: str, tensor: Tensor) -> Port:
    channels, rows, columns = tensor.shape
    return Port(name, channels, columns, rows, None)


def _crossing(streams: Iterable[Stream], way: str, *, forward: bool) -> list[Port]:
    """Return the ports of those streams of a link that run to the right, `forward`, or to the
    left.
    """
    return [
        Port(f"path{own.path.value}_{way}", own.channels, own.columns, own.rows, own.key)
        for own in streams
        if own.path.is_forward == forward
    ]


def engines_of(device: DeviceDesign) -> tuple[tuple[str, int], ...]:
    """Return (phase, place of the slice) of each bit of a device's `rows_done`."""
    return tuple(
        (phase, place) for place in range(len(device.slices)) for phase in ("FP", "EB", "PG")
    )


def units_of(device: DeviceDesign) -> tuple[tuple[int, str], ...]:
    """Return (place of the slice, "weight", "master" or "bias") of each unit that the host reads
    and writes.

    Where there is a master copy of weights, it is written, and they follow.
    """
    return tuple(
        (place, name)
        for place, slice_design in enumerate(device.slices)
        for name, is_there in (
            ("weight", True),
            ("master", device.precision.has_copies),
            ("bias", slice_design.bias is not None),
        )
        if is_there
    )


FORMATS = "ACTIVATIONS", "WEIGHTS", "ERRORS"
"""Constants of a top module that is not in fp32 alone."""

Pair = tuple[int, int]
_AXES = "ROWS", "COLUMNS"


def slice_parameters(
    design: SliceDesign, room: Room, precision: Precision, seed: int = 0
) -> Mapping[str, int | str]:
    """Return the parameters of a `slice` in a run of this seed."""
    part, layer = design.part, design.layer
    window = window_in_blocks(layer) if design.units else layer.window
    kernel, stride, pad = ((1, 1), (1, 1), (0, 0)) if design.is_flat else window[:3]
    eb = design.eb
    return {
        "ICP": int(design.is_icp),
        "IS_FIRST": int(part.is_first),
        "IS_LAST": int(part.is_last),
        "HAS_EB": int(eb is not None),
        "FLAT": int(design.is_flat),
        "ARRIVING": design.arriving,
        "INPUTS": len(part.in_channels),
        "BEFORE": design.before,
        "OUTPUTS": len(part.out_channels),
        "ROWS_IN": layer.input[1],
        "COLUMNS_IN": layer.input[2],
        "ROWS": layer.output[1],
        "COLUMNS": layer.output[2],
        **_window_parameters(kernel, stride, pad),
        "FP_TILES": design.fp.tiles,
        "FP_EVERY": design.fp.every,
        "EB_TILES": eb.tiles if eb else 1,
        "EB_EVERY": eb.every if eb else 1,
        "PG_TILES": design.pg.tiles,
        "PG_EVERY": design.pg.every,
        "LANES": design.lanes,
        "LATENCY": design.latency,
        "SLOTS": room.samples,
        "DEPTH": room.rows,
        **(_format_parameters(design, precision) if not precision.is_single else {}),
        **(design.units.parameters if design.units else {}),
        **(_draw_parameters(design, seed) if by_chance(precision, "weights") else {}),
    }


def _format_parameters(design: SliceDesign, precision: Precision) -> Mapping[str, int | str]:
    x, w, dy = precision.activations, precision.weights, precision.errors
    engines = {"FP": factors(x, w), "EB": factors(dy, w), "PG": factors(x, dy)}
    subnormals = {f"{engine}_SUBNORMAL": subnormal for engine, (_, subnormal) in engines.items()}
    return {
        **dict(zip(("ACTIVATIONS", "WEIGHT", "ERRORS"), FORMATS, strict=True)),
        "MASTER": int(precision.has_copies),
        **{f"{engine}_SIGNIFICAND": bits for engine, (bits, _) in engines.items()},
        **subnormals,
        "FIRST": design.part.in_channels.start,
    }


def _draw_parameters(design: SliceDesign, seed: int) -> Mapping[str, int | str]:
    part, layer = design.part, design.layer
    _, inputs, *taps = layer.weight_shape
    first = part.out_channels.start * inputs + part.in_channels.start
    return {
        "WEIGHT_FIRST": first * math.prod(taps),
        "WEIGHT_ROW": inputs * math.prod(taps),
        "WEIGHT_STREAM": stream_literal(layer.stream, "weights"),
        "SEED": seed_literal(seed),
    }


def bias_parameters(design: SliceDesign, bias: BiasDesign, room: Room) -> Mapping[str, int]:
    """Return the parameters of a `bias`."""
    channels, rows, columns = design.layer.output
    return {
        "CHANNELS": channels,
        "ROWS": rows,
        "COLUMNS": columns,
        "ADD_LANES": bias.add_lanes,
        "SUM_LANES": bias.sums.tiles,
        "SUM_EVERY": bias.sums.every,
        "LANES": bias.lanes,
        "LATENCY": design.latency,
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
    return {
        f"{name}_{which}": size
        for name, pair in pairs.items()
        for which, size in zip(_AXES, pair, strict=True)
    }
