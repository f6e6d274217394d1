"""The bottleneck of a chain: the time of a sample on every engine, link, memory port and exchange, by name.

Every engine, every direction of a link and every memory port takes a fixed time for each sample. Samples enter at the
rate of the slowest of them, so throughput is the lowest of some roofs: that of the engines, that of the links (FPDeep,
section 6.3.3 and Fig. 15), and that of off-chip memory. Replicas have another, their exchange of gradients: its time
for a mini-batch over the samples. If the slowest were infinitely fast, the next slowest would set the rate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from ..cluster import Engine, OnBoard
from ..mapping import Slice, Stream
from ..network import Phase
from .device_clock import engine_name, port_name
from .routes import Hop, Routes, hop_name
from .timing import Timing


@dataclasses.dataclass(frozen=True)
class EngineLoad:
    """The load of a sample on FP, EB or PG of a slice."""

    kind: ClassVar[str] = "engine"
    device: int
    part: Slice
    phase: Phase
    engine: Engine

    @property
    def sample_ps(self) -> int:
        """Time of a sample."""
        return self.engine.sample_ps

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a sample."""
        return {Phase.FP: self.part.macs, Phase.EB: self.part.eb_macs, Phase.PG: self.part.pg_macs}[self.phase]

    @property
    def title(self) -> str:
        """Its name without the device."""
        return f"{self.phase.value} of {self.part}"

    @property
    def name(self) -> str:
        """Its name."""
        return engine_name(self.phase, self.part, self.device)


@dataclasses.dataclass(frozen=True)
class LinkLoad:
    """The load of a sample on one direction of a link, with the streams that share it.

    They have a `part` of the link's bandwidth, where it is one of a switch's.
    """

    kind: ClassVar[str] = "link"
    sender: int
    receiver: int
    streams: tuple[Stream, ...]
    sample_ps: int
    part: float = 1.0

    @property
    def link(self) -> str:
        """Its name without the paths."""
        return hop_name((self.sender, self.receiver))

    @property
    def name(self) -> str:
        """Its name."""
        paths = sorted({stream.path.value for stream in self.streams})
        shown = ", ".join(map(str, paths))
        return f"{self.link} (path{'s' * (len(paths) > 1)} {shown})"

    @property
    def sample_bytes(self) -> int:
        """Bytes of all paths for a sample."""
        return sum(stream.sample_bytes for stream in self.streams)


def exchange_name(device: int) -> str:
    """Return the name of a device's exchange with other replicas."""
    return f"exchange of gradients on device {device}"


@dataclasses.dataclass(frozen=True)
class MemoryLoad:
    """The load of a sample on a device's memory port: all that engines read and write off chip."""

    kind: ClassVar[str] = "memory"
    device: int
    sample_bytes: int
    sample_ps: int

    @property
    def name(self) -> str:
        """Its name."""
        return port_name(self.device)


@dataclasses.dataclass(frozen=True)
class ExchangeLoad:
    """The load of a sample on a device's exchange of gradients with other replicas, averaged over a mini-batch."""

    kind: ClassVar[str] = "exchange"
    device: int
    sample_ps: int

    @property
    def name(self) -> str:
        """Its name."""
        return exchange_name(self.device)


@dataclasses.dataclass(frozen=True)
class TiedLoad(ExchangeLoad):
    """The load of a sample on the slowest link, from `device` to `receiver`, of tied weights' gradients."""

    receiver: int
    head: str

    @property
    def name(self) -> str:
        """Its name."""
        return f"gradients of tied {self.head} on {hop_name((self.device, self.receiver))}"


Load: TypeAlias = EngineLoad | LinkLoad | MemoryLoad | ExchangeLoad


def engine_loads(timing: Timing) -> tuple[EngineLoad, ...]:
    """Return the loads of all engines, in the order of the chain."""
    return tuple(
        EngineLoad(device, part, phase, engine)
        for device, slices in enumerate(timing.mapping.devices)
        for part, held in zip(slices, timing.engines[device], strict=True)
        for phase, engine in zip(Phase, (held.fp, held.eb, held.pg), strict=True)
        if engine is not None
    )


def link_loads(timing: Timing) -> tuple[LinkLoad, ...]:
    """Return the loads of all links: between neighbours in the order of the chain, to the right, then to the left."""
    return tuple(_link_load(timing.routes, hop) for hop in timing.routes.carried)


def _link_load(routes: Routes, hop: Hop) -> LinkLoad:
    on_board = isinstance(routes.link_of(hop), OnBoard)
    return LinkLoad(*hop, () if on_board else routes.streams(hop), routes.sample_ps(hop), routes.part(hop))


def memory_loads(timing: Timing) -> tuple[MemoryLoad, ...]:
    """Return the loads of the memory ports of all devices that have data off chip, in the order of the chain."""
    loads = (
        MemoryLoad(device, timing.port_bytes(device), timing.port_sample_ps(device))
        for device in range(len(timing.mapping.devices))
    )
    return tuple(load for load in loads if load.sample_bytes)


def loads_of(timing: Timing, exchanges: Sequence[ExchangeLoad] = ()) -> tuple[Load, ...]:
    """Return all loads: of engines, links and memory ports, in the order of the chain, and the given exchanges."""
    return (*engine_loads(timing), *link_loads(timing), *memory_loads(timing), *exchanges)


@dataclasses.dataclass(frozen=True)
class Bottleneck:
    """The slowest load of a chain and the next slowest.

    `ties` is the number of other loads as slow as the slowest; `engines_ps`, `links_ps`, `exchanges_ps` and
    `memory_ps` are the slowest times of each kind, 0 if there are none.
    """

    slowest: Load
    behind: Load
    ties: int
    engines_ps: int
    links_ps: int
    exchanges_ps: int = 0
    memory_ps: int = 0


def find_bottleneck(timing: Timing, exchanges: Sequence[ExchangeLoad] = ()) -> Bottleneck:
    """Return the slowest load of a chain and the next slowest, with the exchanges of replicas if there are any.

    Equally slow ones are in the order of the chain, engines before links before memory ports.
    """
    loads = sorted(loads_of(timing, exchanges), key=lambda load: -load.sample_ps)
    slowest, behind = loads[:2]  # each slice has FP and PG
    slowest_ps: dict[str, int] = {}
    for load in loads:
        slowest_ps.setdefault(load.kind, load.sample_ps)
    return Bottleneck(
        slowest,
        behind,
        sum(load.sample_ps == slowest.sample_ps for load in loads) - 1,
        *(slowest_ps.get(kind, 0) for kind in ("engine", "link", "exchange", "memory")),
    )
