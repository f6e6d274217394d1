"""The description of a network, as its TOML file says it (`graph.py` works out the layers).

A description lists operations in the order in which data flow. Each takes what the one before it gives, or what others
give that it names: `from = "pool1"`, `from = ["a", "b"]`; `from = "images"` are the network's inputs. A convolution or
a fully connected operation opens a *layer*; what stands between it and the next one (ReLU, pooling, normalisation,
dropout, addition, concatenation) is done by the layer's special function unit (SFU; FPDeep, section 5.3), on complete
outputs. So a `Layer` is what the mapping cuts: weights, bias and an SFU.
"""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from ...kernels.window import MOST_PLACES
from ..inputs.validation import Model

Positive = Annotated[int, pydantic.Field(ge=1)]
Channels = Annotated[int, pydantic.Field(ge=1, le=1_000_000)]
Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
NotNegative = Annotated[int, pydantic.Field(ge=0)]


def _as_pair(value: object) -> object:
    """One number stands for rows and columns alike."""
    return (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value


def _as_tuple(value: object) -> object:
    """One name stands for a list of one; TOML's lists become tuples."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], pydantic.Field(min_length=1), pydantic.BeforeValidator(_as_tuple)]
PositivePair = Annotated[tuple[Positive, Positive], pydantic.BeforeValidator(_as_pair)]
NotNegativePair = Annotated[tuple[NotNegative, NotNegative], pydantic.BeforeValidator(_as_pair)]


class Node(Model):
    """What all operations may say: a name, and whose results they take, where these are not the one's before."""

    name: str | None = None
    source: Names | None = pydantic.Field(None, alias="from")


class Conv(Node):
    """A convolution with `channels` output channels; `kernel`, `stride`, `pad`: a number, or [rows, columns]."""

    type: Literal["conv"]
    channels: Channels
    kernel: PositivePair
    stride: PositivePair = (1, 1)
    pad: NotNegativePair = (0, 0)
    bias: bool = True


class Fc(Node):
    """A fully connected layer with `features` outputs: a convolution whose kernel is the whole map."""

    type: Literal["fc"]
    features: Channels
    bias: bool = True


class Relu(Node):
    """max(0, x)."""

    type: Literal["relu"]


class Pool(Node):
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


class Lrn(Node):
    """Local response normalisation across channels (AlexNet's)."""

    type: Literal["lrn"]
    size: Positive = 5
    alpha: Finite = 1e-4
    beta: Finite = 0.75
    k: Annotated[Finite, pydantic.Field(gt=0)] = 2.0


class Dropout(Node):
    """Each value is zeroed with probability `rate` in training, and the others scaled by 1 / (1 - rate)."""

    type: Literal["dropout"]
    rate: Annotated[float, pydantic.Field(ge=0, lt=1)]


class GlobalAveragePool(Node):
    """The average of each whole map."""

    type: Literal["global-average-pool"]


class BatchNorm(Node):
    """Each channel normalised by moving averages of its mean and variance, then scaled and shifted."""

    type: Literal["batch-norm"]
    epsilon: Annotated[Finite, pydantic.Field(gt=0)] = 1e-5
    momentum: Annotated[Finite, pydantic.Field(gt=0, le=1)] = 0.1


class Add(Node):
    """The sum of maps of one shape: where a shortcut ends."""

    type: Literal["add"]
    source: Annotated[Names, pydantic.Field(min_length=2)] = pydantic.Field(alias="from")


class Concat(Node):
    """Maps of one size, channels after channels: where branches end."""

    type: Literal["concat"]
    source: Annotated[Names, pydantic.Field(min_length=2)] = pydantic.Field(alias="from")


class Softmax(Node):
    """Softmax with cross-entropy: closes every network that is to be trained."""

    type: Literal["softmax"]


SfuNode = Relu | Pool | GlobalAveragePool | Lrn | Dropout | BatchNorm | Add | Concat
Operation = Annotated[Conv | Fc | SfuNode | Softmax, pydantic.Field(discriminator="type")]


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
