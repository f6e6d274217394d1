"""Convolution: FP, EB and PG of FPDeep (sections 5.3 to 5.5), on one register-tiled micro-kernel;
and in groups.
"""

from .convolution import Convolution, error, forward, gradient, output_shape
from .dot_groups import DotGrouped
from .dots import DotConvolution
from .geometry import Sums
from .grouped import Convolving, Depthwise, Grouped, convolution
from .look_up import LookUp

__all__ = [
    "Convolution",
    "Convolving",
    "Depthwise",
    "DotConvolution",
    "DotGrouped",
    "Grouped",
    "LookUp",
    "Sums",
    "convolution",
    "error",
    "forward",
    "gradient",
    "output_shape",
]
