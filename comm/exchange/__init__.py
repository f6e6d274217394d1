"""Exchange of gradients between replicas of a network (INCEPTIONN, section IV): ring, aggregator, and hierarchies."""

from .aggregator import Aggregator
from .broadcast import Outlet
from .gradient import Gradient
from .groups import (
    Channel,
    Channels,
    DataParallel,
    ExchangePhase,
    ExchangeStep,
    GradientExchange,
    OnExchange,
    aggregator,
    exchange_steps,
    step_sizes,
)
from .histogram import BINS, LEAST_EXPONENT, histogram
from .message import GradientFormat, GradientMessage
from .nic import ORDINARY_TOS, Nic, Traffic
from .sizes import GivenBytes, SizeLog
from .time import (
    VALUE_BYTES,
    after_step,
    aggregator_ps,
    block_sizes,
    broadcast_ps,
    broadcast_rounds,
    bytes_at_ratio,
    hierarchy_ps,
    ring_messages,
    ring_places,
    ring_ps,
    ring_steps,
    sent_block,
)
from .timed import TimedExchange, TimedMember, exchange_ends_ps, exchange_ps

__all__ = [
    "BINS",
    "LEAST_EXPONENT",
    "ORDINARY_TOS",
    "VALUE_BYTES",
    "Aggregator",
    "Channel",
    "Channels",
    "DataParallel",
    "ExchangePhase",
    "ExchangeStep",
    "GivenBytes",
    "Gradient",
    "GradientExchange",
    "GradientFormat",
    "GradientMessage",
    "Nic",
    "OnExchange",
    "Outlet",
    "SizeLog",
    "TimedExchange",
    "TimedMember",
    "Traffic",
    "after_step",
    "aggregator",
    "aggregator_ps",
    "block_sizes",
    "broadcast_ps",
    "broadcast_rounds",
    "bytes_at_ratio",
    "exchange_ends_ps",
    "exchange_ps",
    "exchange_steps",
    "hierarchy_ps",
    "histogram",
    "ring_messages",
    "ring_places",
    "ring_ps",
    "ring_steps",
    "sent_block",
    "step_sizes",
]
