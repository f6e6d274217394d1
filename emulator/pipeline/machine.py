"""How a device executes actions and how messages travel, independent of the schedule."""

from __future__ import annotations

import dataclasses
import enum

from ..common import InputError
from ..schedule import Kind


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
