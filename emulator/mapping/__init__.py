"""The mapping: layers cut by channels over boards, and the traffic between neighbours."""

from .balancing import (
    COPIES,
    BalancedParameters,
    Balancing,
    balance,
    balance_evenly,
    balanced_streams,
    blocks_of,
    channel_bytes,
)
from .coarse import coarse, coarse_shares
from .device_streams import DeviceStreams, with_errors
from .engines import SliceEngines, allocate, channel_works, engines_in_turn, idle_share, slice_works
from .gradient_row import gradient_values, kept_channels
from .memory import LUT_RAM_BITS, Buffer, SliceMemory, memories, parameter_memory, slice_memory
from .partition import partition
from .slices import Balance, Cut, Mapping, Slice, cut_channels, imbalance
from .traffic import VALUE_BYTES, DataPath, Stream, StreamKey, streams

__all__ = [
    "COPIES",
    "LUT_RAM_BITS",
    "VALUE_BYTES",
    "Balance",
    "BalancedParameters",
    "Balancing",
    "Buffer",
    "Cut",
    "DataPath",
    "DeviceStreams",
    "Mapping",
    "Slice",
    "SliceEngines",
    "SliceMemory",
    "Stream",
    "StreamKey",
    "allocate",
    "balance",
    "balance_evenly",
    "balanced_streams",
    "blocks_of",
    "channel_bytes",
    "channel_works",
    "coarse",
    "coarse_shares",
    "cut_channels",
    "engines_in_turn",
    "gradient_values",
    "idle_share",
    "imbalance",
    "kept_channels",
    "memories",
    "parameter_memory",
    "partition",
    "slice_memory",
    "slice_works",
    "streams",
    "with_errors",
]
