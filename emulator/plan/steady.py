"""The steady pipeline, timed before training: which samples use old weights, and how many are in
flight.

A sample whose FP starts on a device before that device has updated for the mini-batch before uses
the old weights (FPDeep, section 4.4). A few mini-batches are run for timing only, without waiting
for weights, until two in a row show the same staleness; that pattern continues, since samples enter
the chain at a fixed interval.

Samples enter at a fixed interval, and clocks only add times and take the latest. So once two
samples in a row leave every resource one interval apart, all later ones do: only those before are
run, two in most chains.

Under other schedules that never drain, how late weights are is read off their actions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...comm import Served, Times
from ..mapping import DataPath, StreamKey, TiedWeights
from ..schedule import EditedKind, EpochShape, Kind, MicroBatch, ScheduleKind, Staleness, dry_run
from ..timing import DeviceClock, Timing, UpdateWaits

_FIRST_SAMPLES = 2


@dataclasses.dataclass(frozen=True)
class Trace:
    """When each sample's FP and EB started and its PG ended on a device, and when updates were
    ready, in ps.
    """

    forward_ps: Times
    backward_ps: Times
    gradient_ps: Times
    updated_ps: Times


def free_run(
    timing: Timing,
    batch: int,
    steps: int,
    exchange_ps: Sequence[int] = (),
    tied: Sequence[TiedWeights] = (),
) -> Iterator[Trace]:
    """Run `steps` mini-batches of `batch` samples; yield the trace of each device.

    `exchange_ps` is the time of each device's exchange with other replicas, if there are any; all
    replicas are ready at the same time, and the exchanges of mini-batches follow one another. Those
    of replicas that share updates out have these in them. Then devices exchange gradients of
    weights that are `tied`.
    """
    chain = _Chain(timing)
    chain.run(batch * steps)
    # PG of the last sample completes the gradients of a mini-batch.
    lasts = np.arange(1, steps + 1) * batch - 1
    recorded, ready = [], []
    for device, clock in enumerate(chain.clocks):
        forward, backward, *sources = (
            chain.times_ps(times, batch * steps) for times in chain.recorded(device)
        )
        recorded.append((forward, backward, np.max(sources[: len(clock.slices)], axis=0)))
        learn = [part.ends_steps for part in clock.slices] + [True] * (
            len(sources) - len(clock.slices)
        )
        own = np.stack(
            [
                # A row for devices that learn nothing; `takes_ps` below begins with 0 for it.
                np.zeros_like(lasts),
                *(source[lasts] for source in itertools.compress(sources, learn)),
            ]
        )
        # Tables do not wait for gradients of what a device only stores, unless replicas add all up.
        of_slices = 1 + sum(learn[: len(clock.slices)])
        if exchange_ps:
            own = np.maximum(own, _exchanged_ps(own.max(axis=0).tolist(), exchange_ps[device]))
            of_slices = len(own)
        takes_ps = [0, *itertools.compress(clock.updates_ps, learn)]
        if timing.cluster.sharing.zero:
            takes_ps = [0] * len(takes_ps)
        ready.append((own, takes_ps, of_slices))
    if tied:
        offered = [own[:of_slices].max(axis=0) for own, _, of_slices in ready]
        _exchange_tied(timing, tied, offered, [own for own, *_ in ready])
    for times, (own, takes_ps, _) in zip(recorded, ready, strict=True):
        yield Trace(*times, (own + np.array(takes_ps)[:, None]).max(axis=0))


def _exchange_tied(
    timing: Timing, tied: Sequence[TiedWeights], offered: Sequence[Times], ready: Sequence[Times]
) -> None:
    """Let devices wait for the gradients of tied weights.

    By device, `offered` has when its part is there (steps), and `ready` when gradients are
    (sources, steps).
    """
    waits = UpdateWaits(
        len(ready), tied, None, [timing.bursts(device) for device in range(len(ready))]
    )
    for step in range(ready[0].shape[1]):
        for device, times in enumerate(offered):
            for waiting, _, came_ps in waits.add(device, int(times[step])):
                ready[waiting][:, step] = np.maximum(ready[waiting][:, step], came_ps)


def fill_ps(timing: Timing) -> int:
    """Return the fill time of a pipeline, as `SteadyPipeline` has it, by running one sample."""
    return max(int(trace.gradient_ps[0]) for trace in free_run(timing, 1, 1))


def _exchanged_ps(ready_ps: Sequence[int], takes_ps: int) -> list[int]:
    """Return when exchanges end that take `takes_ps` each, one after another, given when gradients
    are ready.
    """
    ends = [0]
    for time_ps in ready_ps:
        ends.append(max(time_ps, ends[-1]) + takes_ps)
    return ends[1:]


class _Chain:
    """The clocks of all devices, what has arrived at each, and what is recorded of the samples that
    were run.
    """

    def __init__(self, timing: Timing) -> None:
        self._blocks, self._interval_ps = timing.blocks, timing.interval_ps
        self.clocks: list[DeviceClock] = [
            timing.clock(device) for device in range(len(timing.mapping.devices))
        ]
        self._arrived: list[dict[StreamKey, Times]] = [{} for _ in self.clocks]
        self._recorded: list[list[list[Times]]] = [[] for _ in self.clocks]
        self._repeats = False
        for clock in self.clocks:
            clock.observe(self._observe)

    def run(self, samples: int) -> None:
        """Run samples up to number `samples`, or until all further ones only follow at the
        interval.
        """
        done = 0
        while done < samples and not self._repeats:
            # Twice as many each time, so that long fills take few calls; `_observe` compares the
            # last two samples of a call.
            end = min(max(_FIRST_SAMPLES, 2 * done), samples)
            self._repeats = end - done > 1  # until `_observe` sees a resource that says otherwise
            self._take(MicroBatch(done, done, done, end))
            done = end

    def recorded(self, device: int) -> Iterator[Times]:
        """Yield, of the samples that were run, FP's and EB's starts, each slice's end of PG, and
        the arrival times of gradients of each block that the device stores, in ps."""
        for of_samples in zip(*self._recorded[device], strict=True):
            yield np.concatenate(of_samples)

    def times_ps(self, times: Times, samples: int) -> Times:
        """Return the times of `samples` samples, given those of the ones that were run."""
        later = self._interval_ps * np.arange(1, samples + 1 - len(times))
        return np.concatenate([times, times[-1] + later])

    def _observe(self, served: Served) -> None:
        """Note a resource whose last two samples do not follow at the interval."""
        left = served.left_ps
        if self._repeats and left[-1, -1] - left[-2, -1] != self._interval_ps:
            self._repeats = False

    def _take(self, micro_batch: MicroBatch) -> None:
        """Take samples forward through all devices, then backward, then into gradients."""
        whole, devices = micro_batch.whole, list(enumerate(self.clocks))
        forward, backward = [], []
        # All FP, then all EB, then all PG: each has engines of its own, so the order of calls
        # changes no time.
        for device, clock in devices:
            self._deliver(device, clock.forward(whole, self._arrived[device], 0))
            forward.append(clock.slices[0].fp_start_ps)
        for device, clock in reversed(devices):
            self._deliver(device, clock.backward(whole, self._arrived[device], 0))
            backward.append(clock.slices[-1].eb_start_ps)
        for device, clock in devices:
            self._deliver(device, clock.gradient(whole))
        for device, (clock, *starts) in enumerate(
            zip(self.clocks, forward, reversed(backward), strict=True)
        ):
            ends = [part.pg_end_ps for part in clock.slices]
            self._recorded[device].append([*starts, *ends, *self._stored_ps(device)])

    def _stored_ps(self, device: int) -> Iterator[Times]:
        """Yield when gradients of each block that a device stores arrived, in ps."""
        for number in self.clocks[device].streams.stored:
            yield self._arrived[device][StreamKey(DataPath.PARAMETER_GRADIENTS, number)][:, -1]

    def _deliver(self, device: int, sent: Mapping[StreamKey, Times]) -> None:
        """Deliver what a device sends; balanced parameters and their gradients are relayed to where
        they are needed.
        """
        for key, times in sent.items():
            direction = 1 if key.path.is_forward else -1
            receiver, arrives = device + direction, times
            if key.path in (DataPath.PARAMETERS, DataPath.PARAMETER_GRADIENTS):
                block = self._blocks[key.number]
                end = block.user_device if direction == 1 else block.store_device
                while receiver != end:
                    arrives = self.clocks[receiver].relay(key, arrives)
                    receiver += direction
            self._arrived[receiver][key] = arrives


_MOST_STEPS = 256


@dataclasses.dataclass(frozen=True)
class SteadyPipeline:
    """For each device the staleness of its weights, and the number of samples whose activations its
    Act-RAM holds.

    `fill_ps` is the fill time of the pipeline: from the first sample's entry to the end of its last
    PG.
    """

    staleness: tuple[Staleness, ...]
    in_flight: tuple[int, ...]
    fill_ps: int


def find_steady(
    timing: Timing, batch: int, exchange_ps: Sequence[int] = (), tied: Sequence[TiedWeights] = ()
) -> SteadyPipeline:
    """Run mini-batches of `batch` samples until their staleness repeats, which needs a full
    pipeline.

    `exchange_ps` is the duration of each device's exchange with other replicas, if there are any;
    gradients of weights that are `tied` are exchanged, too. If more than 256
    mini-batches fit into the pipeline, the 256th sets the staleness, and later ones will wait for
    weights.
    """
    steps = 4
    while True:
        shown = [
            _Device.of(trace, steps, batch)
            for trace in free_run(timing, batch, steps, exchange_ps, tied)
        ]
        before = _with_stores(timing, [device.before for device in shown])
        last = _with_stores(timing, [device.last for device in shown])
        fill_ps = max(device.fill_ps for device in shown)
        if before == last or steps == _MOST_STEPS:
            return SteadyPipeline(last, tuple(device.in_flight for device in shown), fill_ps)
        # As many as are in the pipeline at once, and some behind them to compare.
        steps = min(max(2 * steps, fill_ps // (batch * timing.interval_ps) + 4), _MOST_STEPS)


def together(steady: SteadyPipeline, tied: Sequence[TiedWeights]) -> SteadyPipeline:
    """Return a steady pipeline in which devices with parts of tied weights all have the staleness
    of the latest.
    """
    staleness = list(steady.staleness)
    for table in tied:
        holders = [
            device for device in range(table.first, table.last + 1) if table.stops_at(device)
        ]
        latest = functools.reduce(Staleness.at_least, (staleness[device] for device in holders))
        for device in holders:
            staleness[device] = latest
    return dataclasses.replace(steady, staleness=tuple(staleness))


class _Device(NamedTuple):
    """What a free run shows of a device: its staleness in the last two steps, samples in flight,
    and the fill time.
    """

    before: Staleness
    last: Staleness
    in_flight: int
    fill_ps: int

    @classmethod
    def of(cls, trace: Trace, steps: int, batch: int) -> _Device:
        """Return it of a trace of `steps` mini-batches."""
        return cls(
            *_staleness_of(trace, steps, batch), _in_flight(trace), int(trace.gradient_ps[0])
        )


def _with_stores(timing: Timing, staleness: Sequence[Staleness]) -> tuple[Staleness, ...]:
    """Return the staleness of all devices, each at least that of the devices that store its
    parameters.
    """
    with_stores = list(staleness)
    for user, store in timing.stores:
        with_stores[user] = with_stores[user].at_least(with_stores[store])
    return tuple(with_stores)


def _staleness_of(trace: Trace, steps: int, batch: int) -> tuple[Staleness, Staleness]:
    """Return the staleness in the last two of `steps` mini-batches.

    Once the pipeline is steady, a mini-batch starts within the time from one update to the next, so
    that it has weights of two versions at most. Before that, several updates may come meanwhile; of
    these it uses no more than one.
    """
    step = np.array([[steps - 2], [steps - 1]])

    def behind(starts_ps: Times) -> list[list[int]]:
        # `right`: weights that are there in the moment of the start are used.
        versions = np.searchsorted(trace.updated_ps, starts_ps[-2 * batch :], side="right")
        late = step - np.minimum(step, versions.reshape(2, batch))
        # As `Staleness` wants it: no sample has older weights than one before it, and at most
        # two versions are used.
        late = np.maximum.accumulate(late[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(np.maximum(late, late[:, :1] - 1)).tolist()

    before, last = zip(behind(trace.forward_ps), behind(trace.backward_ps), strict=True)
    return Staleness(*map(tuple, before)), Staleness(*map(tuple, last))


def _in_flight(trace: Trace) -> int:
    """Return the largest number of samples between the start of their FP and the end of their
    PG.
    """
    # `right`: a sample that ends in the moment of a start has made room for it.
    finished = np.searchsorted(trace.gradient_ps, trace.forward_ps, side="right")
    return int(np.max(np.arange(1, len(finished) + 1) - finished))


def staleness_of(kind: ScheduleKind, epoch: EpochShape) -> tuple[Staleness, ...]:
    """Return for each device the staleness of a mini-batch in the middle of a long epoch; the most,
    if from a file.

    Args:
        kind: a schedule whose versions do not follow from virtual time.
        epoch: what it is made for; its samples do not matter.
    """
    if isinstance(kind, EditedKind):
        of_samples = ((late,) * epoch.batch for late in kind.order.late)
        return tuple(Staleness(late, late) for late in of_samples)
    # Long enough that the middle one sees neither the filling nor the draining.
    steps = 2 * epoch.devices + 4
    schedule = kind.schedule_of(dataclasses.replace(epoch, samples=steps * epoch.batch))
    if not kind.is_shipped:
        dry_run(schedule, aligned=kind.aligned)  # it may leave out a sample
    middle, of_step = (
        steps // 2,
        {micro_batch.index: micro_batch for micro_batch in schedule.micro_batches},
    )
    of_devices = []
    for program in schedule.programs(range(epoch.devices)).values():
        late: dict[Kind, list[int]] = {Kind.FORWARD: [], Kind.BACKWARD: []}
        for action in program:
            if action.kind in late and not action.chunk and of_step[action.index].step == middle:
                samples = of_step[action.index].span_of(action).samples
                late[action.kind] += [middle - (action.version or 0)] * samples
        of_devices.append(Staleness(tuple(late[Kind.FORWARD]), tuple(late[Kind.BACKWARD])))
    return tuple(of_devices)
