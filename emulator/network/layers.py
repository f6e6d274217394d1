"""A network as training and timing know it: layers with all shapes worked out. `network.py` reads its description.

Maps that operations give one another are *tensors*, numbered in the order in which they are made; the images are 0.
Layers stand in one row, as on the chain. What is made before a layer and used after it passes by: "a shortcut can be
treated as extra channels of the convolution kernels being bypassed by the shortcut" (FPDeep, section 3.2).
"""

from __future__ import annotations

import dataclasses
import functools
import math
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


@dataclasses.dataclass(frozen=True)
class BatchNorm:
    """Each channel normalised by its mean and variance, then scaled and shifted.

    Mean and variance are moving averages over mini-batches: a chain that works on one sample after another never sees
    a mini-batch at once.
    """

    type: Literal["batch-norm"]
    epsilon: float = 1e-5
    momentum: float = 0.1


@dataclasses.dataclass(frozen=True)
class Add:
    """The sum of maps of one shape: where a shortcut ends."""

    type: Literal["add"]


@dataclasses.dataclass(frozen=True)
class Concat:
    """Maps of one size, channels after channels: where branches end."""

    type: Literal["concat"]


SfuOperation = Relu | Pool | Lrn | Dropout | BatchNorm | Add | Concat


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Maps that travel: a number, and (channels, rows, columns); the name is for people."""

    number: int
    shape: Shape
    name: str = dataclasses.field(default="", compare=False)

    @property
    def is_images(self) -> bool:
        """Whether these are the network's inputs, whose errors nobody needs."""
        return self.number == 0


@dataclasses.dataclass(frozen=True)
class SfuStep:
    """One operation of a special function unit; `input` is the first of the tensors that it `reads`."""

    operation: SfuOperation
    reads: tuple[Tensor, ...]
    makes: Tensor

    @property
    def input(self) -> Shape:
        """(channels, rows, columns)"""
        return self.reads[0].shape

    @property
    def output(self) -> Shape:
        """(channels, rows, columns)"""
        return self.makes.shape


@dataclasses.dataclass(frozen=True)
class Layer:
    """A convolution or fully connected layer with its SFU.

    It convolves the tensor `reads`; the convolution's complete outputs are `makes`. Of the other tensors that come to
    it, and of `reads` if it is needed again, those in `bypass` pass by, for the SFU or for layers further on. When the
    SFU is through, the layer hands on what layers further on need.
    """

    index: int
    name: str
    reads: Tensor
    makes: Tensor
    bypass: tuple[Tensor, ...]
    hands_on: tuple[Tensor, ...]
    channels: int
    kernel: Pair
    stride: Pair
    pad: Pair
    bias: bool
    is_fc: bool
    sfu: tuple[SfuStep, ...]

    @property
    def input(self) -> Shape:
        """(channels, rows, columns) of what it convolves."""
        return self.reads.shape

    @property
    def output(self) -> Shape:
        """(channels, rows, columns) of what the convolution gives, before the SFU."""
        return self.makes.shape

    @property
    def feeds(self) -> Shape:
        """(channels, rows, columns) of what the SFU gives in the end."""
        return self.sfu[-1].output if self.sfu else self.output

    @functools.cached_property
    def takes(self) -> tuple[Tensor, ...]:
        """All that comes to the layer, in the order of numbers."""
        passing = {tensor.number: tensor for tensor in (self.reads, *self.bypass)}
        return tuple(passing[number] for number in sorted(passing))

    @property
    def needs_errors(self) -> bool:
        """Whether the errors of its inputs are of use: nobody needs those of the images."""
        return not self.reads.is_images

    @functools.cached_property
    def reads_again(self) -> bool:
        """Whether what it convolves is needed once more after that."""
        return self.reads in self.bypass

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(oc, ic, kh, kw)"""
        return self.channels, self.input[0], *self.kernel

    @property
    def weights(self) -> int:
        """How many it has."""
        return math.prod(self.weight_shape)

    @property
    def parameters(self) -> int:
        """Weights, biases, and what normalisations learn."""
        normalised = sum(2 * step.output[0] for step in self.sfu if isinstance(step.operation, BatchNorm))
        return self.weights + self.bias * self.channels + normalised

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
    def tensors(self) -> tuple[Tensor, ...]:
        """All that is made, in the order of the description's operations."""
        return tuple(t for layer in self.layers for t in (layer.makes, *(step.makes for step in layer.sfu)))

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward propagation."""
        return sum(layer.macs for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Weights, biases, and what normalisations learn."""
        return sum(layer.parameters for layer in self.layers)
