"""The time of a recurrent step on a GPU: latency, the product or its weights' traffic, and element-wise values.

A product is cut into tiles, which multiprocessors take in waves; where tiles are fewer than these, its depth is split.
The library takes the fastest of its tiles. (NVIDIA, Matrix Multiplication Background User's Guide: tile and wave
quantisation.) R is read from memory in each step, while the product runs; the step before must have ended.
"""

from __future__ import annotations

import math

from ..constants import in_use, kept
from .constants import DATA_SHEETS, EFFICIENCY, LATENCY_US, TILES, VALUE_BYTES
from .table import MeasuredLayer, RecurrentLayer


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
