"""The measured layers: convolutions at 32x32 and at ImageNet's size, recurrent ones of FARNN's size, and attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ...kernels.number import FP32

PHASES = ("FP", "EB", "PG")

_BAR_CHANNELS, _BAR_PIXELS = 64, 64
BAR_SHARE = 0.85

KINDS = ("lstm", "gru")
UNITS = (128, 256, 512, 1024)
BATCHES = (1, 4, 16, 64)
STEPS = 32


@dataclasses.dataclass(frozen=True)
class Shape:
    """A convolution of a micro-batch; sizes are (rows, columns)."""

    network: str
    samples: int
    in_channels: int
    out_channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    is_first: bool

    @property
    def name(self) -> str:
        """Channels and input size; kernel, stride and pad too, unless they are 3x3, 1 and 1."""
        (rows, columns), (down, across) = self.size, self.kernel
        text = f"{self.in_channels}->{self.out_channels} @{rows}x{columns}"
        if (self.kernel, self.stride, self.pad) != ((3, 3), (1, 1), (1, 1)):
            text += f" {down}x{across} stride {self.stride[0]} pad {self.pad[0]}"
        return text

    @property
    def output(self) -> tuple[int, int]:
        """Size of the output."""
        rows, columns = (
            (size + 2 * pad - kernel) // stride + 1
            for size, kernel, stride, pad in zip(self.size, self.kernel, self.stride, self.pad, strict=True)
        )
        return rows, columns

    @property
    def flop(self) -> int:
        """Multiplications and additions of any one phase, including those on padding zeros."""
        (rows, columns), (down, across) = self.output, self.kernel
        return 2 * self.samples * self.out_channels * rows * columns * self.in_channels * down * across

    @property
    def phases(self) -> tuple[str, ...]:
        """All phases, but no EB in the first layer: the errors of images are not needed, so no side computes them."""
        return ("FP", "PG") if self.is_first else PHASES

    @property
    def has_bar(self) -> bool:
        """Whether the layer is large enough to be held to BAR_SHARE of the peak."""
        rows, columns = self.output
        return (
            min(self.in_channels, self.out_channels) >= _BAR_CHANNELS and self.samples * rows * columns >= _BAR_PIXELS
        )


def _vgg16(samples: int, sizes: tuple[int, int, int, int, int]) -> Iterator[Shape]:
    """Yield the distinct convolutions of VGG-16 (Simonyan and Zisserman, 2015), whose blocks have these input sizes."""
    a, b, c, d, e = sizes
    layers = [(3, 64, a), (64, 64, a), (64, 128, b), (128, 128, b), (128, 256, c), (256, 256, c)]
    layers += [(256, 512, d), (512, 512, d), (512, 512, e)]
    for ic, oc, size in layers:
        yield Shape("vgg16", samples, ic, oc, (size, size), (3, 3), (1, 1), (1, 1), is_first=ic == 3)


def _alexnet(samples: int) -> Iterator[Shape]:
    """Yield the convolutions of AlexNet (Krizhevsky et al., 2012) without channel groups."""
    layers = [(3, 96, 227, 11, 4, 0), (96, 256, 27, 5, 1, 2)]
    layers += [(256, 384, 13, 3, 1, 1), (384, 384, 13, 3, 1, 1), (384, 256, 13, 3, 1, 1)]
    for ic, oc, size, kernel, stride, pad in layers:
        yield Shape(
            "alexnet", samples, ic, oc, (size, size), (kernel,) * 2, (stride,) * 2, (pad,) * 2, is_first=ic == 3
        )


LISTS: dict[str, tuple[Shape, ...]] = {
    "vgg-cifar-1": tuple(_vgg16(1, (32, 16, 8, 4, 2))),
    "vgg-cifar-16": tuple(_vgg16(16, (32, 16, 8, 4, 2))),
    "imagenet-1": (*_vgg16(1, (224, 112, 56, 28, 14)), *_alexnet(1)),
}


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of `units` units with as many inputs, and its mini-batch."""

    kind: str
    units: int
    batch: int
    steps: int

    @property
    def gates(self) -> int:
        """Number of gates of a unit."""
        return 4 if self.kind == "lstm" else 3

    @property
    def weight_bytes(self) -> int:
        """Bytes of R, which each step reads, forward and back."""
        return FP32.bytes_of(self.gates * self.units * self.units)

    def bound_s(self, flop_s: float, byte_s: float) -> float:
        """Return the least seconds of a training step, for those of an operation, and of a byte of R that is read.

        The products with R of a step wait for those of the step before: each takes its operations or the reading of R,
        whichever is longer. Those with W and the gradients, four of six, are operations alone.
        """
        product = self.flop / (6 * self.steps) * flop_s
        return self.steps * (2 * max(product, self.weight_bytes * byte_s) + 4 * product)

    @property
    def flop(self) -> int:
        """Multiplications and additions of a training step: forward, errors and gradients of both products."""
        return 3 * 2 * 2 * self.batch * self.steps * self.gates * self.units * self.units


def layers(kinds: Sequence[str], units: Sequence[int], batches: Sequence[int], steps: int) -> list[Layer]:
    """Return all layers of these kinds, batches and sizes, in this order."""
    return [Layer(kind, size, batch, steps) for kind in kinds for batch in batches for size in units]


@dataclasses.dataclass(frozen=True)
class Heads:
    """Attention of a mini-batch in some heads of `size` channels."""

    batch: int
    tokens: int
    heads: int
    size: int
    causal: bool

    @property
    def name(self) -> str:
        """All sizes in one line."""
        kind = "causal" if self.causal else "full"
        return f"{kind} attention of {self.batch} x {self.tokens} tokens, {self.heads} heads of {self.size}"

    def flop(self, phase: str) -> int:
        """Return the multiplications and additions of the products of tokens and the keys that they see."""
        pairs = self.tokens * (self.tokens + 1) // 2 if self.causal else self.tokens**2
        return 2 * (2 if phase == "FP" else 7) * self.batch * self.heads * self.size * pairs

    @property
    def bar(self) -> float:
        """What is asked of the ratio to PyTorch, forward and backward."""
        return 1.7 if self.causal and self.tokens >= 128 else 1.2


ATTENTION = (
    Heads(1, 64, 4, 32, causal=True),
    Heads(16, 64, 4, 32, causal=True),
    Heads(16, 64, 4, 24, causal=True),
    *(Heads(1, tokens, 12, 64, causal) for tokens in (128, 512) for causal in (True, False)),
    Heads(4, 197, 6, 64, causal=False),
)
"""A small GPT with one sample and sixteen, GPT-2 small and BERT base, and ViT-S."""
