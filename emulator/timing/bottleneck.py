"""The servers of a chain, by name, and which of them holds it back.

Every engine and every direction of a link takes a fixed time for each sample. Samples enter at the rate of the slowest
of them, so throughput is the lower of two roofs: that of the engines and that of the links (FPDeep, section 6.3.3 and
Fig. 15). Replicas have a third, their exchange of gradients, with a mini-batch's time over its samples. Were the
slowest infinitely fast, the one behind it would set the rate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from ..mapping.engines import Engines
from ..mapping.slices import Slice
from ..mapping.traffic import Stream
from ..run.usage import PHASES
from .timing import Timing


@dataclasses.dataclass(frozen=True)
class EngineServer:
    """FP, EB or PG of a slice; `sample_ps` is what a sample takes it."""

    device: int
    part: Slice
    phase: str
    engines: Engines
    sample_ps: int

    @property
    def engine(self) -> str:
        """For people who know which device."""
        return f"{self.phase} of {self.part}"

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.engine} on device {self.device}"


@dataclasses.dataclass(frozen=True)
class LinkServer:
    """One direction of a link, with the data paths that share it."""

    sender: int
    receiver: int
    streams: tuple[Stream, ...]
    sample_ps: int

    @property
    def link(self) -> str:
        """For people, without the paths."""
        return f"link {self.sender} -> {self.receiver}"

    @property
    def name(self) -> str:
        """For people."""
        paths = sorted({stream.path.value for stream in self.streams})
        shown = ", ".join(map(str, paths))
        return f"{self.link} (path{'s' * (len(paths) > 1)} {shown})"

    @property
    def sample_bytes(self) -> int:
        """Bytes of all paths for a sample."""
        return sum(stream.sample_bytes for stream in self.streams)


@dataclasses.dataclass(frozen=True)
class ExchangeServer:
    """A device's exchange of gradients with other replicas."""

    device: int
    sample_ps: int

    @property
    def name(self) -> str:
        """For people."""
        return f"exchange of gradients on device {self.device}"


Server: TypeAlias = EngineServer | LinkServer | ExchangeServer


def engine_servers(timing: Timing) -> tuple[EngineServer, ...]:
    """All engines, in the order of the chain."""
    return tuple(
        EngineServer(device, part, phase, engines, engines.sample_cycles * timing.cluster.board(device).period_ps)
        for device, slices in enumerate(timing.mapping.devices)
        for part, held in zip(slices, timing.engines[device], strict=True)
        for phase, engines in zip(PHASES, (held.fp, held.eb, held.pg), strict=True)
        if engines is not None
    )


def link_servers(timing: Timing) -> tuple[LinkServer, ...]:
    """All directions of all links, in the order of the chain: to the right, then to the left."""
    found = []
    for link, all_streams in enumerate(timing.links):
        for sender, receiver in ((link, link + 1), (link + 1, link)):
            streams = tuple(stream for stream in all_streams if stream.path.is_forward == (receiver > sender))
            sample_ps = max((stream.rows * timing.path(link, stream).row_ps for stream in streams), default=0)
            found.append(LinkServer(sender, receiver, streams, sample_ps))
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class Bottleneck:
    """The slowest server and the one behind it.

    `ties` is how many others are as slow as the slowest; `engines_ps`, `links_ps` and `exchanges_ps` are the slowest of
    each kind, and 0 where there are none.
    """

    slowest: Server
    behind: Server
    ties: int
    engines_ps: int
    links_ps: int
    exchanges_ps: int = 0


def find_bottleneck(timing: Timing, exchanges: Sequence[ExchangeServer] = ()) -> Bottleneck:
    """The slowest servers of a chain, one of replicas that exchange gradients if there are any.

    Of equally slow ones, the first of the chain, engines before links.
    """
    engines, links = engine_servers(timing), link_servers(timing)
    servers: list[Server] = [*engines, *links, *exchanges]
    servers.sort(key=lambda server: -server.sample_ps)
    slowest, behind = servers[:2]  # each slice has FP and PG
    return Bottleneck(
        slowest,
        behind,
        sum(server.sample_ps == slowest.sample_ps for server in servers) - 1,
        max(server.sample_ps for server in engines),
        max((server.sample_ps for server in links), default=0),
        max((server.sample_ps for server in exchanges), default=0),
    )
