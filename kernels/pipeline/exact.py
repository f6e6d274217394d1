"""The best of all orders of a pipeline's actions, by branch and bound; as `orders.py` has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import compiled
from .orders import NEVER, copied


@compiled
def order_bound(
    times: Any, sizes: Any, room: Any, done: Any, free: Any, came: Any, ends: Any, tail: Any
) -> Any:
    """Return a bound that no completion of a begun order is below; one stage on each device.

    `done` (3, N) are numbers of actions done, `room` (N) is how many micro-batches are kept at
    most, `ends` (2, N, M) is for ends.
    """
    _, forward, backward, gradient, onward, back, _, _ = times
    devices, count, latency, stored = sizes
    f_end = ends[0]
    b_end = ends[1]
    worst = 0
    # F, stage by stage
    for own in range(devices):
        f, b, w = forward[own], backward[own], gradient[own]
        nf, nb, nw, most = done[0, own], done[1, own], done[2, own], room[own]
        now = free[own]
        work = 0
        for number in range(nf, count):
            ready = came[0, own, number] if own == 0 or number < done[0, own - 1] else 0
            if own > 0 and number >= done[0, own - 1]:
                ready = f_end[own - 1, number] + (onward[own - 1] + latency if stored else 0)
            work += f
            spare = free[own] + work
            over = number + 1 - most
            if over > nw:
                spare += (over - nw) * w
            if over > nb:
                spare += (over - nb) * b
            now = max(max(now, ready) + f, spare)
            f_end[own, number] = now
    for own in range(devices - 1, -1, -1):
        f, b, w = forward[own], backward[own], gradient[own]
        nf, nb, nw, most = done[0, own], done[1, own], done[2, own], room[own]
        now = free[own]
        rest = (count - nf) * f + (count - nb) * b + (count - nw) * w
        worst = max(worst, free[own] + rest)
        for number in range(nb, count):
            if own == devices - 1:
                ready = came[1, own, number] if number < nf else f_end[own, number]
            elif number < done[1, own + 1]:
                ready = came[1, own, number]
            else:
                ready = b_end[own + 1, number] + (back[own + 1] + latency if stored else 0)
                if not stored:
                    ready = b_end[own + 1, number]
            if number >= nf:
                ready = max(ready, f_end[own, number])
            spare = free[own] + (number - nb) * b
            if number >= nf:
                spare += (number + 1 - nf) * f
            over = number + 1 - most
            if over > nw:
                spare += (over - nw) * w
            now = max(max(now, ready), spare)
            # before this B no more than these are done
            most_f = min(count, most + number) - nf
            most_w = number - nw
            early = max(most_f, 0) * f + (number - nb) * b + max(most_w, 0) * w
            worst = max(worst, now + rest - early)
            now += b
            b_end[own, number] = now
            worst = max(worst, now + (count - 1 - number) * b + tail[own])
        if nf < count:
            ready = came[0, own, nf] if own == 0 or nf < done[0, own - 1] else 0
            if own > 0 and nf >= done[0, own - 1]:
                ready = f_end[own - 1, nf] + (onward[own - 1] + latency if stored else 0)
            # until the next F comes, only B and W of those that have are done
            most = (nf - nb) * b + (nf - nw) * w
            worst = max(worst, max(free[own], ready) + rest - most)
            worst = max(
                worst,
                max(free[own] + 0, ready - most) + (count - nf) * f + (count - nb) * b + tail[own],
            )
        elif nb < count:
            worst = max(worst, free[own] + (count - nb) * b + tail[own])
    return worst


@compiled
def ready_at(kind: Any, own: Any, done: Any, came: Any, held: Any, kept: Any, limit: Any) -> Any:
    """Return when what a device's next action of a kind waits for is there, or -1 if it cannot be
    the next one: nothing is left of it, what it waits for is not done, or F has no room.
    """
    devices, count = came.shape[1:]
    number = done[kind, own]
    if number >= count:
        return -1
    if kind == 2:
        return 0 if number < done[1, own] else -1
    if kind == 0:
        known = own == 0 or number < done[0, own - 1]
        known = known and held[own] + kept[own] <= limit[own]
    else:
        known = number < done[0, own]
        known = known and (own == devices - 1 or number < done[1, own + 1])
    return came[kind, own, number] if known else -1


@compiled
def best_order(
    order: Any, times: Any, sizes: Any, limit: Any, most: Any, least: Any, nodes: Any
) -> Any:
    """Search all orders of one stage on each device by branch and bound; return the nodes taken,
    or -1 where more than `nodes` would be needed.

    Orders are those of Giffler and Thompson (1960): an action that ends first among all that could
    be done next is done, or another that begins on its device before that end. `most` (N) is the
    memory in micro-batches that are kept until W. `order` is the best
    so far, whose time is `least`; a better one replaces it.
    """
    _, forward, backward, gradient, onward, back, kept, late = times
    devices, count, latency, stored = sizes
    total = order.size
    held = np.zeros(devices, np.int64)
    done = np.zeros((3, devices), np.int64)
    came = np.zeros((2, devices, count), np.int64)
    free = np.zeros(devices, np.int64)
    links = np.zeros((2, devices), np.int64)
    ends = np.zeros((2, devices, count), np.int64)
    tail = np.zeros(devices, np.int64)
    tail[0] = gradient[0]
    for own in range(1, devices):
        sent = back[own] + latency if stored else 0
        tail[own] = max(gradient[own], sent + backward[own - 1] + tail[own - 1])
    here = np.zeros(order.shape, np.int64)
    place = np.zeros(devices, np.int64)
    kinds = np.zeros((total + 1, 3), np.int64)
    tried = np.zeros(total + 1, np.int64)
    boards = np.zeros(total + 1, np.int64)
    saved = np.zeros((total + 1, 2), np.int64)
    change = np.zeros((3, devices), np.int64)
    for own in range(devices):
        change[0, own] = kept[own]
        change[1, own] = late[own] - kept[own]
        change[2, own] = -late[own]
    depth, taken, fresh = 0, 0, True
    while depth >= 0:
        if fresh:
            taken += 1
            if taken > nodes:
                return -1
            first, board = NEVER, -1
            for own in range(devices):
                for kind in range(3):
                    ready = ready_at(kind, own, done, came, held, kept, limit)
                    if ready < 0:
                        continue
                    takes = gradient[own]
                    if kind < 2:
                        takes = forward[own] if kind == 0 else backward[own]
                    if max(free[own], ready) + takes < first:
                        first, board = max(free[own], ready) + takes, own
            choices = 0
            for kind in (1, 0, 2):
                ready = ready_at(kind, board, done, came, held, kept, limit)
                if ready >= 0 and max(free[board], ready) < first:
                    kinds[depth, choices] = kind
                    choices += 1
            for other in range(choices, 3):
                kinds[depth, other] = -1
            tried[depth], boards[depth] = 0, board
            fresh = False
        board = boards[depth]
        if tried[depth] == 3 or kinds[depth, tried[depth]] < 0:
            depth -= 1
            if depth >= 0:  # undo
                board = boards[depth]
                kind = kinds[depth, tried[depth]]
                done[kind, board] -= 1
                place[board] -= 1
                held[board] -= change[kind, board]
                free[board] = saved[depth, 0]
                if kind < 2:
                    links[kind, board] = saved[depth, 1]
                tried[depth] += 1
            continue
        kind = kinds[depth, tried[depth]]
        number = done[kind, board]
        saved[depth, 0] = free[board]
        if kind < 2:
            saved[depth, 1] = links[kind, board]
        now = free[board]
        if kind < 2:
            now = max(now, came[kind, board, number])
        if kind == 0:
            end = now + forward[board]
            if board + 1 < devices:
                left = max(end if stored else now, links[0, board]) + onward[board]
                links[0, board] = left
                came[0, board + 1, number] = max(end, left + latency)
            else:
                came[1, board, number] = end
        elif kind == 1:
            end = now + backward[board]
            if board > 0:
                left = max(end if stored else now, links[1, board]) + back[board]
                links[1, board] = left
                came[1, board - 1, number] = max(end, left + latency)
        else:
            end = now + gradient[board]
        free[board] = end
        here[board, place[board]] = kind * devices + board
        place[board] += 1
        done[kind, board] += 1
        held[board] += change[kind, board]
        bound = order_bound(times, sizes, most, done, free, came, ends, tail)
        if bound >= least or depth + 1 == total:
            if bound < least:
                worst = 0
                for own in range(devices):
                    worst = max(worst, free[own])
                if worst < least:
                    least = worst
                    copied(here, order)
            done[kind, board] -= 1
            place[board] -= 1
            held[board] -= change[kind, board]
            free[board] = saved[depth, 0]
            if kind < 2:
                links[kind, board] = saved[depth, 1]
            tried[depth] += 1
            continue
        depth += 1
        fresh = True
    return taken
