"""Training hosted on a GPU, alone or with an FPGA: the devices, the messages between them, and
their times.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...comm import Awaited, Format, Mailbox
from ...kernels import Arena
from ...launch import Ranks
from ..data import Dataset
from ..device import (
    DeviceNumerics,
    Epoch,
    ImageSource,
    MapFormats,
    OffloadedSlice,
    Outlet,
    PairFpga,
    PairPorts,
    Rules,
    SliceNumerics,
    SoftmaxHead,
    Tally,
    TensorScales,
    evaluate_on_gpu,
    merged_scales,
    numerics_of,
    train_on_gpu,
)
from ..mapping import DeviceStreams, Slice
from ..plan import PairPlan
from ..schedule import MicroBatch
from ..timing.pair import Content, PairKey, Resource, pair_bytes, pair_streams
from .chain import Carriers
from .placement import Placement
from .results import EpochRecord, EpochSizes, ResourceUse, StepReports, Usage
from .segments import Leg, Position
from .trainer import Programs, Trainer

_GPU, _FPGA = 0, 1
_SCALES = "scales of device"
"""What the names of the scales that a checkpoint has begin with."""

CarriedBytes = Mapping[PairKey, int]
"""By stream."""


@dataclasses.dataclass
class PairDevices:
    """The devices of a pair on this rank, and what carries their messages."""

    arena: Arena = dataclasses.field(default_factory=Arena)
    formats: MapFormats | None = None
    gpu: DeviceNumerics | None = None
    fpga: PairFpga | None = None
    ports: dict[int, PairPorts] = dataclasses.field(default_factory=dict)
    carriers: Carriers = dataclasses.field(default_factory=Carriers)

    @property
    def numerics(self) -> list[DeviceNumerics]:
        """See `Hosted`: the GPU keeps all parameters."""
        return [] if self.gpu is None else [self.gpu]

    @property
    def starts_here(self) -> bool:
        """Whether the GPU is on this rank: images enter it."""
        return self.gpu is not None

    @property
    def ends_here(self) -> bool:
        """Whether the GPU is on this rank: it computes losses."""
        return self.gpu is not None

    def attach(
        self,
        source: ImageSource | None,
        head: SoftmaxHead | None,
        lengths: NDArray[np.int64] | None = None,
    ) -> None:
        """Attach source and head to the GPU, and the lengths of samples to both devices, where
        these are here.
        """
        if self.gpu is not None:
            self.gpu.source, self.gpu.head, self.gpu.lengths = source, head, lengths
        if self.fpga is not None:
            self.fpga.lengths = lengths

    def evaluate(self, batches: Sequence[MicroBatch]) -> list[Coroutine[Any, Any, None]]:
        """See `Hosted`: the GPU does all of a test."""
        return [] if self.gpu is None else [evaluate_on_gpu(self.gpu, batches)]

    def take_carried(self) -> CarriedBytes:
        """Return the bytes that have left devices of this rank since the last call."""
        return sum(
            (ports.take_sent_bytes() for ports in self.ports.values()),
            collections.Counter[PairKey](),
        )


def build_pair(plan: PairPlan, ranks: Ranks, samples: int) -> PairDevices:
    """Make this rank's devices for epochs of `samples` samples, and connect them."""
    pair, placement = PairDevices(), Placement.of(plan.work, ranks.size)
    precision = plan.config.precision
    if not precision.is_single:
        scales = TensorScales(samples, plan.config.batch)
        pair.formats = MapFormats(precision, plan.config.seed, pair.arena, scales=scales)
    here, slices = placement.hosted(ranks.rank), plan.mapping.devices[0]
    inlets: dict[int, dict[PairKey, Mailbox]] = collections.defaultdict(dict)
    outlets: dict[int, dict[PairKey, Outlet]] = collections.defaultdict(dict)
    streams = pair_streams(plan.network, inputs_too=plan.inputs_too) if plan.devices > 1 else {}
    steps = {layer.index: layer.input[1] for layer in plan.network.layers}
    for tag, (key, stream) in enumerate(streams.items()):
        sender, receiver = (_GPU, _FPGA) if stream.to_fpga else (_FPGA, _GPU)
        columns, most = (
            (1, 1) if stream.holds_weights else (steps[key.layer], plan.config.micro_batch)
        )
        rank = placement.host(sender)
        mailbox = Mailbox(
            Awaited(f"{'the GPU' if sender == _GPU else 'the FPGA'} on rank {rank}", rank)
        )
        form = Format(stream.values, 1, columns, with_data=True)
        ends = rank, placement.host(receiver)
        outlet = pair.carriers.connect(
            ranks.comm, ranks.rank, ends, tag, form, most, mailbox, pair.arena
        )
        inlets[receiver][key] = mailbox
        if outlet is not None:
            outlets[sender][key] = outlet
    sizes = pair_bytes(plan.network, plan.config.precision, inputs_too=plan.inputs_too)
    for device in here:
        pair.ports[device] = PairPorts(inlets[device], outlets[device], sizes)
    if _GPU in here:
        on_gpu = [_on_gpu(plan, part, pair) for part in slices]
        streams_in = DeviceStreams.of(plan.mapping, 0, ())
        pair.gpu = DeviceNumerics(streams_in, on_gpu, (), {}, pair.formats)
    if _FPGA in here:
        recurrent = [part for part in slices if part.layer.operation.recurs]
        own = recurrent, pair.ports[_FPGA], pair.arena, pair.formats
        pair.fpga = PairFpga(*own, inputs_too=plan.inputs_too)
    return pair


def _on_gpu(plan: PairPlan, part: Slice, pair: PairDevices) -> SliceNumerics:
    seed, formats = plan.config.seed, pair.formats
    if plan.devices > 1 and part.layer.operation.recurs:
        layer = part.layer
        both = (
            (None, None)
            if formats is None
            else (formats.of(layer.formats), formats.of(layer.reads.formats))
        )
        ends = pair.arena, pair.ports[_GPU]
        return OffloadedSlice(part, seed, *ends, *both, inputs_too=plan.inputs_too)
    return numerics_of(part, plan.network.start, seed, pair.arena, formats)


class PairTrainer(Trainer):
    """This rank's part of a pair; mini-batches follow one another, so their times add up."""

    plan: PairPlan

    def __init__(self, plan: PairPlan, data: Dataset, ranks: Ranks) -> None:
        self.devices = build_pair(plan, ranks, data.n_train)
        super().__init__(plan, data, ranks, self.devices.carriers, [self.devices])
        self._step_ps = {size: plan.times_of(size).mini_batch_ps for size in set(self._step_sizes)}
        self._carried: collections.Counter[PairKey] = collections.Counter()
        self._began, self._offset_ps = (Position(), 0), 0

    def _programs(
        self, number: int, leg: Leg, order: NDArray[np.int64], rules: Rules, reports: StepReports
    ) -> Programs:
        places = leg.samples_of(self.plan.config.batch, self._samples)
        sizes, schedule = self._step_sizes[leg.first : leg.last], self.plan.schedule(len(places))
        report, now_ps = reports.of(0), self.now_ps(Position(number, leg.first))

        def on_update(step: int, tally: Tally) -> None:
            nonlocal now_ps
            now_ps += self._step_ps[sizes[step]]
            report(step, tally, now_ps)

        self._ends[0].attach_training(self.devices, order, number, places)
        numbers = np.array(places) + number * self._samples
        epoch = Epoch(
            schedule.micro_batches, schedule.step_samples, sizes, rules.of_leg(leg.first), numbers
        )
        programs: Programs = []
        if self.devices.gpu is not None:
            programs.append(
                train_on_gpu(self.devices.gpu, schedule.programs([0])[0], epoch, on_update)
            )
        if self.devices.fpga is not None:
            programs.append(
                self.devices.fpga.train(
                    schedule.programs([0])[0], schedule.micro_batches, epoch.sample_numbers
                )
            )
        return programs

    def _take_sent(self) -> CarriedBytes:
        return self.devices.take_carried()

    def _sizes_of(self, sent: CarriedBytes) -> EpochSizes:
        self._carried.update(sent)
        return {}

    def _totals(self) -> collections.Counter[str]:
        formats = self.devices.formats
        return collections.Counter({} if formats is None else formats.tally.take())

    def _completed(
        self, result: EpochRecord, totals: list[collections.Counter[str]]
    ) -> EpochRecord:
        rounded = collections.Counter[str]()
        for counts in totals:
            rounded.update(counts)
        end_ps = self.now_ps(Position(result.epoch + 1))
        return dataclasses.replace(
            result,
            virtual_time_ps=end_ps,
            rounded=dict(rounded),
            usage=Usage(end_ps, (), ()),
            resources=self._resources(result.epoch + 1),
        )

    def usage(self) -> Usage:
        """See `Trainer`; a pair has resources in place of it."""
        return Usage(0, (), ())

    def now_ps(self, position: Position) -> int:
        """See `Trainer`."""
        of_epoch_ps = sum(self._step_ps[size] for size in self._step_sizes[: position.step])
        return self._offset_ps + position.epoch * self.plan.epoch_ps(self._samples) + of_epoch_ps

    @property
    def began(self) -> tuple[Position, int]:
        """See `Trainer`."""
        return self._began

    def begin_at(self, position: Position, now_ps: int, *, ended: bool = False) -> PairTrainer:
        """See `Trainer`."""
        self._began = position, now_ps
        self._offset_ps += now_ps - self.now_ps(position)
        return self

    def clocks(self) -> dict[str, Any]:
        """See `Trainer`; times follow from the number of mini-batches, so there are only bytes, and
        the scales that devices of each rank keep.
        """
        clocks: dict[str, Any] = {}
        formats = self.devices.formats
        if formats is not None and self.devices.ports and formats.scales_of(None) is not None:
            scales = formats.scales.state()
            clocks[f"{_SCALES} {min(self.devices.ports)}"] = {"exponents": len(scales), **scales}
        if self.ranks.rank > 0:
            return clocks
        carried = [
            (key.layer, key.direction, key.content.value, n) for key, n in self._carried.items()
        ]
        return {"carried": carried, **clocks}

    def evaluate(self) -> Tally:
        """See `Trainer`; the GPU, which does all of it, takes the scales that the FPGA keeps."""
        formats = self.devices.formats
        if formats is not None and formats.scales_of(None) is not None:
            for_all = merged_scales(self.ranks.share(formats.scales.state()))
            formats.scales.restore(for_all)
        return super().evaluate()

    def take_loss_scale(self, state: Mapping[str, Any]) -> None:
        """See `Trainer`; a pair's loss scale stays, and its devices take the scales of maps and
        weights.
        """
        if self.devices.formats is not None:
            kept = (own for name, own in state.items() if name.startswith(_SCALES))
            self.devices.formats.scales.restore(merged_scales(kept))

    def restore_clocks(self, state: Mapping[str, Any]) -> None:
        """See `Trainer`."""
        self.take_loss_scale(state)
        carried = {
            PairKey(layer, place, Content(what)): size
            for layer, place, what, size in state["carried"]
        }
        self._carried = collections.Counter(carried)

    def _resources(self, epochs: int) -> tuple[ResourceUse, ...]:
        """Return the use of all resources after some epochs."""
        plan, sizes = self.plan, self._step_sizes
        busy: collections.Counter[Resource] = collections.Counter()
        for size, count in collections.Counter(sizes).items():
            for resource, use in plan.times_of(size).busy.items():
                busy[resource] += epochs * count * use.busy_ps
        moved: collections.Counter[Resource] = collections.Counter()
        streams = pair_streams(plan.network, inputs_too=plan.inputs_too)
        for key, size in self._carried.items():
            moved[Resource.TO_FPGA if streams[key].to_fpga else Resource.TO_GPU] += size
        longest = plan.times_of(sizes[0]).busy
        return tuple(
            ResourceUse(resource.value, busy_ps, moved[resource], longest[resource].longest.name)
            for resource, busy_ps in busy.items()
        )
