"""What a number format says. To add one, add a file with an instance of `NumberFormat` to this folder."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from ..extensions import instances

if TYPE_CHECKING:  # names of formats are found for --help, which does without NumPy
    import numpy as np
    from numpy.typing import NDArray

Count = TypeVar("Count", "int", "NDArray[np.int64]")
"""A number of values or bytes, or an array of such numbers."""


@dataclasses.dataclass(frozen=True)
class NumberFormat:
    """A format of values: activations, errors, parameters and gradients, on links and in memory.

    It changes times and memory, not numbers, which are computed in single precision whatever the format. So engines
    cost as much in all formats, unless one says otherwise: `multiplier_lut` and `multiplier_ff` are those of a
    multiplier and adder built without DSPs. These are an assumption: Xilinx's floating-point operator (PG060) takes
    about 600 and 400 LUTs for them in single precision.
    """

    name: str
    """As in the key `precision` of a run."""
    bits: int
    """Bits of a value."""
    multiplier_lut: int = 1000
    multiplier_ff: int = 1200

    def bytes_of(self, values: Count) -> Count:
        """Return the bytes of a number of values that lie or travel together."""
        return (values * self.bits + 7) // 8

    def values_in(self, size_bytes: Count) -> Count:
        """Return the most values that a number of bytes holds."""
        return 8 * size_bytes // self.bits


@functools.cache
def number_formats() -> Mapping[str, NumberFormat]:
    """Return all number formats by their names, those of most bits first."""
    formats = sorted(instances(__package__, NumberFormat), key=lambda number: -number.bits)
    return {number.name: number for number in formats}
