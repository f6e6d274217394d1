"""The time of a recurrent step on a GPU: latency, the product or its weights' traffic, and element-wise values.

A product is cut into tiles, which multiprocessors take in waves; where tiles are fewer than these, its depth is split.
The library takes the fastest of its tiles. (NVIDIA, Matrix Multiplication Background User's Guide: tile and wave
quantisation.) R is read from memory in each step, while the product runs; the step before must have ended.

Beside it stand guesses, and how far both are from measured rows. A guess knows rows of the P100 alone: their median
throughput, or the nearest shape, whose time it scales by operations or takes as it is. An error is a factor, of a list
of times the geometric mean: 1.1 for 10 % too long, and as much for 1/1.1 of the time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...emulator.cluster import Gpu, load_cluster
from ...emulator.timing.pair import RecurrentWork, standard_step_ps
from ..claim import Measured
from ..constants import beside, in_use, kept
from .constants import DATA_SHEETS, EFFICIENCY, LATENCY_US, TILES, VALUE_BYTES
from .table import MeasuredLayer, RecurrentLayer, rows, training


def product_us(gpu: str, precision: str, rows: int, columns: int, depth: int) -> float:
    """Return the time of a product of matrices, rows x depth and depth x columns, in us."""
    sheet = DATA_SHEETS[gpu]
    flops_per_us = 1e6 * sheet.tflops[precision] / sheet.multiprocessors * in_use(EFFICIENCY)
    times = []
    for tile_rows, tile_columns in TILES:
        tiles = math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
        parts = max(1, sheet.multiprocessors // tiles)
        waves = math.ceil(tiles * parts / sheet.multiprocessors)
        times.append(waves * 2 * tile_rows * tile_columns * math.ceil(depth / parts) / flops_per_us)
    return min(times)


def traffic_us(gpu: str, moved_bytes: int) -> float:
    """Return the time in us in which memory moves bytes."""
    return moved_bytes / DATA_SHEETS[gpu].memory_gbytes_per_s / 1000


def phase_us(gpu: str, precision: str, outputs: int, inputs: int, batch: int, values: int = 0) -> float:
    """Return the time in us of a product with `outputs` x `inputs` weights that waits for the one before.

    `values` are those that its element-wise part moves.
    """
    value_bytes = VALUE_BYTES[precision]
    product = product_us(gpu, precision, outputs, batch, inputs)
    weights = traffic_us(gpu, value_bytes * outputs * inputs)
    return in_use(LATENCY_US) + max(product, weights) + traffic_us(gpu, value_bytes * values)


def step_us(gpu: str, precision: str, layer: RecurrentLayer, *, backward: bool = False) -> float:
    """Return the time of a layer's step in us, forward or backward.

    The element-wise part reads sums of both products, the cell and the gates' values, and writes as many.
    """
    outputs, inputs = layer.gates * layer.cells, layer.cells
    if backward:
        outputs, inputs = inputs, outputs
    return phase_us(gpu, precision, outputs, inputs, layer.batch, 3 * (layer.gates + 1) * layer.cells * layer.batch)


@kept
def steps_us(row: MeasuredLayer) -> list[float]:
    """Return our times of a row's step: forward and, in training, backward."""
    return [step_us(row.gpu, row.precision, row.layer, backward=place > 0) for place in range(len(row.step_us))]


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
    return {
        name: error_factor([time_us for row in listed for time_us in model(row)], theirs)
        for name, model in MODELS.items()
    }


def fitted_latency_us(measured: Iterable[MeasuredLayer]) -> float:
    """Return the latency in us with the least squares of relative errors: a closed form, as times are linear in it."""
    with beside({LATENCY_US.key: 0}):
        pairs = [(theirs, ours) for row in measured for theirs, ours in zip(row.step_us, steps_us(row), strict=True)]
    return sum((theirs - ours) / theirs**2 for theirs, ours in pairs) / sum(theirs**-2 for theirs, _ in pairs)


def step_times_us(name: str) -> Measured:
    """Return our times of a row's step, with the errors of the model and of the guesses."""
    row = rows()[name]
    shown = ", ".join(f"{model} {factor:.2f}" for model, factor in errors([row]).items())
    return Measured(steps_us(row), f"error factor: {shown}")


def product_tflops(row_count: int, columns: int, depth: int) -> Measured:
    """Return the P100's rate in a product of matrices, in TFLOPS."""
    flops = 2 * row_count * columns * depth
    return Measured(flops / product_us(FITTED_GPU, "float", row_count, columns, depth) / 1e6, "without latency")


def error_ratios(gpu: str, *guesses: str) -> Measured:
    """Return the model's error on a GPU's rows in training, as a share of that of guesses: logarithms of factors."""
    factors = errors(training(gpu))
    logs = {name: math.log(factor) for name, factor in factors.items()}
    shown = ", ".join(f"{name} {factors[name]:.2f}" for name in ("model", *guesses))
    return Measured([logs["model"] / logs[name] for name in guesses], f"error factors: {shown}")


def standard_form_us(gpu: str) -> Measured:
    """Return the times of a step of a GPU's rows in cuDNN's standard form, as emuchain's board has it."""
    board = load_cluster(gpu).board(0)
    assert isinstance(board, Gpu)
    times = []
    for row in training(gpu):
        layer = row.layer
        work = RecurrentWork("layer", layer.cell, layer.cells, layer.cells, layer.steps)
        times += [standard_step_ps(board, work, layer.batch) / 1e6] * len(row.step_us)
    return Measured(times, f"boards/{gpu}.toml: a dependent phase takes {board.recurrent_ps / 1e6:g} us at least")


FUNCTIONS = {
    "step_times_us": step_times_us,
    "product_tflops": product_tflops,
    "error_ratios": error_ratios,
    "standard_form_us": standard_form_us,
}
