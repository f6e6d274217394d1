"""Clusters: boards in a chain and the links between neighbours; boards and clusters as TOML."""

from .arrays import ArrayFpga, EngineArray
from .board import BANK_BYTES, KBIT, LSTM_UNITS, Board, Engine, PeArray, Resources, Work
from .changes import changeable_keys, check_changes, is_settable, settable_keys
from .cluster import CHAIN, Cluster, Link, LinkShare, OnBoard
from .constants import EXISTING, ConstantRange, RangeClass, find_range, range_of_class
from .fpga import Fpga, lut_multipliers
from .functions import FUNCTIONS, FunctionCore
from .gpu import Gpu
from .load import (
    NamedChain,
    board_files,
    board_keys,
    board_types,
    cluster_files,
    cluster_keys,
    clusters,
    link_keys,
    link_kinds,
    load_cluster,
    load_named,
)
from .multipliers import DSP_TYPES, Budget, Implementation, MultiplierRate, best_mix
from .peak import Gain, Peak, gain, peaks, products_per_cycle
from .varied import BANDWIDTH, CLOCK, LATENCY, MEMORY, Factors, varied, varied_board, varied_link

__all__ = [
    "BANDWIDTH",
    "BANK_BYTES",
    "CHAIN",
    "CLOCK",
    "DSP_TYPES",
    "EXISTING",
    "FUNCTIONS",
    "KBIT",
    "LATENCY",
    "LSTM_UNITS",
    "MEMORY",
    "ArrayFpga",
    "Board",
    "Budget",
    "Cluster",
    "ConstantRange",
    "Engine",
    "EngineArray",
    "Factors",
    "Fpga",
    "FunctionCore",
    "Gain",
    "Gpu",
    "Implementation",
    "Link",
    "LinkShare",
    "MultiplierRate",
    "NamedChain",
    "OnBoard",
    "PeArray",
    "Peak",
    "RangeClass",
    "Resources",
    "Work",
    "best_mix",
    "board_files",
    "board_keys",
    "board_types",
    "changeable_keys",
    "check_changes",
    "cluster_files",
    "cluster_keys",
    "clusters",
    "find_range",
    "gain",
    "is_settable",
    "link_keys",
    "link_kinds",
    "load_cluster",
    "load_named",
    "lut_multipliers",
    "peaks",
    "products_per_cycle",
    "range_of_class",
    "settable_keys",
    "varied",
    "varied_board",
    "varied_link",
]
