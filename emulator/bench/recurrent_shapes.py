"""The recurrent layers that are measured: those of FARNN's size and smaller ones, with few samples and with many."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

KINDS = ("lstm", "gru")
UNITS = (128, 256, 512, 1024)
BATCHES = (1, 4, 16, 64)
STEPS = 32


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of `units` units with as many inputs, and its mini-batch."""

    kind: str
    units: int
    batch: int
    steps: int

    @property
    def gates(self) -> int:
        """Number of gates of a unit."""
        return 4 if self.kind == "lstm" else 3

    @property
    def weight_bytes(self) -> int:
        """Bytes of R, which each step reads, forward and back."""
        return 4 * self.gates * self.units * self.units

    def bound_s(self, flop_s: float, byte_s: float) -> float:
        """Return the least seconds of a training step, for those of an operation, and of a byte of R that is read.

        The products with R of a step wait for those of the step before: each takes its operations or the reading of R,
        whichever is longer. Those with W and the gradients, four of six, are operations alone.
        """
        product = self.flop / (6 * self.steps) * flop_s
        return self.steps * (2 * max(product, self.weight_bytes * byte_s) + 4 * product)

    @property
    def flop(self) -> int:
        """Multiplications and additions of a training step: forward, errors and gradients of both products."""
        return 3 * 2 * 2 * self.batch * self.steps * self.gates * self.units * self.units


def layers(kinds: Sequence[str], units: Sequence[int], batches: Sequence[int], steps: int) -> list[Layer]:
    """Return all layers of these kinds, batches and sizes, in this order."""
    return [Layer(kind, size, batch, steps) for kind in kinds for batch in batches for size in units]
