"""What is planned fits: look-up tables, flip-flops, DSPs and memory of boards whose multipliers are
built.

Engines take what `Fpga.budget` leaves them, and everything else, buffers above all, comes beside.
Where both together are over a board's limit, engines get as much less, and the network is cut anew:

    budget   [ engines                      ]            buffers      limit
    1st      |==============================|#################|....... over by d
    2nd      |=======================|      ################# |        engines without d

A plan that is over a limit with the fewest engines, or that has no place for its data, is none: the
error says what is short, on which device, and what would do. On boards that are counted as papers
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

_MOST_CUTS = 5
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
    plan = planned(cluster)
    for _ in range(_MOST_CUTS):
        excess = _excess(plan)
        if not any(excess.values()):
            break
        cluster = _shrunk(cluster, excess)
        try:
            plan = planned(cluster)
        except InputError:  # engines are too few: the plan before says what is short
            break
    _check(plan)
    return plan


def _excess(plan: ChainPlan) -> dict[str, dict[str, int]]:
    """Return by how much each kind of board is over each of its limits; of actions, which share one
    set of engines, nothing is.
    """
    excess: dict[str, dict[str, int]] = {}
    for device in _layouts(plan):
        over = excess.setdefault(device.board.name, {})
        for kind, count in _over(device).items():
            over[kind] = max(count, over.get(kind, 0))
    return excess


def _layouts(plan: ChainPlan) -> tuple[DeviceLayout, ...]:
    """Return the devices whose multipliers are built."""
    if plan.stages is not None or not any(_is_built(board) for board in plan.cluster.boards):
        return ()
    return tuple(device for device in plan.layout().devices if _is_built(device.board))


def _is_built(board: object) -> bool:
    return isinstance(board, Fpga) and board.budget is not None


def _over(device: DeviceLayout) -> dict[str, int]:
    taken, limits = device.resources, device.board.limits
    counts = {
        kind: getattr(taken, kind) - (limits[kind] or taken.lut + taken.ff) for kind in _SPELT
    }
    return {kind: count for kind, count in counts.items() if count > 0}


def _shrunk(cluster: Cluster, excess: dict[str, dict[str, int]]) -> Cluster:
    """Return the cluster whose engines may take as much less as its boards are over their limits."""
    boards = []
    for board in cluster.boards:
        over = excess.get(board.name, {})
        if isinstance(board, Fpga) and board.budget is not None and over:
            board = dataclasses.replace(board, budget=_less(board.budget, over))
        boards.append(board)
    return dataclasses.replace(cluster, boards=tuple(boards))


def _less(budget: Budget, over: dict[str, int]) -> Budget:
    def room(kind: str, has: int | None) -> int | None:
        return None if has is None else max(1, has - over.get(kind, 0))

    dsp = room("dsp", budget.dsp)
    assert dsp is not None
    return Budget(dsp, room("lut", budget.lut), room("ff", budget.ff))


def _check(plan: ChainPlan) -> None:
    """Check that a plan is within the limits of all boards whose multipliers are built.

    Raises:
        OverLimits: it is not.
    """
    layouts = _layouts(plan)
    for device in layouts:
        for kind, count in _over(device).items():
            has = device.board.limits[kind] or 0
            raise OverLimits(
                f"board {device.board.name}: device {device.device} needs {has + count:,}"
                f" {_SPELT[kind]} and has {has:,}, with the fewest multipliers that its engines"
                " can have"
            )
    missing = [device for device in layouts if device.missing_bytes]
    if missing and plan.config.memory == "modelled":
        first, total = missing[0], sum(device.missing_bytes for device in missing)
        raise OverLimits(
            f"board {first.board.name}: {format_bytes(total)} of memory are missing on"
            f" {plural(len(missing), 'device')}, on device {first.device} first"
        )


_MORE_BOARDS = (2, 4, 8)
_NARROWER = ("bf16", "int8")


def what_would_do(config: Config, planned: Callable[[Config], ChainPlan]) -> str:
    """Return, as text, how many boards hold a run that is over a limit, or which format does."""
    devices = config.devices or 1
    counts: list[dict[str, object]] = [{"devices": devices * times} for times in _MORE_BOARDS]
    formats: list[dict[str, object]] = [{"precision": precision_of(name)} for name in _NARROWER]
    words = []
    for keys in (counts, formats):
        fitting = next((change for change in keys if _fits(config, change, planned)), None)
        if fitting is not None:
            [(key, value)] = fitting.items()
            words.append(f"`{key}` = {value}" if key == "devices" else f"`{key}` = '{value}'")
    if words:
        return f"{' or '.join(words)} would do"
    return f"nor do {devices * _MORE_BOARDS[-1]} boards, {' or '.join(_NARROWER)}"


def _fits(
    config: Config, change: dict[str, object], planned: Callable[[Config], ChainPlan]
) -> bool:
    try:
        planned(config.model_copy(update=change))
    except InputError:
        return False
    return True
