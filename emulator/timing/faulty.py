"""Clocks of boards and links that faults slow down."""

from __future__ import annotations

from collections.abc import Sequence

from ...comm import FifoResource
from ..faults import (
    Begun,
    Delay,
    Faults,
    LinkFault,
    Loss,
    PacedResource,
    check_time,
    exact,
    slowed_ps,
)
from ..schedule import Fold
from .board import ActionBoard, Message, Pace, WirePace
from .device_clock import DeviceClock
from .timing import Timing


class FaultyTiming:
    """What faults do to the clocks of one chain, whose boards begin at number `first`.

    Resources of rows are replaced by ones with delays; boards that take actions as a whole get a
    pace. Of a board with several stages, all are faulty. Links of others than neighbours in the
    chain are not. Clocks begin at `begun`.
    """

    def __init__(self, faults: Faults, seed: int, first: int, fold: Fold, begun: Begun) -> None:
        self._faults, self._first, self._fold, self._begun = faults, first, fold, begun
        self._seed = seed if faults.seed is None else faults.seed

    def clock(self, clock: DeviceClock, timing: Timing) -> None:
        """Slow down the engines, memory ports and links of a device."""
        device = clock.streams.device
        delays = self._of_board(self._fold.device(device))
        if delays:
            for part in clock.slices:
                part.fp = self._paced(part.fp, delays)
                part.eb = None if part.eb is None else self._paced(part.eb, delays)
                part.pg = None if part.pg is None else self._paced(part.pg, delays)
                part.ports = {
                    phase: self._paced(port, delays) for phase, port in part.ports.items()
                }
        for link, forward in ((device, True), (device - 1, False)):
            for stream in timing.sent(link, forward=forward):
                hop = timing.routes.hop(link, stream.key)
                if hop is None:
                    continue
                held, sender = clock.links[stream.key], self._fold.device(device)
                part_number = stream.path << 40 | self._fold.chunk(link) << 20 | stream.number
                delays = tuple(
                    self._delay(
                        place, fault, stream.row_bytes, held.latency_ps, (sender, part_number)
                    )
                    for place, fault in (
                        self._of_link(self._fold.link(min(hop)))
                        if abs(hop[1] - hop[0]) == 1
                        else ()
                    )
                )
                clock.links[stream.key] = self._paced(held, delays) if delays else held

    def board(self, board: ActionBoard) -> None:
        """Slow down a board that takes actions as a whole, and the links on which it sends."""
        delays = self._of_board(board.number)
        if delays:
            board.pace = _pace(delays, self._begun)
        for receiver, wire in board.wires.items():
            faults = (
                self._of_link(min(receiver, board.number))
                if abs(receiver - board.number) == 1
                else ()
            )
            if faults:
                wire.pace = self._wire_pace(faults, board.number, wire.latency_ps)

    def _paced(self, resource: FifoResource, delays: Sequence[Delay]) -> PacedResource:
        return PacedResource(resource, delays, self._begun)

    def _of_board(self, device: int) -> tuple[Delay, ...]:
        return tuple(
            Delay(fault, exact(fault.factor)) for fault in self._faults.slow(self._first + device)
        )

    def _of_link(self, left: int | None) -> tuple[tuple[int, LinkFault], ...]:
        """Return the faults of the link behind a board."""
        if left is None or left + 1 >= self._fold.devices:
            return ()
        return self._faults.on_link(self._first + left)

    def _delay(
        self, place: int, fault: LinkFault, size: int, latency_ps: int, sender: tuple[int, int]
    ) -> Delay:
        """Return what a fault does to rows or messages of `size` bytes; `sender` is the device and
        its data path.
        """
        loss = None
        if fault.loss:
            timeout_ps = (
                2 * latency_ps if fault.timeout_ns is None else round(fault.timeout_ns * 1000)
            )
            where = self._seed, place, self._first + sender[0], sender[1]
            loss = Loss(fault.loss, max(1, -(-size // fault.packet_bytes)), timeout_ps, where)
        return Delay(fault, exact(fault.factor), fault.latency_ps, loss)

    def _wire_pace(
        self, faults: Sequence[tuple[int, LinkFault]], device: int, latency_ps: int
    ) -> WirePace:
        def pace(start_ps: int, sample: int, message: Message) -> tuple[int, int]:
            start_ps, sample = self._begun.time_ps + start_ps, self._begun.samples + sample
            on = [
                self._delay(place, fault, message.size_bytes, latency_ps, (device, 0))
                for place, fault in faults
                if fault.has_time(start_ps) and fault.has_sample(sample)
            ]
            slow_ps = slowed_ps(on, message.takes_ps)
            lost_ps = (
                int(delay.loss.added_ps(slow_ps, delay.loss.lost(sample, 1))[0])
                for delay in on
                if delay.loss is not None
            )
            return slow_ps + sum(lost_ps), sum(delay.latency_ps for delay in on)

        return pace


def _pace(delays: Sequence[Delay], begun: Begun) -> Pace:
    def pace(start_ps: int, sample: int, work_ps: int) -> int:
        start_ps, sample = begun.time_ps + start_ps, begun.samples + sample
        on = [
            delay
            for delay in delays
            if delay.span.has_time(start_ps) and delay.span.has_sample(sample)
        ]
        slow_ps = slowed_ps(on, work_ps)
        check_time(start_ps + slow_ps)
        return slow_ps

    return pace
