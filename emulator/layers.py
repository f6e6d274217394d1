"""A network as training and timing know it: layers with all shapes worked out. `network.py` reads its description."""

from __future__ import annotations

import dataclasses
from typing import Literal

Pair = tuple[int, int]
Shape = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Relu:
    """max(0, x)."""

    type: Literal["relu"]


@dataclasses.dataclass(frozen=True)
class Pool:
    """Maximum or average over windows; the average counts the padding."""

    type: Literal["max-pool", "average-pool"]
    kernel: Pair
    stride: Pair | None = None
    pad: Pair = (0, 0)

    @property
    def step(self) -> Pair:
        """The stride, which is the window's size where none is given."""
        return self.stride or self.kernel


@dataclasses.dataclass(frozen=True)
class Lrn:
    """Local response normalisation across channels."""

    type: Literal["lrn"]
    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 2.0


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Each value is zeroed with probability `rate` in training, and the others scaled by 1 / (1 - rate)."""

    type: Literal["dropout"]
    rate: float


SfuOperation = Relu | Pool | Lrn | Dropout


@dataclasses.dataclass(frozen=True)
class SfuStep:
    """One operation of a special function unit; shapes are (channels, rows, columns)."""

    operation: SfuOperation
    input: Shape
    output: Shape


@dataclasses.dataclass(frozen=True)
class Layer:
    """A convolution or fully connected layer with its SFU; shapes are (channels, rows, columns)."""

    index: int
    name: str
    input: Shape
    channels: int
    kernel: Pair
    stride: Pair
    pad: Pair
    bias: bool
    is_fc: bool
    sfu: tuple[SfuStep, ...]

    @property
    def output(self) -> Shape:
        """What the convolution gives, before the SFU."""
        rows, columns = (
            (size + 2 * pad - kernel) // stride + 1
            for size, kernel, stride, pad in zip(self.input[1:], self.kernel, self.stride, self.pad, strict=True)
        )
        return self.channels, rows, columns

    @property
    def feeds(self) -> Shape:
        """What the SFU gives to the next layer."""
        return self.sfu[-1].output if self.sfu else self.output

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(oc, ic, kh, kw)"""
        return self.channels, self.input[0], *self.kernel

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward propagation; EB and PG take as many each."""
        oc, ic, kh, kw = self.weight_shape
        _, rows, columns = self.output
        return oc * ic * kh * kw * rows * columns


@dataclasses.dataclass(frozen=True)
class Network:
    """A network with all shapes worked out; `start` is the rule of the initial weights, `text` its description."""

    name: str
    input: Shape
    start: Literal["he", "xavier"]
    layers: tuple[Layer, ...]
    text: str = dataclasses.field(default="", repr=False, compare=False)

    @property
    def classes(self) -> int:
        """The number of outputs."""
        return self.layers[-1].feeds[0]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward propagation."""
        return sum(layer.macs for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        total = 0
        for layer in self.layers:
            oc, ic, kh, kw = layer.weight_shape
            total += oc * ic * kh * kw + layer.bias * oc
        return total
