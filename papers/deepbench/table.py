"""DeepBench's rows of recurrent layers that public text has, in the benchmark's own units: measured.csv.

`rnn_bench` times whole calls of cuDNN with `CUDNN_SKIP_INPUT`: a forward pass, and one for the errors of the data. The
README has the total of both, and the rate of the first. Rows of the workbooks in results/train can be added as is.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import pathlib

from ...emulator.common import InputError
from ...emulator.timing.pair import Cell

_FILE = pathlib.Path(__file__).parent / "measured.csv"
_GATES = {Cell.LSTM: 4, Cell.GRU: 3}


@dataclasses.dataclass(frozen=True)
class RecurrentLayer:
    """A layer of LSTM or GRU whose inputs were multiplied before, so that a step is a product with R."""

    cell: Cell
    cells: int
    batch: int
    steps: int

    @property
    def gates(self) -> int:
        """Gates of a cell."""
        return _GATES[self.cell]

    @property
    def step_flops(self) -> int:
        """Operations of a step's product."""
        return 2 * self.gates * self.cells**2 * self.batch


@dataclasses.dataclass(frozen=True)
class MeasuredLayer:
    """A row: times of a step in us, forward and, in training, backward."""

    gpu: str
    precision: str
    mode: str
    layer: RecurrentLayer
    step_us: tuple[float, ...]
    source: str

    @property
    def name(self) -> str:
        """The row's name, as its claim has it without the paper."""
        layer = self.layer
        words = (self.gpu, *([] if self.mode == "training" else [self.mode]), layer.cell.value)
        return "-".join([*words, str(layer.cells), str(layer.batch)])


def _row(fields: dict[str, str]) -> MeasuredLayer:
    """Return a row; a call's time is divided by its steps.

    Raises:
        InputError: the row has neither `forward_us` nor `total_ms` with `forward_tflops`.
    """
    layer = RecurrentLayer(Cell(fields["cell"]), *(int(fields[key]) for key in ("cells", "batch", "steps")))
    if fields["forward_us"]:
        calls = [float(fields[key]) for key in ("forward_us", "backward_us") if fields[key]]
    elif fields["total_ms"] and fields["forward_tflops"]:
        forward_us = layer.steps * layer.step_flops / float(fields["forward_tflops"]) / 1e6
        calls = [forward_us, 1000 * float(fields["total_ms"]) - forward_us]
    else:
        raise InputError(f"{_FILE.name}: {fields['gpu']} {layer} has no time; should have `forward_us`")
    step_us = tuple(time_us / layer.steps for time_us in calls)
    return MeasuredLayer(fields["gpu"], fields["precision"], fields["mode"], layer, step_us, fields["source"])


@functools.cache
def rows() -> dict[str, MeasuredLayer]:
    """Return all rows by their names.

    Raises:
        InputError: a row has no time.
    """
    with _FILE.open(encoding="utf-8", newline="") as file:
        listed = [_row(fields) for fields in csv.DictReader(file)]
    return {row.name: row for row in listed}


def training(gpu: str) -> list[MeasuredLayer]:
    """Return the rows of a GPU in training."""
    return [row for row in rows().values() if row.gpu == gpu and row.mode == "training"]
