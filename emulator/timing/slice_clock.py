"""The virtual time of one slice: its engines as FIFO resources, and which row waits for which."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ...comm import FifoResource, Times
from ..cluster import Board, Engine
from ..mapping import Slice, SliceEngines
from ..network import Phase, SfuStep


def engine_name(phase: Phase, part: Slice, device: int | None = None) -> str:
    """Return the name of an engine; without the device, its title."""
    title = f"{phase.value} of {part}"
    return title if device is None else f"{title} on device {device}"


def port_name(device: int) -> str:
    """Return the name of a device's memory port."""
    return f"memory of device {device}"


class SliceClock:
    """The engines of one slice, and their shares of the memory port, if some of the slice's data are off chip.

    An engine starts a row when the port has moved what the row needs; the port starts on it when its inputs are there,
    and those of all `block_rows` rows of its block. The slice carries out the SFU's steps `before_sending` on its own
    outputs, and undoes them on their errors. Its update takes `states_ps` more, in which the port moves what the
    optimiser keeps off chip.
    """

    def __init__(
        self,
        device: int,
        part: Slice,
        engines: SliceEngines,
        board: Board,
        ports: Mapping[Phase, FifoResource] = MappingProxyType({}),
        before_sending: Sequence[SfuStep] = (),
        states_ps: int = 0,
        block_rows: int = 1,
    ) -> None:
        def resource(phase: Phase, engine: Engine) -> FifoResource:
            return FifoResource(engine_name(phase, part, device), engine.row_ps)

        self.ports = dict(ports)

        self.fp = resource(Phase.FP, engines.fp)
        self.eb = resource(Phase.EB, engines.eb) if engines.eb else None
        self.pg = resource(Phase.PG, engines.pg) if engines.pg else None
        self.fp_start_ps: Times = np.zeros(0, np.int64)
        self.eb_start_ps: Times = np.zeros(0, np.int64)
        self.pg_end_ps: Times = np.zeros(0, np.int64)
        self.learns = part.layer.learns and (part.layer.has_pg or part.is_last)
        self.ends_steps = self.learns or part.layer.frozen
        """Whether an update waits for it: for its gradients, or, of what is frozen, for the samples to come back."""
        self._gradients_ps = 0
        self._rows, self._block_rows = part.layer.rows, block_rows
        self._recurs = part.layer.operation.recurs
        self._kept_errors: Times = np.zeros((0, 0), np.int64)
        self.outputs = before_sending[-1].makes.number if before_sending else part.layer.makes.number
        """Number of the tensor whose rows leave the slice."""
        self._pooled = [step.rows for step in before_sending if step.rows is not None]
        self._sfu = [
            (tuple(tensor.number for tensor in step.reads), step.makes.number, step.rows)
            for step in part.layer.sfu[len(before_sending) :]
        ]
        self.update_ps = (board.update_ps(len(part.out_channels)) if self.learns else 0) + states_ps

    def engines(self) -> Iterator[tuple[Phase, FifoResource]]:
        """Yield the slice's engines with their phases."""
        yield Phase.FP, self.fp
        if self.eb is not None:
            yield Phase.EB, self.eb
        if self.pg is not None:
            yield Phase.PG, self.pg

    def _serve(self, phase: Phase, engine: FifoResource, ready: Times) -> tuple[Times, Times]:
        """Return when rows leave an engine, and when each sample starts, on the memory port if the engine uses it."""
        port = self.ports.get(phase)
        if self._block_rows > 1:
            ready = _in_blocks(ready, self._block_rows)
        if port is None:
            left = engine.serve(ready)
            return left, engine.first_starts(left)
        moved = port.serve(ready)
        return engine.serve(moved), port.first_starts(moved)

    def forward(self, x: Times, partial: Times | None, not_before_ps: Times | int) -> Times:
        """Return when complete or partial output rows leave, given when input rows `x` and `partial` rows arrive."""
        ready = np.maximum(x, not_before_ps)[:, self._rows.fp]
        left, self.fp_start_ps = self._serve(Phase.FP, self.fp, ready)
        for rows in self._pooled:
            left = left[:, rows.forward]
        return left if partial is None else np.maximum(left, partial)

    def output_errors(self, errors: Times) -> Times:
        """Return when rows of output errors are there, given when those of what the slice sends arrive."""
        for rows in reversed(self._pooled):
            errors = errors[:, rows.backward]
        return errors

    def activate(self, times: dict[int, Times]) -> None:
        """Add the times of the SFU's results to `times`, which has those of its inputs."""
        for reads, makes, rows in self._sfu:
            ready = functools.reduce(np.maximum, [times[tensor] for tensor in reads])
            times[makes] = ready if rows is None else ready[:, rows.forward]

    def deactivate(self, times: dict[int, Times]) -> None:
        """Replace the error times of the SFU's results by those of its inputs, each that of its last contribution."""
        for reads, makes, rows in reversed(self._sfu):
            ready = times.pop(makes)
            if rows is not None:
                ready = ready[:, rows.backward]
            for tensor in reads:
                times[tensor] = np.maximum(times[tensor], ready) if tensor in times else ready

    def error(self, dy: Times, partial: Times | None, not_before_ps: int) -> Times:
        """Return when rows of input errors leave, given when output errors `dy` and `partial` input errors arrive.

        Without EB, no row waits for weights.
        """
        if self.eb is None:
            left = dy[:, self._rows.eb]
            self.eb_start_ps = left[:, 0]
        else:
            left, self.eb_start_ps = self._serve(Phase.EB, self.eb, np.maximum(dy, not_before_ps)[:, self._rows.eb])
        self._kept_errors = left
        left = left[:, self._rows.eb_leaves]
        return left if partial is None else np.maximum(left, partial)

    def kept_errors(self, dy: Times) -> Times:
        """Return when rows of errors are there for PG, after EB: output errors `dy`, or steps of a recurrent layer.

        Where there is no PG, they are EB's own rows, if there is EB.
        """
        return self._kept_errors if self.eb is not None and (self._recurs or self.pg is None) else dy

    def gradient(self, dy: Times) -> None:
        """Serve each row of errors on PG; its activations have been in Act-RAM since FP.

        Without PG, a sample ends with EB, or with word of its errors; what the SFU learns then takes no time.
        """
        self.pg_end_ps = dy[:, -1] if self.pg is None else self._serve(Phase.PG, self.pg, dy)[0][:, -1]
        if self.ends_steps:
            self._gradients_ps = int(self.pg_end_ps[-1])

    @property
    def gradients_ps(self) -> int:
        """Time in ps at which all gradients so far are there; 0 where nothing is learnt."""
        return self._gradients_ps if self.pg is None else self.pg.free_ps

    def updated_ps(self, not_before_ps: int = 0) -> int:
        """Return the time in ps at which the update of its parameters ends."""
        return max(self.gradients_ps, not_before_ps) + self.update_ps


def _in_blocks(ready: Times, size: int) -> Times:
    """Return when the last row of each row's block of `size` is ready, and all before it; the last may be short."""
    rows = ready.shape[1]
    last = np.minimum(np.arange(rows) // size * size + size, rows) - 1
    return np.maximum.accumulate(ready, axis=1)[:, last]
