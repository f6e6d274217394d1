"""Torchgpipe's speed benchmarks on up to eight Tesla P40: GPipe's schedule on stages cut by hand, timed by emuchain.

A layer takes a time for each multiply-accumulate and one for each value that it produces; its backward pass takes twice
as long, and with checkpointing its forward pass is computed again, but for the last micro-batch. Both constants are
fitted to ResNet-101 on one and on two GPUs. Source: docs/benchmarks.rst and benchmarks/*/main.py of torchgpipe, at
commit fe52c4d.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction

from ...emulator.common import plural
from ...emulator.schedule import Shape, StageCosts, pipeline_kind
from ...emulator.timing import time_shape
from ..claim import Measured
from ..constants import in_use, kept
from .constants import ELEMENT_FS, MAC_FS
from .layers import Cost, amoebanet_d, resnet_101, unet

_BACKWARD = 2
"""Times of a forward pass: errors and gradients."""


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A run: layers of each stage, micro-batches, and whether forward passes are computed again; `never` on one GPU."""

    cut: tuple[int, ...]
    micro_batches: int
    checkpoint: str = "except_last"

    @property
    def backward(self) -> Fraction:
        """Mean time of a micro-batch's backward pass, in forward passes."""
        again = {"never": Fraction(0), "always": Fraction(1), "except_last": 1 - Fraction(1, self.micro_batches)}
        return _BACKWARD + again[self.checkpoint]


NETWORKS: Mapping[str, Callable[[], tuple[Cost, ...]]] = {
    "resnet-101": resnet_101,
    "unet": unet,
    "amoebanet-d": amoebanet_d,
}
BENCHMARKS = {
    "resnet-101": {
        "baseline": Benchmark((370,), 1, "never"),
        "pipeline-1": Benchmark((370,), 2),
        "pipeline-2": Benchmark((135, 235), 1667),
        "pipeline-4": Benchmark((44, 92, 124, 110), 256),
        "pipeline-8": Benchmark((26, 22, 33, 44, 44, 66, 66, 69), 150),
    },
    "unet": {
        "baseline": Benchmark((241,), 1, "never"),
        "pipeline-1": Benchmark((241,), 2),
        "pipeline-2": Benchmark((104, 137), 32),
        "pipeline-4": Benchmark((30, 66, 84, 61), 16),
        "pipeline-8": Benchmark((16, 27, 31, 44, 22, 57, 27, 17), 40),
    },
    "amoebanet-d": {
        "n=2, m=1": Benchmark((7, 17), 1, "always"),
        "n=2, m=4": Benchmark((9, 15), 4),
        "n=2, m=32": Benchmark((9, 15), 32),
        "n=4, m=1": Benchmark((3, 4, 5, 12), 1, "always"),
        "n=4, m=4": Benchmark((3, 6, 7, 8), 4),
        "n=4, m=32": Benchmark((3, 6, 7, 8), 32),
        "n=8, m=1": Benchmark((2, 2, 2, 2, 2, 3, 4, 7), 1, "always"),
        "n=8, m=4": Benchmark((2, 2, 2, 3, 3, 4, 4, 4), 4),
        "n=8, m=32": Benchmark((2, 2, 2, 3, 3, 4, 4, 4), 32),
    },
}


@kept
def images_per_s(network: str, run: str) -> float:
    """Return the rate of a benchmark."""
    benchmark = BENCHMARKS[network][run]
    layers, costs, first = NETWORKS[network](), [], 0
    for count in benchmark.cut:
        forward = sum(map(_layer_fs, layers[first : first + count]))
        costs.append(StageCosts(round(forward), round(forward * benchmark.backward)))
        first += count
    kind = pipeline_kind("gpipe")
    result = time_shape(kind, Shape(len(costs), benchmark.micro_batches, tuple(costs), kind.machine))
    return benchmark.micro_batches * 1e15 / result.makespan_ps


def _layer_fs(layer: Cost) -> float:
    return layer.macs * in_use(MAC_FS) + layer.values * in_use(ELEMENT_FS)


def rate(network: str, run: str) -> Measured:
    """Return the rate of a benchmark, in images/s."""
    benchmark = BENCHMARKS[network][run]
    cut, pieces = "/".join(map(str, benchmark.cut)), plural(benchmark.micro_batches, "micro-batch")
    return Measured(images_per_s(network, run), f"layers {cut}, {pieces}")


def speed_up(network: str, run: str, base: str) -> Measured:
    """Return a benchmark's rate over that of another one, in which the network's own efficiency cancels."""
    return Measured(images_per_s(network, run) / images_per_s(network, base), f"over {base}")


FUNCTIONS = {"rate": rate, "speed_up": speed_up}
