"""vTrain's measured iterations of language models on 64 to 512 A100 GPUs: from one pipeline depth
to a deeper one.

Runs of one model, micro-batch and tensor parallelism use all GPUs, so a deeper pipeline has fewer
replicas, each with more micro-batches and shorter stages. The run of the least depth gives the
stages' time; 1F1B gives that of the others. Source: data/ground_truth_multi.csv of
https://github.com/VIA-Research/vTrain at commit f8dda84 (MICRO 2024).
"""

from __future__ import annotations

import dataclasses

from ...emulator.schedule import Shape, StageCosts, pipeline_kind
from ...emulator.timing import time_shape
from ..claim import Measured, figures

_BATCH = {3.6: 512, 18.4: 1024, 39.1: 1536, 175: 1536}
"""Samples of a mini-batch, by a model's billions of parameters."""
_NS = 1_000_000
"""Of a millisecond: stages' times are counted in nanoseconds, as if they were picoseconds."""


@dataclasses.dataclass(frozen=True)
class Iteration:
    """A measured iteration: the model, samples of a micro-batch, replicas, stages, time in ms."""

    billions: float
    tensor: int
    micro_batch: int
    replicas: int
    stages: int
    time_ms: float


FITTED = tuple(Iteration(*run) for run in figures("hardware", "vtrain"))
"""The runs of least depth."""


def iteration_ms(billions: float, tensor: int, micro_batch: int, stages: int) -> float:
    """Return the time of an iteration with more stages, in ms, from that with fewest.

    The time of a whole model's micro-batch is the same on both, so a stage's is in proportion to
    its share of layers.
    """
    model = billions, tensor, micro_batch
    least = next(run for run in FITTED if (run.billions, run.tensor, run.micro_batch) == model)
    samples = _BATCH[billions]
    replicas = least.replicas * least.stages // stages
    before = _time_ms(least.stages, samples // (least.replicas * micro_batch), 1.0)
    model_ms = least.time_ms / before
    return _time_ms(stages, samples // (replicas * micro_batch), model_ms)


def _time_ms(stages: int, micro_batches: int, model_ms: float) -> float:
    """Return the time of 1F1B on equal stages of a model that takes `model_ms` for a
    micro-batch.
    """
    stage_ns = model_ms * _NS / stages
    # A backward pass is taken as two forward ones: for inputs and for weights.
    forward = round(stage_ns / 3)
    kind = pipeline_kind("1f1b-sno")
    costs = (StageCosts(forward, round(stage_ns) - forward),) * stages
    return time_shape(kind, Shape(stages, micro_batches, costs, kind.machine)).makespan_ps / _NS


def iterations_ms(billions: float, tensor: int, runs: list[list[int]]) -> Measured:
    """Return the times of iterations, given as pairs of micro-batch and stages."""
    times = [iteration_ms(billions, tensor, micro_batch, stages) for micro_batch, stages in runs]
    pairs = ", ".join(f"{micro_batch}/{stages}" for micro_batch, stages in runs)
    return Measured(times, f"from the run with fewest stages; micro-batch and stages {pairs}")
