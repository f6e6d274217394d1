"""By how many updates weights are late under `fpdeep`, found by running mini-batches that wait for
no weights.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from .described import up
from .events import Mark, Process
from .exchange_events import Wires, alone_ps
from .tied_events import tied_ps

if TYPE_CHECKING:
    from .event_simulation import Chain

KINDS = ("fp", "eb")
MOST_MINI_BATCHES = 256
Staleness = list[dict[str, list[int]]]
"""By device, for "fp" and "eb": for each sample of a mini-batch, by how many updates it is late."""


def find_staleness(free: Chain, wires: Wires, kind: str) -> Staleness:
    """Return the staleness, of a chain of one replica with MOST_MINI_BATCHES whose FP and EB wait
    for no weights.
    """
    found: list[Staleness] = []
    if len(wires.ring) > 1:
        times_ps = [
            alone_ps(wires, kind, free.values(device)) if free.exchanges_gradients(device) else 0
            for device in range(len(free.devices))
        ]
        free.interval_ps = max(free.interval_ps, up(max(times_ps), free.mini_batches[0]))
        for device, time_ps in enumerate(times_ps):
            if not free.exchanges_gradients(device):
                continue
            free.exchanges[device] = partial(
                lambda device, number: free.happen(("ready", device, number)), device
            )
            free.start(exchanges(free, device, time_ps))
    free.interval_ps = max(free.interval_ps, up(tied_ps(free), free.mini_batches[0]))
    free.start(watch(free, found))
    free.launch()
    free.clock.run()
    return found[0]


def exchanges(chain: Chain, device: int, time_ps: int) -> Process:
    """A device's exchanges, one after another, that all take the same time."""
    for number in range(len(chain.mini_batches)):
        yield [("ready", device, number)]
        yield time_ps
        chain.happen(("total", device, number))


def watch(chain: Chain, found: list[Staleness]) -> Process:
    """Append the staleness of the last of some mini-batches, once that of the one before it is the
    same.
    """
    count, batch, devices = 4, chain.mini_batches[0], range(len(chain.devices))
    last_two: list[Staleness] = []
    while True:
        for number in (count - 2, count - 1):
            samples = range(number * batch, (number + 1) * batch)
            begins = {key: begin(chain, *key) for key in itertools.product(devices, KINDS, samples)}
            yield [mark for marks in begins.values() for mark in marks]
            yield 1  # so that all that happens at the same time has happened
            late = [
                {at: [missing(chain, begins[d, at, n], d, number) for n in samples] for at in KINDS}
                for d in devices
            ]
            # a store may be a user itself, of what is stored further to the left
            blocks = sorted(chain.blocks, key=lambda block: block["user_device"])
            for block, at in itertools.product(blocks, KINDS):
                user, store = late[block["user_device"]], late[block["store_device"]]
                user[at] = list(map(max, user[at], store[at]))
            last_two.append(late)
        if last_two[-2] == last_two[-1] or count == MOST_MINI_BATCHES:
            break
        first = [part.ended(0) for slices in chain.devices for part in slices if "pg" in part.rows]
        first += [
            mark for slices in chain.devices for part in slices for mark in chain.back(part, 0)
        ]
        yield first
        full_ps = max(chain.at_ps[mark] for mark in first)
        count = min(max(2 * count, full_ps // (batch * chain.interval_ps) + 4), MOST_MINI_BATCHES)
    found.append(late)
    chain.clock.heap.clear()


def begin(chain: Chain, device: int, at: str, sample: int) -> list[Mark]:
    """Return the marks after which FP or EB of a sample begins on a device; EB in its last slice,
    or could there.
    """
    last = chain.devices[device][-1]
    if at == "eb" and "eb" not in last.cycles:
        return chain.output_errors(last, sample, last.outputs.window.last_error(0))
    return [(f"{at} begins", device, sample, 0)]


def missing(chain: Chain, begin: list[Mark], device: int, updates: int) -> int:
    """Return how many of a device's first updates come after these marks."""
    begin_ps, now_ps = max(chain.at_ps[mark] for mark in begin), chain.clock.now_ps
    made_ps = [
        chain.at_ps.get(("weights", device, version), now_ps) for version in range(1, updates + 1)
    ]
    return sum(at_ps > begin_ps for at_ps in made_ps)
