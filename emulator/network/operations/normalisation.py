"""Normalisation, over mini-batches or across channels; dropout; and the softmax that closes a
network.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import NDArray

from ....kernels.layers.element_wise import add_bias_gradient
from ....kernels.layers.normalisation import dropout_mask, lrn_error, lrn_forward
from ...common import FINITE, Finite, Positive, PositiveFinite, Rate
from ..onnx_nodes import Export, Form
from ..operation import Arithmetic, Closing, SfuOperation, SfuStep
from ..shape import Shape
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights
from .activations import ElementWise

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchNorm(SfuOperation):
    """Each channel normalised by moving averages of its mean and variance, then scaled and shifted.

    The averages are over mini-batches, as `BatchNormUnit` says.
    """

    epsilon: PositiveFinite = 1e-5
    momentum: Annotated[float, FINITE, Gt(0), Le(1)] = 0.1

    by_channel = True
    keeps_map = True
    type = "batch-norm"
    torch_names: ClassVar[Mapping[str, str]] = {
        "scale": "weight",
        "shift": "bias",
        "mean": "running_mean",
        "variance": "running_var",
    }
    # Sums of x and of its square, normal and result; back: dx and two gradients. Roots are once a
    # mini-batch.
    of_value = Arithmetic(7)
    onnx = ("BatchNormalization",)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; each channel has a scale and a shift."""
        return 2 * made[0]

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`; in training it normalises by each mini-batch."""
        return nn.BatchNorm2d(shape[0], self.epsilon, self.momentum)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; ONNX's momentum is the old average's weight, ours the new one's.

        Raises:
            InputError: it does not normalise whole channels.
        """
        value = walk.with_channels(node, walk.take(node), 1)
        if walk.axes_of(value)[1] not in ("channels", "values"):
            raise node.refusal("normalises another axis than channels, which should be axis 1")
        scale, *_ = (walk.weight(node, place) for place in range(1, 5))
        walk.expect(node, value, channels=math.prod(scale))
        if node.integer("spatial", 1) != 1:
            raise node.refusal("`spatial` = 0: only channels are normalised, each as a whole")
        # A file has a float32, of seven digits: 1 - 0.9 becomes 0.1 again.
        momentum = round(1 - node.number("momentum", 0.9), 7)
        keys = {"epsilon": node.number("epsilon", 1e-5), "momentum": momentum}
        arrays = dict(zip(("scale", "shift", "mean", "variance"), node.inputs[1:5], strict=True))
        return walk.step(node, cls, keys, value, like=value, arrays=arrays)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; ONNX has it for channels before other axes."""
        out.expect(Form.MAPS, Form.ROW)
        arrays = [out.weight(key) for key in ("scale", "shift", "mean", "variance")]
        out.write("BatchNormalization", *arrays, epsilon=self.epsilon, momentum=1 - self.momentum)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return BatchNormUnit(self, step.output[0], site)


class BatchNormUnit(Unit):
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, for each channel.

    A pipeline that works sample by sample never sees a whole mini-batch. So mean and variance are
    moving averages, to which each update adds the mini-batch that it ends; all samples of one
    version of the weights see the same values, whatever is in flight. In the backward pass they are
    constants.

    Sums are accumulated sample by sample, so that they depend neither on the micro-batches nor on
    their order. A mini-batch's variance is estimated from its n values by the sum of squares over
    n - 1, as PyTorch's `running_var`. In a frozen layer the averages stay as they are.
    """

    def __init__(self, of: BatchNorm, channels: int, site: Site) -> None:
        super().__init__(site)
        self._of, self._rests = of, site.frozen
        zeros, ones = np.zeros(channels, np.float32), np.ones(channels, np.float32)
        self.learns = {"scale": ones, "shift": zeros}
        self.averages = {"mean": zeros, "variance": ones}
        self._sums: dict[int, dict[int, NDArray[np.float64]]] = {}
        """By mini-batch and first sample, those of each sample of a span and of their squares, (n,
        2, channels).
        """
        self._seen: dict[int, int] = {}

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        if training is not None and not self._rests:
            self._count(x, training.step, int(training.samples[0]))
        normal, y = self.arena.take(x.shape), self.arena.take(x.shape)
        np.subtract(x, weights["mean"], out=normal)
        normal *= self._slope(weights)
        np.multiply(normal, weights["scale"], out=y)
        y += weights["shift"]
        return y, (normal,)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        dx = self.arena.take(dz.shape)
        np.multiply(dz, weights["scale"] * self._slope(weights), out=dx)
        return (dx,)

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        return *state, dz

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        normal, dz = kept
        add_bias_gradient(sums["shift"], dz, fresh=fresh)
        # In place: after this, nothing reads the normalised values.
        normal *= dz
        add_bias_gradient(sums["scale"], normal, fresh=fresh)

    def average(self, newest: Weights) -> None:
        """See `Unit`; the oldest mini-batch not yet averaged is added."""
        step = min(self._sums)
        sums, total = self._sums.pop(step), np.zeros((2, len(newest["mean"])))
        # In the order of samples, whatever the order in which micro-batches came.
        for of_sample in itertools.chain.from_iterable(sums[begin] for begin in sorted(sums)):
            total += of_sample
        values = self._seen.pop(step)
        first, second = total / values
        variance = (second - first * first) * (values / (values - 1))
        for average, now in ((newest["mean"], first), (newest["variance"], variance)):
            average += (self._of.momentum * (now - average)).astype(np.float32)

    def _slope(self, weights: Weights) -> Data:
        return (1 / np.sqrt(weights["variance"] + np.float32(self._of.epsilon))).astype(np.float32)

    def _count(self, x: Data, step: int, begin: int) -> None:
        if begin in self._sums.get(step, {}):
            return  # computed again, for B
        # In double precision: `average` subtracts sums that may be large and nearly equal.
        pixels = x.reshape(len(x), -1, x.shape[-1]).astype(np.float64)
        sums = [(sample.sum(axis=0), (sample * sample).sum(axis=0)) for sample in pixels]
        self._sums.setdefault(step, {})[begin] = np.array(sums)
        self._seen[step] = self._seen.get(step, 0) + pixels.shape[0] * pixels.shape[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lrn(SfuOperation):
    """Local response normalisation across channels (AlexNet's)."""

    size: Positive = 5
    alpha: Finite = 1e-4
    beta: Finite = 0.75
    k: PositiveFinite = 2.0

    keeps_map = True
    type = "lrn"
    # A sum of squares and the power, by a logarithm and an exponential; back: dx by a sum of y dy /
    # sum.
    of_value = Arithmetic(7, 2, 1)
    onnx = ("LRN",)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.LocalResponseNorm(self.size, self.alpha, self.beta, self.k)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: an even size, for which ONNX and emuchain have the extra channel on
                different sides.
        """
        size = node.integer("size", 0)
        if size % 2 == 0:
            raise node.refusal(f"`size` = {size}: only odd sizes are supported")
        factors = {"alpha": node.number("alpha", 1e-4), "beta": node.number("beta", 0.75)}
        return walk.step(
            node, cls, {"size": size, **factors, "k": node.number("bias", 1.0)}, walk.maps(node)
        )

    def to_onnx(self, out: Export) -> None:
        """See `Operation`.

        Raises:
            InputError: an even size, as in `from_onnx`.
        """
        out.expect(Form.MAPS)
        if self.size % 2 == 0:
            raise out.refusal(f"lrn with an even size ({out.layer})")
        out.write("LRN", size=self.size, alpha=self.alpha, beta=self.beta, bias=self.k)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return LrnUnit(self, site)


class LrnUnit(Unit):
    """Local response normalisation across channels."""

    def __init__(self, lrn: Lrn, site: Site) -> None:
        super().__init__(site)
        self._rule: dict[str, Any] = {
            "size": lrn.size,
            "alpha": lrn.alpha,
            "beta": lrn.beta,
            "k": lrn.k,
        }

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y, scale = self.arena.take(x.shape), self.arena.take(x.shape)
        lrn_forward(x, y, scale, **self._rule)
        return y, (x, y, scale)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        x, y, scale = state
        lrn_error(x, y, scale, dz, dz, **self._rule)
        return (dz,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dropout(ElementWise):
    """Each value is zeroed with probability `rate` in training, and the others scaled by 1 / (1 -
    rate).
    """

    rate: Rate

    type = "dropout"
    onnx = ("Dropout",)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.Dropout(self.rate)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`."""
        value, (rate, *_) = walk.take(node), (*walk.numbers(node, "ratio"), 0.5)
        return walk.step(node, cls, {"rate": rate}, value, like=value)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("Dropout", out.number("rate", self.rate))

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return DropoutUnit(self.rate, site)


class DropoutUnit(Unit):
    """Dropout in training; in evaluation maps pass unchanged."""

    overwrites = True

    def __init__(self, rate: float, site: Site) -> None:
        super().__init__(site)
        self._rate, self._seed = rate, site.seed
        self._layer = site.layer | site.place << 32  # a mask of its own for each of an SFU's

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        if training is None:
            return x, ()
        mask, y = self.arena.take(x.shape), self.arena.take(x.shape)
        dropout_mask(
            mask, rate=self._rate, seed=self._seed, layer=self._layer, samples=training.samples
        )
        np.multiply(x, mask, out=y)
        return y, (mask,)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        dz *= state[0]
        return (dz,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Softmax(Closing):
    """Softmax with cross-entropy, which closes a classifier.

    Where it is `vocabulary_parallel`, the layer before it is cut by output channels, and each of
    its slices computes the loss's sums and errors of its own: devices send one another two numbers
    of a row, and no logits.
    """

    vocabulary_parallel: bool = False

    type = "softmax"
