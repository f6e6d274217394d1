"""Which row waits for which: the row maps of operations that slide a window over their input."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

RowMap = NDArray[np.int64]


def rows_needed(rows_in: int, rows_out: int, kernel: int, stride: int, pad: int) -> RowMap:
    """Return for each output row of a window operation the last input row that it waits for: the last in its window.

    The last output row waits for the whole map, even where windows leave out its end, so that no error comes back for
    rows that have not arrived.
    """
    last = np.arange(rows_out) * stride - pad + kernel - 1
    last[-1] = rows_in - 1
    return np.clip(last, 0, rows_in - 1)


def rows_reaching(rows_in: int, rows_out: int, kernel: int, stride: int, pad: int) -> RowMap:
    """Return for each input row of a window operation the last output row whose error it receives, at least one."""
    last = (np.arange(rows_in) + pad) // stride
    return np.clip(last, 0, rows_out - 1)


@dataclasses.dataclass(frozen=True)
class LayerRows:
    """The row maps of an operation with weights.

    `fp`: for each output row, the last input row that FP waits for. `eb`: for each row that EB computes, the last row
    of output errors that it waits for. `eb_leaves`: for each input row, the row of EB that its errors leave with.
    """

    fp: RowMap
    eb: RowMap
    eb_leaves: RowMap

    def last_first(self) -> LayerRows:
        """Return the maps with errors numbered as they go where time runs backwards: the last row is 0.

        EB of a row then waits for the first output row that its input row reaches.
        """
        rows_in, rows_out = len(self.eb_leaves), len(self.fp)
        if len(self.eb) != rows_in:  # all error rows are made at once
            return self
        return dataclasses.replace(self, eb=_reached_last_first(self.fp, rows_in, rows_out))


@dataclasses.dataclass(frozen=True)
class SfuRows:
    """The row maps of an operation of an SFU: for each output row the input row, and for each error row the reverse."""

    forward: RowMap
    backward: RowMap

    def last_first(self) -> SfuRows:
        """Return the maps with errors numbered from the last row on; see `LayerRows.last_first`."""
        backward = _reached_last_first(self.forward, len(self.backward), len(self.forward))
        return dataclasses.replace(self, backward=backward)


def _reached_last_first(forward: RowMap, rows_in: int, rows_out: int) -> RowMap:
    """Return for each error row, from the last on, the number of the last error of its outputs, in the same order."""
    first = np.searchsorted(forward, np.arange(rows_in))
    return (rows_out - 1 - first)[::-1]
