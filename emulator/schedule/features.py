"""The features that a device keeps, which follow from the order of its actions."""

from __future__ import annotations

from collections.abc import Iterable

from .action import Action, Kind


def kept_micro_batches(program: Iterable[Action], chunks: int, last: Kind) -> tuple[int, ...]:
    """Return for each chunk of a device the most micro-batches between their F and the action that needs features last.

    Args:
        program: the device's actions.
        chunks: number of its stages.
        last: the kind of the action that needs a micro-batch's features last.
    """
    kept, most = [0] * chunks, [0] * chunks
    for action in program:
        begins = action.span is None or not action.span[0]
        if action.kind is Kind.FORWARD and begins:
            kept[action.chunk] += 1
            most[action.chunk] = max(most[action.chunk], kept[action.chunk])
        elif action.kind is last and begins:
            kept[action.chunk] -= 1
    return tuple(most)
