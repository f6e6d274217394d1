"""What devices exchange beside their maps, for updates: balanced parameters, tied weights'
gradients, a norm, and the largest numbers.

Devices in between relay it alongside their own program, each stream in a program of its own:

    device           0             1             2             3
    balanced       stores ---------+-----------> uses                      path 5, for each sample's FP
                   adds up <-------+------------ sums                      path 6, when its PG ends
    tied           embedding ------+-------------+-----------> head        before an update, and back
    norm           s0 ---------> s0+s1 -----> s0+s1+s2 -----> all          before an update; the total goes back

*Balanced parameters* (FPDeep, sections 3.4.2 and 5.1; `mapping/balancing.py` places them). A device
may *store* parameters that another one to its right *uses*: it holds them in BPRAM, and the sums of
their gradients in BGB. For each sample they cross the links in between on data path 5 when the
sample's FP starts on the storing device, and FP on the using device waits for them; their gradients
return on path 6 when PG ends. Times are sent for every sample; the clock computes them. The values
are the same for all samples that see one version of the weights, so they are sent once per update:
the sum of the gradients one way, the new weights the other.

A codec may compress the gradients (INCEPTIONN, section V); then their mean over the samples is
sent, since codecs are designed for values of that magnitude. The compressed size is known when a
mini-batch has ended, and sets the times of the next one.

*Tied weights* (`mapping/traffic.py`). The program of each direction offers the device's gradients
when they are there, and collects what came before it updates. Times travel as those of a table's
first and last row, and the table as a whole.

*The norm*: the sum of squares of all gradients, for clipping. It is exact, so that its bits depend
neither on the cut nor on the order. The device offers its own sum and collects the total. Where
replicas share updates out, its own sum is that of its share, and first goes to all replicas.

*The largest numbers*, by which later ones are scaled (`scales.py`), go through the boards of a layer
and back, in no virtual time: a byte in headers of rows that cross those links anyway. Of weights,
they are those after the update before, and nothing waits for them in the mini-batch; where replicas
share updates out, those of a share go to all, in headers of the weights that it has updated. Of
operands within a layer, rows forward take those of FP to the last board, and errors bring them
back; those of EB come to the first board with errors, and go to the others with the next rows.

*Weights that replicas share out* (ZeRO's stage 3) are gathered for each use, and here, too, times
alone: their values go once, after the update.
"""

from __future__ import annotations

import functools
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm import Mailbox, Message, Times
from ...comm.exchange import Gradient, SizeLog
from ...kernels.codec import Codec
from ...kernels.optimizers import NOT_FINITE, added
from ..mapping import DataPath, LargestNumbers, NormSum, StreamKey, TiedWeights
from ..schedule import Kind, MicroBatch, SampleSpan, step_micro_batches
from ..timing import DeviceClock, StageClock, hop
from .ports import Ports

if TYPE_CHECKING:
    from .device_numerics import DeviceNumerics
    from .memories import Parameter
    from .rules import Rule
    from .slices import SliceNumerics

Data = NDArray[np.float32]


class Balanced:
    """The blocks that touch one device: stored here, used here, or passing through.

    `sizes` has the sizes of the gradients sent from here, by block. Without numerics, `shares`
    gives for each block the share of its bytes that is left by the codec, mini-batch by mini-batch.
    """

    def __init__(
        self,
        clock: DeviceClock | StageClock,
        numerics: DeviceNumerics | None,
        ports: Ports,
        codec: Codec,
    ) -> None:
        self._clock, self._numerics, self._ports, self._codec = clock, numerics, ports, codec
        self._stored, self._passing = clock.streams.stored, clock.streams.passing
        self._used = [number for used in clock.streams.parameters for number in used]
        self.sizes = {number: SizeLog() for number in (*self._used, *self._passing)}
        self.shares: Mapping[int, Iterator[float]] = {}

    @property
    def _rows(self) -> DeviceClock:
        """The clock: parameters are balanced only where rows are timed."""
        assert isinstance(self._clock, DeviceClock)
        return self._clock

    def send_gradients(self, first: int, samples: int) -> None:
        """Send a mini-batch's gradients of the blocks used here, over `samples` samples."""
        for number in self._used:
            gradient = None if self._numerics is None else self._numerics.balanced_gradient(number)
            if gradient is not None and self._codec.compresses:
                # Codecs are designed for means; `collect` makes them sums again.
                gradient /= np.float32(samples)
            self._send(StreamKey(DataPath.PARAMETER_GRADIENTS, number), first, gradient)

    def _send(self, key: StreamKey, first: int, gradient: Data | None) -> None:
        """Send a mini-batch's gradient, with the codec's losses."""
        if gradient is not None and self._codec.compresses:
            compressed = self._codec.compress(gradient.reshape(-1))
            self._rows.shrink(key, compressed.nbytes / gradient.nbytes)
            self.sizes[key.number].add(gradient.nbytes, compressed.nbytes)
            gradient = self._codec.decompress(compressed, gradient.size).reshape(gradient.shape)
        elif key.number in self.shares:
            self._rows.shrink(key, next(self.shares[key.number]))
        self._ports.send_untimed(key._replace(values=True), first, gradient)

    async def collect(
        self, step: int, micro_batches: Sequence[MicroBatch], samples: int
    ) -> tuple[list[int], list[Data]]:
        """Return when the last gradient of each block stored here arrived, in ps, and the sums, if
        any.
        """
        came_ps, gradients = [], []
        for number in self._stored:
            key = StreamKey(DataPath.PARAMETER_GRADIENTS, number)
            for _ in step_micro_batches(
                micro_batches, step
            ):  # one message for each, in the order of the user's W
                came = await self._ports.next_message(key)
            gradient = (await self._ports.next_message(key._replace(values=True))).data
            # Messages come in order, so that the last row of the last one came last.
            came_ps.append(int(came.times[-1, -1]))
            if gradient is not None:
                if self._codec.compresses:
                    gradient *= np.float32(samples)
                gradients.append(gradient)
        return came_ps, gradients

    def update_stored(
        self, step: int, gradients: Sequence[Data], samples: int, rule: Rule | None
    ) -> None:
        """Update the blocks stored here from the sums of gradients over `samples` samples, and send
        them.
        """
        for place, number in enumerate(self._stored):
            weights = None
            if self._numerics is not None and rule is not None:
                weights = self._numerics.update_stored(number, gradients[place], samples, rule)
            self._ports.send_untimed(
                StreamKey(DataPath.PARAMETERS, number, values=True), step, weights
            )

    async def take_weights(self) -> None:
        """Receive the new weights of the blocks used here."""
        for number in self._used:
            message = await self._ports.next_message(
                StreamKey(DataPath.PARAMETERS, number, values=True)
            )
            if self._numerics is not None and message.data is not None:
                self._numerics.take_balanced(number, message.data)

    def relays(self, step_samples: Sequence[int]) -> list[Coroutine[Any, Any, None]]:
        """Return programs that relay passing blocks in an epoch, alongside the device's own."""
        programs = []
        for number in self._passing:
            parameters = StreamKey(DataPath.PARAMETERS, number)
            programs.append(self._pass_on(parameters, sum(step_samples)))
            programs.append(
                self._pass_on_weights(parameters._replace(values=True), len(step_samples))
            )
            programs.append(
                self._pass_on_gradients(
                    StreamKey(DataPath.PARAMETER_GRADIENTS, number), step_samples
                )
            )
        return programs

    async def _pass_on(self, key: StreamKey, samples: int) -> None:
        done = 0
        while done < samples:
            message = await self._ports.next_message(key)
            self._ports.send(key, message.first, self._rows.relay(key, message.times), None)
            done += len(message.times)

    async def _pass_on_weights(self, key: StreamKey, steps: int) -> None:
        for _ in range(steps):
            message = await self._ports.next_message(key)
            self._ports.send_untimed(key, message.first, message.data)

    async def _pass_on_gradients(self, key: StreamKey, step_samples: Sequence[int]) -> None:
        """Relay step by step, since the compressed size of one mini-batch sets the times of the
        next.
        """
        for samples in step_samples:
            await self._pass_on(key, samples)
            message = await self._ports.next_message(key._replace(values=True))
            self._send(key, message.first, message.data)


_WAYS = True, False  # forward, and back


class _Held(NamedTuple):
    """What the programs of a device exchange with its own program, for weights of which it holds a
    part.

    By direction, forward or not: the device's own part, and what came from the other end.
    """

    tied: TiedWeights
    offered: Mapping[bool, Mailbox]
    came: Mapping[bool, Mailbox]


class Tied:
    """The tied weights whose gradients a device sends, takes or relays."""

    def __init__(
        self,
        clock: DeviceClock | StageClock,
        numerics: DeviceNumerics | None,
        ports: Ports,
        tied: Sequence[TiedWeights],
    ) -> None:
        self._clock, self._numerics, self._ports = clock, numerics, ports
        self._device = device = clock.streams.device
        self._held = []
        for own in tied:
            if own.has_embedding(device) or own.has_head(device):
                offered = {way: Mailbox() for way in _WAYS}
                self._held.append(_Held(own, offered, {way: Mailbox() for way in _WAYS}))
        self._passing = [own for own in tied if own.first <= device <= own.last]

    @property
    def holds(self) -> bool:
        """Whether the device holds tied weights."""
        return bool(self._held)

    def offer(self, step: int, ready_ps: int) -> None:
        """Give a mini-batch's gradients, which are there at `ready_ps`, to the exchange."""
        for held in self._held:
            for forward, mailbox in held.offered.items():
                if self._ends(held.tied, forward)[0]:
                    part = (
                        None
                        if self._numerics is None
                        else self._numerics.tied_gradient(held.tied, of_head=not forward)
                    )
                    mailbox.put(Message(step, np.full((1, 2), ready_ps, np.int64), part))

    async def collect(self) -> int:
        """Take the gradients of the other ends, and add them; return when they had come, in ps, 0
        if none do.
        """
        came_ps = 0
        for held in self._held:
            tables = []
            for forward, mailbox in held.came.items():
                message = await mailbox.get()
                if self._ends(held.tied, forward)[1]:
                    came_ps = max(came_ps, int(message.times[0, 1]))
                tables.append(message.data)
            if self._numerics is not None:
                self._numerics.take_tied(held.tied, *tables)
        return came_ps

    def _ends(self, tied: TiedWeights, forward: bool) -> tuple[bool, bool]:
        """Return whether this device adds a part to what goes in a direction, and whether it needs
        the sum.
        """
        ends = tied.has_embedding(self._device), tied.has_head(self._device)
        return ends if forward else ends[::-1]

    def relays(self, steps: int) -> list[Coroutine[Any, Any, None]]:
        """Return the programs of an epoch of `steps` mini-batches."""
        return [
            self._relay(tied, steps, forward=forward) for tied in self._passing for forward in _WAYS
        ]

    async def _relay(self, tied: TiedWeights, steps: int, *, forward: bool) -> None:
        """Take what comes in a direction, add this device's part, if it has one, and pass it on."""
        key, adds = tied.key(forward=forward), self._ends(tied, forward)[0]
        ends = (tied.first, tied.last) if forward else (tied.last, tied.first)
        held = next((held for held in self._held if held.tied == tied), None)
        for step in range(steps):
            times: Times | None = None
            table: Data | None = None
            if self._device != ends[0]:
                times = (await self._ports.next_message(key)).times
                table = (await self._ports.next_message(key._replace(values=True))).data
            own = await held.offered[forward].get() if held is not None and adds else None
            if own is not None and self._numerics is not None:
                table = self._numerics.with_part(tied, table, own.data, of_head=not forward)
            made = hop(self._clock.bursts, key, times, None if own is None else own.times)
            if held is not None:
                held.came[forward].put(Message(step, made.came_ps, table))
            if self._device != ends[1]:
                self._ports.send(key, step, made.sends_ps, None)
                self._ports.send_untimed(key._replace(values=True), step, table)


LIMBS = 48
"""Numbers of a message, 16 bits each: a square takes 554 bits, and a sum of 2**40 of them 594."""
_LIMB_BITS = 16


class Squares(NamedTuple):
    """A sum of squares, and the time in ps at which it is there; None without numbers."""

    total: int | None
    at_ps: int


def to_limbs(squares: int) -> Data:
    """Return a sum of squares as float32 numbers, (1, 1, 1, LIMBS), each exact; NaN of one that is
    not finite.
    """
    mask = (1 << _LIMB_BITS) - 1
    limbs = [np.nan] * LIMBS
    if squares != NOT_FINITE:
        limbs = [squares >> _LIMB_BITS * place & mask for place in range(LIMBS)]
    return np.array(limbs, np.float32).reshape(1, 1, 1, LIMBS)


def of_limbs(limbs: Data) -> int:
    """Return the sum of squares that `to_limbs` took."""
    if np.isnan(limbs).any():
        return NOT_FINITE
    return sum(
        int(limb) << _LIMB_BITS * place for place, limb in enumerate(limbs.reshape(-1).tolist())
    )


class Gathering(Protocol):
    """An exchange with other replicas, in which each sends a piece of a row to all."""

    replicas: int
    piece: int

    async def gather(self, row: Gradient, ready_ps: int, *, closes: bool = True) -> int:
        """Fill a row, of which each replica has its piece, in place; return the finish time in
        ps.
        """

    async def gather_layer(self, count: int, ready_ps: int) -> int:
        """Gather the `count` weights of a layer for one use; return the finish time in ps."""

    async def share(self, row: Gradient) -> None:
        """Fill a row, of which each replica has its piece, in place and in no time."""


async def squares_of_shares(exchange: Gathering, own: Squares) -> Squares:
    """Return the sum over the shares of all replicas, of which this one has its `own`."""
    row = None
    if own.total is not None:
        row = np.zeros((exchange.replicas, LIMBS), np.float32)
        row[exchange.piece] = to_limbs(own.total).reshape(-1)
    sums = Gradient(exchange.replicas * LIMBS, None if row is None else row.reshape(-1))
    at_ps = await exchange.gather(sums, own.at_ps, closes=False)
    total = None if row is None else functools.reduce(added, map(of_limbs, row), 0)
    return Squares(total, at_ps)


async def end_with_gathers(
    exchange: Gathering, clock: StageClock, kind: Kind, span: SampleSpan, starts_ps: int
) -> int:
    """Return when F or B ends that gathers each layer's weights just before its work."""
    at_ps = starts_ps
    for values, work_ps in clock.layers(kind, span):
        if values:
            at_ps = await exchange.gather_layer(values, at_ps)
        at_ps += clock.takes_ps(at_ps, work_ps, span)
    return at_ps


class NormSums:
    """A device's part in the sums of squares; `norm` is None on a chain of one device."""

    def __init__(self, clock: DeviceClock | StageClock, ports: Ports, norm: NormSum | None) -> None:
        self._clock, self._ports, self._norm = clock, ports, norm
        self._device = clock.streams.device
        self._offered, self._totals = Mailbox(), Mailbox()

    def offer(self, squares: Squares) -> None:
        """Give this device's sum of a mini-batch."""
        # A chain of one device has no relay, and its own sum is the total.
        (self._totals if self._norm is None else self._offered).put(squares)

    async def total(self) -> Squares:
        """Return the sum over all devices."""
        squares: Squares = await self._totals.get()
        return squares

    def relays(self, steps: int) -> list[Coroutine[Any, Any, None]]:
        """Return the program of an epoch of `steps` mini-batches."""
        return [] if self._norm is None else [self._relay(self._norm, steps)]

    async def _relay(self, norm: NormSum, steps: int) -> None:
        right, left = norm.key(forward=True), norm.key(forward=False)
        for step in range(steps):
            squares: Squares = await self._offered.get()
            if self._device > norm.first:
                before = await self._take(right)
                whole = None
                if squares.total is not None and before.total is not None:
                    whole = added(before.total, squares.total)
                squares = Squares(whole, max(squares.at_ps, before.at_ps))
            if self._device < norm.last:
                self._send(step, right, squares)
                squares = await self._take(left)
            # Here `squares` is the total: the last device has just made it, the others have it from
            # the right.
            self._totals.put(squares)
            if self._device > norm.first:
                self._send(step, left, squares)

    async def _take(self, key: StreamKey) -> Squares:
        times = (await self._ports.next_message(key)).times
        limbs = (await self._ports.next_message(key._replace(values=True))).data
        return Squares(None if limbs is None else of_limbs(limbs), int(times[0, 1]))

    def _send(self, step: int, key: StreamKey, squares: Squares) -> None:
        made = hop(self._clock.bursts, key, np.full((1, 2), squares.at_ps, np.int64), None)
        self._ports.send(key, step, made.sends_ps, None)
        limbs = None if squares.total is None else to_limbs(squares.total)
        self._ports.send_untimed(key._replace(values=True), step, limbs)


def begin_scales(slices: Sequence[SliceNumerics]) -> None:
    """Note the largest weights that the first update changes, unless updates before are known."""
    for own in slices:
        for parameter in _scaled(own):
            parameter.begin_scale()


_WEIGHT_ARRAYS = 6
SCALED_ARRAYS = _WEIGHT_ARRAYS + 4
"""Numbers of a message: W, R and P of two directions of a recurrent layer have a scale each, and so
have its states, errors of gates, and what a projection or a reset multiplies, and its errors.
"""


class SharedScales:
    """A device's part in telling what the largest numbers of its layers need, of weights after each
    update, and of operands within layers in a mini-batch: its own slices' when a mini-batch ends,
    and all slices' before the update. Where the pipeline does not drain, boards to the left are
    behind, and all slices' are known before the update after: own ones follow the update, and the
    operands' of an epoch's last mini-batch are left out.
    """

    def __init__(
        self, numerics: DeviceNumerics | None, ports: Ports, layers: Sequence[LargestNumbers]
    ) -> None:
        self._ports, self._device = ports, ports.device
        self._slices = [] if numerics is None else numerics.slices
        self._scales = None if numerics is None else numerics.scales
        self._shared = [layer for layer in layers if layer.first <= self._device <= layer.last]
        self._held = {
            layer.number: own
            for layer in self._shared
            for own in self._slices
            if own.part.layer.index == layer.layer.index
        }
        self._offered, self._told = self._mailboxes(), self._mailboxes()
        self._ended: dict[str, int] = {}

    @property
    def drains(self) -> bool:
        """Whether all boards know of a mini-batch before the next one begins."""
        return self._scales is None or self._scales.late == 1

    def _mailboxes(self) -> dict[int, Mailbox]:
        return {layer.number: Mailbox() for layer in self._shared}

    def offer(self) -> None:
        """Give what the newest weights of this device need, and the mini-batch that has ended."""
        self._ended = {}
        for number, mailbox in self._offered.items():
            own, needed = self._held[number], np.full(SCALED_ARRAYS, -np.inf, np.float32)
            needed[:_WEIGHT_ARRAYS] = _needed(_scaled(own))
            for place, name in enumerate(own.operand_scales, _WEIGHT_ARRAYS):
                ended = None if self._scales is None else self._scales.ended(name)
                if ended is not None:
                    self._ended[name], exponent = ended
                    needed[place] = -np.inf if exponent is None else exponent
            mailbox.put(needed.reshape(1, 1, 1, -1))

    async def hear(self, exchange: Gathering | None) -> None:
        """Take what those of all slices need, before an update; and of the shares of all replicas
        in an `exchange`.
        """
        for number, mailbox in self._told.items():
            own, needed = self._held[number], (await mailbox.get()).reshape(-1)
            _take_needed(_scaled(own), needed)
            for name, exponent in zip(own.operand_scales, needed[_WEIGHT_ARRAYS:], strict=False):
                if self._scales is not None and name in self._ended:
                    told = None if np.isinf(exponent) else int(exponent)
                    self._scales.tell(name, self._ended[name], told)
        if exchange is not None:
            for parameters in filter(None, map(_scaled, self._slices)):
                row = np.zeros((exchange.replicas, _WEIGHT_ARRAYS), np.float32)
                row[exchange.piece] = _needed(parameters)
                await exchange.share(Gradient(row.size, row.reshape(-1)))
                _take_needed(parameters, row.max(axis=0))

    def relays(self, steps: int) -> list[Coroutine[Any, Any, None]]:
        """Return the programs of an epoch of `steps` mini-batches, which begins."""
        if self._scales is not None:
            self._scales.begin_epoch()
        begin_scales(self._slices)
        self._offered, self._told = self._mailboxes(), self._mailboxes()
        if not self.drains:
            self.offer()
        return [self._relay(layer, steps) for layer in self._shared]

    async def _relay(self, layer: LargestNumbers, steps: int) -> None:
        right, left = (layer.key(forward=way)._replace(values=True) for way in _WAYS)
        for step in range(steps):
            needed = await self._offered[layer.number].get()
            if self._device > layer.first:
                needed = np.maximum(needed, await self._take(right))
            if self._device < layer.last:
                self._ports.send_untimed(right, step, needed)
                needed = await self._take(left)
            self._told[layer.number].put(needed)
            if self._device > layer.first:
                self._ports.send_untimed(left, step, needed.copy())

    async def _take(self, key: StreamKey) -> Data:
        data = (await self._ports.next_message(key)).data
        assert data is not None
        return data


def _scaled(own: SliceNumerics) -> list[Parameter]:
    """Return the parameters of a slice that are rounded under a scale, at updates."""
    return [] if own.part.layer.frozen else own.scaled


def _needed(parameters: Sequence[Parameter]) -> Data:
    """Return what the newest weights of a slice need, (`_WEIGHT_ARRAYS`,)."""
    needed = np.full(_WEIGHT_ARRAYS, -np.inf, np.float32)
    for place, parameter in enumerate(parameters):
        exponent = parameter.needed_scale
        needed[place] = -np.inf if exponent is None else exponent
    return needed


def _take_needed(parameters: Sequence[Parameter], needed: Data) -> None:
    for parameter, exponent in zip(parameters, needed.reshape(-1).tolist(), strict=False):
        parameter.hear_scale(None if np.isinf(exponent) else int(exponent))
