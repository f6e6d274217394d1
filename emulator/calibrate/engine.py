"""The shape of a board's engines from cycles of single convolutions: an array of outputs x pixels,
a start, and how much of loading weights is exposed.

    cycles = passes x max(taps x a, drain) + start + bytes x b

`passes`, `taps` and `drain` are those of `cluster/arrays.py`, which plans and clocks use; a, start
and b are fitted, by relative least squares, and what comes out below zero is left out. `a` is the
inverse of the multipliers of a result: of the next whole number above, pipelines keep a share busy,
the board's `efficiency`. Of the time in which the off-chip port moves the weights, b is the share
that is exposed (`load_exposed`).

The form was chosen by layers that were not fitted: with VGG-16's nine layers alone, another
network's are within 10 % (docs/calibration.md). Its drain, two outputs a cycle, is no fit: layers
with many taps do not show it. The array's shape is what the user says of the design, or else that
of powers of two which predicts each layer best from the others; layers whose channels are multiples
of 64 leave `outputs` open, and the largest is taken.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..cluster import EngineArray, Work
from ..common import InputError, plural
from .board import fpga, fpga_keys
from .constants import Constant, Evidence, Range
from .mixed import RUN
from .reading import Kind, Row, Table, named
from .robust import Floats

DRAINED = 2
"""Outputs that leave an array in a cycle, at all positions."""

NEAR = 0.10
"""Largest relative error of a layer that is predicted well."""

_LEAST_EXPOSED = 1e-3
"""A smaller share is what is left of rounding."""

_SIDES = tuple(2**power for power in range(1, 8))
_FEWEST_LAYERS = 4
"""Different layers that tell a, start and b apart, and one to check them."""


@dataclasses.dataclass(frozen=True)
class Convolution:
    """A convolution that was measured: its work, the bytes of its weights, and its cycles."""

    row: Row
    work: Work
    weight_bytes: int
    cycles: float

    @classmethod
    def of(cls, row: Row) -> Convolution:
        """Return what a row measures.

        Raises:
            InputError: a cell is no number above zero.
        """
        outputs, inputs, kernel = (row.count(column) for column in ("oc", "ic", "k"))
        work = Work(row.count("oh"), row.count("ow"), inputs, outputs, kernel * kernel)
        own = inputs * outputs * kernel * kernel
        weight_bytes = row.count("weight_bytes") if row.has("weight_bytes") else own
        return cls(row, work, weight_bytes, row.number("cycles"))


@dataclasses.dataclass(frozen=True)
class EngineFit:
    """An engine: its array, the cycles of a tap and of a byte of weights, and how well it fits.

    `array` has the start and the drain. `left_out_error` is the rms relative error of each layer as
    predicted from all others.
    """

    board: str
    array: EngineArray
    tap_cycles: float
    byte_cycles: float
    load_exposed: float
    rms: float
    left_out_error: float
    evidence: Evidence
    keys: dict[str, Any]

    build: ClassVar[None] = None
    """Cycles report nothing of what a build takes."""

    @property
    def each(self) -> int:
        """Multipliers of a result."""
        return max(1, math.ceil(1 / self.tap_cycles - 0.02))

    @property
    def efficiency(self) -> float:
        """The share of their cycles in which these are busy."""
        return min(1.0, 1 / (self.tap_cycles * self.each))

    def cycles(self, measured: Convolution) -> float:
        """Return the cycles that a convolution should take."""
        taps = _products(measured) * self.tap_cycles
        passes = self.array.passes(measured.work) * max(taps, self.array.drain_cycles)
        return passes + self.array.start_cycles + measured.weight_bytes * self.byte_cycles

    @property
    def measured(self) -> dict[str, Any]:
        """The keys of a board's file that were measured."""
        return {
            "convolution_engines": "arrays",
            "array_outputs": self.array.outputs,
            "array_positions": self.array.positions,
            "drain_cycles": self.array.drain_cycles,
            "start_cycles": self.array.start_cycles,
            "load_exposed": round(self.load_exposed, 4),
            "efficiency": round(self.efficiency, 4),
        }

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The measured constants that may be uncertain, with their ranges."""
        values = {"start_cycles": self.array.start_cycles, "load_exposed": self.load_exposed}
        values["efficiency"] = self.efficiency
        units = {"start_cycles": "cycles"}
        return tuple(
            Constant(f"board.{key}", value, self._range(key, value), units.get(key, "")).rounded()
            for key, value in values.items()
            if value
        )

    def _range(self, key: str, value: float) -> Range:
        """Return the range of a constant by how far layers are off that are left out; no share is
        above 1.
        """
        wide = 1 + _NORMAL * max(self.left_out_error, RUN.likely)
        return Range(value / wide, value * wide if key in _COUNTS else min(value * wide, 1.0), 1)


_NORMAL, _COUNTS = 1.645, ("start_cycles",)


@dataclasses.dataclass(frozen=True)
class Check:
    """Layers that were not fitted: of how many the prediction is near, and its errors as shares,
    beside those of a roofline.
    """

    layers: int
    near: int
    roofline_near: int
    worst: str
    worst_error: float
    errors: tuple[float, ...]
    roofline_errors: tuple[float, ...]


def is_of_convolutions(tables: Sequence[Table]) -> bool:
    """Return whether all tables measure single convolutions."""
    return all(table.kind is Kind.CONVOLUTIONS for table in tables)


def shape_of(text: str) -> tuple[int, int]:
    """Return outputs and positions from text such as `32x64`.

    Raises:
        InputError: it is no such text.
    """
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(side.isdecimal() and 0 < int(side) < 10_000 for side in sides):
        raise InputError(f"`array` = {text!r}: should be outputs x pixels, such as 32x64")
    return int(sides[0]), int(sides[1])


def fit_engine(
    tables: Sequence[Table], kind: str, shape: tuple[int, int] | None = None
) -> EngineFit:
    """Return the engine that measured convolutions make on a board of a `kind`.

    Args:
        tables: rows with `oc`, `ic`, `oh`, `ow`, `k`, `cycles`, and maybe `weight_bytes`.
        kind: the board, whose clock and memory port turn loads into cycles.
        shape: outputs and pixels that the design makes at once, where they are known.

    Raises:
        InputError: too few different layers; a cell is wrong.
    """
    layers = convolutions(tables)
    different = {(layer.work, layer.weight_bytes) for layer in layers}
    if len(different) < _FEWEST_LAYERS:
        raise InputError(
            f"{named(tables)}: {plural(len(different), 'different layer')}; an engine takes"
            f" {_FEWEST_LAYERS} or more"
        )
    shapes = [shape] if shape is not None else [*itertools.product(_SIDES, _SIDES)]
    arrays = [EngineArray(outputs, pixels, outputs // DRAINED) for outputs, pixels in shapes]
    errors = [_left_out_error(layers, array) for array in arrays]
    # Of shapes that these layers do not tell apart, the one with most outputs.
    best = min(errors) * (1 + 1e-6) + 1e-9
    array = [array for array, error in zip(arrays, errors, strict=True) if error <= best][-1]
    tap, start, byte = map(float, _fitted(layers, array))
    board = fpga(kind, {})
    port = (board.off_chip_gbytes_per_s or 0) * 1000 / board.clock_mhz  # bytes a cycle
    fit = EngineFit(
        board.name,
        dataclasses.replace(array, start_cycles=round(start)),
        tap,
        byte,
        min(1.0, byte * port) if byte * port >= _LEAST_EXPOSED else 0.0,
        0.0,
        min(errors),
        Evidence.of(tables, len(layers), len({layer.row.run for layer in layers})),
        fpga_keys(kind),
    )
    errors = [fit.cycles(layer) / layer.cycles - 1 for layer in layers]
    return dataclasses.replace(fit, rms=_rms(errors))


def convolutions(tables: Sequence[Table]) -> list[Convolution]:
    """Return the convolutions that tables measure.

    Raises:
        InputError: a cell is no number above zero.
    """
    return [Convolution.of(row) for table in tables for row in table.rows]


def check(fit: EngineFit, fitted: Sequence[Table], tables: Sequence[Table]) -> Check:
    """Return how well other layers are predicted, beside a roofline that is fitted to the same rows
    as the engine: the slower of multiplying and loading.
    """
    per_mac, per_byte = _roofline(convolutions(fitted))
    layers = convolutions(tables)
    errors, roofline_errors = [], []
    for layer in layers:
        roof = max(per_mac * layer.work.macs, per_byte * layer.weight_bytes)
        errors.append(fit.cycles(layer) / layer.cycles - 1)
        roofline_errors.append(roof / layer.cycles - 1)
    worst = max(range(len(layers)), key=lambda place: abs(errors[place]))
    return Check(
        len(layers),
        _near(errors),
        _near(roofline_errors),
        str(layers[worst].row),
        errors[worst],
        tuple(errors),
        tuple(roofline_errors),
    )


def _near(errors: Sequence[float]) -> int:
    """Return how many errors are those of a layer that is predicted well."""
    return sum(abs(error) <= NEAR for error in errors)


def _products(layer: Convolution) -> int:
    """Return the products of a result."""
    return layer.work.inputs * layer.work.tile


def _terms(layer: Convolution, array: EngineArray) -> Floats:
    """Return what a layer's cycles are made of: products of passes, a start, and bytes."""
    return np.array([array.passes(layer.work) * _products(layer), 1.0, layer.weight_bytes])


def _fitted(layers: Sequence[Convolution], array: EngineArray) -> Floats:
    """Return cycles of a tap, a start and a byte, none below zero."""
    terms = np.array([_terms(layer, array) / layer.cycles for layer in layers])
    kept = [0, 1, 2]
    while True:
        solution, *_ = np.linalg.lstsq(terms[:, kept], np.ones(len(layers)), rcond=None)
        if min(solution) >= 0 or len(kept) == 1:
            break
        del kept[int(np.argmin(solution * np.max(terms[:, kept], axis=0)))]
    values = np.zeros(3)
    values[kept] = np.maximum(solution, 1e-12)
    return values


def _left_out_error(layers: Sequence[Convolution], array: EngineArray) -> float:
    """Return the rms relative error of each different layer as predicted from all others."""
    errors = []
    for work in dict.fromkeys(layer.work for layer in layers):
        others = [layer for layer in layers if layer.work != work]
        values = _fitted(others, array)
        own = [layer for layer in layers if layer.work == work]
        errors += [float(_terms(layer, array) @ values) / layer.cycles - 1 for layer in own]
    return _rms(errors)


def _roofline(layers: Sequence[Convolution]) -> tuple[float, float]:
    """Return the cycles of a product and of a byte that the fastest layers take."""
    per_mac = min(layer.cycles / layer.work.macs for layer in layers)
    return per_mac, min(layer.cycles / layer.weight_bytes for layer in layers)


def _rms(errors: Sequence[float]) -> float:
    return math.sqrt(math.fsum(error * error for error in errors) / len(errors))
