"""The figures of one point of a sweep: its plan and its steady state, nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...common import InputError
from ...config import settings_config
from ...pair import Resource
from ...plan import ChainPlan, PairPlan, make_pair_plan, make_plan
from ...run import SteadyState, is_waiting, limiting_kind, simulate, steady_state
from .space import Point

_STEPS = 2, 6
"""Mini-batches of two runs, whose difference is the time of those in the middle."""

_KINDS = {Resource.GPU: "engine", Resource.FPGA: "engine", Resource.TO_FPGA: "link", Resource.TO_GPU: "link"}
_MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Measured:
    """The figures of a point; where it fails, `error` is the reason and the others are None.

    `boards` are those of all replicas. `efficiency` is the rate over that of perfect balance, where all multipliers of
    all boards are always busy; of a GPU with an FPGA it is their utilisation, of a GPU alone None. `images_per_j` is
    None where a board's power is unknown. `off_chip_mib` of a chain are kept off chip; `missing_mib` have no place,
    which times ignore. `second` would limit if the bottleneck were infinitely fast; of a pair it is what is
    busy second longest. `cause` is what holds a chain back whatever its cut (`run.Cause`), or waits.
    """

    boards: int | None = None
    images_per_s: float | None = None
    efficiency: float | None = None
    images_per_j: float | None = None
    epoch_hours: float | None = None
    fits: bool | None = None
    missing_mib: float | None = None
    off_chip_mib: float | None = None
    bottleneck: str | None = None
    bottleneck_kind: str | None = None
    second: str | None = None
    second_kind: str | None = None
    cause: str | None = None
    error: str | None = None


FIGURES = tuple(field.name for field in dataclasses.fields(Measured))
INTERNAL = "internal error"
"""How the reason of a point begins that failed by a bug, and so is computed again when a sweep goes on."""


def measure(task: tuple[Point, int]) -> Measured:
    """Return the figures of a point, with the hours of an epoch.

    Whatever goes wrong is the point's `error`, in one line.
    """
    point, epoch_images = task
    if point.cluster is None:
        return Measured(error=point.error)
    try:
        config = settings_config(point.settings)
        if config.schedule.offload is not None:
            return _of_pair(make_pair_plan(config, network=point.network, cluster=point.cluster), epoch_images)
        plan = make_plan(config, 1, network=point.network, cluster=point.cluster, timing_only=True)
        if plan.times_rows:
            return _figures(plan, steady_state(plan), epoch_images)
        return _of_actions(plan, epoch_images)
    except InputError as error:
        return Measured(error=_line(str(error)))
    except Exception as error:
        return Measured(error=_line(f"{INTERNAL}: {type(error).__name__}: {error}"))


def _figures(plan: ChainPlan, state: SteadyState, epoch_images: int) -> Measured:
    boards = [plan.cluster.board(device) for device in range(plan.devices)]
    macs = sum(use.macs for device in state.devices for use in device.engines)
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
        bottleneck=slowest.name,
        bottleneck_kind=slowest.kind,
        second=behind.name,
        second_kind=behind.kind,
        cause=limiting_kind(plan, state),
    )


def _of_actions(plan: ChainPlan, epoch_images: int) -> Measured:
    """Return the figures of boards that take actions as a whole, once mini-batch follows on mini-batch."""
    plan = plan.while_all_live.with_epochs(1)
    few, more = (simulate(plan, steps * plan.config.batch) for steps in _STEPS)
    images = plan.config.batch * (_STEPS[1] - _STEPS[0])
    rate = images * 1e12 / (more.virtual_time_ps - few.virtual_time_ps)
    boards = [plan.cluster.board(device) for device in range(plan.devices)]
    macs = sum(layer.macs * (3 if layer.needs_errors else 2) for layer in plan.network.layers)
    power = [board.power_w for board in boards]
    loads = [(sum(use.busy.values()), f"device {use.device}", "engine") for use in more.usage.devices]
    loads += [(use.utilisation, f"link {use.sender} -> {use.receiver}", "link") for use in more.usage.links]
    (busiest, slowest, kind), *others = sorted(loads, key=lambda load: -load[0])
    _, second, second_kind = others[0] if others else (0.0, None, None)
    replicas = plan.data_parallel.replicas
    return Measured(
        boards=plan.nodes,
        images_per_s=rate,
        efficiency=rate / replicas * macs / (1e12 * sum(board.capacity for board in boards)),
        images_per_j=rate / replicas / sum(each or 0 for each in power) if all(power) else None,
        epoch_hours=epoch_images / rate / 3600,
        fits=plan.fits,
        missing_mib=0.0,
        off_chip_mib=sum(plan.off_chip_bytes) / _MIB,
        bottleneck=slowest,
        bottleneck_kind=kind,
        second=second,
        second_kind=second_kind,
        cause="waiting" if is_waiting(busiest) else kind,
    )


def _of_pair(plan: PairPlan, epoch_images: int) -> Measured:
    """Return the figures of a GPU, alone or with an FPGA, whose mini-batches follow one another."""
    power = [plan.cluster.board(device).power_w for device in range(plan.devices)]
    slowest, *others = sorted(plan.times.busy.values(), key=lambda each: -each.busy_ps)
    second = others[0].resource if others else None
    return Measured(
        boards=plan.devices,
        images_per_s=plan.samples_per_s,
        efficiency=plan.times.utilisation,
        images_per_j=plan.samples_per_s / sum(each or 0 for each in power) if all(power) else None,
        epoch_hours=epoch_images / plan.samples_per_s / 3600,
        fits=True,
        missing_mib=0.0,
        off_chip_mib=0.0,
        bottleneck=slowest.resource.value,
        bottleneck_kind=_KINDS[slowest.resource],
        second=None if second is None else second.value,
        second_kind=None if second is None else _KINDS[second],
    )


def row_of(point: Point, measured: Measured) -> dict[str, Any]:
    """Return a point's keys and figures as one row."""
    return {**point.keys, **dataclasses.asdict(measured)}


def _line(text: str) -> str:
    return " ".join(text.split())
