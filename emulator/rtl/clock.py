"""The time model with the pipeline of the RTL: when each row is done, to the cycle.

It differs from `timing/device_clock.py` in what a board has and the model leaves out:

- A row arrives with a clock edge, and each port takes one row a cycle.
- Engines have a pipeline: a row that occupies FP from cycle a to b is done some constant cycles
  after b.
- The SFU, joins of two streams and maps that are made at once take cycles.
- FP under ICP starts a row when the partial sums from the slice before are there, and EB under OCP
  likewise: each sum takes its products one by one, starting from those (docs/numerics.md). The
  model adds them to a row that is done.
- Where maps are rounded in blocks, rows take cycles, and so do weights after their update. By
  chance, rows wait until their random words are drawn.
- An update starts when EB, too, has done the mini-batch, since EB reads the same weights. The host
  sends the images of the next mini-batch from the cycle after the first device's update, so Act-RAM
  needs no room for them before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...comm import FifoResource, Times
from ..mapping import Cut, StreamKey
from ..network.operations.pool import MaxPool
from ..plan import ChainPlan
from ..schedule import MicroBatch, SampleSpan
from ..timing import DeviceClock, SliceClock
from .design import DeviceDesign, EngineDesign, Room, SliceDesign
from .formats import RowDraws, row_latency

ACCEPT = 1
"""Cycles from a row's arrival to its place in Act-RAM, or in another memory of rows."""

UPDATE_TAIL = 2
"""Cycles of an update beside those of its groups and of five multiply-adds."""


class RtlSliceClock(SliceClock):
    """The clock of a slice's modules and of its SFU."""

    def __init__(self, device: DeviceDesign, design: SliceDesign) -> None:
        self._design, self._period_ps = design, device.period_ps
        name = f"{design.part} on device {device.number}"
        self.ports = {}
        self.fp = self._engine(f"FP of {name}", design.fp)
        self.eb = None if design.eb is None else self._engine(f"EB of {name}", design.eb)
        self.pg = self._engine(f"PG of {name}", design.pg)
        self.fp_start_ps = self.eb_start_ps = self.pg_end_ps = np.zeros(0, np.int64)
        self.outputs = design.layer.makes.number
        self._rows = design.layer.rows
        self._joins = self._resource(f"path 2 of {name}", 1), self._resource(f"path 4 of {name}", 1)
        self._unflatten = self._resource(f"map of {name}", 1)
        precision, is_end = device.precision, device.is_end and design is device.slices[-1]
        self._round_ps = 0 if is_end else row_latency(precision.activations) * device.period_ps
        rounds_dx = design.summed(precision.errors) < design.arriving
        self._round_dx_ps = row_latency(precision.errors) * device.period_ps if rounds_dx else 0
        self._round_dy_ps = row_latency(precision.errors) * device.period_ps if is_end else 0
        self._draws = (
            None if is_end else self._words("activations", design.activation_draws(precision))
        )
        self._dx_draws = self._dy_draws = None
        if rounds_dx:
            self._dx_draws = self._words("errors of inputs", design.input_error_draws(precision))
        if is_end:
            self._dy_draws = self._words("errors", design.output_error_draws(precision))
        self._loss_ps = device.period_ps if is_end else 0
        bias = design.bias
        self._add = (
            None
            if bias is None
            else self._resource(f"bias of {name}", bias.add_cycles, design.latency)
        )
        self._sum = None if bias is None else self._engine(f"bias gradient of {name}", bias.sums)
        self._spreads = [self._resource(f"{step.makes.name} of {name}", 1) for step in design.steps]
        self._eb_end_ps = self._bias_end_ps = 0
        self._x_ps = self._dy_ps = self._eb_ends_ps = self._pg_ends_ps = np.zeros(
            0, np.int64
        )  # of all samples so far
        self._waiting = 1
        self.update_ps = 0

    @property
    def room(self) -> Room:
        """How much its memories hold in the mini-batches that were run."""
        held = _most_waiting(self._x_ps, self._pg_ends_ps + self._period_ps)
        freed = np.maximum(self._pg_ends_ps, self._eb_ends_ps) if self.eb else self._pg_ends_ps
        errors = _most_waiting(self._dy_ps, freed + self._period_ps)
        # One size serves the memories of activations and of errors alike.
        return Room(max(held, errors), self._waiting)

    def _waits(self, came: Times, taken: Times) -> None:
        """Note rows that wait in a FIFO, from when they came until they are taken."""
        self._waiting = max(self._waiting, _most_waiting(came.ravel(), taken.ravel()))

    def _resource(self, name: str, cycles: int, latency: int = 0) -> FifoResource:
        return FifoResource(name, cycles * self._period_ps, latency * self._period_ps)

    def _engine(self, name: str, engine: EngineDesign) -> FifoResource:
        return self._resource(name, engine.row_cycles, engine.tail)

    def _words(self, what: str, draws: RowDraws | None) -> FifoResource | None:
        """Return the generators of a map's random words; a row takes its own, and leaves at once."""
        if draws is None:
            return None
        words = self._resource(f"words of {what} of {self._design.part}", draws.cycles)
        words.free_ps = draws.first_cycle * self._period_ps
        return words

    def _drawn(self, words: FifoResource | None, at: Times) -> Times:
        """Return when rows have their random words, if they need any."""
        if words is None:
            return at
        taken = words.serve(self._accepted(at)) - words.row_ps
        self._waits(at, taken)
        return taken

    def _accepted(self, times: Times) -> Times:
        return times + ACCEPT * self._period_ps

    def forward(self, x: Times, partial: Times | None, not_before_ps: Times | int) -> Times:
        """Return when rows of outputs are on their bus, given when input rows `x`, `partial` rows
        and weights are.
        """
        ready = np.maximum(self._accepted(x)[:, self._rows.fp], not_before_ps + self._period_ps)
        icp = self._design.part.cut is Cut.ICP
        if icp and partial is not None:
            ready = np.maximum(ready, self._accepted(partial))
        done = self.fp.serve(ready)
        started = done - self.fp.row_ps - self.fp.latency_ps
        self.fp_start_ps, self._x_ps = started[:, 0], np.append(self._x_ps, x[:, 0])
        if partial is None:
            return done
        if icp:
            self._waits(partial, started)
            return done
        return self._joined(self._joins[0], done, partial)

    def _joined(self, join: FifoResource, own: Times, other: Times) -> Times:
        joined = join.serve(np.maximum(own, other))
        self._waits(own, joined)
        self._waits(other, joined)
        return joined

    def output_errors(self, errors: Times) -> Times:
        """Return when rows of output errors are there: no pooling comes before a link."""
        return errors

    def activate(self, times: dict[int, Times]) -> None:
        """Add the times of the SFU's results."""
        at = times[self.outputs]
        if self._add is not None:
            came, at = at, self._add.serve(self._accepted(at))
            self._waits(came, at - self._add.latency_ps - self._period_ps)
            times[self.outputs] = at
        for step in self._design.steps:
            if isinstance(step.operation, MaxPool):
                assert step.rows is not None
                at = at[:, step.rows.forward] + self._period_ps
            times[step.makes.number] = at
        if self._round_ps or self._draws is not None:
            rounded = self._drawn(self._draws, at) + self._round_ps
            times[self._design.layer.hands_on[0].number] = rounded

    def deactivate(self, times: dict[int, Times]) -> None:
        """Replace the error times of the SFU's results by those of its inputs."""
        steps = self._design.steps
        at = times.pop(steps[-1].makes.number if steps else self.outputs) + self._loss_ps
        for step, spread in zip(reversed(steps), reversed(self._spreads), strict=True):
            if isinstance(step.operation, MaxPool):
                assert step.rows is not None
                came, at = at, spread.serve(self._accepted(at)[:, step.rows.backward])
                last = (
                    np.searchsorted(step.rows.backward, np.arange(came.shape[1]), side="right") - 1
                )
                self._waits(came, at[:, last] - self._period_ps)
        times[self.outputs] = self._drawn(self._dy_draws, at) + self._round_dy_ps

    def error(self, dy: Times, partial: Times | None, not_before_ps: int) -> Times:
        """Return when rows of input errors are on their bus, given when `dy` and `partial` are."""
        self._dy_ps = np.append(self._dy_ps, dy[:, 0])
        ready = self._accepted(dy)[:, self._rows.eb]
        if self.eb is None:
            self.eb_start_ps = ready[:, 0]
            return ready
        icp, flat = self._design.is_icp, self._design.is_flat
        if not icp and partial is not None:
            ready = np.maximum(ready, self._accepted(partial[:, -1:] if flat else partial))
        done = self.eb.serve(ready)
        started = done - self.eb.row_ps - self.eb.latency_ps
        self.eb_start_ps, self._eb_ends_ps = started[:, 0], np.append(self._eb_ends_ps, done[:, -1])
        self._eb_end_ps = int(done[-1, -1])
        rows = done
        if flat:
            rows = self._unflatten.serve(done[:, self._rows.eb_leaves])
            self._waits(done, rows[:, -1:])
        if partial is not None and icp:
            rows = self._joined(self._joins[1], rows, partial)
        elif partial is not None:
            self._waits(partial[:, -1:] if flat else partial, started)
        return self._drawn(self._dx_draws, rows) + self._round_dx_ps

    def kept_errors(self, dy: Times) -> Times:
        """Return when rows of errors are there for PG."""
        return dy

    def gradient(self, dy: Times) -> None:
        """Serve each row of errors on PG, and on the sums of the bias's gradient."""
        assert self.pg is not None
        self.pg_end_ps = self.pg.serve(self._accepted(dy))[:, -1]
        self._pg_ends_ps = np.append(self._pg_ends_ps, self.pg_end_ps)
        if self._sum is not None:
            summed = self._sum.serve(self._accepted(dy))
            self._waits(dy, summed - self._sum.latency_ps - self._sum.row_ps)
            self._bias_end_ps = int(summed[-1, -1])

    def updated_ps(self, not_before_ps: int = 0) -> int:
        """Return when the parameters are updated: of weights and of the bias."""
        started_ps = self._accepted(
            np.array(max(int(self.pg_end_ps[-1]), self._eb_end_ps, self._bias_end_ps))
        )
        bias = 0 if self._design.bias is None else self._design.bias.update_cycles
        weights = self._design.update_cycles + self._design.rounding_cycles
        cycles = max(weights, bias) + UPDATE_TAIL + 5 * self._design.latency
        return int(started_ps) + cycles * self._period_ps


def _most_waiting(came: Times, taken: Times) -> int:
    """Return how many are there at once, of those that came and were taken at these times, in
    order.
    """
    # `left`: what is taken in the moment in which another comes still has its place.
    return int((np.arange(1, len(came) + 1) - np.searchsorted(taken, came, side="left")).max())


class RtlDeviceClock(DeviceClock):
    """The clock of a device's RTL, on the links of the plan."""

    def __init__(self, plan: ChainPlan, device: DeviceDesign) -> None:
        planned = plan.timing.clock(device.number)
        self.parts = [RtlSliceClock(device, part) for part in device.slices]
        super().__init__(planned.streams, self.parts, planned.links, plan.timing.interval_ps, ())
        self._period_ps = device.period_ps
        self._ports: dict[StreamKey | None, FifoResource] = {}

    def arrive(self, key: StreamKey | None, times: Times) -> Times:
        """Return when rows of a stream are taken in: with a clock edge, at most one a cycle."""
        period_ps = self._period_ps
        port = self._ports.get(key)
        if port is None:
            port = self._ports[key] = FifoResource(f"port of {key}", period_ps)
            # `serve` adds a cycle, so a row is offered one early: it is taken in with its own edge.
            port.free_ps = -period_ps
        edges = -(-times // period_ps) * period_ps
        return port.serve(edges - period_ps)

    def _enter(self, samples: int, rows: int, not_before_ps: int) -> Times:
        if not_before_ps:  # an update was done then; the host sees it, and sends in the cycle after
            self._next_entry_ps = max(self._next_entry_ps, not_before_ps + self._period_ps)
        return self.arrive(None, super()._enter(samples, rows, not_before_ps))


def clocks_of(plan: ChainPlan, designs: tuple[DeviceDesign, ...]) -> list[RtlDeviceClock]:
    """Return the clocks of the RTL's devices, at time zero."""
    return [RtlDeviceClock(plan, device) for device in designs]


def run_mini_batches(clocks: Sequence[DeviceClock], samples: int, number: int) -> tuple[int, ...]:
    """Run mini-batches of `sync` through a chain's clocks; return when all devices have updated, of
    each, in ps.
    """
    spans = [
        MicroBatch(step, step, step * samples, (step + 1) * samples).whole for step in range(number)
    ]
    return tuple(_run_mini_batch(clocks, span) for span in spans)


def _run_mini_batch(clocks: Sequence[DeviceClock], whole: SampleSpan) -> int:
    arrived: list[dict[StreamKey, Times]] = [{} for _ in clocks]

    def deliver(device: int, sent: Mapping[StreamKey, Times]) -> None:
        for key, times in sent.items():
            to = device + (1 if key.path.is_forward else -1)
            clock = clocks[to]
            arrived[to][key] = (
                clock.arrive(key, times) if isinstance(clock, RtlDeviceClock) else times
            )

    for device, clock in enumerate(clocks):
        deliver(device, clock.forward(whole, arrived[device], clock.updated_ps))
    for device in reversed(range(len(clocks))):
        deliver(device, clocks[device].backward(whole, arrived[device], clocks[device].updated_ps))
    for clock in clocks:
        clock.gradient(whole)
        clock.update()
    return max(clock.updated_ps for clock in clocks)
