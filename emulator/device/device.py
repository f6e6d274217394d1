"""A device: a coroutine that awaits messages, computes, and sends messages (FPDeep, sections 5.1
and 5.2).

It holds slices of consecutive layers. Activations and partial sums go from left to right, errors
from right to left; so does data that passes through to other layers. Each action of its program is
carried out by its clock and, independently, by its numerics, if there are any. A device does not
know whether a neighbour is in this process or another.

Its program of an epoch is carried out in order, or with F ahead of the other actions. FP has
engines and streams of its own, so neither times nor numbers of F depend on B and W that come before
it, unless an update lies between. While B waits for errors from another rank, F of later
micro-batches can be carried out:

    in order     F0 F1 .... B0 W0 F2 .... B1 W1 U1 F3         .... waits for errors
    F ahead      F0 F1 F2               | F3                  F3 waits for U1, whose weights it uses
    others       .... B0 W0 .... B1 W1 U1
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm import Observer, Served, Times, others_first
from ...comm.exchange import Gradient, OnExchange
from ...kernels.codec import Codec
from ..mapping import DataPath, LargestNumbers, StreamKey, TiedWeights
from ..schedule import MOVES, Action, Kind, MicroBatch, SampleSpan, with_versions
from ..timing import DeviceClock, StageClock, Timeline, exchange_name
from .ends import Tally
from .lanes import InTurn, Lanes, Split, shares_states
from .ports import Maps, Ports
from .sideband import (
    Balanced,
    NormSums,
    SharedScales,
    Squares,
    Tied,
    end_with_gathers,
    squares_of_shares,
)

if TYPE_CHECKING:
    from .device_numerics import DeviceNumerics
    from .rules import Rule, RuleOf

OnStep = Callable[[int, Tally, int], None]
"""Callback with (step, tally, virtual time in ps)."""


class Exchange(Protocol):
    """A device's exchange of gradients with its counterparts in other replicas.

    It has halves where each replica updates a `piece` of a row alone, of as many as there are;
    where it `shares_weights`, a row is that of a layer.
    """

    replicas: int
    in_halves: bool
    shares_weights: bool
    piece: int
    observer: OnExchange | None

    async def total(self, gradient: Gradient, ready_ps: int) -> int:
        """Sum a gradient over all replicas, in place; return the finish time in ps."""

    async def scatter(self, gradient: Gradient, ready_ps: int, rows: Sequence[int]) -> int:
        """Sum a gradient over all replicas, row by row, in place: this replica keeps its piece of
        each row, and zeros around it. `rows` are the rows' numbers of values. Return the finish
        time in ps.
        """

    async def gather(self, row: Gradient, ready_ps: int, *, closes: bool = True) -> int:
        """Fill a row, of which each replica has its piece, in place; return the finish time in ps.

        That of the weights `closes` the exchange of a mini-batch.
        """

    async def gather_layer(self, count: int, ready_ps: int) -> int:
        """Gather the `count` weights of a layer for one use, without their values; return the
        finish time in ps.
        """

    async def share(self, row: Gradient) -> None:
        """Fill a row of new weights, of which each replica has its piece, in place and in no
        time.
        """

    def state(self) -> Any:
        """Return the training state."""

    def restore(self, state: Any) -> None:
        """Restore what `state` returned."""


@dataclasses.dataclass(frozen=True)
class Epoch:
    """What a device needs to know about an epoch besides its actions.

    `step_samples` is the number of samples in each mini-batch, `all_step_samples` that over all
    replicas, needed for an exchange only. `rule_of`, which gives the update of a mini-batch, and
    `sample_numbers` since the start of training, are needed with numerics only. `timeline` says
    when actions run, where that is known beforehand.
    """

    micro_batches: Sequence[MicroBatch]
    step_samples: Sequence[int]
    all_step_samples: Sequence[int] = ()
    rule_of: RuleOf | None = None
    sample_numbers: NDArray[np.int64] = dataclasses.field(
        default_factory=lambda: np.zeros(0, np.int64)
    )
    timeline: Timeline | None = None


@dataclasses.dataclass(frozen=True)
class _Sums:
    """What a device has before an update: the sums' samples, when blocks stored here came, the
    rule, when all replicas and the other ends of tied weights have exchanged theirs, and the sums
    of these blocks.
    """

    samples: int
    came_ps: list[int]
    rule: Rule | None
    whole_ps: int
    stored: list[NDArray[np.float32]]


class Device:
    """One FPGA of the chain; without numerics it runs for timing only."""

    def __init__(
        self,
        clock: DeviceClock | StageClock,
        numerics: DeviceNumerics | None,
        ports: Ports,
        codec: Codec,
        tied: tuple[TiedWeights, ...] = (),
        norm: NormSums | None = None,
        largest: Sequence[LargestNumbers] = (),
    ) -> None:
        self.clock, self.numerics = clock, numerics
        self.exchange: Exchange | None = None
        self._ports = ports
        if numerics is not None:
            numerics.attach(ports)
        self.balanced = Balanced(clock, numerics, ports, codec)
        self._tied, self._norm = Tied(clock, numerics, ports, tied), norm
        self._scales = SharedScales(numerics, ports, largest)
        self._gradients, self._next_gradient = (
            dict[int, SampleSpan](),
            0,
        )  # W of micro-batches that are ahead of others
        self._sums = _Sums(0, [], None, 0, [])
        self._lanes = (
            Lanes() if numerics is not None and shares_states(clock.streams.slices) else InTurn()
        )

    @property
    def number(self) -> int:
        """Its place in the chain."""
        return self.clock.streams.device

    @property
    def may_go_ahead(self) -> bool:
        """Whether F needs no B or W before it: not where a clock takes actions in order, or
        neighbours take part.
        """
        return isinstance(self.clock, DeviceClock) and not isinstance(self._lanes, Lanes)

    def observe(self, observer: Observer) -> None:
        """Call `observer` for everything that engines, links and the exchange serve from now on."""
        self.clock.observe(observer)
        if self.exchange is not None:
            name = exchange_name(self.number)
            self.exchange.observer = lambda begin_ps, end_ps: observer(
                Served(name, np.array([[begin_ps]]), np.array([[end_ps]]), end_ps - begin_ps)
            )

    def begin_epoch(self, epoch: Epoch) -> None:
        """Get ready for an epoch, in which versions of the weights are numbered anew."""
        self._next_gradient = 0
        if isinstance(self.clock, StageClock):
            self.clock.begin_epoch(epoch.timeline)
        else:
            self.clock.begin_epoch()
        if self.numerics is not None:
            self.numerics.begin_epoch()

    def do(self, action: Action, epoch: Epoch) -> Coroutine[Any, Any, None]:
        """Return the coroutine that carries out F, R, B, W, O or L."""
        span = epoch.micro_batches[action.index].span_of(action)
        version = action.version or 0
        if action.kind is Kind.FORWARD:
            if action.recomputed and self.numerics is not None:
                self.numerics.let_go(action.index)
            return self._forward(span, version, epoch)
        if action.kind is Kind.RECOMPUTE:
            return self._recompute(span, version, epoch)
        if action.kind in MOVES:
            return self._move(action.kind, span)
        if action.kind is Kind.BACKWARD:
            return self._backward(span, version, epoch)
        return self._gradient(span, epoch)

    def free(self, versions: Sequence[int]) -> None:
        """Forget versions of the weights."""
        self.clock.free(versions)
        numerics = self.numerics
        if numerics is not None:
            # Jobs beside the program may still read these versions.
            self._lanes.afterwards(lambda: numerics.free(versions))

    def relays(self, epoch: Epoch) -> list[Coroutine[Any, Any, None]]:
        """Return programs that relay what others send through this device in an epoch, alongside
        its own.
        """
        steps = len(epoch.step_samples)
        norm = [] if self._norm is None else self._norm.relays(steps)
        return [
            *self.balanced.relays(epoch.step_samples),
            *self._tied.relays(steps),
            *norm,
            *self._scales.relays(steps),
            *self._lanes.serve(),
        ]

    async def _forward(self, span: SampleSpan, version: int, epoch: Epoch) -> None:
        streams = self.clock.streams
        blocks = (
            StreamKey(DataPath.PARAMETERS, number) for used in streams.parameters for number in used
        )
        times, maps = await self._receive((*streams.forward, *blocks), span)
        sent = await self._timed(Kind.FORWARD, span, times, version)
        numerics = self.numerics
        if numerics is None:
            self._send(span, sent, Maps())
            return
        # These times need no numbers: neighbours get them before the job that computes.
        left = self._send_apart(span, sent)

        async def compute() -> None:
            made = await numerics.forward(span, maps, version, epoch.sample_numbers[span.slice])
            self._send(span, left, made)

        await self._lanes.forward(span.micro_batch.index, compute)

    async def _recompute(self, whole: SampleSpan, version: int, epoch: Epoch) -> None:
        clock, numerics = self.clock, self.numerics
        assert isinstance(clock, StageClock), "boards that stream rows have no R"
        end_ps = await self._gathering_ps(Kind.RECOMPUTE, whole, {}, version)
        clock.recompute(whole, clock.ready_ps(version), end_ps)
        if numerics is not None:
            numbers, index = epoch.sample_numbers[whole.slice], whole.micro_batch.index
            again = functools.partial(numerics.compute_again, whole, version, numbers)
            await self._lanes.recompute(index, again)

    async def _move(self, kind: Kind, whole: SampleSpan) -> None:
        clock, numerics = self.clock, self.numerics
        assert isinstance(clock, StageClock), "boards that stream rows have no O and L"
        clock.move(kind, whole)
        if numerics is not None:
            move = numerics.offload if kind is Kind.OFFLOAD else numerics.load
            index = whole.micro_batch.index
            await self._lanes.recompute(index, functools.partial(move, index))

    async def _backward(self, span: SampleSpan, version: int, epoch: Epoch) -> None:
        times, maps = await self._receive(self.clock.streams.backward, span)
        sent = await self._timed(Kind.BACKWARD, span, times, version)
        numerics = self.numerics
        if numerics is None:
            self._send(span, sent, Maps())
            return
        left = self._send_apart(span, sent)

        async def compute() -> None:
            made = await numerics.backward(span, maps, version, epoch.sample_numbers[span.slice])
            self._send(span, left, made)

        await self._lanes.backward(span.micro_batch.index, compute)

    async def _timed(
        self, kind: Kind, span: SampleSpan, times: dict[StreamKey, Times], version: int
    ) -> dict[StreamKey, Times]:
        """Let the clock carry out F or B; return the arrival times of what is sent."""
        clock, ready_ps = self.clock, self.clock.ready_ps(version)
        is_forward = kind is Kind.FORWARD
        end_ps = await self._gathering_ps(kind, span, times, version)
        if end_ps is None:
            return (clock.forward if is_forward else clock.backward)(span, times, ready_ps)
        assert isinstance(clock, StageClock)
        return (clock.forward if is_forward else clock.backward)(span, times, ready_ps, end_ps)

    async def _gathering_ps(
        self, kind: Kind, span: SampleSpan, times: Mapping[StreamKey, Times], version: int
    ) -> int | None:
        """Return when an action ends that gathers weights from other replicas on the way; None of
        one that does not.
        """
        clock, exchange = self.clock, self.exchange
        if exchange is None or not exchange.shares_weights:
            return None
        assert isinstance(clock, StageClock)
        starts_ps = clock.starts_ps(kind, span, times, clock.ready_ps(version))
        return await end_with_gathers(exchange, clock, kind, span, starts_ps)

    async def _gradient(self, whole: SampleSpan, epoch: Epoch) -> None:
        numerics = self.numerics
        in_order = [*self._gradients_in_order(whole)]
        if numerics is not None:
            await (
                others_first()
            )  # FP and EB of neighbours hold up others, PG holds up the update alone

            async def compute() -> None:
                for span in in_order:
                    numerics.gradient(span)

            if in_order:
                await self._lanes.gradient(compute)
        self._send(whole, self.clock.gradient(whole), Maps())
        step = whole.micro_batch.step
        following = epoch.micro_batches[self._next_gradient : self._next_gradient + 1]
        # The mini-batch has W to come, some of them perhaps ahead of their turn.
        if self._gradients or (following and following[0].step == step):
            return
        self.balanced.send_gradients(whole.first, epoch.step_samples[step])
        # With replicas they are offered once these have exchanged theirs (`sum_gradients`).
        if self._tied.holds and self.exchange is None:
            await self.settle(keeps=True)
            self._tied.offer(step, self.clock.gradients_ps([]))

    def _gradients_in_order(self, whole: SampleSpan) -> Iterator[SampleSpan]:
        """Yield the micro-batches that W can now add, so that sums do not depend on the order of
        the schedule.
        """
        self._gradients[whole.micro_batch.index] = whole
        while self._next_gradient in self._gradients:
            yield self._gradients.pop(self._next_gradient)
            self._next_gradient += 1

    async def settle(self, *, keeps: bool) -> None:
        """Wait for numerics that go beside the program: gradients, and where no version is kept,
        all actions so far.
        """
        await self._lanes.settle(forwards=not keeps)

    def end_epoch(self) -> None:
        """Let what goes beside the program end."""
        self._lanes.close()

    async def sum_gradients(self, step: int, epoch: Epoch) -> None:
        """Take gradients from other devices, and exchange sums with other replicas, before an
        update.
        """
        samples, exchanged_ps, numerics = epoch.step_samples[step], 0, self.numerics
        came_ps, stored = await self.balanced.collect(step, epoch.micro_batches, samples)
        rule = None if epoch.rule_of is None else epoch.rule_of(step)
        if rule is not None and numerics is not None:
            rule = dataclasses.replace(rule, loss_scale=numerics.loss_scale)
        row = None
        if self.exchange is not None:
            # Each replica's gradient is the mean over its samples, so that values have the
            # magnitude that codecs are designed for; they are added up, and the update takes the
            # mean over replicas.
            samples = self.exchange.replicas
            if numerics is not None and rule is not None:
                row = numerics.gradient_row(
                    stored, samples / epoch.all_step_samples[step], rule.number
                )
                rule = dataclasses.replace(rule, exchanged=True)
            gradient = Gradient(self.clock.streams.gradient_values, row)
            ready_ps = self.clock.gradients_ps(came_ps)
            if self.exchange.in_halves:
                exchanged_ps = await self.exchange.scatter(gradient, ready_ps, self._rows)
            else:
                exchanged_ps = await self.exchange.total(gradient, ready_ps)
            stored = [] if numerics is None or row is None else numerics.take_gradient_row(row)
        if self.exchange is not None:
            self._tied.offer(step, exchanged_ps)
        self._sums = _Sums(samples, came_ps, rule, exchanged_ps, stored)

    async def join_sums(self) -> None:
        """Take the gradients of tied weights, and give the squares of all and what numbers of the
        mini-batch need, before an update.
        """
        if self._scales.drains:
            self._scales.offer()
        sums, numerics = self._sums, self.numerics
        whole_ps = max(sums.whole_ps, await self._tied.collect())
        self._sums = sums = dataclasses.replace(sums, whole_ps=whole_ps)
        if self._norm is not None:
            ready_ps = max(self.clock.gradients_ps(sums.came_ps), whole_ps)
            squares = None if numerics is None else numerics.squares(sums.stored, sums.samples)
            own = Squares(squares, ready_ps)
            if self.exchange is not None and self.exchange.in_halves:
                own = await squares_of_shares(self.exchange, own)
            self._norm.offer(own)

    async def update(self, step: int, keeps: bool, on_step: OnStep | None) -> None:
        """Make the next version of the weights."""
        sums, numerics = self._sums, self.numerics
        rule, whole_ps = sums.rule, sums.whole_ps
        if self._norm is not None:
            squares, at_ps = await self._norm.total()
            whole_ps = max(whole_ps, at_ps)
            if numerics is not None and squares is not None and rule is not None:
                rule = numerics.normed(rule, squares)
        self.balanced.update_stored(step, sums.stored, sums.samples, rule)
        shares = self.exchange is not None and self.exchange.in_halves
        await self._scales.hear(self.exchange if shares else None)
        if numerics is not None and rule is not None:
            numerics.update(sums.samples, rule, keeps=keeps)
        if not self._scales.drains:
            self._scales.offer()
        await self.balanced.take_weights()
        gathered_ps = await self._gather_weights(sums, whole_ps)
        self.clock.update(sums.came_ps, whole_ps, keeps=keeps, gathered_ps=gathered_ps)
        if on_step is not None:
            head = None if numerics is None else numerics.head
            on_step(step, Tally() if head is None else head.step_done(step), self.clock.updated_ps)

    async def _gather_weights(self, sums: _Sums, whole_ps: int) -> int:
        """Take the weights that other replicas have updated, and give them this one's; return when
        all have come, in ps, 0 where each updates all, or each use gathers them.
        """
        exchange, numerics = self.exchange, self.numerics
        if exchange is None or not exchange.in_halves:
            return 0
        row = None if numerics is None or sums.rule is None else numerics.weight_row()
        weights = Gradient(self.clock.streams.gradient_values, row)
        gathered_ps = 0
        if exchange.shares_weights:
            for layer in weights.rows(self._rows) if row is not None else ():
                await exchange.share(layer)
        else:
            updated_ps = self.clock.update_ends_ps(sums.came_ps, whole_ps)
            gathered_ps = await exchange.gather(weights, updated_ps)
        if numerics is not None and row is not None:
            numerics.take_weight_row(row)
        return gathered_ps

    @property
    def _rows(self) -> list[int]:
        """How many values there are in each row that replicas exchange."""
        by_layer = self.exchange is not None and self.exchange.shares_weights
        return self.clock.streams.exchanged_rows(by_layer=by_layer)

    async def evaluate(self, micro_batches: Sequence[MicroBatch]) -> None:
        """Run forward propagation only, outside virtual time, with the newest weights."""
        assert self.numerics is not None
        for whole in (micro_batch.whole for micro_batch in micro_batches):
            together = (
                key for key in self.clock.streams.forward if key not in self._ports.comes_apart
            )
            _, maps = await self._receive(together, whole)
            made = await self.numerics.infer(whole, maps)
            for key, data in made.items():
                self._ports.send_untimed(key, whole.first, data, made.scales.get(key, 0))

    async def _receive(
        self, keys: Iterable[StreamKey], span: SampleSpan
    ) -> tuple[dict[StreamKey, Times], Maps]:
        times, maps = dict[StreamKey, Times](), Maps()
        for key in keys:
            message = await self._ports.receive(key, span)
            times[key] = message.times
            if message.data is not None:
                maps[key], maps.scales[key] = message.data, message.scale
        return times, maps

    def _send_apart(
        self, span: SampleSpan, arrives: dict[StreamKey, Times]
    ) -> dict[StreamKey, Times]:
        """Send the times of streams whose values travel apart; return those of the others."""
        apart = self._ports.goes_apart
        if not apart:
            return arrives
        self._send(span, {key: times for key, times in arrives.items() if key in apart}, Maps())
        return {key: times for key, times in arrives.items() if key not in apart}

    def _send(self, span: SampleSpan, arrives: dict[StreamKey, Times], maps: Maps) -> None:
        for key, times in arrives.items():
            data, scale = maps.get(key), maps.scales.get(key, 0)
            self._ports.send(key, span.first, times, data, scale)

    def clocks(self) -> dict[str, Any]:
        """Return clock and counters, as JSON has them; call only when no sample is in flight."""
        exchange = None if self.exchange is None else self.exchange.state()
        counts = {} if self.numerics is None else self.numerics.counts()
        return {"clock": self.clock.state(), "exchange": exchange, "counts": counts}

    def restore_clocks(self, state: Mapping[str, Any]) -> None:
        """Restore what `clocks` returned."""
        self.clock.restore(state["clock"])
        if self.exchange is not None:
            self.exchange.restore(state["exchange"])
        if self.numerics is not None:
            self.numerics.restore_counts(state["counts"])


def train_programs(
    stages: Sequence[Device],
    program: Iterable[Action],
    epoch: Epoch,
    on_step: OnStep | None = None,
    *,
    ahead: bool,
) -> list[Coroutine[Any, Any, None]]:
    """Return coroutines that carry out an epoch's actions on a device with these stages, its
    chunks.

    `on_step` is called after each update. With `ahead`, F goes ahead where it can.
    """
    for stage in stages:
        stage.begin_epoch(epoch)
    if not ahead or len(stages) > 1 or not stages[0].may_go_ahead:
        return [_in_order(stages, program, epoch, on_step)]
    split = Split(program)
    return [_forwards(stages[0], split, epoch), _others(stages[0], split, epoch, on_step)]


async def _in_order(
    stages: Sequence[Device], program: Iterable[Action], epoch: Epoch, on_step: OnStep | None
) -> None:
    for action, keeps, frees in with_versions(program):
        if action.kind is Kind.UPDATE:
            # An update is numbered by the version that it makes: version n ends mini-batch n - 1.
            await _update(stages, action.index - 1, epoch, on_step, keeps=keeps)
        else:
            await stages[action.chunk].do(action, epoch)
        _free(stages, frees)
    for stage in stages:
        stage.end_epoch()


async def _forwards(device: Device, split: Split, epoch: Epoch) -> None:
    for step in split.steps(split.forwards):
        await split.others.reach(step.after)
        assert step.action is not None
        await device.do(step.action, epoch)
        split.forwards.note()


async def _others(device: Device, split: Split, epoch: Epoch, on_step: OnStep | None) -> None:
    for action, after, keeps, frees in split.steps(split.others):
        await split.forwards.reach(after)
        if action is not None and action.kind is Kind.UPDATE:
            await _update([device], action.index - 1, epoch, on_step, keeps=keeps)
        elif action is not None:
            await device.do(action, epoch)
        _free([device], frees)
        split.others.note()
    device.end_epoch()


async def _update(
    stages: Sequence[Device], step: int, epoch: Epoch, on_step: OnStep | None, *, keeps: bool
) -> None:
    # In rounds: what a stage awaits in one, another on the same device may offer in the one before.
    for stage in stages:
        await stage.settle(keeps=keeps)
        await stage.sum_gradients(step, epoch)
    for stage in stages:
        await stage.join_sums()
    for stage in stages:
        # Once an update, by the last chunk: in a loop and in a V alike, where the chain's loss is
        # on this device, it is there.
        await stage.update(step, keeps, on_step if stage is stages[-1] else None)


def _free(stages: Sequence[Device], versions: Sequence[int]) -> None:
    if versions:
        for stage in stages:
            stage.free(versions)
