"""Profiles: what each layer takes on each kind of device, measured or worked out, and as TOML files.

TOML files have measured times of a network's layers, for devices that no board describes, such as GPUs.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import pydantic

from ..common import Finite, InputError, Name, NotNegative, Positive, PositiveNumber
from ..inputs import Model, read_toml, validate
from ..mapping import VALUE_BYTES, Slice, cut_channels
from ..network import Layer, Network
from .on_chip import PartNeeds, boundary_bytes


class LayerTimes(NamedTuple):
    """Times of a layer for a micro-batch; `backward_ps` is EB and PG, `pg_ps` the part of PG, None if unknown."""

    forward_ps: int
    backward_ps: int
    pg_ps: int | None = None

    def scaled(self, by: int, of: int) -> LayerTimes:
        """Return times that are by/of as long, rounded up."""
        pg = None if self.pg_ps is None else -(-self.pg_ps * by // of)
        return LayerTimes(-(-self.forward_ps * by // of), -(-self.backward_ps * by // of), pg)


@dataclasses.dataclass(frozen=True)
class LayerProfile:
    """A layer: its times by kind of device and samples of a micro-batch, and its bytes.

    `output_bytes` cross a cut behind the layer, with all shortcuts; `feature_bytes` are kept from F to B.
    """

    name: str
    times: Mapping[tuple[str, int], LayerTimes]
    output_bytes: int
    feature_bytes: int
    parameter_bytes: int


@dataclasses.dataclass(frozen=True)
class Profile:
    """The layers of a network in order.

    Bytes of outputs and features are those of `bytes_of` samples. `memory_bytes` is each kind's memory, None where it
    is not known. Training keeps `parameter_copies` of the parameters, gradients included.
    """

    name: str
    layers: tuple[LayerProfile, ...]
    memory_bytes: Mapping[str, int | None]
    bytes_of: int = 1
    parameter_copies: int = 2

    @property
    def micro_batches(self) -> tuple[int, ...]:
        """The samples of a micro-batch for which there are times, in ascending order."""
        return tuple(sorted({samples for _, samples in self.layers[0].times}))

    def times(self, kind: str, samples: int) -> list[LayerTimes]:
        """Return the times of all layers for a micro-batch, scaled from the nearest size that was measured.

        Raises:
            InputError: nothing was measured on this kind of device.
        """
        measured = sorted(size for profiled, size in self.layers[0].times if profiled == kind)
        if not measured:
            known = ", ".join(self.memory_bytes)
            raise InputError(f"{self.name}: no times on {kind!r}; there are those on {known}")
        nearest = min(measured, key=lambda size: (abs(size - samples), size))
        return [layer.times[kind, nearest].scaled(samples, nearest) for layer in self.layers]

    def whole_ps(self, kind: str, samples: int) -> int:
        """Return the time of the whole network on one device of a kind: T_n of BaPipe's equation (1)."""
        return sum(layer.forward_ps + layer.backward_ps for layer in self.times(kind, samples))


_PS_OF_US = 1_000_000


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


_MOST_US = 1e12
"""A micro-batch of more than eleven days is a wrong unit."""


class TimesTable(Model):
    """A table of `times`: what a layer takes on one kind of device for one size of micro-batch."""

    device: str
    micro_batch: Positive
    forward_us: Finite
    backward_us: Finite
    gradient_us: Finite | None = None


class LayerTable(Model):
    """A `[[layers]]` table; bytes that are left out are those of the network's layer of this name."""

    name: Name
    output_bytes: NotNegative | None = None
    feature_bytes: NotNegative | None = None
    parameter_bytes: NotNegative | None = None
    times: Annotated[tuple[TimesTable, ...], pydantic.Field(min_length=1), pydantic.BeforeValidator(_tuple)]


class DeviceTable(Model):
    """A `[devices.NAME]` table."""

    memory_gbytes: PositiveNumber | None = None


class ProfileDescription(Model):
    """A profile, as in its TOML file."""

    name: Name
    parameter_copies: Positive = 2
    devices: Annotated[dict[str, DeviceTable], pydantic.Field(min_length=1)]
    layers: Annotated[tuple[LayerTable, ...], pydantic.Field(min_length=1), pydantic.BeforeValidator(_tuple)]


def load_profile(path: pathlib.Path, network: Network | None = None, value_bytes: int = VALUE_BYTES) -> Profile:
    """Return the profile in a TOML file; bytes that it leaves out are those of `network`, with values of `value_bytes`.

    Raises:
        InputError: the file cannot be read, has a wrong key, a negative time, or lacks times or bytes of a layer.
    """
    source = str(path)
    said = validate(ProfileDescription, read_toml(path), source)
    known = {} if network is None else {layer.name: layer for layer in network.layers}
    layers = tuple(_layer(table, said, known, network, value_bytes, source) for table in said.layers)
    _check_times(layers, source)
    memory = {
        name: None if table.memory_gbytes is None else round(table.memory_gbytes * 1e9)
        for name, table in said.devices.items()
    }
    return Profile(said.name, layers, memory, parameter_copies=said.parameter_copies)


def _layer(
    table: LayerTable,
    said: ProfileDescription,
    known: dict[str, Layer],
    network: Network | None,
    value_bytes: int,
    source: str,
) -> LayerProfile:
    where = f"{source}: layer {table.name}"
    times: dict[tuple[str, int], LayerTimes] = {}
    for row in table.times:
        if row.device not in said.devices:
            raise InputError(f"{where}: `device` = {row.device!r}: must be one of {', '.join(said.devices)}")
        for key in ("forward_us", "backward_us", "gradient_us"):
            time = getattr(row, key) or 0
            if not 0 <= time <= _MOST_US:
                must = f"must be at most {_MOST_US:g}" if time > 0 else "must not be negative"
                raise InputError(f"{where}: `{key}` = {time:g}: {must}")
        if (row.gradient_us or 0) > row.backward_us:
            raise InputError(f"{where}: `gradient_us` = {row.gradient_us:g}: is part of `backward_us`")
        gradient = None if row.gradient_us is None else round(row.gradient_us * _PS_OF_US)
        taken = LayerTimes(round(row.forward_us * _PS_OF_US), round(row.backward_us * _PS_OF_US), gradient)
        if times.setdefault((row.device, row.micro_batch), taken) is not taken:
            raise InputError(f"{where}: `times` has {row.device} with `micro_batch` = {row.micro_batch} twice")
    layer = known.get(table.name)
    sizes = {"output_bytes": table.output_bytes, "feature_bytes": table.feature_bytes}
    sizes["parameter_bytes"] = table.parameter_bytes
    if layer is not None and network is not None:
        needs = PartNeeds.of(Slice(layer, 0, cut_channels(layer)), value_bytes)
        crossing = boundary_bytes(network, layer.index, value_bytes)
        of_network = {"output_bytes": crossing, "feature_bytes": needs.feature_bytes}
        of_network["parameter_bytes"] = needs.parameter_bytes
        sizes = {key: of_network[key] if size is None else size for key, size in sizes.items()}
    for key, size in sizes.items():
        if size is None:
            raise InputError(f"{where}: key `{key}` is missing, and no network has a layer of this name")
    return LayerProfile(table.name, times, **{key: size or 0 for key, size in sizes.items()})


def _check_times(layers: tuple[LayerProfile, ...], source: str) -> None:
    """Refuse a profile in which a layer lacks times that another one has."""
    wanted = {key: layer.name for layer in layers for key in layer.times}
    for layer in layers:
        for (device, samples), other in wanted.items():
            if (device, samples) not in layer.times:
                raise InputError(
                    f"{source}: layer {layer.name}: `times` lacks {device} with `micro_batch` = {samples},"
                    f" which layer {other} has"
                )
