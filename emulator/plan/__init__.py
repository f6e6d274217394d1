"""One frozen `Plan` from a configuration, the same on every rank: placement, steady state, resources, layout."""

from .data import check_data, epoch_samples, training_data
from .layout import OFF_CHIP_PASSES, DeviceLayout, Layout, LinkLayout, SliceLayout, lay_out
from .placement import place, smallest_cluster
from .plan import Plan, describe_devices, exchange_loads, exchange_times, make_plan
from .replication import check_samples
from .resources import bram_bytes, buffer_resources, lut_bytes, transceivers_used
from .steady import SteadyPipeline, find_steady

__all__ = [
    "OFF_CHIP_PASSES",
    "DeviceLayout",
    "Layout",
    "LinkLayout",
    "Plan",
    "SliceLayout",
    "SteadyPipeline",
    "bram_bytes",
    "buffer_resources",
    "check_data",
    "check_samples",
    "describe_devices",
    "epoch_samples",
    "exchange_loads",
    "exchange_times",
    "find_steady",
    "lay_out",
    "lut_bytes",
    "make_plan",
    "place",
    "smallest_cluster",
    "training_data",
    "transceivers_used",
]
