"""vTrain's measured iterations of language models on 64 to 512 A100 GPUs: from one pipeline depth to a deeper one.

Runs of one model, micro-batch and tensor parallelism use all GPUs, so a deeper pipeline has fewer replicas, each with
more micro-batches and shorter stages. The run of the least depth gives the stages' time; 1F1B gives that of the others.
Source: data/ground_truth_multi.csv of https://github.com/VIA-Research/vTrain at commit f8dda84 (MICRO 2024).
"""

from __future__ import annotations

import dataclasses

from ...emulator.schedule import Shape, StageCosts, pipeline_kind
from ...emulator.timing import time_shape
from ..claim import Measured

_BATCH = {3.6: 512, 18.4: 1024, 39.1: 1536, 175: 1536}
"""Samples of a mini-batch, by a model's billions of parameters."""
_NS = 1_000_000
"""Of a millisecond: stages' times are counted in nanoseconds, as if they were picoseconds."""


@dataclasses.dataclass(frozen=True)
class Iteration:
    """A measured iteration: samples of a micro-batch, replicas, stages, time in ms."""

    micro_batch: int
    replicas: int
    stages: int
    time_ms: float


FITTED = {
    (3.6, 1): (Iteration(2, 64, 1, 3700.5), Iteration(4, 64, 1, 3638.3), Iteration(8, 64, 1, 3566.5)),
    (18.4, 8): (Iteration(2, 32, 1, 10453.3), Iteration(8, 32, 1, 9603.6)),
    (39.1, 2): (Iteration(2, 32, 8, 21890.4), Iteration(3, 32, 8, 19067.2), Iteration(6, 32, 8, 23062.9)),
    (39.1, 4): (
        *(Iteration(2, 32, 4, 13875.5), Iteration(3, 32, 4, 16185.5), Iteration(4, 32, 4, 15625.6)),
        *(Iteration(6, 32, 4, 18532.1), Iteration(12, 16, 8, 20614.8)),
    ),
    (39.1, 8): (
        *(Iteration(2, 32, 2, 14614.0), Iteration(3, 32, 2, 14850.4), Iteration(4, 32, 2, 14757.3)),
        *(Iteration(6, 32, 2, 14915.5), Iteration(8, 32, 2, 15212.8), Iteration(12, 32, 2, 17126.8)),
        Iteration(24, 8, 8, 23171.1),
    ),
    (175, 4): (Iteration(2, 8, 16, 54255.9), Iteration(3, 8, 16, 55236.0), Iteration(4, 8, 16, 57720.0)),
    (175, 8): (
        *(Iteration(2, 8, 8, 55109.6), Iteration(3, 8, 8, 56176.5), Iteration(4, 8, 8, 58240.3)),
        Iteration(6, 4, 16, 60519.2),
    ),
}
"""The runs of least depth, by billions of parameters and tensor parallelism."""


def iteration_ms(billions: float, tensor: int, micro_batch: int, stages: int) -> float:
    """Return the time of an iteration with more stages, in ms, from that with fewest.

    The time of a whole model's micro-batch is the same on both, so a stage's is in proportion to its share of layers.
    """
    least = next(run for run in FITTED[billions, tensor] if run.micro_batch == micro_batch)
    samples = _BATCH[billions]
    replicas = least.replicas * least.stages // stages
    before = _time_ms(least.stages, samples // (least.replicas * micro_batch), 1.0)
    model_ms = least.time_ms / before
    return _time_ms(stages, samples // (replicas * micro_batch), model_ms)


def _time_ms(stages: int, micro_batches: int, model_ms: float) -> float:
    """Return the time of 1F1B on equal stages of a model that takes `model_ms` for a micro-batch."""
    stage_ns = model_ms * _NS / stages
    forward = round(stage_ns / 3)
    kind = pipeline_kind("1f1b-sno")
    costs = (StageCosts(forward, round(stage_ns) - forward),) * stages
    return time_shape(kind, Shape(stages, micro_batches, costs, kind.machine)).makespan_ps / _NS


def iterations_ms(billions: float, tensor: int, runs: list[list[int]]) -> Measured:
    """Return the times of iterations, given as pairs of micro-batch and stages."""
    times = [iteration_ms(billions, tensor, micro_batch, stages) for micro_batch, stages in runs]
    pairs = ", ".join(f"{micro_batch}/{stages}" for micro_batch, stages in runs)
    return Measured(times, f"from the run with fewest stages; micro-batch and stages {pairs}")


FUNCTIONS = {"iterations_ms": iterations_ms}
