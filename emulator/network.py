"""Networks: the TOML description, and the layers with all shapes worked out.

A description lists operations in order. A convolution or a fully connected operation opens a *layer*; what follows it
(ReLU, pooling, normalisation, dropout) is done by the layer's special function unit (SFU; FPDeep, section 5.3), on
complete outputs. So a `Layer` is what the mapping cuts: weights, bias and an SFU.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Literal

import pydantic

from ..kernels.window import MOST_PLACES
from . import layers as resolved
from . import shelf
from .errors import InputError
from .layers import Layer, Network, Pair, SfuStep, Shape
from .validation import Model, read_toml, validate

Positive = Annotated[int, pydantic.Field(ge=1)]
Channels = Annotated[int, pydantic.Field(ge=1, le=1_000_000)]
Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
NotNegative = Annotated[int, pydantic.Field(ge=0)]


def _as_pair(value: object) -> object:
    """One number stands for rows and columns alike."""
    return (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value


PositivePair = Annotated[tuple[Positive, Positive], pydantic.BeforeValidator(_as_pair)]
NotNegativePair = Annotated[tuple[NotNegative, NotNegative], pydantic.BeforeValidator(_as_pair)]


class Conv(Model):
    """A convolution with `channels` output channels; `kernel`, `stride`, `pad`: a number, or [rows, columns]."""

    type: Literal["conv"]
    channels: Channels
    kernel: PositivePair
    stride: PositivePair = (1, 1)
    pad: NotNegativePair = (0, 0)
    bias: bool = True
    name: str | None = None


class Fc(Model):
    """A fully connected layer with `features` outputs: a convolution whose kernel is the whole map."""

    type: Literal["fc"]
    features: Channels
    bias: bool = True
    name: str | None = None


class Relu(Model):
    """max(0, x)."""

    type: Literal["relu"]


class Pool(Model):
    """Maximum or average over windows; the average counts the padding, as most frameworks do."""

    type: Literal["max-pool", "average-pool"]
    kernel: PositivePair
    stride: PositivePair | None = None
    pad: NotNegativePair = (0, 0)

    @pydantic.model_validator(mode="after")
    def _places_fit_a_byte(self) -> Pool:
        if self.type == "max-pool" and self.kernel[0] * self.kernel[1] > MOST_PLACES:
            size = "x".join(map(str, self.kernel))
            raise ValueError(
                f"a max-pool's window has at most {MOST_PLACES} places, not {size}; take smaller ones in turn"
            )
        return self

    @property
    def step(self) -> Pair:
        """The stride, which is the window's size where none is given."""
        return self.stride or self.kernel


class Lrn(Model):
    """Local response normalisation across channels (AlexNet's)."""

    type: Literal["lrn"]
    size: Positive = 5
    alpha: Finite = 1e-4
    beta: Finite = 0.75
    k: Annotated[Finite, pydantic.Field(gt=0)] = 2.0


class Dropout(Model):
    """Each value is zeroed with probability `rate` in training, and the others scaled by 1 / (1 - rate)."""

    type: Literal["dropout"]
    rate: Annotated[float, pydantic.Field(ge=0, lt=1)]


class Softmax(Model):
    """Softmax with cross-entropy: closes every network that is to be trained."""

    type: Literal["softmax"]


Operation = Annotated[Conv | Fc | Relu | Pool | Lrn | Dropout | Softmax, pydantic.Field(discriminator="type")]


class Description(Model):
    """A network as its TOML file says it."""

    name: str
    input: tuple[Positive, Positive, Positive]
    start: Literal["he", "xavier"] = "he"
    layers: tuple[Operation, ...]

    @pydantic.field_validator("input", "layers", mode="before")
    @classmethod
    def _lists(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


def zoo() -> list[str]:
    """The names of the networks that come with emuchain."""
    return shelf.names("zoo")


def load_network(name: str) -> Network:
    """The network of that name in the zoo, or the one that a TOML file describes.

    Raises:
        InputError: no such name or file, or the description does not hold together.
    """
    path = shelf.find("network", name, "zoo")
    network = resolve(validate(Description, read_toml(path), str(path)), str(path))
    return dataclasses.replace(network, text=path.read_text(encoding="utf-8"))


def resolve(description: Description, source: str) -> Network:
    """Work out all shapes of a description.

    Raises:
        InputError: an operation stands where it cannot, or does not fit its input.
    """
    layers: list[Layer] = []
    shape: Shape = description.input
    counts = {"conv": 0, "fc": 0}
    for place, operation in enumerate(description.layers):
        where = f"{source}: layers[{place}] ({operation.type})"
        if isinstance(operation, Softmax):
            if place + 1 != len(description.layers):
                raise InputError(f"{where}: softmax closes a network; nothing may follow it")
        elif isinstance(operation, (Conv, Fc)):
            counts[operation.type] += 1
            name = operation.name or f"{operation.type}{counts[operation.type]}"
            if any(layer.name == name for layer in layers) or not re.fullmatch(r"[\w-]+", name):
                raise InputError(f"{where}: `name` = {name!r}: layer names differ, and hold letters, digits, _ and -")
            layers.append(_open_layer(operation, len(layers), name, shape))
            _check_window(where, shape, layers[-1].kernel, layers[-1].pad)
            shape = layers[-1].output
        elif not layers:
            raise InputError(f"{where}: a network begins with conv or fc, for it is a layer's SFU that does the rest")
        else:
            output = _sfu_output(where, operation, shape)
            step = SfuStep(_resolved(operation), shape, output)
            layers[-1] = dataclasses.replace(layers[-1], sfu=(*layers[-1].sfu, step))
            shape = output
    if not description.layers or not isinstance(description.layers[-1], Softmax):
        raise InputError(f'{source}: the last of `layers` must be {{type = "softmax"}}')
    if not layers:
        raise InputError(f"{source}: `layers` holds no conv and no fc, so there is nothing to train")
    if shape[1:] != (1, 1):
        raise InputError(f"{source}: softmax needs one value a class, found maps of {shape[1]}x{shape[2]}; end with fc")
    return Network(description.name, description.input, description.start, tuple(layers))


def _resolved(operation: Relu | Pool | Lrn | Dropout) -> resolved.SfuOperation:
    kind = getattr(resolved, type(operation).__name__)
    return kind(**operation.model_dump())


def _open_layer(operation: Conv | Fc, index: int, name: str, shape: Shape) -> Layer:
    if isinstance(operation, Fc):
        return Layer(
            index, name, shape, operation.features, shape[1:], (1, 1), (0, 0), operation.bias, is_fc=True, sfu=()
        )
    return Layer(
        index,
        name,
        shape,
        operation.channels,
        operation.kernel,
        operation.stride,
        operation.pad,
        operation.bias,
        is_fc=False,
        sfu=(),
    )


def _check_window(where: str, shape: Shape, kernel: Pair, pad: Pair) -> None:
    for size, window, border in zip(shape[1:], kernel, pad, strict=True):
        if border >= window:
            raise InputError(f"{where}: `pad` = {border} must be less than the kernel, {window}")
        if window > size + 2 * border:
            raise InputError(
                f"{where}: `kernel` = {window} is larger than its input of {size} with padding {border} on each side"
            )


def _sfu_output(where: str, operation: Relu | Pool | Lrn | Dropout, shape: Shape) -> Shape:
    if not isinstance(operation, Pool):
        return shape
    _check_window(where, shape, operation.kernel, operation.pad)
    rows, columns = (
        (size + 2 * pad - kernel) // stride + 1
        for size, kernel, stride, pad in zip(shape[1:], operation.kernel, operation.step, operation.pad, strict=True)
    )
    return shape[0], rows, columns
