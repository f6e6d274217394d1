"""Files of profiles: TOML, and PipeDream's `graph.txt`.

TOML files have measured times of a network's layers, for devices that no board describes, such as
GPUs. PipeDream's files have an operation on each line, and then the edges between them:

    node1 -- Conv2d(...) -- forward_compute_time=0.1, backward_compute_time=0.2,
    activation_size=4.0, parameter_size=2.0 <tab>node1 -- node2

Times are ms of a micro-batch, sizes bytes: of the operation's outputs for that micro-batch, and of
its parameters. An operation with several outputs has their sizes in brackets, `[1.0; 2.0]`. Further
parts of a line, such as a stage's number, are left out.
"""

from __future__ import annotations

import graphlib
import math
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

import pydantic

from ...kernels.number import FP32, NumberFormat
from ..common import (
    Finite,
    InputError,
    Model,
    Name,
    NotNegative,
    Positive,
    PositiveNumber,
    as_tuple,
    name_of,
    read_text,
    read_toml,
    validate,
)
from ..mapping import Slice, cut_channels
from ..network import Layer, Network
from ..number import Storage
from .profile import LayerProfile, LayerTimes, Profile
from .roofline import PartNeeds, boundary_bytes

_PS_OF_US = 1_000_000


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
    """A `[[layers]]` table; bytes that are left out are those of the network's layer of this
    name.
    """

    name: Name
    output_bytes: NotNegative | None = None
    feature_bytes: NotNegative | None = None
    parameter_bytes: NotNegative | None = None
    times: Annotated[
        tuple[TimesTable, ...], pydantic.Field(min_length=1), pydantic.BeforeValidator(as_tuple)
    ]


class DeviceTable(Model):
    """A `[devices.NAME]` table."""

    memory_gbytes: PositiveNumber | None = None


class ProfileDescription(Model):
    """A profile, as in its TOML file."""

    name: Name
    parameter_copies: Positive = 2
    devices: Annotated[dict[str, DeviceTable], pydantic.Field(min_length=1)]
    layers: Annotated[
        tuple[LayerTable, ...], pydantic.Field(min_length=1), pydantic.BeforeValidator(as_tuple)
    ]


def load_profile(
    path: pathlib.Path, network: Network | None = None, number: NumberFormat = FP32
) -> Profile:
    """Return the profile in a TOML file; bytes that it leaves out are those of `network`, with
    values of a format.

    Raises:
        InputError: the file cannot be read, has a wrong key, a negative time, or lacks times or
            bytes of a layer.
    """
    return profile_of(read_toml(path), network, str(path), number)


def profile_of(
    described: dict[str, Any], network: Network | None, source: str, number: NumberFormat = FP32
) -> Profile:
    """Return the profile with the keys of a TOML file; `source` begins messages. It raises as
    `load_profile`.
    """
    said = validate(ProfileDescription, described, source)
    known = {} if network is None else {layer.name: layer for layer in network.layers}
    layers = tuple(_layer(table, said, known, network, number, source) for table in said.layers)
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
    number: NumberFormat,
    source: str,
) -> LayerProfile:
    where = f"{source}: layer {table.name}"
    times: dict[tuple[str, int], LayerTimes] = {}
    for row in table.times:
        if row.device not in said.devices:
            raise InputError(
                f"{where}: `device` = {row.device!r}: must be one of {', '.join(said.devices)}"
            )
        for key in ("forward_us", "backward_us", "gradient_us"):
            time = getattr(row, key) or 0
            if not 0 <= time <= _MOST_US:
                must = f"must be at most {_MOST_US:g}" if time > 0 else "must not be negative"
                raise InputError(f"{where}: `{key}` = {time:g}: {must}")
        if (row.gradient_us or 0) > row.backward_us:
            raise InputError(
                f"{where}: `gradient_us` = {row.gradient_us:g}: is part of `backward_us`"
            )
        gradient = None if row.gradient_us is None else round(row.gradient_us * _PS_OF_US)
        taken = LayerTimes(
            round(row.forward_us * _PS_OF_US), round(row.backward_us * _PS_OF_US), gradient
        )
        if times.setdefault((row.device, row.micro_batch), taken) is not taken:
            raise InputError(
                f"{where}: `times` has {row.device} with `micro_batch` = {row.micro_batch} twice"
            )
    layer = known.get(table.name)
    sizes = {"output_bytes": table.output_bytes, "feature_bytes": table.feature_bytes}
    sizes["parameter_bytes"] = table.parameter_bytes
    if layer is not None and network is not None:
        needs = PartNeeds.of(Slice(layer, 0, cut_channels(layer)), Storage.all_in(number))
        crossing = boundary_bytes(network, layer.index, number)
        of_network = {"output_bytes": crossing, "feature_bytes": needs.feature_bytes}
        of_network["parameter_bytes"] = needs.parameter_bytes
        sizes = {key: of_network[key] if size is None else size for key, size in sizes.items()}
    for key, size in sizes.items():
        if size is None:
            raise InputError(
                f"{where}: key `{key}` is missing, and no network has a layer of this name"
            )
    return LayerProfile(table.name, times, **{key: size or 0 for key, size in sizes.items()})


def _check_times(layers: tuple[LayerProfile, ...], source: str) -> None:
    """Refuse a profile in which a layer lacks times that another one has."""
    wanted = {key: layer.name for layer in layers for key in layer.times}
    for layer in layers:
        for (device, samples), other in wanted.items():
            if (device, samples) not in layer.times:
                raise InputError(
                    f"{source}: layer {layer.name}: `times` lacks {device} with `micro_batch` ="
                    f" {samples}, which layer {other} has"
                )


_PS_OF_MS = 10**9
_KEYS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_SEPARATOR = " -- "


def load_graph(path: pathlib.Path, samples: int, kinds: Sequence[str]) -> Profile:
    """Return the profile in a `graph.txt`, measured with micro-batches of `samples`, for all
    `kinds` of devices.

    Operations come in topological order, of those that could come next the first in the file. What
    crosses a cut are the outputs of all operations before it that one behind it takes.

    Raises:
        InputError: the file cannot be read, a line has another form, a time or size is negative, or
            edges are a circle.
    """
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    nodes: dict[str, dict[str, float]] = {}
    names: dict[str, str] = {}
    takes: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        parts = line.strip().split(_SEPARATOR)
        if line[:1].isspace() and len(parts) == 2:
            source, target = parts
            for name in parts:
                if name not in nodes:
                    raise InputError(f"{where}: {name!r} is not a node of the lines before")
            takes[target].append(source)
        elif len(parts) >= 3:
            node, described, values = parts[:3]
            nodes[node], takes[node] = _values(values, f"{where}: {node}"), []
            names[node] = f"{node} {described.split('(')[0].strip()}"
        elif line.strip():
            raise InputError(
                f"{where}: neither `node -- operation -- {_KEYS[0]}=…, …` nor an edge `node --"
                " node`"
            )
    if not nodes:
        raise InputError(f"{path}: has no operations")
    return _profile(path, _ordered(path, takes), nodes, names, takes, samples, kinds)


def _values(text: str, where: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for pair in text.split(", "):
        key, _, value = pair.partition("=")
        try:
            values[key] = sum(
                float(number) for number in value.strip("[]").split(";") if number.strip()
            )
        except ValueError:
            raise InputError(f"{where}: `{key}` = {value!r}: must be a number") from None
        if not 0 <= values[key] < math.inf:
            raise InputError(f"{where}: `{key}` = {value}: must not be negative")
    for key in _KEYS:
        if key not in values:
            raise InputError(f"{where}: `{key}` is missing")
    return values


def _ordered(path: pathlib.Path, takes: dict[str, list[str]]) -> list[str]:
    """Return the nodes in topological order."""
    places = {node: place for place, node in enumerate(takes)}
    sorter = graphlib.TopologicalSorter(takes)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        raise InputError(f"{path}: its edges form a cycle: {' -> '.join(error.args[1])}") from None
    ready: list[str] = []
    order = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()], key=places.__getitem__)
        order.append(ready.pop(0))
        sorter.done(order[-1])
    return order


def _profile(
    path: pathlib.Path,
    order: Sequence[str],
    nodes: dict[str, dict[str, float]],
    names: dict[str, str],
    takes: dict[str, list[str]],
    samples: int,
    kinds: Sequence[str],
) -> Profile:
    places = {node: place for place, node in enumerate(order)}
    last_use = dict.fromkeys(order, -1)
    for target, sources in takes.items():
        for source in sources:
            last_use[source] = max(last_use[source], places[target])
    layers = []
    for place, node in enumerate(order):
        said = nodes[node]
        times = LayerTimes(*(round(said[key] * _PS_OF_MS) for key in _KEYS[:2]))
        crossing = sum(
            nodes[name]["activation_size"] for name in order[: place + 1] if last_use[name] > place
        )
        layers.append(
            LayerProfile(
                names[node],
                {(kind, samples): times for kind in kinds},
                round(crossing),
                round(said["activation_size"]),
                round(said["parameter_size"]),
            )
        )
    return Profile(name_of(path), tuple(layers), dict.fromkeys(kinds), bytes_of=samples)
