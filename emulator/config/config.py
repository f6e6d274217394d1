"""The configuration of a run: one model, each key of which is a key of the TOML file and a command-line flag."""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import pydantic
from pydantic_core import core_schema

from ...kernels.codec import Codec, codecs, parse_codec
from ..common import InputError, Positive, did_you_mean
from ..inputs import Model, read_toml, validate
from ..schedule import ScheduleKind, schedules
from .settings import Settings

NotNegativeNumber = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
PositiveNumber = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]


class _Spelt:
    """A marker of values that are objects in Python and text in files, on the command line and in JSON."""

    def __init__(self, kind: type, parse: Callable[[str], Any], spell: Callable[[Any], str]) -> None:
        self._kind, self._parse, self._spell = kind, parse, spell

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        def validated(value: Any) -> Any:
            if isinstance(value, self._kind):
                return value
            if not isinstance(value, str):
                raise ValueError("should be a valid string")
            return self._parse(value)

        spelt = core_schema.plain_serializer_function_ser_schema(self._spell)
        return core_schema.no_info_plain_validator_function(validated, serialization=spelt)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"type": "string"}


def _schedule(name: str) -> ScheduleKind:
    if name not in schedules():
        raise ValueError(f"{did_you_mean(name, schedules())}known: {', '.join(schedules())}")
    return schedules()[name]


CodecKey = Annotated[Codec, _Spelt(Codec, parse_codec, str)]
ScheduleKey = Annotated[ScheduleKind, _Spelt(ScheduleKind, _schedule, lambda kind: kind.name)]

RUN_ONLY_KEYS = ("test_samples", "throttle", "stall_timeout", "out", "progress")
"""Keys that matter only for training."""


class Config(Model):
    """Everything that a run depends on, apart from the files that it names."""

    network: str = pydantic.Field("quick-cifar", description="a network of the zoo, or a TOML or ONNX file")
    time_steps: Positive | None = pydantic.Field(
        None, description="time steps of a network that takes sequences; default: as many as its `input` has rows"
    )
    data: str | None = pydantic.Field(
        None,
        description="`shapes` or `text` (built in), a folder with CIFAR-10 or MNIST, or FILE.txt, a text in UTF-8;"
        " default: `text` for a network that takes sequences, else `shapes`",
    )
    text_samples: Literal["windows", "lines"] = pydantic.Field(
        "windows",
        description="of a text: windows of as many characters as there are time steps, side by side, or lines, padded"
        " at the end",
    )
    samples: Positive | None = pydantic.Field(None, description="use the first N training images only")
    test_samples: Positive | None = pydantic.Field(None, description="evaluate on the first N test images only")
    epochs: Positive = pydantic.Field(1, description="passes over the training images")
    batch: Positive = pydantic.Field(64, description="samples of a mini-batch, after which weights are updated")
    micro_batch: Positive = pydantic.Field(
        16,
        description="samples computed in one block; changes neither the numbers nor, with split engines and streamed"
        " rows, the virtual time",
    )
    devices: Positive | None = pydantic.Field(None, description="emulated FPGAs; default: one for each rank")
    schedule: ScheduleKey = pydantic.Field(
        "fpdeep",
        validate_default=True,
        description="; ".join(f"{kind.name}: {kind.summary}" for kind in schedules().values()),
        json_schema_extra={"choices": [*schedules()]},
    )
    warm_up: str | None = pydantic.Field(
        None, description="for 1F1B and FBP: forwards of stage i of N before its first backward, as `2(N-i)+1`"
    )
    chunks: Positive | None = pydantic.Field(None, description="for interleaved: stages of a device; default: 2")
    stages: Literal["channels", "layers"] = pydantic.Field(
        "channels", description="what the chain is cut into: slices of layers by channels, or whole layers"
    )
    engines: Literal["split", "shared", "turns"] | None = pydantic.Field(
        None,
        description="what a board does at a time: FP, EB and PG on engines of their own, F and B on one pool, or one"
        " action of the schedule after another; default: the cluster's",
    )
    transport: Literal["streamed", "stored", "hidden"] | None = pydantic.Field(
        None,
        description="when a message leaves: row by row, when its action is done, or while that runs; default: the"
        " cluster's",
    )
    precision: Literal["fp32", "fp16"] = pydantic.Field(
        "fp32",
        description="of values on links and in memory, as far as times go; numbers are fp32. fp16 needs boards that"
        " take actions as a whole",
    )
    replicas: Positive = pydantic.Field(1, description="number of chains that train data-parallel")
    exchange: Literal["ring", "aggregator"] = pydantic.Field("ring", description="how replicas exchange gradients")
    groups: Positive = pydantic.Field(
        1, description="groups of replicas: each sums by a ring, then their leaders exchange"
    )
    compress: CodecKey = pydantic.Field(
        "none",
        validate_default=True,
        description=f"codec for gradients in transit: {'; '.join(codec.spelling for codec in codecs())}",
    )
    compress_weights: CodecKey = pydantic.Field(
        "none",
        validate_default=True,
        description="codec applied to weights after each update, to see what its loss does to training",
    )
    compress_ratio: PositiveNumber | None = pydantic.Field(
        None, description="for simulate, which has no gradients: the codec's compression ratio"
    )
    cluster: str = pydantic.Field("vc709", description="a cluster that comes with emuchain, or a TOML file")
    balancing: Literal["auto", "none"] = pydantic.Field(
        "auto", description="auto: parameters that do not fit on their device are stored on others where that is faster"
    )
    memory: Literal["modelled", "ignored"] = pydantic.Field(
        "modelled",
        description="modelled: what does not fit on chip costs time at the off-chip memory port; ignored: it is free",
    )
    padding: Annotated[float, pydantic.Field(ge=1, le=1000, allow_inf_nan=False)] = pydantic.Field(
        1.0, description="for GPUs and pairs: length of padded sequences over that of the network's, as far as times go"
    )
    seed: Annotated[int, pydantic.Field(ge=0, lt=1 << 63)] = pydantic.Field(
        1, description="seed of initial weights, order of samples, and dropout"
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
    stall_timeout: NotNegativeNumber = pydantic.Field(
        60.0, description="seconds without progress on any rank after which the run ends, with status 3; 0: never"
    )
    out: str | None = pydantic.Field(None, description="the HDF5 file of the results")
    progress: Literal["auto", "bar", "plain", "steps", "none"] = pydantic.Field(
        "auto", description="auto: a live bar on a terminal, plain lines elsewhere; steps: a line for each mini-batch"
    )

    @pydantic.field_validator("learning_rate_steps", mode="before")
    @classmethod
    def _list(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    rate_in = Settings.rate_in

    def __reduce__(self) -> tuple[type[Settings], tuple[()], dict[str, object]]:
        """Pickle the values alone, so that other ranks need not import pydantic."""
        return Settings, (), {key: getattr(self, key) for key in type(self).model_fields}


@contextlib.contextmanager
def blaming(file: str | None, flags: dict[str, Any]) -> Iterator[None]:
    """Prefix errors about a key with `file`, unless a flag gave its value."""
    try:
        yield
    except InputError as error:
        key = re.match(r"`(\w+)` = ", str(error))
        if file is not None and key is not None and key[1] not in flags:
            raise InputError(f"{file}: {error}") from None
        raise


def load_config(file: str | None, flags: dict[str, Any]) -> Config:
    """Return the configuration from a TOML file, if one is given; flags override it.

    Raises:
        InputError: an unknown key, or a value of the wrong type or range.
    """
    if file is None:
        return validate(Config, flags, "command line")
    in_file = read_toml(pathlib.Path(file))
    validate(Config, in_file, file)
    return validate(Config, {**in_file, **flags}, "command line")


def settings_config(settings: dict[str, Any]) -> Config:
    """Return the configuration with the keys in `settings`.

    Raises:
        InputError: an unknown key, or a value of the wrong type or range.
    """
    return validate(Config, settings, "settings")
