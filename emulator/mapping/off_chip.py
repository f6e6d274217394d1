"""Off-chip memory: what of a slice does not lie in on-chip buffers, and what moves over the board's memory port for it.

Weights and their gradients, and the input activations that wait for PG, may lie in the board's DRAM or HBM. For each
sample

- FP reads the weights, and writes the activations;
- EB reads the weights;
- PG reads the activations, and reads and writes the gradients. For a mini-batch's first sample there is nothing to
  read, and for its last one PG reads the weights and writes them updated instead of the gradients; so it moves the same
  number of bytes, and the update of SGD moves no more.

What other optimisers keep beside the gradients lies where these do. Their update reads and writes it.

Weights are read once a sample where the slice's activations are on chip: an engine then goes through the whole map,
one output channel after the other, as with balanced parameters (balancing.py). With the activations off chip, rows come
and go, and weights that are off chip, too, are read for each row. FP and EB of a recurrent layer, which must finish a
step before the next, read them for each row in any case.
"""

from __future__ import annotations

import dataclasses

from ..network import Phase
from .balancing import COPIES, channel_bytes
from .slices import Slice
from .traffic import VALUE_BYTES


@dataclasses.dataclass(frozen=True)
class OffChip:
    """What of a slice is off chip: weights and gradients of the last `channels` of its cut channels, and Act-RAM."""

    channels: int = 0
    activations: bool = False

    def __bool__(self) -> bool:
        return self.channels > 0 or self.activations


@dataclasses.dataclass(frozen=True)
class MemoryStream:
    """What an engine moves over its board's memory port: `sample_bytes` for a sample, in equal parts for its rows."""

    phase: Phase
    rows: int
    sample_bytes: int


def memory_streams(part: Slice, off_chip: OffChip, value_bytes: int = VALUE_BYTES) -> tuple[MemoryStream, ...]:
    """Return what FP, EB (unless the layer takes images) and PG of a slice move over the memory port."""
    if not off_chip:
        return ()
    view = part.layer.engine_view
    activations = off_chip.activations * activation_bytes(part, value_bytes)
    weights = off_chip.channels * channel_bytes(part, value_bytes)

    def of(phase: Phase, rows: int, copies: int, more: int) -> MemoryStream:
        each_row = off_chip.activations or (part.layer.operation.recurs and phase is not Phase.PG)
        passes = rows if each_row else 1
        return MemoryStream(phase, rows, copies * passes * weights + more)

    found = [of(Phase.FP, view.out_rows, 1, activations)]
    if part.layer.has_eb:
        found.append(of(Phase.EB, view.in_rows, 1, 0))
    found.append(of(Phase.PG, view.out_rows, 2, activations))
    return tuple(stream for stream in found if stream.sample_bytes)


def activation_bytes(part: Slice, value_bytes: int = VALUE_BYTES) -> int:
    """Return the bytes of a sample's input activations of a slice."""
    _, rows, columns = part.layer.input
    return (len(part.in_channels) * rows * columns + part.kept_values) * value_bytes


def port_bytes(part: Slice, off_chip: OffChip, value_bytes: int = VALUE_BYTES) -> int:
    """Return the bytes that a slice moves over its board's memory port for a sample."""
    return sum(stream.sample_bytes for stream in memory_streams(part, off_chip, value_bytes))


def update_bytes(part: Slice, off_chip: OffChip, copies: int = COPIES) -> int:
    """Return the bytes that an update moves: what is kept of parameters off chip beside gradients, in and out."""
    return 2 * (copies - COPIES) * off_chip.channels * channel_bytes(part)


def stored_bytes(
    part: Slice, off_chip: OffChip, in_flight: int, value_bytes: int = VALUE_BYTES, copies: int = COPIES
) -> int:
    """Return the bytes of a slice in off-chip memory: weights, gradients, and activations of the samples in flight."""
    weights = copies * off_chip.channels * channel_bytes(part, value_bytes)
    return weights + off_chip.activations * in_flight * activation_bytes(part, value_bytes)
