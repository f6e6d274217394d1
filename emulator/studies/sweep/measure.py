"""The figures of one point of a sweep, of its plan and its steady state, and the identity of the point.

The identity is a digest of all that the figures depend on, so that a sweep goes on with its own points: the network and
the cluster as read from their files, all keys, and emuchain: its version and its sources.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...common import InputError
from ...config import settings_config
from ...plan import ChainPlan, PairPlan, make_pair_plan, make_plan
from ...run import SteadyState, is_waiting, limiting_kind, roofs_of, slope_roofs, steady_actions, steady_state
from ...timing import HIGHEST, LOWEST, Roofs
from ...timing.pair import Resource
from .space import Point

_KINDS = {Resource.GPU: "engine", Resource.FPGA: "engine", Resource.TO_FPGA: "link", Resource.TO_GPU: "link"}
_MIB = 2**20

INTERNAL = "internal error"
"""How the reason of a point begins that failed by a bug, and so is computed again when a sweep goes on."""

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_ROOMS = ("kernels", "comm", "emulator")
_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class Measured:
    """The figures of a point; where it fails, `error` is the reason and the others are None.

    `boards` are those of all replicas. `efficiency` is the rate over that of perfect balance, where all multipliers of
    all boards are always busy; of a GPU with an FPGA it is their utilisation, of a GPU alone None. `images_per_j` is
    None where a board's power is unknown. `off_chip_mib` of a chain are kept off chip; `missing_mib` have no place,
    which times ignore. `fits_lut` is whether boards have the LUTs that engines and buffers need, None where that is not
    known. `second` would limit if the bottleneck were infinitely fast; of a pair it is what is busy second longest.
    `cause` is what holds a chain back whatever its cut (`run.Cause`), or waits. Of a chain of rows there are the range
    of the rate, and the `roofs` that all draws of it follow (`timing.Roofs.text`).
    """

    boards: int | None = None
    images_per_s: float | None = None
    efficiency: float | None = None
    images_per_j: float | None = None
    epoch_hours: float | None = None
    fits: bool | None = None
    missing_mib: float | None = None
    off_chip_mib: float | None = None
    fits_lut: bool | None = None
    bottleneck: str | None = None
    bottleneck_kind: str | None = None
    second: str | None = None
    second_kind: str | None = None
    cause: str | None = None
    error: str | None = None
    range_low: float | None = None
    range_high: float | None = None
    roofs: str | None = None


_OF_RANGES = ("range_low", "range_high", "roofs")


def figures(ranged: bool) -> tuple[str, ...]:
    """Return the names of a point's figures, with those of its range or without."""
    names = (field.name for field in dataclasses.fields(Measured))
    return tuple(name for name in names if ranged or name not in _OF_RANGES)


def measure(task: tuple[Point, int, bool]) -> Measured:
    """Return the figures of a point, with the hours of an epoch, and whether with its range.

    Whatever goes wrong is the point's `error`, in one line.
    """
    point, epoch_images, ranged = task
    if point.cluster is None:
        return Measured(error=point.error)
    try:
        config = settings_config(point.settings)
        if config.schedule.offload is not None:
            pair = make_pair_plan(config, network=point.network, cluster=point.cluster)
            of_point = _of_pair(pair, epoch_images)
            return _with_range(of_point, slope_roofs(pair)) if ranged else of_point
        plan = make_plan(config, 1, network=point.network, cluster=point.cluster, timing_only=True)
        if plan.times_rows:
            of_point = _figures(plan, steady_state(plan), epoch_images)
            return _with_range(of_point, roofs_of(plan)) if ranged else of_point
        of_point = _of_actions(plan, epoch_images)
        return _with_range(of_point, slope_roofs(plan)) if ranged else of_point
    except InputError as error:
        return Measured(error=_line(str(error)))
    except Exception as error:
        return Measured(error=_line(f"{INTERNAL}: {type(error).__name__}: {error}"))


def _figures(plan: ChainPlan, state: SteadyState, epoch_images: int) -> Measured:
    boards = [plan.cluster.board(device) for device in range(plan.devices)]
    macs = sum(use.load.macs for device in state.devices for use in device.engines)
    slowest, behind = state.bottleneck.slowest, state.bottleneck.behind
    return Measured(
        boards=plan.nodes,
        images_per_s=state.images_per_s,
        efficiency=macs / (state.period_ps * sum(board.capacity for board in boards)),
        images_per_j=None if state.joules_per_image is None else 1 / state.joules_per_image,
        epoch_hours=state.epoch_hours(epoch_images),
        fits=state.fits,
        missing_mib=state.missing_bytes / _MIB,
        off_chip_mib=sum(plan.off_chip_bytes) / _MIB,
        fits_lut=plan.fits_lut,
        bottleneck=slowest.name,
        bottleneck_kind=slowest.kind,
        second=behind.name,
        second_kind=behind.kind,
        cause=limiting_kind(plan, state),
    )


def _with_range(measured: Measured, roofs: Roofs) -> Measured:
    """Return the figures of a point with the range of its rate, and what other draws of it follow."""
    assert measured.images_per_s is not None
    at_rate = roofs.at_rate(measured.images_per_s)
    low = high = measured.images_per_s
    if roofs.constants:
        low, high = (float(f"{end:.12g}") for end in np.percentile(at_rate.rates(), [LOWEST, HIGHEST]))
    return dataclasses.replace(measured, range_low=low, range_high=high, roofs=at_rate.text)


def _of_actions(plan: ChainPlan, epoch_images: int) -> Measured:
    """Return the figures of boards that take actions as a whole, once mini-batch follows on mini-batch."""
    rate, usage = steady_actions(plan)
    boards = [plan.cluster.board(device) for device in range(plan.devices)]
    macs = sum(layer.training_macs for layer in plan.network.layers)
    power = [board.power_w for board in boards]
    loads = [(sum(use.busy.values()), f"device {use.device}", "engine") for use in usage.devices]
    loads += [(use.utilisation, f"link {use.sender} -> {use.receiver}", "link") for use in usage.links]
    (busiest, slowest, kind), *others = sorted(loads, key=lambda load: -load[0])
    _, second, second_kind = others[0] if others else (0.0, None, None)
    replicas = plan.data_parallel.replicas
    return Measured(
        boards=plan.nodes,
        images_per_s=rate,
        efficiency=rate / replicas * macs / (1e12 * sum(board.capacity for board in boards)),
        images_per_j=rate / replicas / sum(watts or 0 for watts in power) if all(power) else None,
        epoch_hours=epoch_images / rate / 3600,
        fits=plan.fits,
        missing_mib=0.0,
        off_chip_mib=sum(plan.off_chip_bytes) / _MIB,
        fits_lut=plan.fits_lut,
        bottleneck=slowest,
        bottleneck_kind=kind,
        second=second,
        second_kind=second_kind,
        cause="waiting" if is_waiting(busiest) else kind,
    )


def _of_pair(plan: PairPlan, epoch_images: int) -> Measured:
    """Return the figures of a GPU, alone or with an FPGA, whose mini-batches follow one another."""
    power = [plan.cluster.board(device).power_w for device in range(plan.devices)]
    slowest, *others = sorted(plan.times.busy.values(), key=lambda use: -use.busy_ps)
    second = others[0].resource if others else None
    return Measured(
        boards=plan.devices,
        images_per_s=plan.samples_per_s,
        efficiency=plan.times.utilisation,
        images_per_j=plan.samples_per_s / sum(watts or 0 for watts in power) if all(power) else None,
        epoch_hours=epoch_images / plan.samples_per_s / 3600,
        fits=True,
        missing_mib=0.0,
        off_chip_mib=0.0,
        bottleneck=slowest.resource.value,
        bottleneck_kind=_KINDS[slowest.resource],
        second=None if second is None else second.value,
        second_kind=None if second is None else _KINDS[second],
    )


def row_of(point: Point, measured: Measured, ranged: bool) -> dict[str, Any]:
    """Return a point's keys and figures as one row, with those of its range or without."""
    return {**point.keys, **{name: getattr(measured, name) for name in figures(ranged)}}


def _line(text: str) -> str:
    return " ".join(text.split())


def identities(points: list[Point], epoch_images: int) -> list[str]:
    """Return the identity of each point, in their order."""
    known: dict[int, str] = {}  # of networks and clusters, which many points share

    def digest_of(value: object) -> str:
        if id(value) not in known:
            known[id(value)] = _digest(_canonical(value))
        return known[id(value)]

    return [
        _digest(
            (_emuchain(), epoch_images, digest_of(point.network), digest_of(point.cluster), _canonical(point.settings))
        )
        for point in points
    ]


@functools.cache
def _emuchain() -> str:
    """Return a digest of emuchain's sources; the first names its version."""
    digest = hashlib.sha256()
    for path in (_ROOT / "__init__.py", *sorted(path for room in _ROOMS for path in (_ROOT / room).rglob("*"))):
        if path.suffix in (".py", ".toml"):
            digest.update(f"{path.relative_to(_ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:_DIGITS]


def _canonical(value: Any) -> Any:
    """Return a value as nested tuples, the same for equal values in any process.

    A function has its place in memory here: a schedule that exists in one process alone is never taken up again.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, _canonical(getattr(value, field.name))) for field in dataclasses.fields(value))
        return type(value).__qualname__, *fields
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _canonical(item)) for key, item in value.items()))
    if isinstance(value, (tuple, list)):
        return tuple(map(_canonical, value))
    if isinstance(value, (set, frozenset)):
        return tuple(sorted(repr(_canonical(item)) for item in value))
    return repr(value)
