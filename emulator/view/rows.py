"""Rows on engines: a lane for each engine, stream, memory port and exchange of a chain, and what each has served."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...comm import Times
from ...kernels.number import FP32
from ..mapping import DataPath, StreamKey
from ..network import Phase
from ..plan import ChainPlan
from ..timing import exchange_name
from .spans import Lane


class Level(enum.Enum):
    """The detail of a trace: a slice for each sample on each resource, or for each of its rows."""

    SAMPLE = "sample"
    ROW = "row"


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
ENGINES = {Phase.FP: LaneKind.FP, Phase.EB: LaneKind.EB, Phase.PG: LaneKind.PG}


@dataclasses.dataclass(frozen=True)
class RowLane(Lane):
    """The lane of one resource, on the device that it belongs to; a link's stream belongs to the stage that sends.

    What it serves is numbered: samples, or mini-batches on the lane of an exchange. `item_bytes` is the size of one of
    these, or of one of its rows on a link; None where nothing travels. What is sent arrives `latency_ps` after it has
    left, on the stage `receiver`. With `last_first`, the rows of a sample come from the last on: errors where time runs
    backwards.
    """

    resource: str
    kind: LaneKind
    stage: int
    key: StreamKey | None = None
    item_bytes: int | None = None
    latency_ps: int = 0
    last_first: bool = False
    receiver: int = -1

    @property
    def counts_samples(self) -> bool:
        """Whether it serves samples, rather than mini-batches."""
        return self.kind is not LaneKind.EXCHANGE


def lanes_of(plan: ChainPlan) -> tuple[RowLane, ...]:
    """Return the lanes of a plan's chain, of the first replica if there are several, device by device.

    Engines come first, slice by slice; then what else serves on the board itself, its memory port; the links; and
    the exchange with other replicas. A device with several stages has those of each in turn.
    """
    stages = (stage for device in range(plan.devices) for stage in plan.fold.stages(device))
    return tuple(lane for stage in stages for lane in _stage_lanes(plan, stage))


def _stage_lanes(plan: ChainPlan, stage: int) -> Iterator[RowLane]:
    clock, last_first = plan.timing.clock(stage), plan.network.last_first
    engines = {engine.name: phase for part in clock.slices for phase, engine in part.engines()}
    links = {resource.name for resource in clock.links.values()}
    device, several = plan.fold.device(stage), plan.chunks > 1

    def title(name: str) -> str:
        """Return a resource's name without its device; links of devices with several stages are named after these."""
        named = name.replace(f" on device {stage}", "").replace(f" of device {stage}", "")
        return named.replace("link ", "stages ") if several else named

    for name, phase in engines.items():
        backwards = last_first and phase is not Phase.FP
        yield RowLane(device, title(name), name, ENGINES[phase], stage, last_first=backwards)
    moved = zip(clock.slices, plan.timing.memory(stage), strict=True)
    ports = {part.ports[stream.phase].name: stream for part, streams in moved for stream in streams}
    for name in (resource.name for resource in clock.resources()):
        if name not in engines and name not in links:
            port = ports.get(name)
            size = None if port is None else port.sample_bytes // port.rows
            backwards = last_first and port is not None and port.phase is not Phase.FP
            yield RowLane(device, title(name), name, LaneKind.MEMORY, stage, None, size, 0, backwards)
    for key, resource in clock.links.items():
        link = stage - (not key.path.is_forward)
        [stream] = (stream for stream in plan.timing.links[link] if stream.key == key)
        path = f"{title(resource.name)} ({key.path.name.lower().replace('_', ' ')})"
        size, backwards = stream.row_bytes, last_first and key.path in ERROR_PATHS
        sent = size, resource.latency_ps, backwards, plan.timing.routes.receiver(link, key)
        yield RowLane(device, path, resource.name, LaneKind.LINK, stage, key, *sent)
    if plan.data_parallel.replicas > 1:
        size = FP32.bytes_of(clock.streams.gradient_values)
        name = exchange_name(stage)
        named = f"{title(name)} of stage {stage}" if several else title(name)
        yield RowLane(device, named, name, LaneKind.EXCHANGE, stage, None, size)


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a sample, or of a mini-batch's exchange, on a lane: when each was ready and when it left, in ps.

    Each row took `row_ps`; between rows the lane may have been idle. `row` is the number of the row where these are
    but one of several. `share` of their full bytes was sent.
    """

    lane: RowLane
    number: int
    ready_ps: Times
    left_ps: Times
    row_ps: int
    share: float = 1.0
    row: int | None = None

    @property
    def start_ps(self) -> int:
        """When the first row started."""
        return int(self.left_ps[0]) - self.row_ps

    @property
    def end_ps(self) -> int:
        """When the last row left."""
        return int(self.left_ps[-1])

    @property
    def arrival_ps(self) -> int:
        """When the first row arrived at the receiver."""
        return int(self.left_ps[0]) + self.lane.latency_ps

    @property
    def busy_ps(self) -> int:
        """Time for which the rows occupied the lane, without what lies between them."""
        return self.row_ps * len(self.left_ps)

    @property
    def bytes(self) -> int | None:
        """Bytes that were sent; those of an exchange are the gradient's before compression."""
        if self.lane.item_bytes is None:
            return None
        return round(self.lane.item_bytes * len(self.left_ps) * self.share)

    @property
    def pieces_ps(self) -> NDArray[np.int64]:
        """Begin and end in ps of the rows that follow one another without a gap."""
        starts = self.left_ps - self.row_ps
        breaks = np.flatnonzero(starts[1:] > self.left_ps[:-1])
        return np.column_stack([starts[np.r_[0, breaks + 1]], self.left_ps[np.r_[breaks, len(starts) - 1]]])

    def at(self, level: Level) -> Iterator[Rows]:
        """Yield the rows of a level: all together, or each of them."""
        if level is Level.SAMPLE or self.lane.kind is LaneKind.EXCHANGE:
            yield self
            return
        rows = len(self.left_ps)
        for place in range(rows):
            one, row = slice(place, place + 1), rows - 1 - place if self.lane.last_first else place
            yield dataclasses.replace(self, ready_ps=self.ready_ps[one], left_ps=self.left_ps[one], row=row)
