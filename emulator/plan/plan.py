"""What plans share, and the plan of a chain: network, cluster, mapping, timing, schedule."""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from ...comm import Interconnect
from ...comm.exchange import DataParallel, exchange_ps
from ..cluster import Cluster
from ..common import Figures, InputError, format_bytes, format_time_ps, html_table, plain, plural
from ..faults import Faults, left_alive
from ..mapping import HandmadeCut, Mapping, channel_bytes
from ..network import Network
from ..schedule import EpochShape, Fold, Schedule
from ..timing import Bottleneck, Load, Timing, exchange_name, find_bottleneck, hop_name
from .chain import warm_ups_of
from .layout import (
    Layout,
    lay_out,
    lay_out_on_chip,
    missing_bytes,
    off_chip_bytes,
    stored_on_board_bytes,
)
from .stages import PlannedStages
from .steady import SteadyPipeline

if TYPE_CHECKING:
    from ..config import Config

_MACS_OF_A_BYTE = 16
"""Multiply-accumulates in the time in which a processor reads a byte of weights twice and adds to
its gradient.
"""


@dataclasses.dataclass(frozen=True)
class Plan(Figures, abc.ABC):
    """What a run will do, on a chain or on a pair; pure data, the same on every rank."""

    config: Config
    network: Network
    cluster: Cluster
    faults: Faults = dataclasses.field(default_factory=Faults, kw_only=True)

    @property
    @abc.abstractmethod
    def devices(self) -> int:
        """Number of emulated devices of a chain or a pair."""

    @property
    def replicas(self) -> int:
        """Number of chains, which train together."""
        return 1

    @property
    def nodes(self) -> int:
        """Number of emulated devices in all replicas."""
        return self.devices * self.replicas

    @property
    def work(self) -> list[int]:
        """What a processor has to do for each device of all replicas, in one unit."""
        return [1] * self.nodes

    @property
    def missing_bytes(self) -> int:
        """Bytes of memory that are missing on all devices and that the times ignore; 0 where all is
        placed.
        """
        return 0

    @property
    def faults_text(self) -> str:
        """The description of the faults; nothing of a pair, which has none."""
        return ""

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """The network and the devices."""

    @property
    @abc.abstractmethod
    def mapping_text(self) -> str:
        """Which device has which slices or layers."""

    @abc.abstractmethod
    def needs_rows(self, what: str) -> None:
        """Check that times are those of rows, on which `what` rests.

        Raises:
            InputError: devices take actions as a whole, or have tasks.
        """


@dataclasses.dataclass(frozen=True)
class Phase:
    """The plan of a run's epochs after the first `epochs`, in other formats on the same boards, in
    the same cut.
    """

    epochs: int
    plan: ChainPlan


@dataclasses.dataclass(frozen=True)
class ChainPlan(Plan):
    """What a run on a chain of FPGAs, or on several, will do.

    No cut and no placement of data takes less than `bound_ps` for a sample; 0 where that is not
    known. Each device of a chain has `chunks` stages, mostly one. All but `faults` is that of
    boards and links without any: cut, schedule and versions of the weights do not change with them.
    Where boards die, `survivors` has the plan after each death; where formats change from epochs
    on, all but `config` is that of the first ones, and `phases` are the others.
    """

    _figures = (
        "title devices replicas nodes batch chunks stage_count times_rows bound_ps stale_samples fits"
        " fits_lut missing_bytes memory_bytes off_chip_bytes"
    )

    mapping: Mapping
    timing: Timing
    steady: SteadyPipeline
    data_parallel: DataParallel = dataclasses.field(default_factory=DataParallel)
    bound_ps: int = 0
    chunks: int = 1
    survivors: tuple[ChainPlan, ...] = ()
    phases: tuple[Phase, ...] = ()

    def with_faults(self, faults: Faults) -> ChainPlan:
        """Return the same plan with other faults, whose deaths are its own or none."""
        dead = faults.in_order
        survivors = tuple(
            dataclasses.replace(plan, faults=faults.among(left_alive(self.devices, dead[:count])))
            for count, plan in enumerate(self.survivors if dead else (), 1)
        )
        phases = tuple(Phase(one.epochs, one.plan.with_faults(faults)) for one in self.phases)
        return dataclasses.replace(self, faults=faults, survivors=survivors, phases=phases)

    def with_epochs(self, epochs: int) -> ChainPlan:
        """Return the same plan for another number of epochs, all in the formats of the first."""
        config = self.config.model_copy(update={"epochs": epochs})
        survivors = tuple(plan.with_epochs(epochs) for plan in self.survivors)
        return dataclasses.replace(self, config=config, survivors=survivors, phases=())

    @property
    def of_phases(self) -> tuple[ChainPlan, ...]:
        """The plans of all phases: itself, then those of the others."""
        return self, *(phase.plan for phase in self.phases)

    @property
    def while_all_live(self) -> ChainPlan:
        """The same plan, on which no board dies."""
        return self.with_faults(dataclasses.replace(self.faults, deaths=()))

    @property
    def interconnect(self) -> Interconnect:
        """What the replicas exchange gradients over."""
        return self.cluster.between_replicas(self.data_parallel.nodes, self.devices)

    @property
    def stages(self) -> PlannedStages | None:
        """The costs of stages, where boards take actions as a whole."""
        stages = self.timing.stages
        assert stages is None or isinstance(stages, PlannedStages)
        return stages

    @property
    def devices(self) -> int:
        """Number of emulated FPGAs in a chain; each replica is one chain."""
        return self.stage_count // self.chunks

    @property
    def stage_count(self) -> int:
        """Number of stages of a chain."""
        return len(self.mapping.devices)

    @functools.cached_property
    def fold(self) -> Fold:
        """How the stages of a chain lie on its devices."""
        return Fold(self.devices, self.chunks, self.config.schedule.in_v)

    @property
    def times_rows(self) -> bool:
        """Whether boards stream rows through engines of their own, as FPDeep's do, so that times
        are those of rows.
        """
        return self.stages is None

    @property
    def replicas(self) -> int:
        """Number of chains, which train together."""
        return self.data_parallel.replicas

    @property
    def work(self) -> list[int]:
        """What a processor has to do for each device of all replicas in a micro-batch, in
        multiply-accumulates.
        """
        samples, work = self.config.micro_batch, [0] * self.devices
        for stage, slices in enumerate(self.mapping.devices):
            macs = sum(part.training_macs for part in slices)
            weights = sum(part.channels * channel_bytes(part) for part in slices)
            work[self.fold.device(stage)] += samples * macs + _MACS_OF_A_BYTE * weights
        return work * self.replicas

    @property
    def faults_text(self) -> str:
        """The description of the faults."""
        return self.faults.text

    @property
    def title(self) -> str:
        """The network and the devices."""
        return f"{self.network.name} on {describe_devices(self)}"

    @property
    def batch(self) -> int:
        """Number of a replica's samples in a mini-batch."""
        return self.config.batch // self.data_parallel.replicas

    @property
    def has_idle_codec(self) -> bool:
        """Whether there is a codec, and nothing that it could compress: no replicas, no balanced
        parameters.
        """
        exchange = self.data_parallel
        return exchange.codec.compresses and exchange.replicas == 1 and not self.timing.blocks

    @property
    def missing_bytes(self) -> int:
        """Bytes of on-chip memory that are missing on all devices and that the times ignore, in the
        phase that needs most; 0 where all is placed.
        """
        own = missing_bytes(self.timing, self.steady.in_flight) if self.stages is None else [0]
        return max(sum(own), *(one.plan.missing_bytes for one in self.phases), 0)

    @property
    def off_chip_bytes(self) -> tuple[int, ...]:
        """Bytes in off-chip memory, by stage, of the first phase."""
        if self.stages is not None:
            return tuple(self.stages.memory_bytes(stage)[1] for stage in range(self.stage_count))
        return tuple(
            off_chip_bytes(self.timing, device, count)
            for device, count in enumerate(self.steady.in_flight)
        )

    @property
    def memory_bytes(self) -> tuple[int, ...]:
        """Bytes of weights, gradients and activations that each device keeps, on chip and off chip,
        in the phase in which it keeps most.
        """
        by_phase = (self._kept_bytes, *(one.plan.memory_bytes for one in self.phases))
        return tuple(map(max, zip(*by_phase, strict=True)))

    @property
    def _kept_bytes(self) -> tuple[int, ...]:
        if self.stages is None:
            return tuple(
                stored_on_board_bytes(self.timing, device, count)
                for device, count in enumerate(self.steady.in_flight)
            )
        kept = [0] * self.devices
        for stage in range(self.stage_count):
            on_chip, off_chip = self.stages.memory_bytes(stage)
            kept[self.fold.device(stage)] += sum(on_chip) + off_chip
        return tuple(kept)

    @functools.cached_property
    def short_of_luts(self) -> tuple[int, ...]:
        """The devices whose engines and buffers need more LUTs than their boards are known to have.

        Of boards that take actions as a whole the engines alone are counted, which have all
        multipliers; so they are of built ones where memory is ignored, and buffers with it.
        """
        boards = [self.cluster.board(stage) for stage in range(self.stage_count)]
        if self.stages is None:
            is_ignored = self.config.memory == "ignored"
            taken = [
                (held.engines if is_ignored and held.board.is_built else held.resources).lut
                for held in self.layout().devices
            ]
        else:
            taken = [board.engine_resources([board.multipliers])[0].lut for board in boards]
        if self.chunks > 1 and self.stages is None:  # stages of a device have engines side by side
            by_device = [0] * self.devices
            for stage in range(self.fold.count):
                by_device[self.fold.device(stage)] += taken[stage]
            taken = [by_device[self.fold.device(stage)] for stage in range(self.stage_count)]
        limits = [board.limits["lut"] for board in boards[: self.devices]]
        return tuple(
            device
            for device, limit in enumerate(limits)
            if limit is not None and taken[device] > limit
        )

    @property
    def fits_lut(self) -> bool | None:
        """Whether all boards have the LUTs that engines and buffers need; None where not all
        boards' are known.
        """
        if self.short_of_luts:
            return False
        known = all(
            self.cluster.board(device).limits["lut"] is not None for device in range(self.devices)
        )
        return True if known else None

    @property
    def mapping_text(self) -> str:
        """Which device has which slices."""
        return str(self.mapping)

    @property
    def cut(self) -> HandmadeCut:
        """The cut, as one that is made by hand spells it: `str` gives the text that `cut` takes."""
        return HandmadeCut.of_mapping(self.mapping)

    @property
    def fits(self) -> bool:
        """Whether all parameters, gradients and activations have a place, so that times ignore no
        memory.
        """
        return not self.missing_bytes

    def schedule(self, samples: int, micro_batch: int | None = None) -> Schedule:
        """Return a replica's schedule for an epoch in which it has `samples` samples."""
        return self.config.schedule.schedule_of(self.epoch(samples, micro_batch))

    def epoch(self, samples: int, micro_batch: int | None = None) -> EpochShape:
        """Return what a replica's schedule is made for, in an epoch in which it has `samples`
        samples.
        """
        ordered = self.config.schedule.file is not None  # its micro-batches are those of the file
        size = self.config.micro_batch if ordered or micro_batch is None else micro_batch
        warm_ups = warm_ups_of(self.config, self.devices, -(-self.batch // size))
        late, stores = self.steady.staleness, self.timing.stores
        return EpochShape(
            self.devices, samples, self.batch, size, late, stores, self.chunks, warm_ups
        )

    def layout(self) -> Layout:
        """Return what each device stores and uses, what links carry, and what limits the rate."""
        return self._layout

    @functools.cached_property
    def _layout(self) -> Layout:
        by = lay_out_on_chip if self.config.memory == "fpdeep" else lay_out
        return by(self.timing, self.steady.in_flight)

    @property
    def stale_samples(self) -> list[int]:
        """By device the samples of a mini-batch that use old weights."""
        if self.config.schedule.drains:
            return [0] * self.devices
        return [late.stale_samples for late in self.steady.staleness]

    def needs_all_alive(self, what: str) -> None:
        """Check that the chain is cut once for the whole run, and in the same formats, on which
        `what` rests.

        Raises:
            InputError: boards die, or formats change.
        """
        if self.phases:
            raise InputError(
                f"`precision` = {str(self.config.precision)!r}: {what} shows the messages of one"
                f" set of formats, and from epoch {self.phases[0].epochs + 1} on they are others; leave"
                " out `epoch`"
            )
        if self.faults.deaths:
            raise InputError(
                f"`faults.deaths`: {what} shows one cut of the chain, and this run has another"
                " after each death; leave them out, as with `--faults none`"
            )

    def needs_rows(self, what: str) -> None:
        """Check that times are those of rows, on which `what` rests.

        Raises:
            InputError: boards take actions as a whole.
        """
        if self.stages is not None:
            machine = self.stages.machine
            raise InputError(
                f"`engines` = {machine.engines.value!r}: {what} shows rows on split engines, and"
                " these boards take actions as a whole; `emuchain simulate`, `train`, `pipeline`"
                " and `explore` time them"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration, what each board has, and figures under the names of the
        attributes, as JSON's values; `emuchain.steady_state(plan).to_dict()` has rates.
        """
        config = {**self.config.model_dump(), "devices": self.devices}
        held = {"mapping": self.mapping_text.splitlines(), "cut": [*map(" ".join, self.cut.boards)]}
        return {"config": plain(config), **held, **super().to_dict()}

    def __repr__(self) -> str:
        if self.stages is not None:
            machine = self.stages.machine
            how = f"engines {machine.engines.value}, transport {machine.transport.value}"
            return f"<Plan {self.title}, {self.config.schedule.name}, {how}>"
        missing = f", {format_bytes(self.missing_bytes)} missing on chip" if not self.fits else ""
        where = self.title
        return f"<Plan {where}, {self._rate}, limited by {self._bottleneck.slowest.name}{missing}>"

    def _repr_html_(self) -> str:
        bottleneck, schedule = self._bottleneck, self.config.schedule
        if self.stages is not None:
            machine = self.stages.machine
            shown = [["schedule", schedule.name], ["engines", machine.engines.value]]
            shown.append(["transport", machine.transport.value])
            return html_table(f"Plan: {self.title}", shown)
        rows = [
            ["rate", self._rate],
            [
                "limited by",
                f"{bottleneck.slowest.name}, {format_time_ps(bottleneck.slowest.sample_ps)}/sample",
            ],
            ["next", f"{bottleneck.behind.name}, {format_time_ps(bottleneck.behind.sample_ps)}"],
            ["memory", self._memory],
            ["pipeline full after", format_time_ps(self.steady.fill_ps)],
            ["schedule", f"{schedule.name}, batch {self.config.batch}"],
        ]
        if not schedule.drains:
            stale = self.stale_samples
            rows.append(
                [
                    "use old weights",
                    f"{min(stale)} to {max(stale)} of {plural(self.batch, 'sample')}",
                ]
            )
        return html_table(f"Plan: {self.title}", rows)

    @property
    def _memory(self) -> str:
        """Whether all data have a place, and how much of them is off chip."""
        if not self.fits:
            return f"{format_bytes(self.missing_bytes)} are missing"
        off_chip = sum(self.off_chip_bytes)
        return f"fits, {format_bytes(off_chip)} off chip" if off_chip else "fits on chip"

    @property
    def _rate(self) -> str:
        """The rate at which samples can enter all replicas, which a pipeline that drains does not
        reach.
        """
        drains = "at most " if self.config.schedule.drains else ""
        rate = self.data_parallel.replicas * 1e12 / self._bottleneck.slowest.sample_ps
        return f"{drains}{rate:.1f} {self.network.sample_noun}s/s"

    @property
    def _bottleneck(self) -> Bottleneck:
        return find_bottleneck(self.timing, exchange_loads(self))


def exchange_times(timing: Timing, data_parallel: DataParallel) -> list[int]:
    """Return the duration of each device's exchange with other replicas for a mini-batch, in ps; []
    without others.

    Where replicas share updates out, these are between its halves; where they share weights out,
    it is of sums alone, and actions gather weights.
    """
    if data_parallel.replicas == 1:
        return []
    devices = len(timing.mapping.devices)
    interconnect = timing.cluster.between_replicas(data_parallel.nodes, devices)
    by_layer, times = data_parallel.shares_weights, [0] * devices
    for stage in timing.exchanging:
        rows = timing.streams(stage).exchanged_rows(by_layer=by_layer)
        times[stage] = sum(exchange_ps(data_parallel, interconnect, count) for count in rows)
        times[stage] += timing.longest_update_ps(stage) if data_parallel.in_halves else 0
    return times


def exchange_loads(plan: ChainPlan) -> tuple[Load, ...]:
    """Return the load of each device's exchange, and of tied weights' on their slowest link: a
    mini-batch's share.
    """
    times = enumerate(exchange_times(plan.timing, plan.data_parallel))
    waits = [(exchange_name(device), device, takes_ps) for device, takes_ps in times]
    for table, hop, table_ps in plan.timing.slowest_bursts():
        waits.append((f"gradients of tied {table.head.name} on {hop_name(hop)}", hop[0], table_ps))
    return tuple(
        Load(kind="exchange", name=name, device=device, sample_ps=-(-takes_ps // plan.batch))
        for name, device, takes_ps in waits
    )


def describe_devices(plan: ChainPlan) -> str:
    """Return one line about a plan's devices and how its replicas exchange gradients."""
    exchange = plan.data_parallel
    devices, codec = f"{plan.devices} x {plan.cluster.boards[0].name}", ""
    if exchange.codec.compresses:
        codec = (
            f", {exchange.codec} has nothing to compress"
            if plan.has_idle_codec
            else f", gradients by {exchange.codec}"
        )
    if exchange.replicas == 1:
        return devices + codec
    groups = f" in {exchange.groups} groups" if exchange.groups > 1 else ""
    replicas = f"{exchange.replicas} replicas{groups} of {devices}"
    zero = f", stage {exchange.zero} of ZeRO" if exchange.zero else ""
    return f"{replicas}, exchange by {exchange.exchange_name}{zero}{codec}"
