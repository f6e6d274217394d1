"""The configuration of a run: one model; each of its keys is a key of the TOML file and a flag of the command line."""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pydantic

from ...kernels.codec.codec import parse_codec
from ..common.errors import InputError
from ..inputs.validation import Model, read_toml, validate
from ..network.description import Positive
from .settings import Settings

NotNegativeNumber = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
PositiveNumber = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]


RUN_ONLY_KEYS = ("test_samples", "throttle", "out", "progress")
"""Keys that matter only where something is trained."""


class Config(Model):
    """Everything that a run depends on, beside the files that it names."""

    network: str = pydantic.Field("quick-cifar", description="a network of the zoo, or a TOML or ONNX file")
    data: str = pydantic.Field("shapes", description="`shapes` (built in), or a folder with CIFAR-10 or MNIST")
    samples: Positive | None = pydantic.Field(None, description="use the first N training images only")
    test_samples: Positive | None = pydantic.Field(None, description="evaluate on the first N test images only")
    epochs: Positive = pydantic.Field(1, description="passes over the training images")
    batch: Positive = pydantic.Field(64, description="samples of a mini-batch, after which weights are updated")
    micro_batch: Positive = pydantic.Field(
        16, description="samples computed in one block; changes neither the numbers nor the virtual time"
    )
    devices: Positive | None = pydantic.Field(None, description="emulated FPGAs; default: one for each rank")
    schedule: Literal["sync", "fpdeep", "data-parallel-ring", "data-parallel-aggregator"] = pydantic.Field(
        "fpdeep",
        description="sync: drain at each update; fpdeep: continuous, slightly unaligned weights; data-parallel-…: each "
        "device holds the whole network, and they exchange gradients",
    )
    replicas: Positive = pydantic.Field(1, description="chains side by side that train data-parallel")
    exchange: Literal["ring", "aggregator"] = pydantic.Field("ring", description="how replicas exchange gradients")
    groups: Positive = pydantic.Field(
        1, description="groups of replicas: each sums by a ring, then their leaders exchange"
    )
    compress: str = pydantic.Field(
        "none", description="codec for gradients on their way: inceptionn:-10 (error bound 2^-10), truncate:16, …"
    )
    compress_weights: str = pydantic.Field(
        "none", description="codec that weights go through after each update: what its loss does to training"
    )
    compress_ratio: PositiveNumber | None = pydantic.Field(
        None, description="for simulate, which has no gradients: how many times smaller the codec makes them"
    )
    cluster: str = pydantic.Field("vc709", description="a cluster that comes with emuchain, or a TOML file")
    balancing: Literal["auto", "none"] = pydantic.Field(
        "auto", description="auto: parameters that do not fit on their device are stored on others, if all find a place"
    )
    seed: Annotated[int, pydantic.Field(ge=0, lt=1 << 63)] = pydantic.Field(
        1, description="of initial weights, order of samples, and dropout"
    )
    learning_rate: PositiveNumber = pydantic.Field(0.01, description="of SGD")
    momentum: Annotated[NotNegativeNumber, pydantic.Field(lt=1)] = pydantic.Field(0.9, description="of SGD")
    weight_decay: NotNegativeNumber = pydantic.Field(0.0005, description="of SGD")
    learning_rate_steps: tuple[Positive, ...] = pydantic.Field(
        (), description="epochs after which the learning rate is multiplied by `learning_rate_factor`"
    )
    learning_rate_factor: PositiveNumber = pydantic.Field(0.1, description="see `learning_rate_steps`")
    throttle: Literal["none", "wall"] = pydantic.Field(
        "none", description="wall: enforce the links' bandwidth and latency in real time"
    )
    out: str | None = pydantic.Field(None, description="the HDF5 file of the results")
    progress: Literal["auto", "bar", "plain", "steps", "none"] = pydantic.Field(
        "auto", description="auto: a live bar on a terminal, plain lines elsewhere; steps: a line for each mini-batch"
    )

    @pydantic.field_validator("compress", "compress_weights")
    @classmethod
    def _codec(cls, value: str) -> str:
        parse_codec(value)
        return value

    @pydantic.field_validator("learning_rate_steps", mode="before")
    @classmethod
    def _list(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    rate_in = Settings.rate_in

    def __reduce__(self) -> tuple[type[Settings], tuple[()], dict[str, object]]:
        """Other ranks get the values alone, so that they need not import pydantic."""
        return Settings, (), self.model_dump()


@contextlib.contextmanager
def blaming(file: str | None, flags: dict[str, Any]) -> Iterator[None]:
    """Let errors about a key say that it stands in `file`, unless a flag gave its value."""
    try:
        yield
    except InputError as error:
        key = re.match(r"`(\w+)` = ", str(error))
        if file is not None and key is not None and key[1] not in flags:
            raise InputError(f"{file}: {error}") from None
        raise


@contextlib.contextmanager
def about_data(config: Config) -> Iterator[None]:
    """Let errors of a data set say by which key it was asked for."""
    try:
        yield
    except InputError as error:
        raise InputError(f"`data` = {config.data!r}: {error}") from None


def load_config(file: str | None, flags: dict[str, Any]) -> Config:
    """The configuration from a TOML file, if one is given, with flags over it.

    Raises:
        InputError: an unknown key, or a value of the wrong type or range.
    """
    if file is None:
        return validate(Config, flags, "command line")
    in_file = read_toml(pathlib.Path(file))
    validate(Config, in_file, file)
    return validate(Config, {**in_file, **flags}, "command line")
