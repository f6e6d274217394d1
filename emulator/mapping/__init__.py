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
from .engines import SliceEngines, allocate, allocate_all, channel_works, engines_in_turn, idle_share, slice_works
from .gradient_row import gradient_values, kept_channels
from .memory import LUT_RAM_BITS, Buffer, SliceMemory, memories, parameter_memory, slice_memory
from .off_chip import MemoryStream, OffChip, activation_bytes, memory_streams, port_bytes, stored_bytes, update_bytes
from .partition import can_take, partition, partition_with_memory
from .placement import Chain, Placement, place
from .row import PieceMemory
from .sending import steps_before_sending
from .shedding import SliceNeeds, WeightBanks, shed, slice_needs
from .slices import Balance, Cut, Mapping, Slice, cut_channels, imbalance, inputs_before
from .traffic import (
    PRECISIONS,
    VALUE_BYTES,
    DataPath,
    Stream,
    StreamKey,
    carried_bytes,
    path_row_ps,
    sample_ps,
    stream_row_ps,
    streams,
    streams_between,
)
from .whole_layers import LayerCut, cut_layers, partition_layers, whole_layers

__all__ = [
    "COPIES",
    "LUT_RAM_BITS",
    "PRECISIONS",
    "VALUE_BYTES",
    "Balance",
    "BalancedParameters",
    "Balancing",
    "Buffer",
    "Chain",
    "Cut",
    "DataPath",
    "DeviceStreams",
    "LayerCut",
    "Mapping",
    "MemoryStream",
    "OffChip",
    "PieceMemory",
    "Placement",
    "Slice",
    "SliceEngines",
    "SliceMemory",
    "SliceNeeds",
    "Stream",
    "StreamKey",
    "WeightBanks",
    "activation_bytes",
    "allocate",
    "allocate_all",
    "balance",
    "balance_evenly",
    "balanced_streams",
    "blocks_of",
    "can_take",
    "carried_bytes",
    "channel_bytes",
    "channel_works",
    "coarse",
    "coarse_shares",
    "cut_channels",
    "cut_layers",
    "engines_in_turn",
    "gradient_values",
    "idle_share",
    "imbalance",
    "inputs_before",
    "kept_channels",
    "memories",
    "memory_streams",
    "parameter_memory",
    "partition",
    "partition_layers",
    "partition_with_memory",
    "path_row_ps",
    "place",
    "port_bytes",
    "sample_ps",
    "shed",
    "slice_memory",
    "slice_needs",
    "slice_works",
    "steps_before_sending",
    "stored_bytes",
    "stream_row_ps",
    "streams",
    "streams_between",
    "update_bytes",
    "whole_layers",
    "with_errors",
]
