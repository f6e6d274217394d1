"""The time of a recurrent step on a GPU: latency, the product or its weights' traffic, and
element-wise values.

A product is cut into tiles, which multiprocessors take in waves; where tiles are fewer than these,
its depth is split. The library takes the fastest of its tiles. (NVIDIA, Matrix Multiplication
Background User's Guide: tile and wave quantisation.) R is read from memory in each step, while the
product runs; the step before must have ended.

Beside it stand guesses, and how far both are from measured rows. A guess knows rows of the P100
alone: their median throughput, or the nearest shape, whose time it scales by operations or takes as
it is. An error is a factor, of a list of times the geometric mean: 1.1 for 10 % too long, and as
much for 1/1.1 of the time.

The rows of recurrent layers that public text has stand in measured.csv, in the benchmark's own
units. `rnn_bench` times whole calls of cuDNN with `CUDNN_SKIP_INPUT`: a forward pass, and one for
the errors of the data. The README has the total of both, and the rate of the first. Rows of the
workbooks in results/train can be added as is.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...emulator.cluster import Gpu, load_cluster
from ...emulator.common import InputError
from ...emulator.timing.pair import Cell, RecurrentWork, standard_step_ps
from ...emulator.view import log_ticks, new_figure, save_figure
from ..claim import Measured, constant, figures
from ..constants import beside, in_use, kept
from ..pictures import Draw

_FILE = pathlib.Path(__file__).parent / "measured.csv"


@dataclasses.dataclass(frozen=True)
class RecurrentLayer:
    """A layer of LSTM or GRU whose inputs were multiplied before, so that a step is a product with
    R.
    """

    cell: Cell
    cells: int
    batch: int
    steps: int

    @property
    def gates(self) -> int:
        """Gates of a cell."""
        return self.cell.gates

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
    layer = RecurrentLayer(
        Cell(fields["cell"]), *(int(fields[key]) for key in ("cells", "batch", "steps"))
    )
    if fields["forward_us"]:
        calls = [float(fields[key]) for key in ("forward_us", "backward_us") if fields[key]]
    elif fields["total_ms"] and fields["forward_tflops"]:
        # 1 TFLOPS is 1e6 operations a microsecond.
        forward_us = layer.steps * layer.step_flops / float(fields["forward_tflops"]) / 1e6
        calls = [forward_us, 1000 * float(fields["total_ms"]) - forward_us]
    else:
        raise InputError(
            f"{_FILE.name}: {fields['gpu']} {layer} has no time; should have `forward_us`"
        )
    step_us = tuple(time_us / layer.steps for time_us in calls)
    return MeasuredLayer(
        fields["gpu"], fields["precision"], fields["mode"], layer, step_us, fields["source"]
    )


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


EFFICIENCY = constant("deepbench", "deepbench.efficiency")
LATENCY_US = constant("deepbench", "deepbench.latency_us")
TILES = tuple((rows, columns) for rows in (128, 64) for columns in (128, 64, 32))
"""Tiles of cuBLAS's products. With one of 32x32 the P100's product of 2,560, 64 and 2,560 would be
50 % too fast.
"""
VALUE_BYTES = {"float": 4, "mixed": 2}


@dataclasses.dataclass(frozen=True)
class DataSheet:
    """A GPU by its data sheet: multiprocessors, peak in TFLOPS by precision, memory in GB/s."""

    multiprocessors: int
    tflops: Mapping[str, float]
    memory_gbytes_per_s: float


DATA_SHEETS = {
    gpu: DataSheet(**sheet) for gpu, sheet in figures("deepbench", "data_sheets").items()
}


def product_us(gpu: str, precision: str, rows: int, columns: int, depth: int) -> float:
    """Return the time of a product of matrices, rows x depth and depth x columns, in us."""
    sheet = DATA_SHEETS[gpu]
    flops_per_us = 1e6 * sheet.tflops[precision] / sheet.multiprocessors * in_use(EFFICIENCY)
    times = []
    for tile_rows, tile_columns in TILES:
        tiles = math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
        # Multiprocessors that tiles leave idle take a part of the depth each (split-K).
        parts = max(1, sheet.multiprocessors // tiles)
        waves = math.ceil(tiles * parts / sheet.multiprocessors)
        times.append(waves * 2 * tile_rows * tile_columns * math.ceil(depth / parts) / flops_per_us)
    # cuBLAS is taken to choose the fastest of its tiles.
    return min(times)


def traffic_us(gpu: str, moved_bytes: int) -> float:
    """Return the time in us in which memory moves bytes."""
    # 1 GB/s is 1,000 bytes a microsecond.
    return moved_bytes / DATA_SHEETS[gpu].memory_gbytes_per_s / 1000


def phase_us(
    gpu: str, precision: str, outputs: int, inputs: int, batch: int, values: int = 0
) -> float:
    """Return the time in us of a product with `outputs` x `inputs` weights that waits for the one
    before.

    `values` are those that its element-wise part moves.
    """
    value_bytes = VALUE_BYTES[precision]
    product = product_us(gpu, precision, outputs, batch, inputs)
    weights = traffic_us(gpu, value_bytes * outputs * inputs)
    # Weights are read while the product runs; the element-wise part needs its sums.
    return in_use(LATENCY_US) + max(product, weights) + traffic_us(gpu, value_bytes * values)


def step_us(gpu: str, precision: str, layer: RecurrentLayer, *, backward: bool = False) -> float:
    """Return the time of a layer's step in us, forward or backward.

    The element-wise part reads sums of both products, the cell and the gates' values, and writes as
    many.
    """
    outputs, inputs = layer.gates * layer.cells, layer.cells
    if backward:
        # Errors go back through the transposed weights.
        outputs, inputs = inputs, outputs
    return phase_us(
        gpu,
        precision,
        outputs,
        inputs,
        layer.batch,
        3 * (layer.gates + 1) * layer.cells * layer.batch,
    )


@kept
def steps_us(row: MeasuredLayer) -> list[float]:
    """Return our times of a row's step: forward and, in training, backward."""
    return [
        step_us(row.gpu, row.precision, row.layer, backward=place > 0)
        for place in range(len(row.step_us))
    ]


FITTED_GPU, HELD_OUT_GPU = "p100", "v100"


def _references(row: MeasuredLayer) -> list[MeasuredLayer]:
    """Return the rows that a guess knows: those of the P100, but for the row itself."""
    return [other for other in training(FITTED_GPU) if other is not row]


def throughput_us(row: MeasuredLayer) -> list[float]:
    """Return the times of a row's step at the median throughput of the rows that a guess knows."""
    flops_per_us = statistics.median(
        other.layer.step_flops / time_us for other in _references(row) for time_us in other.step_us
    )
    return [row.layer.step_flops / flops_per_us] * len(row.step_us)


def same_us(row: MeasuredLayer) -> list[float]:
    """Return the times of the nearest shape, by its cells and its batch, as they are."""
    return list(_nearest(row).step_us[: len(row.step_us)])


def nearest_us(row: MeasuredLayer) -> list[float]:
    """Return the times of the nearest shape scaled by operations."""
    ratio = row.layer.step_flops / _nearest(row).layer.step_flops
    return [ratio * time_us for time_us in same_us(row)]


def _nearest(row: MeasuredLayer) -> MeasuredLayer:
    """Return the row of the nearest shape that a guess knows."""

    def distance(other: MeasuredLayer) -> float:
        pairs = ((row.layer.cells, other.layer.cells), (row.layer.batch, other.layer.batch))
        # By logarithms half as many and twice as many are equally far.
        return math.hypot(*(math.log(ours / theirs) for ours, theirs in pairs))

    return min(_references(row), key=distance)


def error_factor(ours_us: Sequence[float], theirs_us: Sequence[float]) -> float:
    """Return the geometric mean of the factors between times, each at least 1."""
    logs = [abs(math.log(ours / theirs)) for ours, theirs in zip(ours_us, theirs_us, strict=True)]
    return math.exp(statistics.fmean(logs))


MODELS: Mapping[str, Callable[[MeasuredLayer], list[float]]] = {
    "model": steps_us,
    "throughput": throughput_us,
    "nearest shape": nearest_us,
    "same time": same_us,
}


def errors(measured: Iterable[MeasuredLayer]) -> dict[str, float]:
    """Return the error factors of the model and of the guesses over all times of rows."""
    listed = list(measured)
    theirs = [time_us for row in listed for time_us in row.step_us]
    factors = {}
    for name, model in MODELS.items():
        ours = [time_us for row in listed for time_us in model(row)]
        factors[name] = error_factor(ours, theirs)
    return factors


def fitted_latency_us(measured: Iterable[MeasuredLayer]) -> float:
    """Return the latency in us with the least squares of relative errors: a closed form, as times
    are linear in it.
    """
    # Each step has the latency once, in addition to these times.
    with beside({LATENCY_US.key: 0}):
        pairs = [
            (theirs, ours)
            for row in measured
            for theirs, ours in zip(row.step_us, steps_us(row), strict=True)
        ]
    weighted = sum((theirs - ours) / theirs**2 for theirs, ours in pairs)
    return weighted / sum(theirs**-2 for theirs, _ in pairs)


def step_times_us(name: str) -> Measured:
    """Return our times of a row's step, with the errors of the model and of the guesses."""
    row = rows()[name]
    shown = ", ".join(f"{model} {factor:.2f}" for model, factor in errors([row]).items())
    return Measured(steps_us(row), f"error factor: {shown}")


def error_ratios(gpu: str, *guesses: str) -> Measured:
    """Return the model's error on a GPU's rows in training, as a share of that of guesses:
    logarithms of factors.
    """
    factors = errors(training(gpu))
    logs = {name: math.log(factor) for name, factor in factors.items()}
    shown = ", ".join(f"{name} {factors[name]:.2f}" for name in ("model", *guesses))
    return Measured([logs["model"] / logs[name] for name in guesses], f"error factors: {shown}")


def standard_form_us(gpu: str) -> Measured:
    """Return the times of a step of a GPU's rows in cuDNN's standard form, as emuchain's board has
    it.
    """
    board = load_cluster(gpu).board(0)
    assert isinstance(board, Gpu)
    times = []
    for row in training(gpu):
        layer = row.layer
        work = RecurrentWork("layer", layer.cell, layer.cells, layer.cells, layer.steps)
        times += [standard_step_ps(board, work, layer.batch) / 1e6] * len(row.step_us)
    return Measured(
        times,
        f"boards/{gpu}.toml: a dependent phase takes {board.recurrent_ps / 1e6:g} us at least",
    )


def _steps(path: pathlib.Path) -> None:
    """Draw our times of a step over the measured ones, with the diagonal."""
    figure = new_figure(5, 4.5, "--pictures", layout="constrained")
    axes = figure.subplots()
    for gpu, mark in zip(DATA_SHEETS, "osD^v", strict=True):
        pairs = [
            pair
            for row in rows().values()
            if row.gpu == gpu
            for pair in zip(row.step_us, steps_us(row), strict=True)
        ]
        measured, ours = zip(*pairs, strict=True)
        axes.plot(
            measured, ours, mark, markersize=5, label=f"{gpu} (fitted)" if gpu == "p100" else gpu
        )
    axes.plot((10, 1000), (10, 1000), color="0.6", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured time of a step / us", ylabel="ours / us")
    for axis in (axes.xaxis, axes.yaxis):
        log_ticks(axis)
    axes.legend(fontsize="small")
    axes.grid(color="0.9", linewidth=0.6)
    save_figure(figure, path, "--pictures")


FIGURES: dict[str, Draw] = {"steps": _steps}
