"""Orders of a pipeline's actions: their times, a list schedule, and its improvement.

A pipeline has S stages on N devices and M micro-batches. An action is a number `kind * S + stage`,
with kinds F, B, W, R = 0, 1, 2, 3; the k-th of a number is that of micro-batch k, since
micro-batches are alike and pass each stage in order. An order is an array (N, actions of a device).
All times are whole numbers.

`again` (S, M) says of which micro-batches R computes features again. Orders with R have one of each
micro-batch, between F and B; of others it does nothing and takes no time.

`times` is a tuple of arrays over stages: the device, F, B without W, W, the messages of F and of B
on their links, the memory that a micro-batch keeps from F to B, and from B to W, R, the memory that
is kept from F to R, and what one with R keeps beside from R to W. `sizes` is a tuple: N, M, the
latency of a link, whether messages leave when their action is done (1) or begins (0), the number of
kinds: 3 without R, 4 with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import compiled

NEVER = 2**62
"""Later than any time."""
_MASK = 2**31 - 1


@compiled
def copied(source: Any, to: Any) -> None:
    # A slice would need what raises errors, which kernels do not have.
    for own in range(source.shape[0]):
        for place in range(source.shape[1]):
            to[own, place] = source[own, place]


@compiled
def _arrival(end: Any, begin: Any, takes: Any, sizes: Any, wires: Any, sender: Any, to: Any) -> Any:
    """Return when a message is there, and occupy its wire."""
    if sender == to:
        return end
    left = max(end if sizes[3] else begin, wires[sender, to])
    wires[sender, to] = left + takes
    return max(end, left + takes + sizes[2])


# Numbers of a stage are handed over one by one: a tuple of arrays costs more than what is computed
# of it, and this is where a search takes its time.


@compiled
def takes_of(
    kind: Any, redone: Any, forward: Any, backward: Any, gradient: Any, recompute: Any
) -> Any:
    """Return how long an action takes; R does nothing of what is not `redone`."""
    if kind == 0:
        return forward
    if kind == 1:
        return backward
    if kind == 2:
        return gradient
    return recompute if redone else 0


@compiled
def memory_of(kind: Any, redone: Any, kept: Any, late: Any, waiting: Any, beside: Any) -> Any:
    """Return by how much more is kept from an action on: from the begin of F and R, the end of
    others.
    """
    if kind == 0:
        return waiting if redone else kept
    if kind == 1:
        return late - kept
    if kind == 2:
        return -late - (beside if redone else 0)
    return kept - waiting + beside if redone else 0


@compiled
def _run(
    order: Any,
    again: Any,
    times: Any,
    sizes: Any,
    free: Any,
    wires: Any,
    begin: Any,
    came: Any,
) -> Any:
    """Run an order on devices that are free at `free`, and move that on; return the actions done.

    `begin` (N, actions) gets the begins, `came` (2, S, M) when the inputs of F and B are there.
    """
    device, forward, backward, gradient, onward, back, _, _, redo, _, _ = times
    stages, (devices, count) = device.shape[0], (sizes[0], sizes[1])
    length = order.shape[1]
    done = np.zeros((4, stages), np.int64)
    place = np.zeros(devices, np.int64)
    for number in range(count):
        for stage in range(stages):
            came[0, stage, number] = came[1, stage, number] = -1
        came[0, 0, number] = 0
    total, before = 0, -1
    while total > before:
        before = total
        for own in range(devices):
            while place[own] < length:
                code = order[own, place[own]]
                kind, stage = code // stages, code % stages
                number = done[kind, stage]
                ready = 0
                if kind < 2:
                    ready = came[kind, stage, number]
                    if ready < 0:
                        break
                elif number >= done[1 if kind == 2 else 0, stage]:
                    break
                now = max(free[own], ready)
                begin[own, place[own]] = now
                end = now + takes_of(
                    kind,
                    again[stage, number],
                    forward[stage],
                    backward[stage],
                    gradient[stage],
                    redo[stage],
                )
                if kind == 0:
                    if stage + 1 < stages:
                        came[0, stage + 1, number] = _arrival(
                            end, now, onward[stage], sizes, wires, own, device[stage + 1]
                        )
                    else:
                        came[1, stage, number] = end
                elif kind == 1 and stage > 0:
                    came[1, stage - 1, number] = _arrival(
                        end, now, back[stage], sizes, wires, own, device[stage - 1]
                    )
                free[own] = end
                done[kind, stage] = number + 1
                place[own] += 1
                total += 1
    return total


@compiled
def _value(
    order: Any, again: Any, times: Any, sizes: Any, spans: Any, begin: Any, came: Any
) -> Any:
    """Return the time of an order, NEVER where it deadlocks; of `spans`, the longest of a device
    from its first action to its last.
    """
    devices = sizes[0]
    free = np.zeros(devices, np.int64)
    wires = np.zeros((devices, devices), np.int64)
    if _run(order, again, times, sizes, free, wires, begin, came) < order.size:
        return NEVER
    worst = 0
    for own in range(devices):
        worst = max(worst, free[own] - (begin[own, 0] if spans else 0))
    return worst


@compiled
def time_order(
    order: Any, again: Any, times: Any, sizes: Any, spans: Any, begin: Any, came: Any
) -> Any:
    """Return the time of an order as `_value` does."""
    return _value(order, again, times, sizes, spans, begin, came)


@compiled
def list_order(order: Any, times: Any, sizes: Any, limit: Any, ahead: Any, wait: Any) -> Any:
    """Fill in the order of a list schedule, without R: each device, when free, takes B, F or W as it
    comes.

    F comes before B while fewer than `ahead` (N) micro-batches are between F and B, W where nothing
    else comes for `wait` thousandths of its time, or memory is full. Returns the actions done.
    """
    device, forward, backward, gradient, onward, back, kept, late, _, _, _ = times
    stages, (devices, count) = device.shape[0], (sizes[0], sizes[1])
    done = np.zeros((3, stages), np.int64)
    came = np.zeros((2, stages, count), np.int64)
    for stage in range(stages):
        for number in range(count):
            came[0, stage, number] = -1 if stage else 0
            came[1, stage, number] = -1
    free = np.zeros(devices, np.int64)
    wires = np.zeros((devices, devices), np.int64)
    place = np.zeros(devices, np.int64)
    held = np.zeros(devices, np.int64)
    inside = np.zeros(devices, np.int64)
    decide = np.zeros(devices, np.int64)
    total = 0
    while total < order.size:
        own = 0
        for other in range(1, devices):
            if decide[other] < decide[own]:
                own = other
        now = decide[own]
        if now >= NEVER:
            return total
        best_b, best_f, best_w, coming = -1, -1, -1, NEVER
        full = True
        for stage in range(stages):
            if device[stage] != own:
                continue
            number = done[1, stage]
            if number < done[0, stage] and came[1, stage, number] >= 0:
                if came[1, stage, number] > now:
                    coming = min(coming, came[1, stage, number])
                elif best_b < 0 or came[1, stage, number] < came[1, best_b, done[1, best_b]]:
                    best_b = stage
            number = done[0, stage]
            room = kept[stage]
            for later in range(stage + 1, stages):
                if device[later] == own:
                    room += kept[later]  # or no micro-batch would ever come to the end
            if number < count and held[own] + room <= limit[own]:
                full = False
                if came[0, stage, number] > now:
                    coming = min(coming, came[0, stage, number])
                elif came[0, stage, number] >= 0:
                    best_f = stage  # that of the last chunk, which B waits for
            if done[2, stage] < done[1, stage] and (best_w < 0 or done[2, stage] < done[2, best_w]):
                best_w = stage
        code = -1
        if best_f >= 0 and (best_b < 0 or inside[own] < ahead[own]):
            code = best_f
        elif best_b >= 0:
            code = stages + best_b
        if best_w >= 0:
            patient = coming == NEVER or (coming - now) * 1000 >= wait * gradient[best_w]
            if (code < 0 and patient) or (full and best_b < 0 and code < 0):
                code = 2 * stages + best_w
        if code < 0:
            decide[own] = coming
            continue
        kind, stage = code // stages, code % stages
        number = done[kind, stage]
        done[kind, stage] += 1
        order[own, place[own]] = code
        place[own] += 1
        total += 1
        to = -1
        if kind == 0:
            held[own] += kept[stage]
            inside[own] += 1
            end = now + forward[stage]
            if stage + 1 < stages:
                to = stage + 1
                came[0, to, number] = _arrival(
                    end, now, onward[stage], sizes, wires, own, device[to]
                )
            else:
                came[1, stage, number] = end
        elif kind == 1:
            inside[own] -= 1
            held[own] -= kept[stage] - late[stage]
            end = now + backward[stage]
            if stage > 0:
                to = stage - 1
                came[1, to, number] = _arrival(end, now, back[stage], sizes, wires, own, device[to])
        else:
            held[own] -= late[stage]
            end = now + gradient[stage]
        free[own] = end
        decide[own] = end
        if to >= 0 and device[to] != own:
            other = device[to]
            decide[other] = min(
                decide[other], max(free[other], came[1 if kind == 1 else 0, to, number])
            )
            # what is decided next may be a W that the message leaves no time for
            decide[other] = max(decide[other], free[other])
    return total


@compiled
def _fits(order: Any, again: Any, own: Any, times: Any, sizes: Any, limit: Any) -> Any:
    """Return whether a device's order has F, R, B and W of each stage in turn, within the memory."""
    stages, variety = again.shape[0], sizes[4]
    kept, late, waiting, beside = times[6], times[7], times[9], times[10]
    done = np.zeros((4, stages), np.int64)
    held = 0
    for place in range(order.shape[1]):
        code = order[own, place]
        kind, stage = code // stages, code % stages
        number = done[kind, stage]
        done[kind, stage] = number + 1
        before = 0 if kind == 3 else kind - 1
        if kind == 1 and variety == 4:
            before = 3
        if kind > 0 and number >= done[before, stage]:
            return False
        held += memory_of(
            kind, again[stage, number], kept[stage], late[stage], waiting[stage], beside[stage]
        )
        if held > limit[own]:
            return False
    return True


@compiled
def _move(order: Any, own: Any, place: Any, to: Any) -> None:
    """Move a device's action to another place."""
    code = order[own, place]
    step = 1 if to > place else -1
    while place != to:
        order[own, place] = order[own, place + step]
        place += step
    order[own, to] = code


@compiled
def _critical(
    order: Any, again: Any, times: Any, spans: Any, begin: Any, came: Any, path: Any
) -> Any:
    """Fill `path` (any, 2) with devices and places that end last, and what released them; return
    their number.
    """
    device, forward, backward, gradient, _, _, _, _, redo, _, _ = times
    stages, length = device.shape[0], order.shape[1]
    where = np.zeros((4, stages, came.shape[2]), np.int64)
    done = np.zeros((4, stages), np.int64)
    number_at = np.zeros(order.shape, np.int64)
    last, own, end = 0, 0, -1
    for board in range(order.shape[0]):
        for place in range(length):
            code = order[board, place]
            kind, stage = code // stages, code % stages
            where[kind, stage, done[kind, stage]] = place
            number_at[board, place] = done[kind, stage]
            done[kind, stage] += 1
            takes = takes_of(
                kind,
                again[stage, number_at[board, place]],
                forward[stage],
                backward[stage],
                gradient[stage],
                redo[stage],
            )
            takes += begin[board, place] - (begin[board, 0] if spans else 0)
            if takes > end:
                end, own, last = takes, board, place
    count, place = 0, last
    while place >= 0 and count < path.shape[0]:
        path[count, 0], path[count, 1] = own, place
        count += 1
        code = order[own, place]
        kind, stage = code // stages, code % stages
        number = number_at[own, place]
        if kind < 2 and came[kind, stage, number] == begin[own, place]:
            before = -1
            if place > 0:
                code = order[own, place - 1]
                at = code % stages
                takes = takes_of(
                    code // stages,
                    again[at, number_at[own, place - 1]],
                    forward[at],
                    backward[at],
                    gradient[at],
                    redo[at],
                )
                before = begin[own, place - 1] + takes
            if before < begin[own, place]:
                source = stage - 1 if kind == 0 else stage + 1
                if kind == 1 and source == stages:
                    kind, source = 0, stage
                if source < 0:
                    break
                own, place = device[source], where[kind, source, number]
                continue
        place -= 1
    return count


@compiled
def improve_order(
    order: Any,
    again: Any,
    times: Any,
    sizes: Any,
    limit: Any,
    spans: Any,
    tries: Any,
    least: Any,
    seed: Any,
) -> Any:
    """Improve an order by moves of actions on its critical path, and by other choices of what is
    computed again; return its time.

    A move is kept if the time grows by no more than a threshold, which falls to zero; the best
    order is kept in `order` and `again`. It ends after `tries` moves, or when the time is `least`.
    """
    device, forward, backward, gradient, _, _, _, _, _, _, _ = times
    stages, length = device.shape[0], order.shape[1]
    begin = np.zeros(order.shape, np.int64)
    came = np.zeros((2, stages, sizes[1]), np.int64)
    path = np.zeros((order.size, 2), np.int64)
    here = np.empty(order.shape, np.int64)
    copied(order, here)
    chosen = np.empty(again.shape, np.int64)
    copied(again, chosen)
    now = _value(here, chosen, times, sizes, spans, begin, came)
    best = now
    count = _critical(here, chosen, times, spans, begin, came, path)
    state = seed * 7919 + 12345
    longest = 0
    for stage in range(stages):
        longest = max(longest, forward[stage], backward[stage], gradient[stage])
    for number in range(tries):
        if best <= least:
            break
        state = (state * 1103515245 + 12345) & _MASK
        pick = state >> 8
        state = (state * 1103515245 + 12345) & _MASK
        far = state >> 8
        if count and pick % 8:
            at = (pick >> 3) % count
            own, place = path[at, 0], path[at, 1]
        else:
            own = (pick >> 3) % order.shape[0]
            place = (far >> 6) % length
        flip = sizes[4] == 4 and (state >> 14) % 4 == 0
        stage = here[own, place] % stages
        batch = (far >> 3) % sizes[1]
        distance = 1
        while distance < length and (far >> distance) & 1:
            distance += 1
        if distance > 4:
            distance = 1 + (far >> 5) % (3 * device.shape[0])
        to = place + distance if far & 1 << 20 else place - distance
        if flip:
            chosen[stage, batch] = 1 - chosen[stage, batch]
        elif to < 0 or to >= length or here[own, place] == here[own, to]:
            continue
        else:
            _move(here, own, place, to)
        if not _fits(here, chosen, own, times, sizes, limit):
            if flip:
                chosen[stage, batch] = 1 - chosen[stage, batch]
            else:
                _move(here, own, to, place)
            continue
        then = _value(here, chosen, times, sizes, spans, begin, came)
        allowed = longest * (tries - number) // (tries * 8)
        if then <= now + (allowed if (state >> 4) % 4 == 0 else 0):
            now = then
            count = _critical(here, chosen, times, spans, begin, came, path)
            if now < best:
                best = now
                copied(here, order)
                copied(chosen, again)
        elif flip:
            chosen[stage, batch] = 1 - chosen[stage, batch]
        else:
            _move(here, own, to, place)
    return best
