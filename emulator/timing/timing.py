"""All constants of a chain's virtual time: the time of a row on each engine and each stream.

Data paths share a link's direction in proportion to the bytes that they carry for each sample. Samples enter the chain
at the rate of its slowest resource, so no queue grows. These are pure functions of network, mapping and cluster.
"""

from __future__ import annotations

import dataclasses

from ...comm import FifoResource
from ..cluster import Cluster, Link
from ..mapping import (
    BalancedParameters,
    DeviceStreams,
    Mapping,
    SliceEngines,
    Stream,
    StreamKey,
    allocate,
    balanced_streams,
    streams,
)
from .device_clock import DeviceClock
from .slice_clock import SliceClock


def path_row_ps(link: Link, stream: Stream, others: tuple[Stream, ...]) -> int:
    """Return the time in ps of a row on its stream, whose share of the link is its share of the direction's bytes."""
    direction = sum(other.sample_bytes for other in others if other.path.is_forward == stream.path.is_forward)
    bits = 8 * direction * stream.row_bytes
    return -(-bits * 1_000_000 // (link.bandwidth_mbps * stream.sample_bytes))


@dataclasses.dataclass(frozen=True)
class Timing:
    """All constants of a chain's virtual time.

    `engines` by device and slice; `links` by link, with their streams in both directions; `blocks` of balanced
    parameters. A sample enters every `interval_ps`: the time of the slowest resource for a sample.
    """

    cluster: Cluster
    mapping: Mapping
    engines: tuple[tuple[SliceEngines, ...], ...]
    links: tuple[tuple[Stream, ...], ...]
    interval_ps: int
    blocks: tuple[BalancedParameters, ...] = ()

    @classmethod
    def of(cls, mapping: Mapping, cluster: Cluster, blocks: tuple[BalancedParameters, ...] = ()) -> Timing:
        """Allocate engines, lay out links, and find the slowest resource.

        Raises:
            InputError: a board has too few multipliers.
        """
        devices = range(len(mapping.devices))
        engines = tuple(allocate(mapping, device, cluster.board(device)) for device in devices)
        links = tuple((*streams(mapping, link), *balanced_streams(blocks, link)) for link in devices[:-1])
        interval_ps = 1
        for held in engines:
            for of_slice in held:
                interval_ps = max(interval_ps, *(engine.sample_ps for engine in of_slice.built))
        for link_streams in links:
            for stream in link_streams:
                interval_ps = max(interval_ps, stream.rows * path_row_ps(cluster.link, stream, link_streams))
        return cls(cluster, mapping, engines, links, interval_ps, blocks)

    @property
    def stores(self) -> tuple[tuple[int, int], ...]:
        """Pairs of devices (user, store), of which the first uses parameters that the second stores, each once."""
        return tuple(sorted({(block.user_device, block.store_device) for block in self.blocks}))

    def path(self, link: int, stream: Stream) -> FifoResource:
        """Return a stream's share of its link, as a resource."""
        sender, receiver = (link, link + 1) if stream.path.is_forward else (link + 1, link)
        row_ps = path_row_ps(self.cluster.link, stream, self.links[link])
        return FifoResource(f"link {sender} -> {receiver}, {stream.key}", row_ps, self.cluster.link.latency_ps)

    def streams(self, device: int) -> DeviceStreams:
        """Return the streams that a device takes in."""
        return DeviceStreams.of(self.mapping, device, self.blocks)

    def clock(self, device: int) -> DeviceClock:
        """Return the clock of a device at time zero."""
        board = self.cluster.board(device)
        held = zip(self.mapping.devices[device], self.engines[device], strict=True)
        sends: dict[StreamKey, FifoResource] = {}
        for link, forward in ((device, True), (device - 1, False)):
            if 0 <= link < len(self.links):
                for stream in self.links[link]:
                    if stream.path.is_forward == forward:
                        sends[stream.key] = self.path(link, stream)
        stored = (block.part for block in self.blocks if block.store_device == device)
        return DeviceClock(
            self.streams(device),
            [SliceClock(device, part, engines, board) for part, engines in held],
            sends,
            self.interval_ps,
            [board.update_ps(len(part.out_channels)) for part in stored],
        )
