"""R in searched orders: which micro-batches are computed again, so that an order fits in memory.

Orders are those of `kernels.pipeline`: one R of each micro-batch, of which `again` (stages,
micro-batches) says whether it does anything. Before a search, R stands just ahead of its B, whose
errors it does not wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_F, _B, _W, _R = range(4)


class Again(NamedTuple):
    """An order, (devices, actions), and what is computed again, (stages, micro-batches)."""

    order: Numbers
    again: Numbers


class Parts(NamedTuple):
    """What a micro-batch keeps of one stage, in units: from F to B, from B to W, from F to R; and what
    one with R keeps `beside` from R to W.
    """

    kept: int
    late: int
    waiting: int
    beside: int = 0

    def change(self, kind: int, *, again: bool) -> int:
        """Return by how much more is kept from an action on."""
        kept, late, waiting, beside = self
        if kind == _F:
            return waiting if again else kept
        if kind == _R:
            return kept - waiting + beside if again else 0
        return late - kept if kind == _B else -late - (beside if again else 0)


def peaks_of(plan: Again, parts: Sequence[Parts]) -> Numbers:
    """Return the most units that each device keeps."""
    stages, peaks = len(plan.again), []
    for row in plan.order.tolist():
        done, held, peak = [0] * (4 * stages), 0, 0
        for code in row:
            kind, stage = divmod(code, stages)
            held += parts[stage].change(kind, again=bool(plan.again[stage, done[code]]))
            done[code] += 1
            peak = max(peak, held)
        peaks.append(peak)
    return np.array(peaks, np.int64)


def fitted(
    order: Numbers, shape: tuple[int, int], parts: Sequence[Parts], limit: Numbers
) -> Again | None:
    """Return an order without R with an R for each micro-batch, of as few as fit in memory: where
    it is full, of that whose B comes last; None where even all are too many.

    Args:
        order: F, B and W of each device.
        shape: numbers of stages and of micro-batches.
        parts: what a micro-batch keeps, by stage.
        limit: units that each device may keep.
    """
    again = np.zeros(shape, np.int64)
    rows = [
        _fitted_row(row, again, parts, most)
        for row, most in zip(order.tolist(), limit.tolist(), strict=True)
    ]
    if any(row is None for row in rows):
        return None
    return Again(np.array(rows, np.int64), again)


def _fitted_row(
    row: Sequence[int], again: Numbers, parts: Sequence[Parts], limit: int
) -> list[int] | None:
    """Return a device's actions with R, and note in `again` which of them do anything."""
    stages = len(again)
    done, there, held, with_r = [0] * (3 * stages), dict[tuple[int, int], int](), 0, []
    of_b = dict[tuple[int, int], int]()
    for place, code in enumerate(row):
        kind, stage = divmod(code, stages)
        if kind == _B:
            of_b[stage, done[code]] = place
        done[code] += 1
    done = [0] * (3 * stages)
    for code in row:
        kind, stage = divmod(code, stages)
        own = stage, done[code]
        done[code] += 1
        if kind == _B:
            with_r.append(_R * stages + stage)
            there.pop(own, None)
            held += parts[stage].change(_R, again=bool(again[own]))
        elif kind == _F:
            there[own] = of_b[own]
            held += parts[stage].kept
        while held > limit:
            if not there:
                return None
            last = max(there, key=lambda one: there[one])
            del there[last]
            again[last] = 1
            held -= parts[last[0]].kept - parts[last[0]].waiting
        with_r.append(code)
        if kind != _F:
            held += parts[stage].change(kind, again=bool(again[own]))
    return with_r


def completed(order: Numbers, again: Numbers) -> Numbers:
    """Return an order that has R only where it does something, and -1 behind a device's last action,
    with one of each micro-batch.
    """
    stages, rows = len(again), []
    for row in order.tolist():
        done, full = [0] * stages, []
        for code in row:
            if code < 0 or code >= _R * stages:
                full += [code] * (code >= 0)
                continue
            kind, stage = divmod(code, stages)
            if kind == _B:
                full += [_R * stages + stage] * (not again[stage, done[stage]])
                done[stage] += 1
            full.append(code)
        rows.append(full)
    return np.array(rows, np.int64)
