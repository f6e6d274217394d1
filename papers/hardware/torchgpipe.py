"""Torchgpipe's speed benchmarks on up to eight Tesla P40: GPipe's schedule on stages cut by hand,
timed by emuchain.

A layer is the multiply-accumulates and the values that it produces, of one image, in the order in
which torchgpipe numbers and cuts layers: of ResNet-101 and U-Net one module a layer, of AmoebaNet-D
one cell. It takes a time for each multiply-accumulate and one for each value; its backward pass
takes twice as long, and with checkpointing its forward pass is computed again, but for the last
micro-batch. Both constants are fitted to ResNet-101 on one and on two GPUs.

Sources: benchmarks/models of torchgpipe at commit a471026; docs/benchmarks.rst and
benchmarks/*/main.py at fe52c4d.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

from ...emulator.common import plural
from ...emulator.schedule import Shape, StageCosts, pipeline_kind
from ...emulator.timing import time_shape
from ..claim import Measured, constant, figures
from ..constants import in_use, kept

MAC_FS = constant("hardware", "p40.mac_fs")
ELEMENT_FS = constant("hardware", "p40.element_fs")

Size = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a layer computes for an image."""

    macs: int = 0
    values: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.macs + other.macs, self.values + other.values)


def _map(channels: int, size: Size, maps: int = 1) -> Cost:
    """Return element-wise layers, each of which produces a map."""
    return Cost(0, maps * channels * size[0] * size[1])


def _conv(inputs: int, outputs: int, kernel: Size, size: Size) -> Cost:
    """Return a convolution with outputs of a size."""
    values = outputs * size[0] * size[1]
    return Cost(inputs * kernel[0] * kernel[1] * values, values)


def _square(inputs: int, outputs: int, kernel: int, rows: int) -> Cost:
    return _conv(inputs, outputs, (kernel, kernel), (rows, rows))


@functools.cache
def resnet_101() -> tuple[Cost, ...]:
    """Return ResNet-101's 370 layers, of images of 224x224."""
    layers = [_square(3, 64, 7, 112), *[_map(64, (112, 112))] * 2, _map(64, (56, 56))]
    inputs, rows = 64, 56
    for planes, blocks in ((64, 3), (128, 4), (256, 23), (512, 3)):
        for block in range(blocks):
            out = rows // 2 if block == 0 and planes > 64 else rows
            layers += _bottleneck(inputs, planes, rows, out, widens=block == 0)
            inputs, rows = 4 * planes, out
    return (*layers, _map(2048, (1, 1)), Cost(), Cost(2048 * 1000, 1000))


def _bottleneck(inputs: int, planes: int, rows: int, out: int, widens: bool) -> Iterator[Cost]:
    """Yield a block's 11 layers; where it widens the map, the addition includes a convolution and
    its norm.
    """
    last = _square(planes, 4 * planes, 1, out)
    added = _map(4 * planes, (out, out))
    yield Cost()
    for conv in (_square(inputs, planes, 1, rows), _square(planes, planes, 3, out)):
        yield from (conv, Cost(0, conv.values), Cost(0, conv.values))
    yield from (last, added)
    yield added + _square(inputs, 4 * planes, 1, out) + added if widens else added
    yield added


@functools.cache
def unet(depth: int = 5, base: int = 64) -> tuple[Cost, ...]:
    """Return U-Net (5, 64)'s 241 layers, of images of 192x192."""
    layers: list[Cost] = []
    rows = 192
    for level in range(depth):
        channels = base << level
        layers += _five(channels // 2 if level else 3, channels, channels, rows)
        layers += [Cost(), _map(channels, (rows // 2, rows // 2))]
        rows //= 2
    layers += _five(base << depth - 1, base << depth, base << depth - 1, rows)
    for level in reversed(range(depth)):
        rows *= 2
        channels = base << level
        layers += [_map(channels, (rows, rows)), _map(2 * channels, (rows, rows))]
        layers += _five(2 * channels, channels // 2, channels // 2, rows)
    return (*layers, _square(base // 2, 1, 1, rows))


def _five(inputs: int, middle: int, outputs: int, rows: int) -> Iterator[Cost]:
    """Yield five convolutions, each with dropout, norm and ReLU."""
    channels = [inputs, *[middle] * 4, outputs]
    for before, after in itertools.pairwise(channels):
        conv = _square(before, after, 3, rows)
        yield from (conv, *[Cost(0, conv.values)] * 3)


_NORMAL = ("conv", "pool", "none", "wide", "conv", "wide", "pool", "none", "pool", "conv")
_NORMAL_FROM = (1, 1, 1, 0, 0, 0, 2, 2, 1, 5)
_REDUCTION = ("pool", "pool", "none", "deep", "wide", "pool", "none", "pool", "pool", "conv")
_REDUCTION_FROM = (0, 0, 2, 1, 2, 2, 3, 1, 2, 3)


@functools.cache
def amoebanet_d(normal: int = 6, filters: int = 256) -> tuple[Cost, ...]:
    """Return AmoebaNet-D (18, 256)'s 24 cells, of images of 224x224."""
    channels = filters // 4
    stem = _conv(3, channels, (3, 3), (112, 112))
    cells = [_map(3, (224, 224)) + stem + _map(channels, (112, 112))]
    kinds = [True, True, *[False] * normal, True, *[False] * normal, True, *[False] * normal]
    rows = rows_before = 112
    inputs = inputs_before = channels
    was_reduction = False
    for reduces in kinds:
        channels *= 2 if reduces else 1
        cell = _relu_conv_norm(inputs, channels, rows)
        if was_reduction:
            cell += _factorised(inputs_before, channels, rows_before)
        elif inputs_before != channels:
            cell += _relu_conv_norm(inputs_before, channels, rows_before)
        cells.append(cell + _operations(channels, rows, reduces))
        inputs_before, inputs, rows_before = inputs, channels * (3 if reduces else 4), rows
        rows, was_reduction = rows // (2 if reduces else 1), reduces
    return (*cells, Cost(inputs * 1000, inputs))


def _operations(channels: int, rows: int, reduces: bool) -> Cost:
    """Return a cell's ten operations, the sums of their pairs, and the map that the cell hands on.

    In a reduction, what comes from one of the cell's two inputs is halved.
    """
    names, places = (_REDUCTION, _REDUCTION_FROM) if reduces else (_NORMAL, _NORMAL_FROM)
    states, total = [rows, rows], Cost()
    for pair in range(5):
        for at in (2 * pair, 2 * pair + 1):
            before = states[places[at]]
            after = before // (2 if reduces and places[at] < 2 else 1)
            total += _operation(names[at], channels, before, after)
        total += _map(channels, (after, after))
        states.append(after)
    return total + _map((3 if reduces else 4) * channels, (states[-1], states[-1]))


def _operation(name: str, channels: int, rows: int, out: int) -> Cost:
    """Return an operation from rows of `rows` values to rows of `out`."""
    before, after, quarter = (rows, rows), (out, out), channels // 4
    if name == "none":
        return Cost()
    if name == "pool":
        return _map(channels, after)
    if name == "conv":
        return _relu_conv_norm(channels, channels, rows)
    total = (
        _map(channels, before) + _conv(channels, quarter, (1, 1), before) + _map(quarter, before, 2)
    )
    for kernel in [(1, 7), (7, 1)] if name == "wide" else [(3, 3)]:
        total += _conv(quarter, quarter, kernel, after) + _map(quarter, after, 2)
    return total + _conv(quarter, channels, (1, 1), after) + _map(channels, after)


def _relu_conv_norm(inputs: int, outputs: int, rows: int) -> Cost:
    return (
        _map(inputs, (rows, rows)) + _square(inputs, outputs, 1, rows) + _map(outputs, (rows, rows))
    )


def _factorised(inputs: int, outputs: int, rows: int) -> Cost:
    """Return two convolutions that take every other pixel, one of them of a shifted copy, joined,
    and a norm.
    """
    half = rows // 2
    return (
        _map(inputs, (rows, rows), 2)
        + _square(inputs, outputs, 1, half)
        + _map(outputs, (half, half), 2)
    )


_BACKWARD = 2
"""Times of a forward pass: errors and gradients."""


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A run: layers of each stage, micro-batches, and whether forward passes are computed again;
    `never` on one GPU.
    """

    cut: Sequence[int]
    micro_batches: int
    checkpoint: str = "except_last"

    @property
    def backward(self) -> Fraction:
        """Mean time of a micro-batch's backward pass, in forward passes."""
        again = {
            "never": Fraction(0),
            "always": Fraction(1),
            "except_last": 1 - Fraction(1, self.micro_batches),
        }
        return _BACKWARD + again[self.checkpoint]


NETWORKS: Mapping[str, Callable[[], tuple[Cost, ...]]] = {
    "resnet-101": resnet_101,
    "unet": unet,
    "amoebanet-d": amoebanet_d,
}
BENCHMARKS: dict[str, dict[str, Benchmark]] = {}
for network, runs in figures("hardware", "torchgpipe").items():
    BENCHMARKS[network] = {run: Benchmark(**keys) for run, keys in runs.items()}


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
    result = time_shape(
        kind, Shape(len(costs), benchmark.micro_batches, tuple(costs), kind.machine)
    )
    # Costs are in fs, which the engine takes for its ps: 1e15 of them are a second.
    return benchmark.micro_batches * 1e15 / result.makespan_ps


def _layer_fs(layer: Cost) -> float:
    return layer.macs * in_use(MAC_FS) + layer.values * in_use(ELEMENT_FS)


def rate(network: str, run: str) -> Measured:
    """Return the rate of a benchmark, in images/s."""
    benchmark = BENCHMARKS[network][run]
    cut, pieces = "/".join(map(str, benchmark.cut)), plural(benchmark.micro_batches, "micro-batch")
    return Measured(images_per_s(network, run), f"layers {cut}, {pieces}")


def speed_up(network: str, run: str, base: str) -> Measured:
    """Return a benchmark's rate over that of another one, in which the network's own efficiency
    cancels.
    """
    return Measured(images_per_s(network, run) / images_per_s(network, base), f"over {base}")
