"""Times of layers as a profile for `emuchain explore --profile`: what is measured is not modelled.

A formula for layers is 5 to 17 % off, more than its constants are. Of several runs the geometric mean is taken.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence

from ..cluster import board_keys
from ..common import InputError
from .constants import Evidence
from .reading import Kind, Row, Table

_PHASES = {"fp": "fp", "forward": "fp", "eb": "eb", "pg": "pg", "gradient": "pg", "backward": "backward"}
"""FP, EB and PG under the names that files may have; `backward` is EB and PG together."""

_PS_DIGITS = 6
"""Digits of us down to a picosecond."""


@dataclasses.dataclass(frozen=True)
class LayerTime:
    """A layer's times in us for a micro-batch of `samples`; `gradient_us` is PG's part of `backward_us`, if known."""

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


def fit_layers(tables: Sequence[Table], kind: str) -> ProfileFit:
    """Return the profile that measured layers make on a board of a `kind`, whose clock turns cycles into times.

    Raises:
        InputError: no such board; several networks; a phase is unknown or missing.
    """
    keys = board_keys(kind)
    rows = [row for table in tables for row in table.rows]
    networks = list(dict.fromkeys(row.cells["network"] for row in rows))
    if len(networks) > 1:
        raise InputError(f"layers of several networks: choose one by `--only network=NAME`: {', '.join(networks)}")
    by_phase: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_phase[_name(row), row.count("samples")][_phase(row)].append(_us(row, keys.get("clock_mhz")))
    times = tuple(_time(*place, phases) for place, phases in by_phase.items())
    several = [values for phases in by_phase.values() for values in phases.values() if len(values) > 1]
    scatter = [math.log(value) - _log_mean(values) for values in several for value in values]
    rms = math.sqrt(math.fsum(log**2 for log in scatter) / len(scatter)) if scatter else None
    evidence = Evidence.of(tables, len(rows), len({row.run for row in rows}))
    return ProfileFit(networks[0], str(keys["name"]), times, rms, evidence)


def is_of_layers(tables: Sequence[Table]) -> bool:
    """Return whether all tables measure layers."""
    return all(table.kind is Kind.LAYERS for table in tables)


def _name(row: Row) -> str:
    name = row.cells["layer"]
    if not name or not name.isprintable():
        raise InputError(f"{row}: `layer` = {name!r}: should be the name of a layer")
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


def _time(layer: str, samples: int, phases: dict[str, list[float]]) -> LayerTime:
    """Return the times of a layer; the first layer of a network has no EB."""
    means = {phase: round(math.exp(_log_mean(values)), _PS_DIGITS) for phase, values in phases.items()}
    where = f"layer {layer}, {samples} samples"
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
