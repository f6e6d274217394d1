"""Times of layers as a profile for `emuchain explore --profile`: what is measured is not modelled.

A formula for layers is 5 to 17 % off, more than its constants are. Of several runs the geometric
mean is taken. Of networks that come with emuchain, multiply-accumulates say whether the times can
be meant.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

from ..cluster import board_keys
from ..common import InputError, did_you_mean, plural
from ..network import Network, load_network, zoo
from .board import CHOOSE, fpga
from .constants import Evidence
from .plausible import check_layers, check_scatter
from .reading import Kind, Row, Table

_PHASES = {
    "fp": "fp",
    "forward": "fp",
    "eb": "eb",
    "pg": "pg",
    "gradient": "pg",
    "backward": "backward",
}
"""FP, EB and PG under the names that files may have; `backward` is EB and PG together."""

_PS_DIGITS = 6
"""Digits of us down to a picosecond."""

_APART = math.log(2)
"""Largest rms scatter between runs of a layer: a busy host slows single layers, and does not double
a run's times.
"""

_STEP_DOWN = 0.02


@dataclasses.dataclass(frozen=True)
class LayerTime:
    """A layer's times in us for a micro-batch of `samples`; `gradient_us` is PG's part of
    `backward_us`, if known.
    """

    layer: str
    samples: int
    forward_us: float
    backward_us: float
    gradient_us: float | None


@dataclasses.dataclass(frozen=True)
class ProfileFit:
    """The profile of a network on one kind of board, and the scatter of rows about their means."""

    network: str
    device: str
    times: tuple[LayerTime, ...]
    rms: float | None
    evidence: Evidence
    warnings: tuple[str, ...]


_Phases = dict[str, list[tuple[str, float]]]
"""By phase, the times in us with the names of their rows."""


def fit_layers(tables: Sequence[Table], kind: str) -> ProfileFit:
    """Return the profile that measured layers make on a board of a `kind`, whose clock turns cycles
    into times.

    Raises:
        InputError: no such board; several networks; a phase is unknown or missing; times that no
            layer takes.
    """
    keys = board_keys(kind)
    rows = [row for table in tables for row in table.rows]
    networks = list(dict.fromkeys(row.cells["network"] for row in rows))
    if len(networks) > 1:
        raise InputError(
            "layers of several networks: choose one by `--only network=NAME`:"
            f" {', '.join(networks)}"
        )
    network = load_network(networks[0]) if networks[0] in zoo() else None
    by_place: dict[tuple[str, int], _Phases] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        time = str(row), _us(row, keys.get("clock_mhz"))
        by_place[_name(row, network), row.count("samples")][_phase(row)].append(time)
    times = tuple(_time(*place, phases) for place, phases in by_place.items())
    rms = _scatter(
        [values for phases in by_place.values() for values in phases.values() if len(values) > 1]
    )
    warnings = ["one row for each time: nothing is known of its scatter"] if rms is None else []
    warnings += _falling(times)
    if network is None:
        warnings.append(
            f"`network` = {networks[0]!r}: none that comes with emuchain; layers are not compared"
        )
    else:
        check_layers(rows[0], _products(times, network), fpga(kind, {}))
    evidence = Evidence.of(tables, len(rows), len({row.run for row in rows}))
    rounded = tuple(map(_rounded, times))
    return ProfileFit(networks[0], str(keys["name"]), rounded, rms, evidence, tuple(warnings))


def is_of_layers(tables: Sequence[Table]) -> bool:
    """Return whether all tables measure layers."""
    return all(table.kind is Kind.LAYERS for table in tables)


def _products(times: Sequence[LayerTime], network: Network) -> tuple[float, float]:
    """Return the multiply-accumulates of all forward phases, and their time in us."""
    macs = {layer.name: layer.macs for layer in network.layers}
    forward_macs = math.fsum(macs[time.layer] * time.samples for time in times)
    forward_us = math.fsum(time.forward_us for time in times)
    return forward_macs, forward_us


def _falling(times: Sequence[LayerTime]) -> list[str]:
    """Return where a larger micro-batch takes less time than a smaller one.

    Raises:
        InputError: it does throughout.
    """
    by_layer: dict[str, list[LayerTime]] = defaultdict(list)
    for time in times:
        by_layer[time.layer].append(time)
    pairs = [
        pair
        for own in by_layer.values()
        for pair in itertools.pairwise(sorted(own, key=lambda at: at.samples))
    ]
    falls = [
        (small, large) for small, large in pairs if _both(large) < (1 - _STEP_DOWN) * _both(small)
    ]
    if not falls:
        return []
    small, large = falls[0]
    finding = (
        f"layer {small.layer}: {plural(large.samples, 'sample')} take less time than"
        f" {small.samples}"
    )
    if len(falls) == len(pairs):
        raise InputError(
            f"{finding}, as do more of all layers: `samples` should be those of a micro-batch"
        )
    more = f", and in {len(falls) - 1} more pairs" if len(falls) > 1 else ""
    return [f"not monotone: {finding}{more}"]


def _both(time: LayerTime) -> float:
    return time.forward_us + time.backward_us


def _scatter(times: Sequence[Sequence[tuple[str, float]]]) -> float | None:
    """Return the root mean square of the rows of times about their means, None without any.

    Raises:
        InputError: a layer has no one time.
    """
    squares = []
    for values in times:
        check_scatter(values, _APART, "us", CHOOSE)
        mean = _log_mean([value for _, value in values])
        squares += [(math.log(value) - mean) ** 2 for _, value in values]
    return math.sqrt(math.fsum(squares) / len(squares)) if squares else None


def _name(row: Row, network: Network | None) -> str:
    name = row.cells["layer"]
    if not name or not name.isprintable():
        raise InputError(f"{row}: `layer` = {name!r}: should be the name of a layer")
    layers = [layer.name for layer in network.layers] if network is not None else [name]
    if network is not None and name not in layers:
        hint = did_you_mean(name, layers)
        raise InputError(f"{row}: `layer` = {name!r}: {hint}{network.name} has {', '.join(layers)}")
    return name


def _phase(row: Row) -> str:
    said = row.cells["phase"]
    if said.lower() not in _PHASES:
        raise InputError(f"{row}: `phase` = {said!r}: known: {', '.join(_PHASES)}")
    return _PHASES[said.lower()]


def _us(row: Row, clock_mhz: float | None) -> float:
    if row.has("us") and row.has("cycles"):
        raise InputError(f"{row}: `us` and `cycles`: one unit to a file; leave one out")
    if row.has("us"):
        return row.number("us")
    if clock_mhz is None:
        raise InputError(f"{row}: `cycles` take a clock, which a GPU's `--type` has not; give `us`")
    return row.number("cycles") / clock_mhz


def _log_mean(values: Sequence[float]) -> float:
    return math.fsum(map(math.log, values)) / len(values)


def _time(layer: str, samples: int, phases: _Phases) -> LayerTime:
    """Return the times of a layer; the first layer of a network has no EB."""
    means = {}
    for phase, rows in phases.items():
        means[phase] = math.exp(_log_mean([us for _, us in rows]))
    where = f"layer {layer}, {plural(samples, 'sample')}"
    if "fp" not in means:
        raise InputError(f"{where}: no row has phase FP")
    if "backward" in means:
        if "eb" in means:
            raise InputError(f"{where}: rows of both `backward` and EB: one includes the other")
        if means.get("pg", 0) > means["backward"]:
            raise InputError(f"{where}: PG takes longer than `backward`, of which it is a part")
        return LayerTime(layer, samples, means["fp"], means["backward"], means.get("pg"))
    if "pg" not in means:
        raise InputError(f"{where}: no row has phase PG, nor `backward`")
    return LayerTime(layer, samples, means["fp"], means.get("eb", 0.0) + means["pg"], means["pg"])


def _rounded(time: LayerTime) -> LayerTime:
    """Return times to a picosecond.

    Raises:
        InputError: one is less.
    """
    forward, backward = (round(us, _PS_DIGITS) for us in (time.forward_us, time.backward_us))
    if not (forward and backward):
        raise InputError(
            f"layer {time.layer}, {plural(time.samples, 'sample')}: takes less than a picosecond;"
            " give times in the unit of their header"
        )
    gradient = None if time.gradient_us is None else round(time.gradient_us, _PS_DIGITS)
    return dataclasses.replace(time, forward_us=forward, backward_us=backward, gradient_us=gradient)
