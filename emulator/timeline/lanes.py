"""Lanes: one for each resource of a chain, in the order in which a timeline shows them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from ...comm import FifoResource
from ..mapping import VALUE_BYTES, DataPath, StreamKey
from ..network import Phase
from ..plan import ChainPlan
from ..timing import DeviceClock, exchange_name


class LaneKind(enum.Enum):
    """What a lane's resource is; the value is the category of its slices in a trace."""

    FP = "FP"
    EB = "EB"
    PG = "PG"
    LINK = "link"
    EXCHANGE = "exchange"
    MEMORY = "memory"


FORWARD_PATHS = DataPath.ACTIVATIONS, DataPath.PARTIAL_ACTIVATIONS, DataPath.STATES
ERROR_PATHS = DataPath.OUTPUT_ERRORS, DataPath.INPUT_ERRORS, DataPath.STATE_ERRORS

_ENGINES = {Phase.FP: LaneKind.FP, Phase.EB: LaneKind.EB, Phase.PG: LaneKind.PG}


@dataclasses.dataclass(frozen=True)
class Lane:
    """The lane of one resource, on the device that it belongs to; a link's stream belongs to the device that sends.

    What it serves is numbered: samples, or mini-batches on the lane of an exchange. `item_bytes` is the size of one of
    these, or of one of its rows on a link; None where nothing travels. What is sent arrives `latency_ps` after it has
    left. With `last_first`, the rows of a sample come from the last on: errors where time runs backwards.
    """

    resource: str
    device: int
    kind: LaneKind
    title: str
    key: StreamKey | None = None
    item_bytes: int | None = None
    latency_ps: int = 0
    last_first: bool = False

    @property
    def receiver(self) -> int:
        """The device that a stream leads to."""
        assert self.key is not None
        return self.device + (1 if self.key.path.is_forward else -1)

    @property
    def counts_samples(self) -> bool:
        """Whether it serves samples, rather than mini-batches."""
        return self.kind is not LaneKind.EXCHANGE


def lanes_of(plan: ChainPlan) -> tuple[Lane, ...]:
    """Return the lanes of a plan's chain, of the first replica if there are several, device by device.

    Engines come first, slice by slice; then what else serves on the board itself, its memory port; the links; and
    the exchange with other replicas.
    """
    return tuple(lane for device in range(plan.devices) for lane in _device_lanes(plan, device))


def _device_lanes(plan: ChainPlan, device: int) -> Iterator[Lane]:
    clock = plan.timing.clock(device)
    engines = {engine.name: phase for part in clock.slices for phase, engine in part.engines()}
    links = {resource.name for resource in clock.links.values()}
    for part in clock.slices:
        for phase, engine in part.engines():
            last_first = plan.network.last_first and phase is not Phase.FP
            yield Lane(engine.name, device, _ENGINES[phase], _title(engine, device), last_first=last_first)
    moved = zip(clock.slices, plan.timing.memory(device), strict=True)
    ports = {part.ports[stream.phase].name: stream for part, streams in moved for stream in streams}
    for resource in clock.resources():
        if resource.name not in engines and resource.name not in links:
            title, stream = _title(resource, device), ports.get(resource.name)
            size = None if stream is None else stream.sample_bytes // stream.rows
            last_first = plan.network.last_first and stream is not None and stream.phase is not Phase.FP
            yield Lane(resource.name, device, LaneKind.MEMORY, title, item_bytes=size, last_first=last_first)
    yield from _link_lanes(plan, clock)
    if plan.data_parallel.replicas > 1:
        gradient_bytes = VALUE_BYTES * clock.streams.gradient_values
        title = "exchange of gradients"
        yield Lane(exchange_name(device), device, LaneKind.EXCHANGE, title, item_bytes=gradient_bytes)


def _link_lanes(plan: ChainPlan, clock: DeviceClock) -> Iterator[Lane]:
    device = clock.streams.device
    for key, resource in clock.links.items():
        link = device if key.path.is_forward else device - 1
        [stream] = (stream for stream in plan.timing.links[link] if stream.key == key)
        title = f"{resource.name} ({key.path.name.lower().replace('_', ' ')})"
        last_first = plan.network.last_first and key.path in ERROR_PATHS
        size = stream.row_bytes
        yield Lane(resource.name, device, LaneKind.LINK, title, key, size, resource.latency_ps, last_first)


def _title(resource: FifoResource, device: int) -> str:
    """Return a resource's name without its device."""
    return resource.name.replace(f" on device {device}", "").replace(f" of device {device}", "")
