"""What travels between neighbours: the six data paths (FPDeep, section 5.1, Fig. 12).

Between two devices that share a layer, paths 1 and 2 run to the right and 3 and 4 to the left; where a layer ends on
one device and the next begins on the other, its activations take path 1 and its errors path 4. Paths 5 and 6 carry
balanced parameters and their gradients; while every device stores its own parameters, they carry nothing.
"""

from __future__ import annotations

import dataclasses
import enum

from .partition import Cut, Mapping

VALUE_BYTES = 4
"""Activations, errors and parameters are single-precision floats (FPDeep, Table 6)."""


class DataPath(enum.IntEnum):
    """The six data paths, numbered as in FPDeep's section 5.1."""

    ACTIVATIONS = 1
    PARTIAL_ACTIVATIONS = 2
    OUTPUT_ERRORS = 3
    INPUT_ERRORS = 4
    PARAMETERS = 5
    PARAMETER_GRADIENTS = 6

    @property
    def is_forward(self) -> bool:
        """Whether it runs to the right; 1, 2 and 5 serve FP, and 3, 4 and 6 the way back."""
        return self in (DataPath.ACTIVATIONS, DataPath.PARTIAL_ACTIVATIONS, DataPath.PARAMETERS)


@dataclasses.dataclass(frozen=True)
class Stream:
    """One data path on one link: for each sample a map of (channels, rows, columns), sent row by row."""

    path: DataPath
    channels: int
    rows: int
    columns: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of one sample, all channels."""
        return VALUE_BYTES * self.channels * self.columns

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return self.row_bytes * self.rows


def streams(mapping: Mapping, link: int) -> tuple[Stream, ...]:
    """The data paths in use on the link between devices `link` and `link + 1`, both directions."""
    left, right = mapping.devices[link][-1], mapping.devices[link + 1][0]
    layer = right.layer
    _, rows, columns = layer.input
    _, out_rows, out_columns = layer.output
    needs_errors = layer.index > 0
    if left.layer.index != layer.index:
        found = [Stream(DataPath.ACTIVATIONS, *layer.input), Stream(DataPath.INPUT_ERRORS, *layer.input)]
        return tuple(found)
    if right.cut is Cut.ICP:
        beyond, outputs = layer.input[0] - right.begin, layer.channels
    else:
        beyond, outputs = layer.input[0], right.begin
    found = [
        Stream(DataPath.ACTIVATIONS, beyond, rows, columns),
        Stream(DataPath.PARTIAL_ACTIVATIONS, outputs, out_rows, out_columns),
        Stream(DataPath.OUTPUT_ERRORS, outputs, out_rows, out_columns),
    ]
    if needs_errors:
        found.append(Stream(DataPath.INPUT_ERRORS, beyond, rows, columns))
    return tuple(found)
