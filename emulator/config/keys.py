"""The types of a run's keys: numbers in bounds, lists, and objects that are text in files."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic_core import core_schema

from ...comm.collective import as_text, collective_of, is_written, phases_of, sums
from ...kernels.codec import Codec, parse_codec
from ...kernels.optimizers import optimizers, parse_optimizer
from ..cluster import check_changes
from ..common import NO_FILE, InputError, Positive, did_you_mean, read_text
from ..mapping import HandmadeCut
from ..network import Lora, parse_lora
from ..number import Precision, precision_of
from ..schedule import ScheduleKind, edited_kind, is_schedule_file, schedules
from . import roles
from .rates import LEAST_SINGLE, MOST_SINGLE, RateSchedule, parse_rates, rate_schedules

NotNegativeNumber = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
PositiveNumber = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[float, pydantic.Field(ge=LEAST_SINGLE, le=MOST_SINGLE, allow_inf_nan=False)]


_LEAST_STD = 1e-6  # of values from 0 to 1: a step between two bytes is 4e-3


def _of_unit_values(value: float) -> float:
    if value > 1:
        raise ValueError(
            "should be at most 1, as values are from 0 to 1; divide what is of 0 to 255 by 255"
        )
    return value


def _of_deviation(value: float) -> float:
    if value < _LEAST_STD:
        raise ValueError(
            f"should be at least {_LEAST_STD:g}: images are divided by it; of a constant channel,"
            " give 1"
        )
    return _of_unit_values(value)


class Listed:
    """A marker of tuples that are a value or a list in files, and text with commas in results."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        spelt = core_schema.plain_serializer_function_ser_schema(
            lambda values: ",".join(map(str, values))
        )
        return core_schema.no_info_before_validator_function(
            listed, handler(source), serialization=spelt
        )


def listed(value: object) -> object:
    """Return a value, a list, or text such as 0.5,0.4 as a tuple; anything else as it is."""
    if isinstance(value, str):
        return tuple(_number_or_word(word.strip()) for word in value.split(",")) if value else ()
    return (
        tuple(value)
        if isinstance(value, list)
        else (value,)
        # Not by `isinstance`: to Python, a truth value is an int.
        if type(value) in (int, float)
        else value
    )


def _number_or_word(word: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(word)
    return word


Means = Annotated[
    tuple[Annotated[NotNegativeNumber, pydantic.AfterValidator(_of_unit_values)], ...], Listed()
]
Deviations = Annotated[
    tuple[Annotated[PositiveNumber, pydantic.AfterValidator(_of_deviation)], ...], Listed()
]
ClassWeights = Annotated[tuple[NotNegativeNumber, ...], Listed()]
Augments = Annotated[tuple[Literal["crop", "flip"], ...], Listed()]


class _Spelt:
    """A marker of values that are objects in Python and text in files, on the command line and in
    JSON.
    """

    def __init__(
        self, kind: type, parse: Callable[[str], Any], spell: Callable[[Any], str]
    ) -> None:
        self._kind, self._parse, self._spell = kind, parse, spell

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        def validated(value: Any) -> Any:
            if isinstance(value, self._kind):
                return value
            if not isinstance(value, str):
                own = "; a function of your own is registered as a class, and named"
                raise ValueError(f"should be a valid string{own * callable(value)}")
            return self._parse(value)

        spelt = core_schema.plain_serializer_function_ser_schema(self._spell)
        return core_schema.no_info_plain_validator_function(validated, serialization=spelt)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"type": "string"}


class _Tabled:
    """A marker of a precision: a format's name or a table in files, and text elsewhere."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        spelt = core_schema.plain_serializer_function_ser_schema(str)
        return core_schema.no_info_plain_validator_function(precision_of, serialization=spelt)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"anyOf": [{"type": "string"}, {"type": "object"}]}


class _Changes:
    """A marker of changed values by the keys of a cluster: a table in files, and JSON in
    results.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        spelt = core_schema.plain_serializer_function_ser_schema(json.dumps)
        return core_schema.no_info_plain_validator_function(_cluster_changes, serialization=spelt)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"type": "table"}


def _cluster_changes(said: object) -> dict[str, object]:
    """Return changes by key; in TOML, `link.latency_ns = 5` is a table in a table."""
    if isinstance(said, str):
        said = json.loads(said)
    if not isinstance(said, Mapping):
        raise ValueError('should be a table, such as {"link.bandwidth_gbps" = 250}')
    changes = {}
    for key, value in said.items():
        nested = isinstance(value, Mapping) and "." not in key
        changes.update(
            {f"{key}.{name}": inner for name, inner in value.items()} if nested else {key: value}
        )
    try:
        check_changes(changes, "changes")
    except InputError as error:
        raise ValueError(str(error)) from None
    return changes


def _known(name: str, names: Mapping[str, Any]) -> str:
    if name not in names:
        raise ValueError(f"{did_you_mean(name, names)}known: {', '.join(names)}")
    return name


def _cut(said: object) -> HandmadeCut:
    try:
        return HandmadeCut.of(said)
    except InputError as error:
        raise ValueError(str(error)) from None


class _Cut:
    """A marker of cuts made by hand: a file's name, text, or a list of strings in files, and text
    elsewhere.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        spelt = core_schema.plain_serializer_function_ser_schema(str)
        return core_schema.no_info_plain_validator_function(_cut, serialization=spelt)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"anyOf": [{"type": "string"}, {"type": "array"}]}


def _schedule(name: str) -> ScheduleKind:
    if name not in schedules() and is_schedule_file(name):
        return edited_kind(name)
    return schedules()[_known(name, schedules())]


def _optimizer(text: str) -> str:
    _known(text.partition(":")[0], optimizers())
    parse_optimizer(text)
    return text


def _exchange(text: str) -> str:
    """Return the exchange that a text names; of a file with its steps, these in one line."""
    if roles.is_steps_file(text):
        phases = phases_of(_read(text))
        if not phases:
            raise ValueError("has no steps; should begin with `pieces` and their number")
        text = "; ".join(as_text(phases).splitlines())
    if not is_written(text):
        _known(text.partition(":")[0], sums())
    collective_of(text)
    return text


def _read(file: str) -> str:
    try:
        return read_text(pathlib.Path(file))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from None


def _rates(text: str) -> RateSchedule:
    _known(text.partition(":")[0], rate_schedules())
    return parse_rates(text)


ChangesKey = Annotated[dict[str, object], _Changes()]
CutKey = Annotated[HandmadeCut, _Cut()]
CodecKey = Annotated[Codec, _Spelt(Codec, parse_codec, str)]
ExchangeKey = Annotated[str, pydantic.AfterValidator(_exchange), roles.EXCHANGE]
LoraKey = Annotated[Lora, _Spelt(Lora, parse_lora, str)]
OptimizerKey = Annotated[str, pydantic.AfterValidator(_optimizer), NO_FILE]
PrecisionKey = Annotated[Precision, _Tabled()]
RatesKey = Annotated[RateSchedule, _Spelt(RateSchedule, _rates, str)]
ScheduleKey = Annotated[
    ScheduleKind, _Spelt(ScheduleKind, _schedule, lambda kind: kind.name), roles.SCHEDULE
]

Names = Annotated[tuple[Annotated[str, pydantic.BeforeValidator(str)], ...], Listed()]
Sizes = Annotated[tuple[Annotated[Positive, pydantic.Field(le=1 << 16)], ...], Listed()]
