"""Placement: which data of a device lie on chip, on another device, or off chip.

For a time of a sample it is known how many bytes each memory port and each link can carry beside
the streams of the mapping. Each device, from the last to the first, sheds what does not fit
(shedding.py) up to what its port can carry; the rest of its weights go to devices to its left
(balancing.py), up to what the links can carry. So the least time with which everything finds a
place follows by bisection.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ..cluster import Cluster, Link, LinkShare
from .balancing import BalancedParameters, channel_bytes, stays
from .memory import OffChip
from .shedding import SliceNeeds, shed, slice_needs
from .slices import Mapping
from .traffic import Stream, carried_bytes, paths_of_direction

_EXCESS = 1e-3
"""The time found exceeds the least one by less than this share."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where all data lie: balanced parameters, what is off chip of each device's slices, and the
    missing banks.
    """

    blocks: tuple[BalancedParameters, ...]
    off_chip: tuple[tuple[OffChip, ...], ...]
    missing_banks: tuple[int, ...]

    @property
    def fits(self) -> bool:
        """Whether everything has a place."""
        return not any(self.missing_banks)


@dataclasses.dataclass(frozen=True)
class Chain:
    """A mapping on its boards: what each device needs, what it has, and what ports and links can
    carry.

    `rooms` are banks; `port_mbytes_per_s` is 0 where there is no off-chip memory, or its bandwidth
    is unknown. `link_bytes` are the bytes of a sample on the wire in the busier direction of each
    of `links`, or, where `lanes` data paths have fixed parts of it, on the fullest path.
    """

    needs: tuple[tuple[SliceNeeds, ...], ...]
    rooms: tuple[int, ...]
    port_mbytes_per_s: tuple[int, ...]
    link_bytes: tuple[int, ...]
    links: tuple[Link, ...]
    lanes: int = 1

    @classmethod
    def of(
        cls,
        mapping: Mapping,
        cluster: Cluster,
        links: Sequence[Sequence[Stream]],
        in_flight: Sequence[int],
    ) -> Chain:
        """Return the needs of a mapping's devices with `in_flight` samples in flight, and of its
        `links`.
        """
        boards = [cluster.board(device) for device in range(len(mapping.devices))]
        share = cluster.link.share
        fixed = share is LinkShare.PATHS
        lanes = paths_of_direction(balanced=True) if fixed else 1
        alone = paths_of_direction(balanced=False) if fixed else 1
        wires = tuple(map(cluster.link_at, range(len(links))))
        busier = [
            max(carried_bytes(wire, streams).values(), default=0) // alone
            for wire, streams in zip(wires, links, strict=True)
        ]
        needs = []
        for slices, count in zip(mapping.devices, in_flight, strict=True):
            needs.append(tuple(slice_needs(part, count, cluster.storage) for part in slices))
        return cls(
            tuple(needs),
            tuple(map(cluster.banks_for_buffers, boards)),
            tuple(board.off_chip_mbytes_per_s for board in boards),
            tuple(busier),
            wires,
            lanes,
        )

    def port_bytes(self, device: int, time_ps: int) -> int:
        """Return the bytes that a device's memory port moves in a time."""
        # 1 MB/s moves a byte in a million ps.
        return self.port_mbytes_per_s[device] * time_ps // 1_000_000

    def spare_bytes(self, link: int, time_ps: int) -> int:
        """Return the bytes of parameters, with headers, that a direction of a link can carry beside
        its streams.

        Below zero if it cannot carry these in the time, once parameters have a part of the link.
        """
        # 1 Mbit/s carries a bit in a million ps, a byte in eight million.
        carried = self.links[link].bandwidth_mbps * time_ps // (self.lanes * 8_000_000)
        left = carried - self.link_bytes[link]
        return left if self.lanes == 1 or left < 0 else carried


def place(chain: Chain, at_least_ps: int, *, balancing: bool) -> Placement:
    """Find a place for all data with which a sample takes the least time, but at least
    `at_least_ps`.

    Without `balancing`, nothing is stored on other devices. Where something finds no place, nothing
    is balanced either.
    """
    first = _within(chain, at_least_ps, balancing)
    if first is not None:
        return first
    placed, enough_ps = _alone(chain)
    least_ps = at_least_ps
    if not placed.fits:
        # Some board has no off-chip memory: all may fit with balanced parameters, however long that
        # takes.
        enough_ps = _long_ps(chain)
        balanced = _within(chain, enough_ps, balancing)
        if balanced is None:
            return placed
        placed = balanced
    while enough_ps - least_ps > max(1, _EXCESS * least_ps):
        # While the ends differ in magnitude, the geometric mean gets there in fewer tries.
        middle_ps = (
            (least_ps + enough_ps) // 2
            if enough_ps < 4 * least_ps
            else math.isqrt(least_ps * enough_ps)
        )
        better = _within(chain, middle_ps, balancing)
        if better is None:
            least_ps = middle_ps
        else:
            placed, enough_ps = better, middle_ps
    return placed


def _alone(chain: Chain) -> tuple[Placement, int]:
    """Return the placement without balanced parameters, and the time in ps of a sample on the
    slowest memory port.
    """
    off_chip, missing, slowest_ps = [], [], 0
    for needs, room, mbytes_per_s in zip(
        chain.needs, chain.rooms, chain.port_mbytes_per_s, strict=True
    ):
        excess = sum(held.banks for held in needs) - room
        shed_parts, freed, moved = shed(needs, excess if mbytes_per_s else 0)
        off_chip.append(shed_parts)
        missing.append(max(0, excess - freed))
        if moved:
            slowest_ps = max(slowest_ps, -(-moved * 1_000_000 // mbytes_per_s))
    return Placement((), tuple(off_chip), tuple(missing)), slowest_ps


def _long_ps(chain: Chain) -> int:
    """Return a time in ps in which every link can carry all weights beside its streams."""
    weights = sum(
        channel_bytes(held.part) * held.part.channels for needs in chain.needs for held in needs
    )
    messages = sum(map(len, chain.needs))
    return max(
        (
            8_000_000
            * chain.lanes
            * (count + weights + messages * link.most_overhead_bytes(weights))
            // link.bandwidth_mbps
            + 1
            for count, link in zip(chain.link_bytes, chain.links, strict=True)
        ),
        default=1,
    )


@dataclasses.dataclass(frozen=True)
class _Unplaced:
    """Channels `begin` to `end` - 1 of a slice, which have no place yet."""

    held: SliceNeeds
    begin: int
    end: int
    user_device: int

    @property
    def channels(self) -> int:
        return self.end - self.begin

    @property
    def sample_bytes(self) -> int:
        return channel_bytes(self.held.part) * self.channels


def _within(chain: Chain, time_ps: int, balancing: bool) -> Placement | None:
    """Return a placement with which a sample takes at most `time_ps` on each port and link; None if
    there is none.
    """
    blocks: list[BalancedParameters] = []
    off_chip: list[tuple[OffChip, ...]] = []
    unplaced: list[_Unplaced] = []
    # Weights are stored to the left of where they are used: from the last device on, each is
    # offered what has no place behind it.
    #     device     0 <- 1 <- 2 <- 3     what finds no room on 3 is offered to 2, then to 1
    for device in reversed(range(len(chain.needs))):
        needs, room = chain.needs[device], chain.rooms[device]
        own = sum(held.banks for held in needs)
        incoming = sum(item.held.weights.of_channels(item.channels) for item in unplaced)
        # Also for weights that others offer: what leaves the chip here makes room for them.
        shed_parts, freed, _ = shed(needs, own + incoming - room, chain.port_bytes(device, time_ps))
        off_chip.append(shed_parts)
        rest, left = _moved(needs, shed_parts, device, room - own + freed)
        if left < 0:
            return None
        for item in unplaced:
            count = item.held.weights.most_channels(item.channels, left)
            if count:
                left -= item.held.weights.of_channels(count)
                layer, end, size = (
                    item.held.part.layer,
                    item.begin + count,
                    count * item.held.parameter_bytes,
                )
                blocks.append(
                    BalancedParameters(layer, item.begin, end, item.user_device, device, size)
                )
            if count < item.channels:
                rest.append(dataclasses.replace(item, begin=item.begin + count))
        unplaced = rest
        if unplaced:
            # The first device has none to its left.
            if not device or not balancing:
                return None
            passed = (chain.links[device - 1].wire_bytes(item.sample_bytes) for item in unplaced)
            if sum(passed) > chain.spare_bytes(device - 1, time_ps):
                return None
    return Placement(tuple(blocks), tuple(reversed(off_chip)), (0,) * len(chain.needs))


def _moved(
    needs: Sequence[SliceNeeds], off_chip: Sequence[OffChip], device: int, left: int
) -> tuple[list[_Unplaced], int]:
    """Return the weights that leave a device with `left` banks, below 0 if too much is on it, and
    what is left then.

    Slices in the order of the layers keep what they can; those that shed their Act-RAM keep all,
    since weights from another device pass once a sample; so do layers that share weights, and
    frozen ones.
    """
    moved: list[_Unplaced] = []
    for held, off in zip(reversed(needs), reversed(off_chip), strict=True):
        if left >= 0:
            break
        channels = held.channels - off.channels
        if off.activations or not channels or stays(held.part, held.weights.storage):
            continue
        before = held.weights.of_channels(channels)
        kept = held.weights.most_channels(channels, max(0, before + left))
        if kept < channels:
            left += before - held.weights.of_channels(kept)
            # Slices are visited from the last one on; what moves stays in the order of the layers.
            moved.insert(
                0, _Unplaced(held, held.part.begin + kept, held.part.begin + channels, device)
            )
    return moved, left
