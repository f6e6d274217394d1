"""How devices execute actions and how messages travel, whatever the schedule; and what a stage takes on them."""

from __future__ import annotations

import dataclasses
import enum

from ..common import InputError
from .action import Kind


class Engines(enum.Enum):
    """What a device does at the same time."""

    SPLIT = "split"
    """F and B (EB and PG) have engines of their own, sized so that each kind takes as long as all together."""
    SHARED = "shared"
    """One pool: an action alone has all of it; those that run together share it, and end together."""
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
    """A kind of device and of links; `latency_ps` is added to each transfer and does not occupy the link.

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
            raise InputError("`transport` = streamed: rows of shared engines have no fixed time; try stored or hidden")


@dataclasses.dataclass(frozen=True)
class StageCosts:
    """The costs of a stage for one micro-batch.

    `backward_ps` is all of B, EB and PG; `pg_ps` is the part of it that PG takes, None if it is not known.
    `transfer_ps` is the time of a message of features from this stage to the next; `errors_ps` that of the errors that
    come back, None if it is the same. `feature_bytes` are kept from F to B, `parameter_bytes` are the weights. A
    micro-batch has `samples` samples of `rows` rows each, which matter where messages are streamed: a row then takes an
    equal part of each time, rounded up to whole ps.

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

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and value < 0:
                raise InputError(f"`{field.name}` = {value}: must not be negative")
        if self.forward_ps + self.backward_ps == 0:
            raise InputError("`forward_ps` = `backward_ps` = 0: a stage must take time")
        if not self.samples or not self.rows:
            raise InputError(f"`samples` = {self.samples}, `rows` = {self.rows}: must be at least 1")
        if self.pg_ps is not None and self.pg_ps > self.backward_ps:
            raise InputError(f"`pg_ps` = {self.pg_ps}: is part of `backward_ps` = {self.backward_ps}")

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
