from .bpram import Bpram
from .device import Device, Epoch, Exchange, OnStep, train_stages
from .device_numerics import DeviceNumerics
from .ends import ImageSource, SoftmaxHead, TextSource, epoch_order
from .kinds import numerics_of
from .lpram import Parameter, Sgd
from .ports import Outlet, Ports
from .recurrent_weights import named_weights
from .slice_numerics import SliceNumerics
from .tally import Tally

__all__ = [
    "Bpram",
    "Device",
    "DeviceNumerics",
    "Epoch",
    "Exchange",
    "ImageSource",
    "OnStep",
    "Outlet",
    "Parameter",
    "Ports",
    "Sgd",
    "SliceNumerics",
    "SoftmaxHead",
    "Tally",
    "TextSource",
    "epoch_order",
    "named_weights",
    "numerics_of",
    "train_stages",
]
