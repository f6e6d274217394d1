"""The cut and the placement with the highest rate that was found, with off-chip memory in time.

Two kinds of cut are tried. One heeds engines and links alone; what then does not fit is placed by rate
(`mapping.place`). The other heeds memory ports, too: it gives more boards to layers with many parameters. No cut and no
placement is faster than the first cut's slowest engine or link (`Mapping.balance`), which is the bound on what was
found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from ..cluster import Cluster
from ..mapping import Chain, Mapping, partition_with_memory, place
from ..network import Network
from ..timing import Timing
from .fit import missing_bytes
from .port_limits import PortLimits
from .steady import SteadyPipeline

_MOST_TURNS = 8
_CUTS_WITH_MEMORY = 4

FindSteady = Callable[[Timing], SteadyPipeline]


@dataclasses.dataclass(frozen=True)
class Settled:
    """A cut whose data all have a place for `in_flight` samples in flight on each device; no more are.

    No cut and no placement takes less than `bound_ps` for a sample.
    """

    timing: Timing
    steady: SteadyPipeline
    in_flight: tuple[int, ...]
    bound_ps: int

    @property
    def fits(self) -> bool:
        """Whether all data have a place."""
        return not any(missing_bytes(self.timing, self.steady.in_flight))

    def cost(self, batch: int, drains: bool) -> tuple[bool, int]:
        """Return by what placements are compared: one that fits comes first, then the time in ps of a mini-batch."""
        return not self.fits, self.batch_ps(batch, drains)

    def batch_ps(self, batch: int, drains: bool) -> int:
        """Return the time in ps of a mini-batch, with that in which the chain fills and drains if it does."""
        return batch * self.timing.interval_ps + (self.steady.fill_ps if drains else 0)


def settle(
    mapping: Mapping,
    cluster: Cluster,
    steady_of: FindSteady,
    bound_ps: int,
    in_flight: tuple[int, ...] = (),
    *,
    balancing: bool,
) -> Settled:
    """Find a place for all data of a cut, first for `in_flight` samples, by default as many as without memory.

    What is off chip or elsewhere changes times, times change the samples in flight, and these the memory that is left;
    so this iterates, with no fewer samples in flight from turn to turn.
    """
    plain = timing = Timing.of(mapping, cluster)
    steady = None if in_flight else steady_of(plain)
    in_flight = in_flight if steady is None else steady.in_flight
    for _ in range(_MOST_TURNS):
        found = place(Chain.of(mapping, cluster, plain.links, in_flight), plain.interval_ps, balancing=balancing)
        placed = plain
        if (found.blocks, found.off_chip) == (timing.blocks, timing.off_chip):
            placed = timing
        elif found.blocks or any(map(any, found.off_chip)):
            placed = Timing.of(mapping, cluster, found.blocks, found.off_chip)
        if steady is None or placed is not timing:
            timing, steady = placed, steady_of(placed)
        if all(now <= held for now, held in zip(steady.in_flight, in_flight, strict=True)):
            break
        in_flight = tuple(map(max, in_flight, steady.in_flight))
    assert steady is not None
    return Settled(timing, steady, in_flight, bound_ps)


def place_by_rate(
    network: Network,
    cluster: Cluster,
    devices: int,
    steady_of: FindSteady,
    *,
    balancing: bool,
) -> list[Settled]:
    """Return all cuts with their placements that are worth a try, by `Settled.cost`.

    Raises:
        InputError: zero devices, more devices than channels, or too few multipliers.
    """
    fast = partition_with_memory(network, cluster, devices, None)
    assert fast.balance is not None
    bound_ps = fast.balance.server_ps
    found = [settle(fast, cluster, steady_of, bound_ps, balancing=balancing)]
    has_ports = all(cluster.board(device).off_chip_mbytes_per_s for device in range(devices))
    if has_ports and devices > 1 and found[0].timing.interval_ps > bound_ps:
        found += _cuts_with_memory(found[0], network, cluster, steady_of, balancing=balancing)
    # Balanced parameters take longer to arrive than a sample's share of the link, so a chain may do better without.
    alone = [
        settle(cut.timing.mapping, cluster, steady_of, bound_ps, cut.in_flight, balancing=False)
        for cut in found
        if cut.timing.blocks
    ]
    return found + alone


def _cuts_with_memory(
    last: Settled, network: Network, cluster: Cluster, steady_of: FindSteady, *, balancing: bool
) -> Iterator[Settled]:
    """Yield cuts that heed memory ports, each for as many samples in flight as the one before it showed."""
    tried = set()
    in_flight = last.in_flight
    for _ in range(_CUTS_WITH_MEMORY):
        timed = last.timing.mapping
        limits = PortLimits(network, cluster, timed, in_flight)
        cut = partition_with_memory(network, cluster, len(timed.devices), limits, last.bound_ps)
        assumed = limits.in_flight_of(cut)
        last = settle(cut, cluster, steady_of, last.bound_ps, assumed, balancing=balancing)
        yield last
        in_flight = last.in_flight if last.in_flight != assumed else last.steady.in_flight
        if last.timing.interval_ps == last.bound_ps or (cut.devices, in_flight) in tried:
            return
        tried.add((cut.devices, in_flight))
