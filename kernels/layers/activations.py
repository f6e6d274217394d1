"""Activations: functions of each value by itself, and the errors of their inputs, over maps with
the channels last.

Each is made of a function of a number, one of what was kept and an error, and of what it keeps on
the way there: its inputs, its results, which may then overwrite the inputs, or what is smaller. An
activation in a file of this folder is found by its name, that of the operation in a network's file,
whose keys are its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..extensions import by_name, instances, registry
from ..jit import Bytes, Floats, Kernel, Kernels, byte_maps, compiled, same_shape, source, target
from .element_wise import between_maps, over_maps

Take = Callable[[tuple[int, ...], Any], NDArray[Any]]
"""Gives an array of a shape and a type of numbers, with undefined contents."""

Kept = tuple[NDArray[Any], ...]


class Activation:
    """An activation that keeps its inputs; `forward` and `error` are kernels between maps: (x, y),
    and (x, dy).
    """

    overwrites: ClassVar[bool] = False
    """Whether the results are written over the inputs."""

    def __init__(
        self, name: str, error: Kernel, forward: Any = None, *, parameters: int = 0
    ) -> None:
        self.name, self._error, self._forward, self._parameters = name, error, forward, parameters

    def infer(self, x: Floats, take: Take, *parameters: float) -> Floats:
        """Return the results of `x` (n, rows, columns, channels), where nothing is kept."""
        y = take(x.shape, np.float32)
        same_shape(x, y, "inputs and outputs")
        self._forward(*source(x, "x"), *target(y, "y"), *map(np.float32, parameters))
        return y

    def forward(self, x: Floats, take: Take, *parameters: float) -> tuple[Floats, Kept]:
        """Return the results of `x` (n, rows, columns, channels), and what `error` needs; a NaN
        stays a NaN.
        """
        return self.infer(x, take, *parameters), (x,)

    def error(self, kept: Kept, dy: Floats, *parameters: float) -> None:
        """Turn the errors `dy` of the results into those of the inputs, in place.

        Raise ValueError if they are not of the shape of what was kept.
        """
        for maps in kept:
            same_shape(maps, dy, "what was kept and the errors")
        sources = [part for maps in kept for part in source(maps, "what was kept")]
        self._error(*sources, *target(dy, "dy"), *map(np.float32, parameters))

    def warm(self) -> None:
        """Compile all kernels: call each once on tiny arrays, as training calls it."""
        x, parameters = np.ones((1, 3, 3, 2), np.float32), [0.5] * self._parameters
        _, kept = self.forward(x, np.empty, *parameters)
        self.error(kept, np.ones_like(x), *parameters)


class InPlace(Activation):
    """An activation whose errors follow from its results y, which overwrite its inputs: (y), and
    (y, dy).
    """

    overwrites = True

    def infer(self, x: Floats, take: Take, *parameters: float) -> Floats:
        """See `Activation`."""
        self._forward(*target(x, "y"))
        return x

    def forward(self, x: Floats, take: Take, *parameters: float) -> tuple[Floats, Kept]:
        """See `Activation`."""
        y = self.infer(x, take)
        return y, (y,)


@registry
def activations() -> Mapping[str, Activation]:
    """Return all activations of this folder by name."""
    return by_name(instances(__package__, Activation))


def warm() -> None:
    """Compile the kernels of all activations."""
    for one in activations().values():
        one.warm()


class _Relu(InPlace):
    """max(x, 0), which keeps, in a byte each, where its results are above 0: a quarter of the
    maps.
    """

    def forward(self, x: Floats, take: Take, *parameters: float) -> tuple[Floats, Kept]:
        y = self.infer(x, take)
        return y, self.kept(y, take)

    def kept(self, y: Floats, take: Take) -> Kept:
        """Return what `error` needs, from the results."""
        marks = take(y.shape, np.uint8)
        mark(y, marks)
        return (marks,)

    def error(self, kept: Kept, dy: Floats, *parameters: float) -> None:
        marked_error(kept[0], dy)

    def warm(self) -> None:
        super().warm()
        y = np.ones((1, 3, 3, 2), np.float32)
        rectified_error(y, y.copy())


def rectify(y: Floats) -> None:
    """Set maps `y` (n, rows, columns, channels) to max(y, 0) in place; a NaN stays a NaN."""
    _rectify(*target(y, "y"))


def rectified_error(y: Floats, dy: Floats) -> None:
    """Turn the errors `dy` of the outputs `y` of ReLU into those of the inputs, in place: +0 where
    y is not above 0.

    Both are (n, rows, columns, channels); raise ValueError if their shapes differ.
    """
    same_shape(y, dy, "outputs and their errors")
    _rectified_error(*source(y, "y"), *target(dy, "dy"))


def mark(y: Floats, marks: Bytes) -> None:
    """Set `marks`, uint8 of the shape of `y` and C-contiguous, to 1 where y is above 0, else to 0.

    Raise ValueError if they are of another kind.
    """
    _mark(*source(y, "y"), *byte_maps(marks, y, "marks"))


def marked_error(marks: Bytes, dy: Floats) -> None:
    """Turn the errors `dy` of outputs into those of the inputs, in place: +0 where `marks` is 0.

    Raise ValueError if `marks` is not as `mark` takes it.
    """
    _marked_error(*byte_maps(marks, dy, "marks"), *target(dy, "dy"))


@over_maps
def _rectify(y: Any) -> Any:
    return np.float32(0) if y <= 0 else y


@between_maps
def _mark(y: Any, mark: Any) -> Any:
    return y > 0


@between_maps
def _marked_error(mark: Any, dy: Any) -> Any:
    return dy if mark else np.float32(0)


@between_maps
def _rectified_error(y: Any, dy: Any) -> Any:
    return dy if y > 0 else np.float32(0)


@over_maps
def _limit(y: Any) -> Any:
    above = np.float32(0) if y <= 0 else y
    return np.float32(6) if above >= 6 else above


@between_maps
def _limited_error(y: Any, dy: Any) -> Any:
    return dy if (y > 0) & (y < 6) else np.float32(0)


@between_maps
def _leak(x: Any, _y: Any, slope: Any) -> Any:
    return slope * x if x <= 0 else x


@between_maps
def _leaky_error(x: Any, dy: Any, slope: Any) -> Any:
    return dy if x > 0 else slope * dy


@between_maps
def _affine(x: Any, _y: Any, factor: Any, shift: Any) -> Any:
    return factor * x + shift


@between_maps
def _affine_error(_x: Any, dy: Any, factor: Any, _shift: Any) -> Any:
    return dy * factor


relu = _Relu("relu", _rectified_error, _rectify)
relu6 = InPlace("relu6", _limited_error, _limit)
leaky_relu = Activation("leaky-relu", _leaky_error, _leak, parameters=1)
affine = Activation("affine", _affine_error, _affine, parameters=2)


class _Sigmoid(Activation):
    """1 / (1 + exp(-x)), by the polynomial of recurrent layers, which keeps its results."""

    def infer(self, x: Floats, take: Take, *parameters: float) -> Floats:
        from ..recurrent import sigmoid  # which only networks with a sigmoid need

        y = take(x.shape, np.float32)
        y[...] = sigmoid(x)
        return y

    def forward(self, x: Floats, take: Take, *parameters: float) -> tuple[Floats, Kept]:
        y = self.infer(x, take, *parameters)
        return y, (y,)


class _Tanh(_Sigmoid):
    """tanh, by the polynomial of recurrent layers, which keeps its results."""

    def infer(self, x: Floats, take: Take, *parameters: float) -> Floats:
        from ..recurrent import tanh  # as above

        y = take(x.shape, np.float32)
        y[...] = tanh(x)
        return y


class _Silu(_Sigmoid):
    """x times its sigmoid, the gate; it keeps both."""

    def infer(self, x: Floats, take: Take, *parameters: float) -> Floats:
        return self.forward(x, take)[0]

    def forward(self, x: Floats, take: Take, *parameters: float) -> tuple[Floats, Kept]:
        gate, y = super().infer(x, take), take(x.shape, np.float32)
        np.multiply(x, gate, out=y)
        return y, (x, gate)


class _Elu(_Tanh):
    """x where it is above 0, else `scale` times exp(x) - 1; it keeps its results.

    exp(x) - 1 is 2 t / (1 - t) of t = tanh(x / 2), which loses nothing near 0.
    """

    def infer(self, x: Floats, take: Take, *parameters: float) -> Floats:
        half = take(x.shape, np.float32)
        np.minimum(x, np.float32(0), out=half)
        half *= np.float32(0.5)
        y = super().infer(half, take)
        _elu(*source(x, "x"), *target(y, "y"), *map(np.float32, parameters))
        return y


class _Mish(Activation):
    """x times tanh(log(1 + exp(x))), the gate; it keeps its slopes.

    With s = sigmoid(x) and r = sigmoid(-x), the gate is s (1 + r) / (1 + r r).
    """

    def infer(self, x: Floats, take: Take, *parameters: float) -> Floats:
        return self.forward(x, take)[0]

    def forward(self, x: Floats, take: Take, *parameters: float) -> tuple[Floats, Kept]:
        from ..recurrent import sigmoid  # as above

        y, slope = take(x.shape, np.float32), take(x.shape, np.float32)
        gate, slope[...] = y, sigmoid(x)
        gate[...] = sigmoid(np.negative(x))
        _mish_gate(*source(slope, "slopes"), *target(gate, "gates"))
        slope *= x
        slope *= np.float32(1) - gate * gate
        slope += gate
        np.multiply(x, gate, out=y)
        return y, (slope,)


@between_maps
def _elu(x: Any, y: Any, scale: Any) -> Any:
    return x if x > 0 else scale * (y + y) / (np.float32(1) - y)


@between_maps
def _elu_error(y: Any, dy: Any, scale: Any) -> Any:
    return dy if y > 0 else dy * (y + scale)


@between_maps
def _mish_gate(s: Any, r: Any) -> Any:
    return s * (np.float32(1) + r) / (np.float32(1) + r * r)


@between_maps
def _mish_error(slope: Any, dy: Any) -> Any:
    return dy * slope


@between_maps
def _clip(x: Any, _y: Any, low: Any, high: Any) -> Any:
    above = low if x <= low else x
    return high if above >= high else above


@between_maps
def _clip_error(x: Any, dy: Any, low: Any, high: Any) -> Any:
    return dy if (x > low) & (x < high) else np.float32(0)


@between_maps
def _sigmoid_error(y: Any, dy: Any) -> Any:
    return dy * (np.float32(1) - y) * y  # from the left


@between_maps
def _tanh_error(y: Any, dy: Any) -> Any:
    return dy * (np.float32(1) - y * y)


@compiled
def _silu_error(
    x: Any, x_extent: Any, gate: Any, gate_extent: Any, dy: Any, dy_extent: Any
) -> None:
    """Set dy to dy * gate * (1 + x * (1 - gate))."""
    (n, rows, columns, channels, x_pitch), gate_pitch, dy_pitch = (
        x_extent,
        gate_extent[4],
        dy_extent[4],
    )
    for pixel in range(n * rows * columns):
        at, gate_at, dy_at = (
            np.uint64(pixel * x_pitch),
            np.uint64(pixel * gate_pitch),
            np.uint64(pixel * dy_pitch),
        )
        for c in range(np.uint64(channels)):
            value = gate[gate_at + c]
            slope = np.float32(1) + x[at + c] * (np.float32(1) - value)
            dy[dy_at + c] = dy[dy_at + c] * value * slope


@compiled
def hard(value: Any) -> Any:
    """Return the hard sigmoid of a number, min(max(x + 3, 0), 6) / 6."""
    raised = value + np.float32(3)
    above = np.float32(0) if raised <= 0 else raised
    return (np.float32(6) if above >= 6 else above) / np.float32(6)


@between_maps
def _hard_sigmoid(x: Any, _y: Any) -> Any:
    return hard(x)


@between_maps
def _hard_sigmoid_error(x: Any, dy: Any) -> Any:
    return dy / np.float32(6) if (x > -3) & (x < 3) else np.float32(0)


@between_maps
def _hard_swish(x: Any, _y: Any) -> Any:
    return x * hard(x)


@between_maps
def _hard_swish_error(x: Any, dy: Any) -> Any:
    slope = x / np.float32(3) + np.float32(0.5)
    slope = np.float32(0) if x <= -3 else (np.float32(1) if x >= 3 else slope)
    return dy * slope


sigmoid = _Sigmoid("sigmoid", _sigmoid_error)
tanh = _Tanh("tanh", _tanh_error)
silu = _Silu("silu", _silu_error)
elu = _Elu("elu", _elu_error, parameters=1)
mish = _Mish("mish", _mish_error)
clip = Activation("clip", _clip_error, _clip, parameters=2)
hard_sigmoid = Activation("hard-sigmoid", _hard_sigmoid_error, _hard_sigmoid)
hard_swish = Activation("hard-swish", _hard_swish_error, _hard_swish)

_of_gelu = Kernels("llvm.gelu")
gelu = Activation("gelu", _of_gelu.error, _of_gelu.forward, parameters=1)
"""Its parameter is 0, or, for the approximation with tanh, 1."""
