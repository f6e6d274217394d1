"""One frozen `Plan` from a configuration, the same on every rank: placement, steady state, resources, layout."""

from .chain import asked_chunks, check_samples, warm_ups_of
from .data import (
    check_data,
    check_normalised,
    configured_network,
    data_of,
    drawn_layers,
    epoch_samples,
    limited,
    network_of,
    training_data,
)
from .layout import OFF_CHIP_PASSES, DeviceLayout, Layout, SliceLayout, lay_out, lay_out_on_chip
from .make import make_plan, plan_run, planned_on
from .numbers import in_precision
from .pair import PairPlan, make_pair_plan
from .placement import (
    bram_bytes,
    buffer_resources,
    lut_bytes,
    missing_bytes,
    off_chip_bytes,
    on_chip_banks,
    place_on_chip,
    smallest_cluster,
    transceivers_used,
)
from .plan import ChainPlan, Plan, describe_devices, exchange_loads, exchange_times
from .stages import PlannedStages
from .steady import fill_ps, find_steady
from .work import (
    check_batch,
    check_memory,
    duration,
    idle_settings,
    long_actions,
    long_plan,
    long_timing,
    long_work,
)

__all__ = [
    "OFF_CHIP_PASSES",
    "ChainPlan",
    "DeviceLayout",
    "Layout",
    "PairPlan",
    "Plan",
    "PlannedStages",
    "SliceLayout",
    "asked_chunks",
    "bram_bytes",
    "buffer_resources",
    "check_batch",
    "check_data",
    "check_memory",
    "check_normalised",
    "check_samples",
    "configured_network",
    "data_of",
    "describe_devices",
    "drawn_layers",
    "duration",
    "epoch_samples",
    "exchange_loads",
    "exchange_times",
    "fill_ps",
    "find_steady",
    "idle_settings",
    "in_precision",
    "lay_out",
    "lay_out_on_chip",
    "limited",
    "long_actions",
    "long_plan",
    "long_timing",
    "long_work",
    "lut_bytes",
    "make_pair_plan",
    "make_plan",
    "missing_bytes",
    "network_of",
    "off_chip_bytes",
    "on_chip_banks",
    "place_on_chip",
    "plan_run",
    "planned_on",
    "smallest_cluster",
    "training_data",
    "transceivers_used",
    "warm_ups_of",
]
