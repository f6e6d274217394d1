"""Times of a GPU: products over all time steps at once, dependent steps as cuDNN does them, and what memory binds."""

from __future__ import annotations

import math

from ..cluster import Gpu
from .steps import VALUE_BYTES
from .work import Cell, RecurrentWork

FLOPS_PER_MAC = 2
STATES = 1
"""Arrays that SGD keeps for each parameter: its velocity; Adam keeps two."""


def product_ps(gpu: Gpu, macs: int) -> int:
    """Return the time in ps of a large matrix product."""
    return math.ceil(FLOPS_PER_MAC * macs / (gpu.peak_tflops * gpu.gemm_efficiency))


def memory_ps(gpu: Gpu, moved_bytes: int) -> int:
    """Return the time in ps to move bytes from or to the GPU's memory."""
    return math.ceil(1000 * moved_bytes / gpu.memory_gbytes_per_s)


def transposition_ps(gpu: Gpu, weights: int) -> int:
    """Return the time in ps to read weights and write their transpose."""
    return memory_ps(gpu, 2 * VALUE_BYTES * weights)


def update_ps(gpu: Gpu, parameters: int, states: int = STATES) -> int:
    """Return the time in ps of WU: weight, gradient and the optimiser's states in, weight and states out."""
    return memory_ps(gpu, (3 + 2 * states) * VALUE_BYTES * parameters)


def standard_step_ps(gpu: Gpu, work: RecurrentWork, batch: int) -> int:
    """Return the time in ps of a time step in cuDNN's standard form, in FW or BW.

    R-MVM is a phase that waits for the step before it, and a projection is another. Each takes the least time of such
    a phase, unless its weights take longer from memory, or its multiply-accumulates to compute.
    """
    phases = [weights for weights in (work.gate_weights, work.projection_weights) if weights]
    return sum(
        max(gpu.recurrent_ps, memory_ps(gpu, VALUE_BYTES * weights), product_ps(gpu, batch * weights))
        for weights in phases
    )


def persistent_step_ps(gpu: Gpu, work: RecurrentWork, batch: int) -> int:
    """Return the time in ps of a time step in cuDNN's persistent form: each sample reads the recurrent weights."""
    lstm = work.cell is Cell.LSTM
    gbytes_per_s = gpu.persistent_gbytes_per_s if lstm else gpu.persistent_gru_gbytes_per_s
    return math.ceil(1000 * batch * VALUE_BYTES * work.recurrent_weights / gbytes_per_s)
