"""Costs of collectives, fitted to the times of some, by which others are predicted.

Of one system, all collectives share the rate of links, the rate at which a board passes data on
through its memory, and a start; each protocol has a latency and costs of a message at its ends
(`comm.EndCosts`). A protocol with buffers (eager, TCP) copies each message once more at
its receiver, and adds while it copies. One without (rendezvous) agrees first, which is its latency,
and puts data in their place: only sums pass through memory.

    buffered      [send][== link ==]              bare     [agree][send][== link ==]
                             [receive][= copy =]                                [receive][= sum =]

Which steps a system takes is data, too: of each collective that was measured, those that fit best;
of others, of a buffered protocol a linear one or a ring, of a bare one whichever is faster, linear
or a tree, as libraries choose by size. The fit is one of logarithms, with weak priors on constants
that the data leave open. Two scatters stand behind the range of a next measurement: that of rows,
and that of collectives and numbers of nodes that were left out of the fit.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...comm import EndCosts, Interconnect
from ...comm.collective import (
    Collective,
    Goal,
    LaidPhase,
    check,
    collective_ends_ps,
    collectives,
    laid,
    piece_bounds,
)
from ..common import InputError, plural, toml_value
from .constants import Outlook, Setup, setups_of
from .mixed import Floats
from .reading import COLLECTIVE_TIMES, Kind, Row, Table

_GOALS = {goal.value: goal for goal in Goal}
_SPELT = {"bcast": "broadcast", "all-reduce": "allreduce", "all-gather": "allgather"}

KINDS = (Kind.COLLECTIVES, Kind.ALL_REDUCES)
"""Of tables."""

_NODES = ("nodes", "chips")
MOST_NODES = 512
"""More have not been measured, and take long to step through."""

_BYTES = {"bytes": 1, "floats": 4}
_SETUP = ("system", "gpu", "board")
_BARE = ("rndzvs", "rendezvous")
BUFFERED = "buffered"
"""The protocol of rows that name none."""


class CollectiveTime(NamedTuple):
    """A measured collective; rows that name no protocol have a buffered one."""

    row: Row
    goal: Goal
    nodes: int
    bytes: int
    us: float
    protocol: str


def collective_times(tables: Sequence[Table]) -> list[CollectiveTime]:
    """Return the collectives that tables have measured.

    Raises:
        InputError: a cell is wrong, or a table has measured something else.
    """
    other = next((table for table in tables if table.kind not in KINDS), None)
    if other is not None:
        raise InputError(f"{other.name}: measures {other.kind.value}, not collectives")
    return [_time_of(row) for table in tables for row in table.rows]


def _time_of(row: Row) -> CollectiveTime:
    word = row.cells["collective"].lower() if row.has("collective") else "allreduce"
    goal = _GOALS.get(_SPELT.get(word, word))
    if goal is None:
        raise InputError(f"{row.said('collective')}: should be one of {', '.join(_GOALS)}")
    nodes = row.count(next(column for column in _NODES if row.has(column)))
    if not 2 <= nodes <= MOST_NODES:
        raise InputError(f"{row}: {plural(nodes, 'node')}: should be from 2 to {MOST_NODES:,}")
    size = next(row.count(column) * width for column, width in _BYTES.items() if row.has(column))
    us = next(
        row.number(column) * unit for column, unit in COLLECTIVE_TIMES.items() if row.has(column)
    )
    protocol = (row.cells.get("protocol") or BUFFERED).lower()
    return CollectiveTime(row, goal, nodes, size, us, protocol)


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A protocol's latency, and costs of a message at its ends, in us; `sum_us` of each sum."""

    latency_us: float
    send_us: float
    receive_us: float
    sum_us: float = 0.0
    turn_bytes: float = math.inf

    def keys(self) -> dict[str, float]:
        """Return the keys of its table in a file."""
        times = (self.latency_us, self.send_us, self.receive_us, self.sum_us)
        keys = {key: round(us * 1e3, 3) for key, us in zip(_PROTOCOL_KEYS, times, strict=True)}
        return keys | ({} if self.turn_bytes == math.inf else {"turn_bytes": self.turn_bytes})


@dataclasses.dataclass(frozen=True)
class CollectiveModel:
    """What collectives of one system take.

    `link_us` and `pass_us` are for 1,000 bytes; `steps` has the collective of each goal that was
    measured. With `blocks` a size is that of a rank's block, otherwise that of all. Scatters are
    those of logarithms: of rows, of other numbers of nodes, and of collectives not measured.
    """

    where: Mapping[str, str]
    link_us: float
    pass_us: float
    start_us: float
    protocols: Mapping[str, Protocol]
    steps: Mapping[str, str]
    blocks: bool
    row_scatter: float = 0.0
    node_scatter: float = 0.0
    goal_scatter: float = 0.0
    nodes: tuple[int, ...] = ()
    goals: tuple[str, ...] = ()

    def us(self, goal: Goal, nodes: int, size: int, protocol: str) -> float:
        """Return what a collective takes, in us."""
        own = self.protocols[protocol]
        bare = protocol in _BARE
        costs = EndCosts(
            _ps(own.send_us),
            _ps(own.receive_us),
            0 if bare else _ps(self.pass_us),
            _ps(own.sum_us),
            own.turn_bytes,
        )
        over = Interconnect(
            _mbps(self.link_us),
            _ps(own.latency_us),
            sum_ps_per_kbyte=_ps(self.pass_us) if bare else 0,
            ends=costs,
        )
        ends = (
            _us(name, nodes, size, self.blocks, over) for name in self._names(goal, nodes, bare)
        )
        return self.start_us + min(ends)

    def _names(self, goal: Goal, nodes: int, bare: bool) -> Sequence[str]:
        chosen = self.steps.get(goal.value)
        if chosen is not None and collectives()[chosen]().problem(nodes) is None:
            return (chosen,)
        return _usual(goal, bare)

    def expects(self, time: CollectiveTime) -> Outlook:
        """Return what a measurement is expected to be, in us.

        The null model is the textbook's: the same steps, of messages that cost nothing at their
        ends and take what a message between two nodes does.
        """
        value = self.us(time.goal, time.nodes, time.bytes, time.protocol)
        scatter = self.goal_scatter
        if time.goal.value in self.goals:
            scatter = self.row_scatter if time.nodes in self.nodes else self.node_scatter
        spread = math.exp(_SCORE * scatter)
        return Outlook(value, value / spread, value * spread, self._textbook_us(time))

    def _textbook_us(self, time: CollectiveTime) -> float:
        own = self.protocols[time.protocol]
        each_us = self.link_us + (0 if time.protocol in _BARE else self.pass_us)
        latency_us = self.start_us + own.latency_us + own.send_us + own.receive_us
        over = Interconnect(_mbps(each_us), _ps(latency_us))
        name = _TEXTBOOK.get(time.goal, _usual(time.goal, bare=False)[0])
        return _us(name, time.nodes, time.bytes, self.blocks, over)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> CollectiveModel:
        """Return what a table `[[collectives]]` of a file says, which is valid."""
        protocols = {}
        for name, own in table["protocols"].items():
            latency, send, receive, added = (own.get(key, 0.0) / 1e3 for key in _PROTOCOL_KEYS)
            turn = own.get("turn_bytes", math.inf)
            protocols[name] = Protocol(latency, send, receive, added, turn)
        return cls(
            table.get("where", {}),
            8 / table["bandwidth_gbps"],
            table["pass_ns_per_kbyte"] / 1e3,
            table.get("start_us", 0.0),
            protocols,
            table.get("steps", {}),
            table.get("blocks", True),
            row_scatter=table["row_scatter"],
            node_scatter=table["node_scatter"],
            goal_scatter=table["goal_scatter"],
            nodes=tuple(table["nodes"]),
            goals=tuple(table["goals"]),
        )

    def toml(self) -> list[str]:
        """Return the lines of its table."""
        lines = ["", "[[collectives]]"]
        lines += [f"where = {toml_value(dict(self.where))}"] if self.where else []
        lines.append(f"bandwidth_gbps = {8 / self.link_us:.6g}")
        lines.append(f"pass_ns_per_kbyte = {self.pass_us * 1e3:.6g}")
        lines.append(f"start_us = {self.start_us:.6g}")
        lines.append(f"blocks = {toml_value(self.blocks)}")
        lines += [f"steps = {toml_value(dict(self.steps))}"] if self.steps else []
        lines.append(f"goals = {toml_value(list(self.goals))}")
        lines.append(f"nodes = {toml_value(list(self.nodes))}")
        lines += [f"{key} = {getattr(self, key):.4g}" for key in _SCATTERS]
        protocols = {name: own.keys() for name, own in self.protocols.items()}
        lines.append(f"protocols = {toml_value(protocols)}")
        return lines

    def network(self) -> dict[str, object]:
        """Return the keys of `[network]`, for gradients: with a protocol that agrees first, if
        there is one.
        """
        protocols = self.protocols
        name = next((name for name in protocols if name in _BARE), next(iter(protocols)))
        own, through_memory = protocols[name], 1 / self.pass_us
        keys: dict[str, object] = {
            "bandwidth_gbps": 8 / self.link_us,
            "latency_us": own.latency_us,
            "start_us": self.start_us,
            "send_ns": own.send_us * 1e3,
            "receive_ns": own.receive_us * 1e3,
        }
        if name in _BARE:
            keys |= {"sum_start_ns": own.sum_us * 1e3, "sum_gbytes_per_s": through_memory}
        else:
            # It adds while it copies.
            keys |= {"copy_gbytes_per_s": through_memory, "sum_gbytes_per_s": 1e6}
        if own.turn_bytes != math.inf:
            keys["turn_bytes"] = own.turn_bytes
        return {"topology": "switch", **{key: float(f"{value:.6g}") for key, value in keys.items()}}


_SCATTERS = ("row_scatter", "node_scatter", "goal_scatter")
_PROTOCOL_KEYS = ("latency_ns", "send_ns", "receive_ns", "sum_ns")
_SCORE = 1.645
"""A range of 90 % is as many standard deviations to either side."""

_TEXTBOOK = {Goal.BROADCAST: "binomial-broadcast", Goal.REDUCE: "binomial-reduce"}

_USUAL = {
    Goal.SENDRECV: ("linear-broadcast",),
    Goal.BROADCAST: ("linear-broadcast", "binomial-broadcast"),
    Goal.REDUCE: ("linear-reduce", "binomial-reduce"),
    Goal.ALL_REDUCE: ("ring",),
    Goal.REDUCE_SCATTER: ("ring-reduce-scatter",),
    Goal.SCATTER: ("linear-scatter",),
    Goal.GATHER: ("linear-gather",),
    Goal.ALL_GATHER: ("ring-allgather",),
    Goal.ALL_TO_ALL: ("alltoall-in-order",),
}


def _usual(goal: Goal, bare: bool) -> Sequence[str]:
    """Return the collectives of a goal of which the fastest is taken, where none was measured."""
    return _USUAL[goal] if bare else _USUAL[goal][:1]


@functools.lru_cache(maxsize=4096)
def _laid(name: str, nodes: int) -> tuple[Collective, tuple[LaidPhase, ...]]:
    """Return a collective and its phases on a switch, after a dry run."""
    collective = collectives()[name]()
    return collective, laid(check(collective, nodes), Interconnect.topology)


def _us(name: str, nodes: int, size: int, blocks: bool, over: Interconnect) -> float:
    """Return what a collective takes on a switch, in us."""
    collective, phases = _laid(name, nodes)
    whole = not (blocks and collective.goal.is_in_blocks)

    def bounds(pieces: int) -> Sequence[int]:
        return piece_bounds(size, pieces) if whole else range(0, size * pieces + 1, size)

    ready = np.zeros(collective.nodes(nodes), np.int64)
    ends = collective_ends_ps(phases, over, ready, bounds)
    return float(ends[:nodes].max()) * 1e-6


def _ps(us: float) -> int:
    return round(us * 1e6)


def _mbps(us_per_kbyte: float) -> int:
    return max(1, round(8000 / us_per_kbyte))


_LIKELY_BUFFERED = ((1.0, 3.0), (0.5, 3.0), (1.5, 3.0))
_LIKELY_BARE = ((6.0, 3.0), (0.5, 3.0), (0.5, 3.0), (1.5, 2.0))
"""Latency, costs of sending, receiving and a sum, in us, and the factors by which they vary."""


@dataclasses.dataclass(frozen=True)
class _Shape:
    """What a fit does not change: the protocols, and which steps, blocks and turns are taken."""

    where: Mapping[str, str]
    protocols: tuple[str, ...]
    likely_link_us: float
    steps: Mapping[str, str] = dataclasses.field(default_factory=dict)
    blocks: bool = True
    turn_bytes: float = math.inf

    @property
    def priors(self) -> tuple[Floats, Floats]:
        """The logarithms of constants that are likely, and of the factors by which they vary."""
        likely = [(self.likely_link_us, 2.0), (self.likely_link_us, 2.0), (0.1, 30.0)]
        for protocol in self.protocols:
            likely += _LIKELY_BARE if protocol in _BARE else _LIKELY_BUFFERED
        values, factors = np.log(np.array(likely)).T
        return values, factors

    def model(self, logs: Floats) -> CollectiveModel:
        """Return the model of some constants' logarithms."""
        values = iter(np.exp(logs).tolist())
        link, passing, start = (next(values) for _ in range(3))
        protocols = {}
        for protocol in self.protocols:
            own = Protocol(next(values), next(values), next(values))
            if protocol in _BARE:
                own = dataclasses.replace(own, sum_us=next(values), turn_bytes=self.turn_bytes)
            protocols[protocol] = own
        return CollectiveModel(self.where, link, passing, start, protocols, self.steps, self.blocks)

    def errors(self, logs: Floats, times: Sequence[CollectiveTime]) -> Floats:
        """Return the logarithms of modelled over measured times."""
        model = self.model(logs)
        return np.array(
            [math.log(model.us(t.goal, t.nodes, t.bytes, t.protocol) / t.us) for t in times]
        )


_ROW = 0.05
"""The scatter of a row that a fit weighs priors against."""

_NODES_APART, _GOALS_APART = 0.10, 0.20
"""Scatters of other numbers of nodes, and of collectives that were not measured, assumed where the
data do not say more. Of U55C over RDMA, at 3 and 4 boards, they are 0.14, and 0.15 to 0.53 by which
collective is fitted.
"""

_USUAL_PARTS = 0.5
"""As many parts as those scatters count."""

_HUBER = 2.0
_STEPS, _MOST_TURNS, _FEW_TURNS = 1e-3, 25, 6
_MOST_WEIGHED = 100
"""Rows by which steps are chosen: more of them take long."""

_WORTH = 1.0
"""By how much less a loss has to be for other steps."""

_MOST_LEFT_OUT = 6
_TURNS = (math.inf, 16384, 32768, 65536, 131072, 262144)
LIKELY_TURN = 65536
"""Bytes from which bare messages go in turn, assumed where no data say it."""
_STARTS = (16384, LIKELY_TURN, 262144)
"""Those from which a search begins where data may say it."""


def fit_collectives(tables: Sequence[Table]) -> list[CollectiveModel]:
    """Return the costs of each system in some tables.

    Raises:
        InputError: a cell is wrong, or a system has too few rows.
    """
    times = collective_times(tables)
    systems: dict[Setup, list[CollectiveTime]] = {}
    for setup, time in zip(setups_of([time.row for time in times], _SETUP), times, strict=True):
        systems.setdefault(setup, []).append(time)
    return [_fit(dict(setup), own) for setup, own in systems.items()]


def _fit(where: Mapping[str, str], times: Sequence[CollectiveTime]) -> CollectiveModel:
    protocols = tuple(dict.fromkeys(time.protocol for time in times))
    if len({time.bytes for time in times}) < 3:
        raise InputError(f"{times[0].row}: a fit needs three sizes at least")
    link_us = _likely_link_us(times)
    turns = _STARTS if _may_take_turns(times) else (LIKELY_TURN,)
    # Steps suit the turns with which they are chosen: from one start alone, a search may end early.
    starts = (_Shape(where, protocols, link_us, turn_bytes=turn) for turn in turns)
    _, shape, logs = min((_chosen(start, times) for start in starts), key=lambda way: way[0])
    logs = _solved(shape, times, logs)
    rows, nodes, goals = _scatters(shape, logs, times)
    return dataclasses.replace(
        shape.model(logs),
        row_scatter=rows,
        node_scatter=nodes,
        goal_scatter=goals,
        nodes=tuple(sorted({time.nodes for time in times})),
        goals=tuple(goal.value for goal in _goals(times)),
    )


def _chosen(shape: _Shape, times: Sequence[CollectiveTime]) -> tuple[float, _Shape, Floats]:
    """Return the loss of what the data prefer, changed one by one from a shape on; it, and its
    constants' logarithms.
    """
    some = times[:: -(-len(times) // _MOST_WEIGHED)]
    logs = _solved(shape, some)
    loss = _loss(shape, logs, some)
    for change in _choices([time for time in times if time.nodes > 2]):
        other = change(shape)
        tried = _solved(other, some, logs, turns=_FEW_TURNS)
        if (less := _loss(other, tried, some)) < loss - _WORTH:
            shape, logs, loss = other, tried, less
    return loss, shape, logs


def _may_take_turns(times: Sequence[CollectiveTime]) -> bool:
    """Whether the data may say from which bytes on messages go in turn."""
    return any(
        time.nodes > 2 and time.protocol in _BARE and time.goal.is_in_blocks for time in times
    )


def _goals(times: Sequence[CollectiveTime]) -> list[Goal]:
    return [*dict.fromkeys(time.goal for time in times)]


def _likely_link_us(times: Sequence[CollectiveTime]) -> float:
    """Return what 1,000 bytes may take on a link, by what the largest of the fewest nodes take."""
    unit = _Shape({}, tuple({time.protocol for time in times}), 1.0)
    small = -30.0 * np.ones_like(unit.priors[0])
    small[:2] = 0.0
    fewest = min(time.nodes for time in times)
    largest = max(
        (time for time in times if time.nodes == fewest), key=lambda time: (time.bytes, -time.us)
    )
    return float(np.exp(-unit.errors(small, [largest])[0]))


def _choices(several: Sequence[CollectiveTime]) -> list[Callable[[_Shape], _Shape]]:
    """Return changes of what is not fitted that the data may prefer."""
    changes: list[Callable[[_Shape], _Shape]] = []
    if any(time.goal.is_in_blocks for time in several):
        changes.append(lambda one: dataclasses.replace(one, blocks=not one.blocks))
    for goal in _goals(several):
        names = [name for name, kind in collectives().items() if kind.goal is goal]
        takes = [name for name in names if _takes_all(name, goal, several)]
        changes += [functools.partial(_with_steps, goal.value, name) for name in takes]
    if _may_take_turns(several):
        changes += [functools.partial(_with_turns, size) for size in _TURNS]
    return changes


def _with_steps(goal: str, name: str, shape: _Shape) -> _Shape:
    return dataclasses.replace(shape, steps={**shape.steps, goal: name})


def _with_turns(turn_bytes: float, shape: _Shape) -> _Shape:
    return dataclasses.replace(shape, turn_bytes=turn_bytes)


def _takes_all(name: str, goal: Goal, several: Sequence[CollectiveTime]) -> bool:
    kind = collectives()[name]()
    return all(kind.problem(time.nodes) is None for time in several if time.goal is goal)


def _residuals(shape: _Shape, logs: Floats, times: Sequence[CollectiveTime]) -> Floats:
    """Return errors over the scatter of a row, and constants' distances over their priors'."""
    likely, factors = shape.priors
    return np.concatenate([shape.errors(logs, times) / _ROW, (logs - likely) / factors])


def _loss(shape: _Shape, logs: Floats, times: Sequence[CollectiveTime]) -> float:
    far = np.abs(_residuals(shape, logs, times))
    return float(np.where(far < _HUBER, far**2 / 2, _HUBER * far - _HUBER**2 / 2).sum())


def _solved(
    shape: _Shape,
    times: Sequence[CollectiveTime],
    start: Floats | None = None,
    turns: int = _MOST_TURNS,
) -> Floats:
    """Return the constants' logarithms of least loss: Levenberg-Marquardt, with Huber's weights."""
    logs, damping = (shape.priors[0].copy() if start is None else start), 1e-2
    loss = _loss(shape, logs, times)
    for _ in range(turns):
        residuals = _residuals(shape, logs, times)
        slopes = np.column_stack(
            [
                (_residuals(shape, logs + step, times) - residuals) / _STEPS
                for step in np.eye(len(logs)) * _STEPS
            ]
        )
        weights = 1 / np.maximum(1, np.abs(residuals) / _HUBER)
        normal = slopes.T @ (weights[:, None] * slopes)
        down = slopes.T @ (weights * residuals)
        for _ in range(8):
            tried = logs - np.linalg.solve(normal + damping * np.diag(normal.diagonal()), down)
            less = _loss(shape, tried, times)
            if less < loss:
                break
            damping *= 4
        else:
            return logs
        gained, logs, loss, damping = loss - less, tried, less, damping / 4
        if gained < 1e-3 * loss:
            break
    return logs


def _scatters(
    shape: _Shape, logs: Floats, times: Sequence[CollectiveTime]
) -> tuple[float, float, float]:
    """Return the scatters of a fit: of rows, and of numbers of nodes and of collectives that are
    left out of it.
    """
    rows = _rms(shape.errors(logs, times))
    left_out = functools.partial(_left_out, shape, logs, times)
    nodes = max(rows, left_out(lambda time: (time.goal, time.nodes), _NODES_APART))
    return rows, nodes, max(nodes, left_out(lambda time: time.goal, _GOALS_APART))


def _left_out(
    shape: _Shape,
    start: Floats,
    times: Sequence[CollectiveTime],
    part: Callable[[CollectiveTime], object],
    usual: float,
) -> float:
    """Return the scatter of parts of the rows of several nodes that the others predict; with few
    parts it is drawn to a usual one.
    """
    parts = [*dict.fromkeys(part(time) for time in times if time.nodes > 2)]
    if len(parts) < 2:
        return usual
    errors = []
    for left in parts[:: -(-len(parts) // _MOST_LEFT_OUT)]:
        others = [time for time in times if part(time) != left]
        logs = _solved(shape, others, start, _FEW_TURNS)
        errors.append(shape.errors(logs, [time for time in times if part(time) == left]))
    own, count = _rms(np.concatenate(errors)), len(errors)
    return math.sqrt((count * own**2 + _USUAL_PARTS * usual**2) / (count + _USUAL_PARTS))


def _rms(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))
