"""The best of all orders of a pipeline's actions, by branch and bound; as `orders.py` has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import compiled
from .orders import NEVER, copied, memory_of, takes_of


@compiled
def order_bound(
    times: Any, sizes: Any, room: Any, done: Any, free: Any, came: Any, ends: Any, tail: Any
) -> Any:
    """Return a bound that no completion of a begun order is below; one stage on each device.

    `done` (3, N) are numbers of actions done, `room` (N) is how many micro-batches are kept at
    most, `ends` (2, N, M) is for ends.
    """
    _, forward, backward, gradient, onward, back, _, _, _, _, _ = times
    devices, count, latency, stored, _ = sizes
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
def next_again(own: Any, done: Any, again: Any) -> Any:
    """Return the micro-batch of a device's next R, of those with F; their number if there is none."""
    number = done[3, own]
    while number < done[0, own] and not again[own, number]:
        number += 1
    return number


@compiled
def ready_at(
    choice: Any, own: Any, done: Any, came: Any, again: Any, held: Any, times: Any, limit: Any
) -> Any:
    """Return when what a device's next action of a choice waits for is there, or -1 if it cannot be
    the next one: nothing is left of it, what it waits for is not done, or there is no room.

    Choices are F, B, W, R, and F whose features are computed again.
    """
    devices, count = came.shape[1:]
    kind = 0 if choice == 4 else choice
    number = done[kind, own]
    if number >= count:
        return -1
    if kind == 2:
        return 0 if number < done[1, own] else -1
    kept, waiting = times[6][own], times[9][own]
    if kind == 3:
        known = next_again(own, done, again) < done[0, own]
        return 0 if known and held[own] + kept - waiting + times[10][own] <= limit[own] else -1
    if kind == 0:
        known = own == 0 or number < done[0, own - 1]
        known = known and held[own] + (waiting if choice == 4 else kept) <= limit[own]
    else:
        known = number < done[0, own] and (not again[own, number] or number < done[3, own])
        known = known and (own == devices - 1 or number < done[1, own + 1])
    return came[kind, own, number] if known else -1


@compiled
def best_order(
    order: Any,
    again: Any,
    times: Any,
    sizes: Any,
    limit: Any,
    most: Any,
    least: Any,
    nodes: Any,
) -> Any:
    """Search all orders of one stage on each device by branch and bound; return the nodes taken,
    or -1 where more than `nodes` would be needed.

    Orders are those of Giffler and Thompson (1960): an action that ends first among all that could
    be done next is done, or another that begins on its device before that end. Where R may need
    room that an F ahead of it would take, or the reverse, the device may also wait until that end.
    `most` (N) is the memory in micro-batches that are kept until W. `order` and `again` are the
    best so far, whose time is `least`; better ones replace them. R that do nothing are left out,
    and -1 ends a device's actions.
    """
    _, forward, backward, gradient, onward, back, kept, late, redo, waiting, beside = times
    devices, count, latency, stored, variety = sizes
    total = order.size
    held = np.zeros(devices, np.int64)
    done = np.zeros((4, devices), np.int64)
    chosen = np.zeros((devices, count), np.int64)
    came = np.zeros((2, devices, count), np.int64)
    free = np.zeros(devices, np.int64)
    links = np.zeros((2, devices), np.int64)
    ends = np.zeros((2, devices, count), np.int64)
    tail = np.zeros(devices, np.int64)
    tail[0] = gradient[0]
    for own in range(1, devices):
        sent = back[own] + latency if stored else 0
        tail[own] = max(gradient[own], sent + backward[own - 1] + tail[own - 1])
    here = np.empty(order.shape, np.int64)
    for own in range(devices):
        for spot in range(order.shape[1]):
            here[own, spot] = -1
    place = np.zeros(devices, np.int64)
    # Waits of devices lengthen a branch by no more than the actions that they wait for.
    longest = 2 * total + 1
    kinds = np.zeros((longest, 6), np.int64)
    tried = np.zeros(longest, np.int64)
    boards = np.zeros(longest, np.int64)
    until = np.zeros(longest, np.int64)
    saved = np.zeros((longest, 4), np.int64)
    depth, taken, fresh, left = 0, 0, True, 3 * devices * count
    while depth >= 0:
        if fresh:
            taken += 1
            if taken > nodes:
                return -1
            first, board, raises = NEVER, -1, False
            for own in range(devices):
                for choice in range(5 if variety == 4 else 3):
                    ready = ready_at(choice, own, done, came, chosen, held, times, limit)
                    if ready < 0:
                        continue
                    takes = takes_of(
                        choice % 4, True, forward[own], backward[own], gradient[own], redo[own]
                    )
                    if max(free[own], ready) + takes < first:
                        first, board = max(free[own], ready) + takes, own
                        raises = choice == 0 or choice > 2
            choices = 0
            # A W of no time, which frees room, cannot be too early.
            is_only_w = board >= 0 and gradient[board] == 0 and done[2, board] < done[1, board]
            for choice in (1, 0, 2, 4, 3):
                if board < 0 or (choice > 2 and variety < 4) or (is_only_w and choice != 2):
                    continue
                ready = ready_at(choice, board, done, came, chosen, held, times, limit)
                starts = max(free[board], ready)
                takes = takes_of(
                    choice % 4, True, forward[board], backward[board], gradient[board], redo[board]
                )
                at_once = starts == first and takes == 0
                if ready >= 0 and (starts < first or at_once):
                    kinds[depth, choices] = choice
                    choices += 1
            if variety == 4 and raises and first > free[board] and not is_only_w:
                kinds[depth, choices] = 5
                choices += 1
            for other in range(choices, 6):
                kinds[depth, other] = -1
            tried[depth], boards[depth], until[depth] = 0, board, first
            fresh = False
        board = boards[depth]
        if tried[depth] == 6 or kinds[depth, tried[depth]] < 0:
            depth -= 1
            backs = depth >= 0
        else:
            choice = kinds[depth, tried[depth]]
            kind = 0 if choice == 4 else choice
            saved[depth, 0] = free[board]
            saved[depth, 2] = held[board]
            if kind == 5:
                free[board] = until[depth]
            else:
                number = done[kind, board]
                saved[depth, 3] = number
                if kind == 3:
                    number = next_again(board, done, chosen)
                if kind < 2:
                    saved[depth, 1] = links[kind, board]
                if kind == 0:
                    chosen[board, number] = 1 if choice == 4 else 0
                redone = chosen[board, number]
                held[board] += memory_of(
                    kind, redone, kept[board], late[board], waiting[board], beside[board]
                )
                now = free[board]
                if kind < 2:
                    now = max(now, came[kind, board, number])
                end = now + takes_of(
                    kind, redone, forward[board], backward[board], gradient[board], redo[board]
                )
                if kind == 0:
                    if board + 1 < devices:
                        sent = max(end if stored else now, links[0, board]) + onward[board]
                        links[0, board] = sent
                        came[0, board + 1, number] = max(end, sent + latency)
                    else:
                        came[1, board, number] = end
                elif kind == 1 and board > 0:
                    sent = max(end if stored else now, links[1, board]) + back[board]
                    links[1, board] = sent
                    came[1, board - 1, number] = max(end, sent + latency)
                free[board] = end
                here[board, place[board]] = kind * devices + board
                place[board] += 1
                done[kind, board] = number + 1
                left -= 1 if kind < 3 else 0
            bound = order_bound(times, sizes, most, done, free, came, ends, tail)
            if variety == 4:
                for own in range(devices):
                    rest = (count - done[0, own]) * forward[own]
                    rest += (count - done[1, own]) * backward[own]
                    rest += (count - done[2, own]) * gradient[own]
                    for number in range(done[3, own], done[0, own]):
                        rest += redo[own] if chosen[own, number] else 0
                    bound = max(bound, free[own] + rest)
            if bound < least and left == 0:
                worst = 0
                for own in range(devices):
                    worst = max(worst, free[own])
                if worst < least:
                    least = worst
                    copied(here, order)
                    copied(chosen, again)
            backs = bound >= least or left == 0
            if not backs and depth + 1 == longest:
                return -1
            if not backs:
                depth += 1
                fresh = True
        if backs:
            board = boards[depth]
            choice = kinds[depth, tried[depth]]
            kind = 0 if choice == 4 else choice
            free[board] = saved[depth, 0]
            held[board] = saved[depth, 2]
            if kind < 5:
                done[kind, board] = saved[depth, 3]
                place[board] -= 1
                here[board, place[board]] = -1
                left += 1 if kind < 3 else 0
                if kind < 2:
                    links[kind, board] = saved[depth, 1]
            tried[depth] += 1
    return taken
