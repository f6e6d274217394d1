"""What a recurrent layer of a pair takes in a run's formats: bytes of weights, of values between
the devices, and of what the GPU keeps.

All lies as on a chain (docs/numbers.md): a line of weights is of a gate's inputs, or of its states;
values of a step are lines of a gate's cells, or of the state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from ....kernels.number import FP32, Lines, NumberFormat
from ...mapping import Slice, array_bytes, cut_channels
from ...network import Layer
from ...number import Precision


@dataclasses.dataclass(frozen=True)
class WorkFormats:
    """The formats of a layer: of what it reads, of what it makes, of its weights, of errors, and of
    sums.

    With `turns`, weights for BW are rounded for themselves, in blocks of a gate's units.
    """

    inputs: NumberFormat = FP32
    made: NumberFormat = FP32
    weights: NumberFormat = FP32
    errors: NumberFormat = FP32
    sums: NumberFormat = FP32
    turns: bool = False

    @classmethod
    def of(cls, layer: Layer, precision: Precision) -> WorkFormats:
        """Return those of a layer in a run's formats."""
        if precision.is_single:
            return cls()
        own, inputs = precision.of(layer.formats), precision.of(layer.reads.formats).activations
        return cls(inputs, own.activations, own.weights, own.errors, own.sums, own.turns)

    def rows_bytes(self, rows: int, columns: int, gates: int = 1, *, backward: bool) -> int:
        """Return the bytes of a matrix of weights, `rows` for each of the gates, for FW or BW."""
        if backward and self.turns:
            return Lines(rows, gates * columns).bytes_in(self.weights)
        return Lines(columns, gates * rows).bytes_in(self.weights)


class ArrayBytes(NamedTuple):
    """Bytes of arrays of parameters: copies that engines read beside what updates change, sums of
    gradients, what updates change, and one state of an optimiser.
    """

    copies: int
    gradients: int
    master: int
    state: int

    @classmethod
    def single(cls, parameters: int) -> ArrayBytes:
        """Return those of parameters in fp32."""
        size = FP32.bytes_of(parameters)
        return cls(0, size, size, size)

    @classmethod
    def of(cls, layers: Iterable[Layer], precision: Precision) -> ArrayBytes:
        """Return those of some layers in a run's formats."""
        copies = gradients = master = state = 0
        for layer in layers:
            part = Slice(layer, 0, cut_channels(layer))
            own = precision.of(layer.formats)
            weights, of_sums, *others = array_bytes(part, own.storage(1))
            copies += weights * own.has_copies
            gradients, state = gradients + of_sums, state + others[-1]
            master += others[0] if own.has_copies else weights
        return cls(copies, gradients, master, state)

    def kept(self, states: int) -> int:
        """Return the bytes of all, with a number of states."""
        return self.copies + self.master + self.gradients + states * self.state

    def updated(self, states: int) -> int:
        """Return the bytes that an update moves: all but copies in, all but gradients out."""
        return self.copies + 2 * self.master + self.gradients + 2 * states * self.state
