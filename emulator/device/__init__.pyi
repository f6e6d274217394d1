from .device import Device, Epoch, Exchange, OnStep
from .device_numerics import DeviceNumerics
from .ends import ImageSource, SoftmaxHead, TextSource, VocabularyHead, epoch_order
from .formats import MapFormats
from .hurt_numerics import HurtNumerics, SoftErrors
from .memories import MASTER, Bpram, Parameter
from .norm import LIMBS, NormSums
from .pair_fpga import PairFpga
from .pair_gpu import OffloadedSlice, evaluate_on_gpu, train_on_gpu
from .pair_ports import PairPorts
from .ports import Maps, Outlet, Ports
from .program import train_programs
from .recurrent_slice import all_backward, all_forward
from .recurrent_weights import array_shapes, joined_weights, named_weights
from .rules import Rule, Rules
from .slice_kinds import numerics_of
from .slice_numerics import Learnt, SliceNumerics, State
from .tally import Tally

__all__ = [
    "LIMBS",
    "MASTER",
    "Bpram",
    "Device",
    "DeviceNumerics",
    "Epoch",
    "Exchange",
    "HurtNumerics",
    "ImageSource",
    "Learnt",
    "MapFormats",
    "Maps",
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
    "TextSource",
    "VocabularyHead",
    "all_backward",
    "all_forward",
    "array_shapes",
    "epoch_order",
    "evaluate_on_gpu",
    "joined_weights",
    "named_weights",
    "numerics_of",
    "train_on_gpu",
    "train_programs",
]
