from .device import Device, Epoch, Exchange, OnStep, train_programs
from .device_numerics import DeviceNumerics, numerics_of
from .ends import (
    BceHead,
    ImageSource,
    LogitsHead,
    MapSource,
    MseHead,
    SoftmaxHead,
    Tally,
    TextSource,
    VocabularyHead,
    epoch_order,
)
from .formats import MapFormats
from .memories import MASTER, TURNED, Bpram, Parameter
from .pair import OffloadedSlice, PairFpga, PairPorts, evaluate_on_gpu, train_on_gpu
from .ports import Maps, Outlet, Ports
from .rules import Rule, Rules
from .scales import TensorScales, is_of_scales, merged_scales
from .sideband import LIMBS, SCALED_ARRAYS, NormSums
from .slices import (
    Learnt,
    SliceNumerics,
    State,
    all_backward,
    all_forward,
    array_shapes,
    joined_weights,
    named_weights,
)
from .soft_errors import FaultyNumerics, SoftErrors

__all__ = [
    "LIMBS",
    "MASTER",
    "SCALED_ARRAYS",
    "TURNED",
    "BceHead",
    "Bpram",
    "Device",
    "DeviceNumerics",
    "Epoch",
    "Exchange",
    "FaultyNumerics",
    "ImageSource",
    "Learnt",
    "LogitsHead",
    "MapFormats",
    "MapSource",
    "Maps",
    "MseHead",
    "NormSums",
    "OffloadedSlice",
    "OnStep",
    "Outlet",
    "PairFpga",
    "PairPorts",
    "Parameter",
    "Ports",
    "Rule",
    "Rules",
    "SliceNumerics",
    "SoftErrors",
    "SoftmaxHead",
    "State",
    "Tally",
    "TensorScales",
    "TextSource",
    "VocabularyHead",
    "all_backward",
    "all_forward",
    "array_shapes",
    "epoch_order",
    "evaluate_on_gpu",
    "is_of_scales",
    "joined_weights",
    "merged_scales",
    "named_weights",
    "numerics_of",
    "train_on_gpu",
    "train_programs",
]
