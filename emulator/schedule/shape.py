"""What a schedule is made for: the machine, the epoch that is trained, or the mini-batch whose time
is asked for.

A machine says how devices execute actions and how messages travel, whatever the schedule.

Closed forms give the time of a mini-batch on equal stages, and say where they are exact: N devices,
M micro-batches, F and B a stage's times, SR that of a message. They are those of BaPipe, Tables I
and II, with its B that includes the parameter gradients. Which form applies follows from warm-ups
and machine, not from a schedule's name. Errors take as long on a link as features.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Sequence

from ..common import InputError
from .action import Kind


class Engines(enum.Enum):
    """What a device does at the same time."""

    SPLIT = "split"
    """F and B (EB and PG) have engines of their own, sized so that each kind takes as long as all
    together.
    """
    SHARED = "shared"
    """One pool: an action alone has all of it; those that run together share it, and end together.
    """
    TURNS = "turns"
    """One action at a time, in the order of the schedule."""


class Transport(enum.Enum):
    """When a message leaves and arrives. A link carries one message at a time in each direction."""

    STORED = "stored"
    """It leaves when its action is done."""
    HIDDEN = "hidden"
    """It leaves as it is computed: transfer overlaps its own action."""
    STREAMED = "streamed"
    """Its rows leave one by one as they are done; the receiver starts with the first of them."""


class Backward(enum.Enum):
    """Whether errors leave before the parameter gradients are computed."""

    FUSED = "fused"
    """B includes W."""
    SPLIT = "split"
    """B is EB alone, W is an action of its own."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """A kind of device and of links; `latency_ps` is added to each transfer and does not occupy the
    link.

    Raises:
        InputError: rows are to leave a shared pool, which has no fixed time for them.
    """

    engines: Engines = Engines.TURNS
    transport: Transport = Transport.STORED
    backward: Backward = Backward.FUSED
    latency_ps: int = 0

    @property
    def frees_features(self) -> Kind:
        """The kind of the action that needs a micro-batch's features last."""
        return Kind.BACKWARD if self.backward is Backward.FUSED else Kind.GRADIENT

    def __post_init__(self) -> None:
        if self.engines is Engines.SHARED and self.transport is Transport.STREAMED:
            raise InputError(
                "`transport` = streamed: rows of shared engines have no fixed time; try stored or"
                " hidden"
            )


@dataclasses.dataclass(frozen=True)
class StageCosts:
    """The costs of a stage for one micro-batch.

    `backward_ps` is all of B, EB and PG; `pg_ps` is the part of it that PG takes, None if it is not
    known. `transfer_ps` is the time of a message of features from this stage to the next;
    `errors_ps` that of the errors that come back, None if it is the same. `feature_bytes` are kept
    from F to B, `parameter_bytes` are the weights. A micro-batch has `samples` samples of `rows`
    rows each, which matter where messages are streamed: a row then takes an equal part of each
    time, rounded up to whole ps. `recompute_ps` is the time of R, an action of its own,
    `offload_ps` that of O, and of L.

    Raises:
        InputError: a time or a size is negative, F and B take no time, or there are no rows.
    """

    forward_ps: int
    backward_ps: int
    pg_ps: int | None = None
    transfer_ps: int = 0
    errors_ps: int | None = None
    feature_bytes: int = 0
    parameter_bytes: int = 0
    samples: int = 1
    rows: int = 1
    recompute_ps: int = 0
    offload_ps: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and value < 0:
                raise InputError(f"`{field.name}` = {value}: must not be negative")
        if self.forward_ps + self.backward_ps == 0:
            raise InputError("`forward_ps` = `backward_ps` = 0: a stage must take time")
        if not self.samples or not self.rows:
            raise InputError(
                f"`samples` = {self.samples}, `rows` = {self.rows}: must be at least 1"
            )
        if self.pg_ps is not None and self.pg_ps > self.backward_ps:
            raise InputError(
                f"`pg_ps` = {self.pg_ps}: is part of `backward_ps` = {self.backward_ps}"
            )

    @property
    def work_ps(self) -> int:
        """Time of F and B, of which each has all of the device."""
        return self.forward_ps + self.backward_ps

    @property
    def eb_ps(self) -> int:
        """The part of B that EB takes.

        Raises:
            InputError: it is not known.
        """
        return self.backward_ps - self.known_pg_ps

    @property
    def known_pg_ps(self) -> int:
        """The part of B that PG takes.

        Raises:
            InputError: it is not known.
        """
        if self.pg_ps is None:
            raise InputError("`pg_ps` = None: a split backward needs the part of B that PG takes")
        return self.pg_ps

    @property
    def sent_errors_ps(self) -> int:
        """Time of a message of errors from the next stage to this one."""
        return self.transfer_ps if self.errors_ps is None else self.errors_ps


@dataclasses.dataclass(frozen=True)
class Staleness:
    """The number of updates by which a device's weights are late, in F and in B, for each sample of
    a mini-batch.

    Samples come in order, so staleness never grows within a mini-batch, and grows by at most one
    from its last sample to the first of the next.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("forward", "backward"):
            object.__setattr__(self, name, _updates(getattr(self, name)))
        if len(self.forward) != len(self.backward):
            raise InputError(
                f"staleness of {len(self.forward)} samples forward, {len(self.backward)} backward:"
                " each should be of all samples of a mini-batch"
            )

    def at_least(self, other: Staleness) -> Staleness:
        """Return the larger staleness of both, sample by sample."""
        return Staleness(
            tuple(map(max, self.forward, other.forward)),
            tuple(map(max, self.backward, other.backward)),
        )

    @property
    def stale_samples(self) -> int:
        """Number of samples of a mini-batch whose FP uses old weights."""
        return sum(late > 0 for late in self.forward)


def _updates(late: Sequence[int]) -> tuple[int, ...]:
    """Return the updates by which a mini-batch's samples are late.

    Raises:
        InputError: there are none, they are no whole numbers, or weights would go back.
    """
    try:
        updates = tuple(map(operator.index, late))
    except TypeError:
        updates = ()
    if not updates:
        raise InputError(
            f"staleness {late!r:.80}: should be whole numbers, one for each sample of a mini-batch"
        )
    if (
        list(updates) != sorted(updates, reverse=True)
        or updates[0] > updates[-1] + 1
        or updates[-1] < 0
    ):
        raise InputError(
            f"staleness {str(updates)[:80]} would take weights back to an older version; it should"
            " never grow within a mini-batch, fall by 1 at most, and be 0 or more"
        )
    return updates


@dataclasses.dataclass(frozen=True)
class EpochShape:
    """The epoch that a schedule is made for: `samples` samples on a chain of `devices` devices.

    `staleness` is that of each device in the steady pipeline, where nothing waits for updates.
    `stores` are pairs of devices (user, store), of which the first uses parameters that the second
    stores. There are `chunks` stages on each device: stage c N + d of N devices is chunk c of
    device d. `warm_ups` are each device's warm-up forwards; if there are none, the kind of schedule
    decides.
    """

    devices: int
    samples: int
    batch: int
    micro_batch: int
    staleness: tuple[Staleness, ...] = ()
    stores: tuple[tuple[int, int], ...] = ()
    chunks: int = 1
    warm_ups: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Shape:
    """One mini-batch of `micro_batches` micro-batches on a chain of `devices` devices.

    `costs` are those of each stage; there are `chunks` stages on each device. `warm_ups` are each
    device's warm-up forwards, None where the kind of schedule decides.
    """

    devices: int
    micro_batches: int
    costs: Sequence[StageCosts]
    machine: Machine
    chunks: int = 1
    warm_ups: tuple[int, ...] | None = None

    @property
    def epoch(self) -> EpochShape:
        """The epoch of this one mini-batch, with micro-batches of one sample."""
        return EpochShape(
            self.devices,
            self.micro_batches,
            self.micro_batches,
            1,
            chunks=self.chunks,
            warm_ups=self.warm_ups or (),
        )

    @property
    def uniform(self) -> StageCosts | None:
        """The costs of every stage, None if they differ."""
        return self.costs[0] if all(costs == self.costs[0] for costs in self.costs) else None


@dataclasses.dataclass(frozen=True)
class ClosedForm:
    """The time of a mini-batch in ps by a formula, and whether that is exact here; `valid` says
    where it is.
    """

    time_ps: int
    valid: str
    exact: bool


def one_by_one(shape: Shape) -> ClosedForm | None:
    """Return the form for warm-up forwards and then B and F by turns."""
    costs, forwards = equal_costs(shape), shape.warm_ups
    if costs is None or forwards is None:
        return None
    if shape.machine.transport is Transport.STREAMED:
        return streamed(shape, costs)
    if not is_plain(shape.machine):
        return None
    least = tuple(range(shape.devices, 0, -1))
    double = tuple(2 * count for count in least)
    less = tuple(2 * count - 1 for count in least)
    if shape.machine.engines is Engines.TURNS and shape.machine.transport is Transport.STORED:
        if forwards == least:
            return _not_overlapped(shape, costs)
        if forwards == double:
            return overlapped(shape, costs, *within_each(costs))
        if forwards == less:
            return overlapped(
                shape, costs, "SR <= (F + B) / 2", 2 * costs.transfer_ps <= costs.work_ps
            )
        return None
    if shape.machine.transport is Transport.STORED and costs.transfer_ps:
        return None
    of_engines = {Engines.TURNS: (least, less, double), Engines.SHARED: (double,)}
    if forwards in of_engines.get(shape.machine.engines, ()):
        return ClosedForm(drained(shape, costs), *within_each(costs))
    if shape.machine.engines is Engines.SPLIT and forwards == double:
        # On engines of their own F and B take a slot of F + B each: the first micro-batch passes N
        # stages onwards and N back, and each other one ends a slot later.
        slots = shape.micro_batches + 2 * shape.devices - 1
        return ClosedForm(slots * costs.work_ps, "SR <= F + B", costs.transfer_ps <= costs.work_ps)
    return None


def equal_costs(shape: Shape) -> StageCosts | None:
    """Return the costs of every stage, None if they differ, or errors take another time than
    features.
    """
    costs = shape.uniform
    return None if costs is None or costs.sent_errors_ps != costs.transfer_ps else costs


def streamed(shape: Shape, costs: StageCosts) -> ClosedForm | None:
    """Return the form for engines of their own and streamed rows: (M + 1) (F + B) and 2 (N - 1)
    rows on their way.
    """
    machine = shape.machine
    if machine.engines is not Engines.SPLIT or machine.backward is not Backward.FUSED:
        return None
    rows = costs.samples * costs.rows
    row_ps, sent_ps = -(-costs.work_ps // rows), -(-costs.transfer_ps // rows)
    time = (shape.micro_batches * rows + costs.rows) * row_ps
    time += 2 * (shape.devices - 1) * (row_ps + sent_ps + machine.latency_ps)
    return ClosedForm(time, "SR <= F + B", sent_ps <= row_ps or shape.devices == 1)


def is_plain(machine: Machine) -> bool:
    """Return whether the tables are of such a machine: B includes PG, and links have no latency."""
    return machine.backward is Backward.FUSED and not machine.latency_ps


def within_each(costs: StageCosts) -> tuple[str, bool]:
    """Return the range in which each action is as long as a message, and whether it is so here."""
    return "SR <= min(F, B)", costs.transfer_ps <= min(costs.forward_ps, costs.backward_ps)


def drained(shape: Shape, costs: StageCosts) -> int:
    return (shape.micro_batches + shape.devices - 1) * costs.work_ps


def overlapped(shape: Shape, costs: StageCosts, valid: str, exact: bool) -> ClosedForm:
    return ClosedForm(
        drained(shape, costs) + (shape.devices - 1) * 2 * costs.transfer_ps, valid, exact
    )


def _not_overlapped(shape: Shape, costs: StageCosts) -> ClosedForm:
    count, devices = shape.micro_batches, shape.devices
    messages = devices + count - 2 - -(-(count - 1) // devices)
    exact = costs.transfer_ps <= costs.work_ps
    return ClosedForm(
        drained(shape, costs) + messages * 2 * costs.transfer_ps, "SR <= F + B", exact
    )
