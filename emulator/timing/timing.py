"""The virtual time of a device: which server takes which rows, and when a row can be taken.

A row starts when its engine is free and every input row that it needs has arrived; it leaves when it is done and its
partial row has arrived. Samples go through an engine in order. Data paths share a link's direction in the proportion of
the bytes that they carry for each sample. Samples enter the chain at the rate of its slowest server, so no queue grows.
These are pure functions of network, mapping and cluster; whether numbers are computed beside them makes no difference.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...comm.fifo import Server, Times
from ..cluster.board import Board, Cluster, Link
from ..mapping.balancing import Loan, loan_streams
from ..mapping.engines import Engines, SliceEngines, allocate
from ..mapping.slices import Mapping, Slice
from ..mapping.traffic import Lane, Stream, streams
from ..network.layers import Layer, Pool, SfuStep

RowMap = NDArray[np.int64]


def rows_needed(rows_in: int, rows_out: int, kernel: int, stride: int, pad: int) -> RowMap:
    """For each output row of a window operation, the last input row that it waits for: the last under its window.

    The last output row waits for the whole map, also where windows leave out its end: no error comes back for rows that
    are still on their way.
    """
    last = np.arange(rows_out) * stride - pad + kernel - 1
    last[-1] = rows_in - 1
    return np.clip(last, 0, rows_in - 1)


def rows_reaching(rows_in: int, rows_out: int, kernel: int, stride: int, pad: int) -> RowMap:
    """For each input row of a window operation, the last output row whose error it receives (at least some row's)."""
    last = (np.arange(rows_in) + pad) // stride
    return np.clip(last, 0, rows_out - 1)


@dataclasses.dataclass(frozen=True)
class SfuRows:
    """Which rows wait for which in one operation of an SFU; no maps where row waits for like row."""

    reads: tuple[int, ...]
    makes: int
    forward: RowMap | None
    backward: RowMap | None

    @classmethod
    def of(cls, step: SfuStep) -> SfuRows:
        """The maps of a pooling; all else passes row by row."""
        reads, pool = tuple(tensor.number for tensor in step.reads), step.operation
        if not isinstance(pool, Pool):
            return cls(reads, step.makes.number, None, None)
        shape = step.input[1], step.output[1], pool.kernel[0], pool.step[0], pool.pad[0]
        return cls(reads, step.makes.number, rows_needed(*shape), rows_reaching(*shape))


@dataclasses.dataclass(frozen=True)
class RowMaps:
    """Which rows wait for which, in a layer: convolution and SFU, forwards and backwards."""

    fp: RowMap
    eb: RowMap
    eb_leaves: RowMap
    sfu: tuple[SfuRows, ...]

    @classmethod
    def of(cls, layer: Layer) -> RowMaps:
        """The maps of a layer; a fully connected one makes all its error rows at once."""
        window = layer.input[1], layer.output[1], layer.kernel[0], layer.stride[0], layer.pad[0]
        eb = np.zeros(1, np.int64) if layer.is_fc else rows_reaching(*window)
        leaves = np.zeros(layer.input[1], np.int64) if layer.is_fc else np.arange(layer.input[1])
        return cls(rows_needed(*window), eb, leaves, tuple(map(SfuRows.of, layer.sfu)))


class SliceClock:
    """The engines of one slice, as servers."""

    def __init__(self, part: Slice, engines: SliceEngines, board: Board) -> None:
        def server(engine: Engines) -> Server:
            return Server(engine.row_cycles * board.period_ps)

        self.maps = RowMaps.of(part.layer)
        self.fp = server(engines.fp)
        self.eb = server(engines.eb) if engines.eb else None
        self.pg = server(engines.pg)
        self.update_ps = len(part.out_channels) * board.period_ps
        self.fp_start_ps: Times = np.zeros(0, np.int64)
        self.eb_start_ps: Times = np.zeros(0, np.int64)
        self.pg_end_ps: Times = np.zeros(0, np.int64)

    def forward(self, x: Times, partial: Times | None, not_before_ps: Times | int) -> Times:
        """When complete or partial output rows leave, from the times of input rows and of partial rows."""
        ready = np.maximum(x, not_before_ps)[:, self.maps.fp]
        done = self.fp.serve(ready)
        self.fp_start_ps = done[:, 0] - self.fp.row_ps
        return done if partial is None else np.maximum(done, partial)

    def activate(self, times: dict[int, Times]) -> None:
        """Add, to the times of the tensors at hand, those of what the SFU makes of them."""
        for rows in self.maps.sfu:
            ready = functools.reduce(np.maximum, [times[tensor] for tensor in rows.reads])
            times[rows.makes] = ready if rows.forward is None else ready[:, rows.forward]

    def deactivate(self, times: dict[int, Times]) -> None:
        """From the times of errors of what the SFU made, those of what it read; they wait for one another."""
        for rows in reversed(self.maps.sfu):
            ready = times.pop(rows.makes)
            if rows.backward is not None:
                ready = ready[:, rows.backward]
            for tensor in rows.reads:
                times[tensor] = np.maximum(times[tensor], ready) if tensor in times else ready

    def error(self, dy: Times, partial: Times | None, not_before_ps: int) -> Times:
        """When error rows of the inputs leave, from the times of output error rows, and of their own so far."""
        ready = np.maximum(dy, not_before_ps)[:, self.maps.eb]
        if self.eb is None:
            self.eb_start_ps = ready[:, 0]
            return ready
        done = self.eb.serve(ready)
        self.eb_start_ps = done[:, 0] - self.eb.row_ps
        done = done[:, self.maps.eb_leaves]
        return done if partial is None else np.maximum(done, partial)

    def gradient(self, dy: Times) -> None:
        """PG takes each row of output errors; its activations have been in Act-RAM since FP."""
        self.pg_end_ps = self.pg.serve(dy)[:, -1]

    def updated_ps(self, not_before_ps: int = 0) -> int:
        """When the update is through: each bank of LPRAM holds OC parameters, and all banks are updated at once."""
        return max(self.pg.free_ps, not_before_ps) + self.update_ps


def path_row_ps(link: Link, stream: Stream, others: tuple[Stream, ...]) -> int:
    """What a row takes on its path, whose share of the link is its part of the direction's bytes."""
    direction = sum(other.sample_bytes for other in others if other.path.is_forward == stream.path.is_forward)
    bits = 8 * direction * stream.row_bytes
    return -(-bits * 1_000_000 // (link.bandwidth_mbps * stream.sample_bytes))


@dataclasses.dataclass(frozen=True)
class Timing:
    """All constants of a chain's virtual time."""

    cluster: Cluster
    mapping: Mapping
    engines: tuple[tuple[SliceEngines, ...], ...]
    links: tuple[tuple[Stream, ...], ...]
    interval_ps: int
    loans: tuple[Loan, ...] = ()

    @classmethod
    def of(cls, mapping: Mapping, cluster: Cluster, loans: tuple[Loan, ...] = ()) -> Timing:
        """Allocate engines, lay out links, and find the slowest server, whose time for a sample is the interval.

        Raises:
            InputError: a board has too few multipliers.
        """
        devices = range(len(mapping.devices))
        engines = tuple(allocate(mapping, device, cluster.board(device)) for device in devices)
        links = tuple((*streams(mapping, link), *loan_streams(loans, link)) for link in devices[:-1])
        interval_ps = 1
        for device in devices:
            for held in engines[device]:
                for engine in held.built:
                    interval_ps = max(interval_ps, engine.sample_cycles * cluster.board(device).period_ps)
        for link_streams in links:
            for stream in link_streams:
                interval_ps = max(interval_ps, stream.rows * path_row_ps(cluster.link, stream, link_streams))
        return cls(cluster, mapping, engines, links, interval_ps, loans)

    def path(self, link: int, stream: Stream) -> Server:
        """A stream's share of its link, as a server."""
        return Server(path_row_ps(self.cluster.link, stream, self.links[link]), self.cluster.link.latency_ps)

    def clock(self, device: int) -> DeviceClock:
        """The clock of a device at time zero."""
        return DeviceClock(self, device)


class DeviceClock:
    """The virtual time of one device: its slices' engines, the paths on which it sends, and its updates."""

    def __init__(self, timing: Timing, device: int) -> None:
        board = timing.cluster.board(device)
        held = zip(timing.mapping.devices[device], timing.engines[device], strict=True)
        self.slices = [SliceClock(part, engines, board) for part, engines in held]
        self.paths: dict[Lane, Server] = {}
        for link, forward in ((device, True), (device - 1, False)):
            if 0 <= link < len(timing.links):
                for stream in timing.links[link]:
                    if stream.path.is_forward == forward:
                        self.paths[stream.lane] = timing.path(link, stream)
        self._interval_ps = timing.interval_ps
        stored = (loan.part for loan in timing.loans if loan.store_device == device)
        self._stored_update_ps = [len(part.out_channels) * board.period_ps for part in stored]
        self._next_entry_ps = 0
        self.updated_ps = 0

    def enter(self, samples: int, rows: int, not_before_ps: int) -> Times:
        """When samples enter the chain: one an interval, and not before the one ahead had the weights that it needs."""
        entries = self._next_entry_ps + self._interval_ps * np.arange(samples)
        entries[1:] += max(0, not_before_ps - int(entries[0]) - self._interval_ps)
        self._next_entry_ps = max(int(entries[-1]) + self._interval_ps, not_before_ps)
        return np.repeat(entries[:, None], rows, axis=1)

    def gradients_ps(self, came_ps: Sequence[int]) -> int:
        """When all gradients of a mini-batch are here, those of stored parameters, which came at these times, too."""
        return max(*(part.pg.free_ps for part in self.slices), *came_ps, 0)

    def update(self, came_ps: Sequence[int] = (), exchanged_ps: int = 0) -> None:
        """The device's weights are new when the last of its slices is through, and the last of what it stores.

        `came_ps` says when the gradients of each loan that it stores were here, `exchanged_ps` when replicas have
        exchanged theirs.
        """
        stored = zip(came_ps, self._stored_update_ps, strict=True)
        stored_ps = (max(came, exchanged_ps) + takes for came, takes in stored)
        self.updated_ps = max(*(part.updated_ps(exchanged_ps) for part in self.slices), *stored_ps, 0)
