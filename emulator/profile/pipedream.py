"""PipeDream's `graph.txt` as a profile: an operation on each line, and then the edges between them.

    node1 -- Conv2d(...) -- forward_compute_time=0.1, backward_compute_time=0.2, activation_size=4.0, parameter_size=2.0
    <tab>node1 -- node2

Times are ms of a micro-batch, sizes bytes: of the operation's outputs for that micro-batch, and of its parameters. An
operation with several outputs has their sizes in brackets, `[1.0; 2.0]`. Further parts of a line, such as a stage's
number, are left out.
"""

from __future__ import annotations

import graphlib
import math
import pathlib
from collections.abc import Sequence

from ..common import InputError, name_of, read_text
from .profile import LayerProfile, LayerTimes, Profile

_PS_OF_MS = 10**9
_KEYS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_SEPARATOR = " -- "


def load_graph(path: pathlib.Path, samples: int, kinds: Sequence[str]) -> Profile:
    """Return the profile in a `graph.txt`, measured with micro-batches of `samples`, for all `kinds` of devices.

    Operations come in topological order, of those that could come next the first in the file. What crosses a cut are
    the outputs of all operations before it that one behind it takes.

    Raises:
        InputError: the file cannot be read, a line has another form, a time or size is negative, or edges are a circle.
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
            raise InputError(f"{where}: neither `node -- operation -- {_KEYS[0]}=…, …` nor an edge `node -- node`")
    if not nodes:
        raise InputError(f"{path}: has no operations")
    return _profile(path, _ordered(path, takes), nodes, names, takes, samples, kinds)


def _values(text: str, where: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for pair in text.split(", "):
        key, _, value = pair.partition("=")
        try:
            values[key] = sum(float(number) for number in value.strip("[]").split(";") if number.strip())
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
        crossing = sum(nodes[name]["activation_size"] for name in order[: place + 1] if last_use[name] > place)
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
