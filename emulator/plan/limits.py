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
from .layout import DeviceLayout

if TYPE_CHECKING:
    from .plan import ChainPlan

_MOST_CUTS = 5
_SPELT = {"lut": "look-up tables", "ff": "flip-flops", "dsp": "DSPs"}


def within_limits(planned: Callable[[Cluster], ChainPlan], cluster: Cluster) -> ChainPlan:
    """Return the plan on a cluster whose engines leave room for everything else on their boards.

    Args:
        planned: makes the plan on a cluster.
        cluster: with the budgets that engines may take at most.

    Raises:
        InputError: the network does not fit, or a plan is over a limit whatever its engines.
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
        InputError: it is not.
    """
    layouts = _layouts(plan)
    for device in layouts:
        for kind, count in _over(device).items():
            has = device.board.limits[kind] or 0
            raise InputError(
                f"board {device.board.name}: device {device.device} needs {has + count:,}"
                f" {_SPELT[kind]} and has {has:,}, with the fewest multipliers that its engines"
                f" can have; give more boards than {plan.devices}, or a narrower `precision`"
            )
    missing = [device for device in layouts if device.missing_bytes]
    if missing and plan.config.memory == "modelled":
        first, total = missing[0], sum(device.missing_bytes for device in missing)
        raise InputError(
            f"board {first.board.name}: {format_bytes(total)} of memory are missing on"
            f" {plural(len(missing), 'device')}, on device {first.device} first; give more boards"
            f" than {plan.devices}, a narrower `precision`, or `memory` = 'ignored' for rates"
            " without it"
        )
