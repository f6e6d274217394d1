"""What is planned fits: look-up tables, flip-flops, DSPs and memory of boards whose multipliers are
built.

Engines take what `Fpga.budget` leaves them, and everything else, buffers above all, comes beside.
Where both together are over a board's limit, engines of that board get what buffers leave, less
what their special functions take, of which slower engines need fewer; and the network is cut anew:

    budget   [ engines                      ]            buffers      limit
    1st      |==============================|#################|....... over by d
    2nd      |=======================|      ################# |        engines without d

A new cut may put other layers on the board, or bring another one over its limit. Where that does
not end, all boards of a kind get what buffers of the fullest leave.

A plan whose engines need more than that, or that has no place for its data, is none: the error says
what is short, on which device, and what would do. On boards that are counted as papers
count, a plan only says so (`ChainPlan.short_of_luts`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..cluster import Budget, Cluster, Fpga
from ..common import InputError, format_bytes, plural
from ..number import precision_of
from .layout import DeviceLayout

if TYPE_CHECKING:
    from ..config import Config
    from .plan import ChainPlan

_MOST_CUTS = 8
_SPELT = {"lut": "look-up tables", "ff": "flip-flops", "dsp": "DSPs"}


class OverLimits(InputError):
    """A plan needs more than its boards have."""


def within_limits(planned: Callable[[Cluster], ChainPlan], cluster: Cluster) -> ChainPlan:
    """Return the plan on a cluster whose engines leave room for everything else on their boards.

    Args:
        planned: makes the plan on a cluster.
        cluster: with the budgets that engines may take at most.

    Raises:
        InputError: the network does not fit.
        OverLimits: a plan is over a limit whatever its engines.
    """
    plan = first = planned(cluster)
    for alike in (False, True):
        if not _rooms(plan):
            break
        plan = _shrunk_until_within(planned, cluster, first, alike)
    _check(plan)
    return plan


def _shrunk_until_within(
    planned: Callable[[Cluster], ChainPlan], cluster: Cluster, plan: ChainPlan, alike: bool
) -> ChainPlan:
    """Return the last of a row of plans, each made with less room for engines on boards that were
    over a limit; with `alike`, on all boards of their kinds.
    """
    for _ in range(_MOST_CUTS):
        rooms = _rooms(plan)
        if not rooms:
            break
        cluster = _shrunk(cluster, rooms, plan.devices, alike)
        try:
            plan = planned(cluster)
        except InputError:  # engines are too few: the plan before says what is short
            break
    return plan


Room = dict[str, int]
"""What engines may still take of each resource that is short."""


def _rooms(plan: ChainPlan) -> dict[int, Room]:
    """Return what engines may still take of boards that are over a limit, by device; of actions,
    which share one set of engines, nothing is.
    """
    rooms: dict[int, Room] = {}
    for device in _layouts(plan):
        for kind, count in _over(device, plan.chunks).items():
            # Each slice's were rounded up. Stages of one board have equal shares of it.
            engines, functions = getattr(device.engines, kind), getattr(device.functions, kind)
            both = max(1, engines + functions)
            left = plan.chunks * (engines * (both - count) // both - len(device.slices))
            _narrow(rooms.setdefault(plan.fold.device(device.device), {}), {kind: left})
    return rooms


def _narrow(room: Room, other: Room) -> None:
    """Take from a room what another one has less of."""
    for kind, left in other.items():
        room[kind] = min(left, room.get(kind, left))


def _layouts(plan: ChainPlan) -> tuple[DeviceLayout, ...]:
    """Return the devices whose multipliers are built; engines alone are within their budgets, so
    none where buffers are left out.
    """
    if plan.stages is not None or plan.config.memory == "ignored":
        return ()
    if not any(board.is_built for board in plan.cluster.boards):
        return ()
    of_phases = (device for own in plan.of_phases for device in own.layout().devices)
    return tuple(device for device in of_phases if device.board.is_built)


def _over(device: DeviceLayout, chunks: int) -> dict[str, int]:
    """Return by how much a stage is over each limit that it is over, of `chunks` stages on a
    board.
    """
    taken, over = device.resources, {}
    for kind in _SPELT:
        limit = _limit(device, kind, chunks)
        if limit is not None and getattr(taken, kind) > limit:
            over[kind] = getattr(taken, kind) - limit
    return over


def _limit(device: DeviceLayout, kind: str, chunks: int) -> int | None:
    """Return what a stage may take; its board's DSPs are its own part already (`Board.share`)."""
    limit = device.board.limits[kind]
    return limit if limit is None or kind == "dsp" else limit // chunks


def _shrunk(cluster: Cluster, rooms: dict[int, Room], devices: int, alike: bool) -> Cluster:
    """Return the cluster of some devices whose engines take no more than there is room for, or,
    with `alike`, none of a kind.
    """
    boards = [cluster.board(device) for device in range(devices)]
    of_kind: dict[str, Room] = {}
    for device, room in rooms.items():
        _narrow(of_kind.setdefault(boards[device].name, {}), room)
    for device, board in enumerate(boards):
        room = of_kind.get(board.name, {}) if alike else rooms.get(device, {})
        if room and isinstance(board, Fpga) and board.budget is not None:
            boards[device] = dataclasses.replace(board, budget=_less(board.budget, room))
    return dataclasses.replace(cluster, boards=tuple(boards))


def _less(budget: Budget, room: Room) -> Budget:
    def least(kind: str, now: int | None) -> int | None:
        return now if now is None or kind not in room else max(1, min(now, room[kind]))

    dsp = least("dsp", budget.dsp)
    assert dsp is not None
    return Budget(dsp, least("lut", budget.lut), least("ff", budget.ff))


def _check(plan: ChainPlan) -> None:
    """Check that a plan is within the limits of all boards whose multipliers are built.

    Boards that take actions as a whole have all multipliers of their budget in one set of engines,
    and stages find room for their data or none (`DoesNotFit`).

    Raises:
        OverLimits: it is not.
    """
    layouts = _layouts(plan)
    if plan.stages is not None:
        _check_multipliers(plan)
    for device in layouts:
        for kind, count in _over(device, plan.chunks).items():
            has = _limit(device, kind, plan.chunks) or 0
            raise OverLimits(
                f"board {device.board.name}: device {device.device} needs {has + count:,}"
                f" {_SPELT[kind]} and has {has:,}, which leaves its engines too few multipliers"
            )
    missing = [device for device in layouts if device.missing_bytes]
    if missing and plan.config.memory == "modelled":
        first, total = missing[0], sum(device.missing_bytes for device in missing)
        raise OverLimits(
            f"board {first.board.name}: {format_bytes(total)} of memory are missing on"
            f" {plural(len(missing), 'device')}, on device {first.device} first"
        )


def _check_multipliers(plan: ChainPlan) -> None:
    """Check that each board has a multiplier of each class that its engines compute in.

    Raises:
        OverLimits: one has none.
    """
    for board in dict.fromkeys(plan.cluster.board(device) for device in range(plan.devices)):
        if not isinstance(board, Fpga) or board.budget is None:
            continue
        for kind in dict.fromkeys(board.classes):
            rate = board.rate(kind)
            if rate.mix and not rate.count:
                rooms = dataclasses.asdict(board.budget).items()
                left = (
                    f"{max(0, room):,} {_SPELT[name]}" for name, room in rooms if room is not None
                )
                raise OverLimits(
                    f"board {board.name}: no multiplier of {kind} can be built of what its shell"
                    f" leaves engines: {', '.join(left)}"
                )


_MORE_BOARDS, _MOST_BOARDS = (2, 4), 64
_NARROWER = ("bf16", "int8")


def what_would_do(config: Config, planned: Callable[[Config], ChainPlan]) -> str:
    """Return, as text, how many boards hold a run that is over a limit, or which format does.

    More than 64 boards are not tried: a plan of them takes long, and a sweep finds them.
    """
    devices = config.devices or 1
    more = [devices * times for times in _MORE_BOARDS if devices * times <= _MOST_BOARDS]
    enough = next((count for count in more if _fits(config, planned, devices=count)), None)
    narrow = (name for name in _NARROWER if _fits(config, planned, precision=precision_of(name)))
    fitting = next(narrow, None)
    would = [] if enough is None else [f"`devices` = {enough}"]
    would += [] if fitting is None else [f"`precision` = {fitting!r}"]
    if would:
        return f"{' or '.join(would)} would do"
    tried = [f"{more[-1]} boards"] if more else []
    return f"nor do {', '.join([*tried, ' or '.join(_NARROWER)])}"


def _fits(config: Config, planned: Callable[[Config], ChainPlan], **changes: object) -> bool:
    try:
        planned(config.model_copy(update=changes))
    except InputError:
        return False
    return True
