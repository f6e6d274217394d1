"""Lanes: one for each resource of a chain, in the order in which a timeline shows them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from ...comm import FifoResource
from ..mapping import VALUE_BYTES, StreamKey
from ..network import Phase
from ..plan import Plan
from ..timing import DeviceClock, exchange_name


class LaneKind(enum.Enum):
    """What a lane's resource is; the value is the category of its slices in a trace."""

    FP = "FP"
    EB = "EB"
    PG = "PG"
    LINK = "link"
    EXCHANGE = "exchange"
    MEMORY = "memory"


_ENGINES = {Phase.FP: LaneKind.FP, Phase.EB: LaneKind.EB, Phase.PG: LaneKind.PG}


@dataclasses.dataclass(frozen=True)
class Lane:
    """The lane of one resource, on the device that it belongs to; a link's stream belongs to the device that sends.

    What it serves is numbered: samples, or mini-batches on the lane of an exchange. `item_bytes` is the size of one of
    these, or of one of its rows on a link; None where nothing travels. What is sent arrives `latency_ps` after it has
    left.
    """

    resource: str
    device: int
    kind: LaneKind
    title: str
    key: StreamKey | None = None
    item_bytes: int | None = None
    latency_ps: int = 0

    @property
    def receiver(self) -> int:
        """The device that a stream leads to."""
        assert self.key is not None
        return self.device + (1 if self.key.path.is_forward else -1)

    @property
    def counts_samples(self) -> bool:
        """Whether it serves samples, rather than mini-batches."""
        return self.kind is not LaneKind.EXCHANGE


def lanes_of(plan: Plan) -> tuple[Lane, ...]:
    """Return the lanes of a plan's chain, of the first replica if there are several, device by device.

    Engines come first, slice by slice; then what else serves on the board itself, its memory port; the links; and
    the exchange with other replicas.
    """
    return tuple(lane for device in range(plan.devices) for lane in _device_lanes(plan, device))


def _device_lanes(plan: Plan, device: int) -> Iterator[Lane]:
    clock = plan.timing.clock(device)
    engines = {engine.name: phase for part in clock.slices for phase, engine in part.engines()}
    links = {resource.name for resource in clock.links.values()}
    for part in clock.slices:
        for phase, engine in part.engines():
            yield Lane(engine.name, device, _ENGINES[phase], _title(engine, device))
    moved = zip(clock.slices, plan.timing.memory(device), strict=True)
    row_bytes = {part.ports[s.phase].name: s.sample_bytes // s.rows for part, streams in moved for s in streams}
    for resource in clock.resources():
        if resource.name not in engines and resource.name not in links:
            title, size = _title(resource, device), row_bytes.get(resource.name)
            yield Lane(resource.name, device, LaneKind.MEMORY, title, item_bytes=size)
    yield from _link_lanes(plan, clock)
    if plan.data_parallel.replicas > 1:
        gradient_bytes = VALUE_BYTES * clock.streams.gradient_values
        title = "exchange of gradients"
        yield Lane(exchange_name(device), device, LaneKind.EXCHANGE, title, item_bytes=gradient_bytes)


def _link_lanes(plan: Plan, clock: DeviceClock) -> Iterator[Lane]:
    device = clock.streams.device
    for key, resource in clock.links.items():
        link = device if key.path.is_forward else device - 1
        [stream] = (stream for stream in plan.timing.links[link] if stream.key == key)
        title = f"{resource.name} ({key.path.name.lower().replace('_', ' ')})"
        yield Lane(resource.name, device, LaneKind.LINK, title, key, stream.row_bytes, resource.latency_ps)


def _title(resource: FifoResource, device: int) -> str:
    """Return a resource's name without its device."""
    return resource.name.replace(f" on device {device}", "").replace(f" of device {device}", "")
