"""Table V of BaPipe: the largest GNMT-L that fits on GPUs of 16 GiB.

A stage has `parameter_bytes` for each of its parameters, and the features of as many batches of 32
as its schedule keeps, `feature_mbytes` for each LSTM layer. Features that a schedule keeps are
those of the timeline engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ...emulator.schedule import Machine, Shape, StageCosts, pipeline_kind
from ...emulator.timing import time_shape
from ...kernels.number import FP32
from ..claim import Measured, constant
from ..constants import in_use, kept
from .gpus import FEATURE_MBYTES, MEMORY_BYTES, stage_work_ps
from .layers import ChainLayer, gnmt, parameters, straight_stages

PARAMETER_BYTES = constant("bapipe", "gpus.parameter_bytes")
GPUS = (1, 2, 4, 8)
FITTED, PUBLISHED_LAYERS = 32, (32, 42, 60, 74, 118, 158)
_SCHEDULES = {"gpipe": "gpipe", "bapipe": "1f1b-sno"}
_MOST_LAYERS = 1024


def micro_batches(stages: int) -> int:
    """Return M of GPipe and BaPipe (section IV-B2)."""
    return 2 * stages


@kept
def kept_batches(schedule: str, stages: int) -> tuple[int, ...]:
    """Return the micro-batches whose features each stage keeps."""
    shape = Shape(stages, micro_batches(stages), (StageCosts(1, 2),) * stages, Machine())
    return tuple(int(count) for count in time_shape(pipeline_kind(schedule), shape).features)


def layer_bytes(layer: ChainLayer, batches: int, weight_copies: int = 1) -> float:
    """Return the memory of a layer, which keeps features of some batches and more than one copy of
    its weights.
    """
    of_parameter = in_use(PARAMETER_BYTES) + (weight_copies - 1) * FP32.bytes_of(1)
    return (
        of_parameter * layer.parameters + batches * layer.lstm_layers * in_use(FEATURE_MBYTES) * 1e6
    )


def fits(layers: Sequence[ChainLayer], batches: Sequence[int]) -> bool:
    """Return whether there is a cut into stages that all fit; a stage takes as many layers as it
    can.
    """
    first = 0
    for batch_count in batches:
        used = 0.0
        while (
            first < len(layers)
            and (used := used + layer_bytes(layers[first], batch_count)) <= MEMORY_BYTES
        ):
            first += 1
    return first == len(layers)


def fits_with_pipedream(layers: Sequence[ChainLayer], stages: int) -> bool:
    """Return whether PipeDream's stages fit; they are cut by time alone.

    Stage i keeps N-i+1 batches, and as many copies of its weights.
    """
    ends = straight_stages(len(layers), stages, stage_work_ps(layers))
    for stage, (begin, end) in enumerate(itertools.pairwise((0, *ends))):
        kept = stages - stage
        if sum(layer_bytes(layer, kept, kept) for layer in layers[begin:end]) > MEMORY_BYTES:
            return False
    return True


def _largest(fitting: Callable[[Sequence[ChainLayer]], bool]) -> int:
    """Return the largest even L that fits, by bisection; 2 if not even 4 do."""
    low, high = 1, _MOST_LAYERS // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fitting(gnmt(2 * middle)) else (low, middle)
    return 2 * low


@kept
def largest(method: str, stages: int) -> int:
    """Return the largest L of GNMT-L with DP, PipeDream, GPipe or BaPipe; on one GPU all are DP.

    DP has a whole copy on each GPU, and one batch.
    """
    if method == "dp" or stages == 1:
        return _largest(lambda layers: fits(layers, [1]))
    if method == "pipedream":
        return _largest(lambda layers: fits_with_pipedream(layers, stages))
    return _largest(lambda layers: fits(layers, kept_batches(_SCHEDULES[method], stages)))


def formula() -> Measured:
    """Measure our parameters over those of the published formula."""
    ratios = [parameters(layers) / 1e6 / (10.4938 * layers + 109.82) for layers in PUBLISHED_LAYERS]
    said = ", ".join(f"{parameters(layers) / 1e6:.1f}" for layers in PUBLISHED_LAYERS)
    return Measured(
        ratios, f"of our layers over the formula; {said} M; GNMT-8 {parameters(8) / 1e6:.2f} M"
    )


def order() -> Measured:
    """Count the orders that do not hold: BaPipe > GPipe, GPipe > PipeDream, PipeDream = DP, on 2, 4
    and 8 GPUs.
    """
    wrong = 0
    for stages in GPUS[1:]:
        bapipe, gpipe, pipedream, dp = (
            largest(method, stages) for method in ("bapipe", "gpipe", "pipedream", "dp")
        )
        wrong += (bapipe <= gpipe) + (gpipe <= pipedream) + (pipedream != dp)
    return Measured(wrong, "orders that do not hold, of 9")


def schedule() -> Measured:
    """Choose the schedule of synchronous execution with the largest model on 8 GPUs."""

    def most(schedule: str) -> int:
        return _largest(lambda layers: fits(layers, kept_batches(schedule, 8)))

    layer_counts = {schedule: most(schedule) for schedule in ("1f1b-so", "1f1b-sno")}
    said = ", ".join(f"{schedule} {layers} layers" for schedule, layers in layer_counts.items())
    return Measured(
        max(layer_counts, key=lambda schedule: layer_counts[schedule]), f"on 8 GPUs: {said}"
    )
