"""The two devices of a pair, or a GPU alone, on this rank, and the messages between them."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
from numpy.typing import NDArray

from ....comm import Awaited, Format, Mailbox, Pump, Receiver, Sender, drain
from ....kernels import Arena
from ....launch import Ranks
from ...device import (
    DeviceNumerics,
    ImageSource,
    OffloadedSlice,
    Outlet,
    PairFpga,
    PairPorts,
    SliceNumerics,
    SoftmaxHead,
    numerics_of,
)
from ...mapping import DeviceStreams, Slice
from ...pair import PairKey, pair_streams
from ...plan import PairPlan
from ..placement import Placement

_GPU, _FPGA = 0, 1

Carried = dict[PairKey, int]
"""Bytes by stream."""


@dataclasses.dataclass
class PairDevices:
    """The devices of a pair on this rank, and the pumps and receivers of their messages."""

    arena: Arena = dataclasses.field(default_factory=Arena)
    gpu: DeviceNumerics | None = None
    fpga: PairFpga | None = None
    ports: list[PairPorts] = dataclasses.field(default_factory=list)
    pumps: list[Pump] = dataclasses.field(default_factory=list)
    receivers: list[Receiver] = dataclasses.field(default_factory=list)

    @property
    def starts_here(self) -> bool:
        """Whether the GPU is on this rank: images enter it."""
        return self.gpu is not None

    @property
    def ends_here(self) -> bool:
        """Whether the GPU is on this rank: it computes losses."""
        return self.gpu is not None

    def attach(
        self, source: ImageSource | None, head: SoftmaxHead | None, lengths: NDArray[np.int64] | None = None
    ) -> None:
        """Attach source and head to the GPU, and the lengths of samples to both devices, where these are here."""
        if self.gpu is not None:
            self.gpu.source, self.gpu.head, self.gpu.lengths = source, head, lengths
        if self.fpga is not None:
            self.fpga.lengths = lengths

    def drain(self) -> bool:
        """Take what has arrived, for a run that has failed; return whether all that was sent from here has left."""
        return drain(self.pumps)

    def close(self) -> None:
        """Cancel the receives that are still posted."""
        for receiver in self.receivers:
            receiver.close()

    def take_carried(self) -> Carried:
        """Return the bytes that have left devices of this rank since the last call."""
        return dict(sum((ports.take_sent_bytes() for ports in self.ports), collections.Counter[PairKey]()))


def build_pair(plan: PairPlan, ranks: Ranks, most_samples: int) -> PairDevices:
    """Make this rank's devices and connect them."""
    found, placement = PairDevices(), Placement.of([1] * plan.devices, ranks.size)
    here = placement.hosted(ranks.rank)
    slices = plan.mapping.devices[0]
    ports = _connected(plan, placement, ranks, most_samples, found)
    if _GPU in here:
        streams = DeviceStreams.of(plan.mapping, 0, ())
        found.gpu = DeviceNumerics(streams, [_on_gpu(plan, part, ports, found.arena) for part in slices], (), {})
    if _FPGA in here:
        recurrent = [part for part in slices if part.layer.operation.recurs]
        found.fpga = PairFpga(recurrent, ports[_FPGA], found.arena, inputs_too=plan.inputs_too)
    return found


def _on_gpu(plan: PairPlan, part: Slice, ports: dict[int, PairPorts], arena: Arena) -> SliceNumerics:
    seed = plan.config.seed
    if plan.devices > 1 and part.layer.operation.recurs:
        return OffloadedSlice(part, seed, arena, ports[_GPU], inputs_too=plan.inputs_too)
    return numerics_of(part, plan.network.start, seed, arena)


def _connected(
    plan: PairPlan, placement: Placement, ranks: Ranks, most_samples: int, found: PairDevices
) -> dict[int, PairPorts]:
    """Return the ports of this rank's devices; pumps and receivers are added to `found`."""
    inlets: dict[int, dict[PairKey, Mailbox]] = collections.defaultdict(dict)
    outlets: dict[int, dict[PairKey, Outlet]] = collections.defaultdict(dict)
    streams = pair_streams(plan.network, inputs_too=plan.inputs_too) if plan.devices > 1 else {}
    steps = {layer.index: layer.input[1] for layer in plan.network.layers}
    for tag, (key, stream) in enumerate(streams.items()):
        sender, receiver = (_GPU, _FPGA) if stream.to_fpga else (_FPGA, _GPU)
        columns, most = (1, 1) if stream.holds_weights else (steps[key.layer], most_samples)
        from_rank, to_rank = placement.host(sender), placement.host(receiver)
        awaited = Awaited(f"{'the GPU' if sender == _GPU else 'the FPGA'} on rank {from_rank}", from_rank)
        form, mailbox = Format(stream.values, 1, columns, with_data=True), Mailbox(awaited)
        if ranks.rank == to_rank:
            inlets[receiver][key] = mailbox
        if ranks.rank == from_rank == to_rank:
            outlets[sender][key] = mailbox
        elif ranks.rank == to_rank:
            inlet = Receiver(ranks.comm, from_rank, tag, form, most, mailbox, found.arena)
            found.receivers.append(inlet)
            found.pumps.append(inlet)
        elif ranks.rank == from_rank:
            outlet = Sender(ranks.comm, to_rank, tag, form, found.arena)
            found.pumps.append(outlet)
            outlets[sender][key] = outlet
    ports = {device: PairPorts(inlets[device], outlets[device]) for device in placement.hosted(ranks.rank)}
    found.ports += ports.values()
    return ports
