"""The norm of all gradients, by which they are clipped (Pascanu et al., 2013): its sum of squares, over all devices.

Once for each mini-batch partial sums run to the right as data path 5, each device adding its own, and the total to the
left as path 6, as one row of a number in double precision.
"""

from __future__ import annotations

import dataclasses

from .traffic import DataPath, StreamKey


@dataclasses.dataclass(frozen=True)
class NormSum:
    """The sum over devices 0 … `last`; `number` is that of its streams among those of paths 5 and 6."""

    number: int
    last: int

    first = 0
    rows = 1
    row_bytes = 8

    def key(self, *, forward: bool) -> StreamKey:
        """Return the key of the stream of partial sums, or of the total."""
        return StreamKey(DataPath.PARAMETERS if forward else DataPath.PARAMETER_GRADIENTS, self.number)

    def crosses(self, link: int) -> bool:
        """Return whether it crosses the link between devices `link` and `link + 1`: all."""
        return self.first <= link < self.last
