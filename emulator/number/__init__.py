"""Which number formats a run has where: activations, weights, errors, gradients, master weights,
and states.
"""

from .classes import HELD, Classes, joint_class, joint_classes, narrowest
from .exact import sum_bits
from .loss_scale import LossScale
from .precision import (
    OF_WEIGHTS,
    SINGLE,
    Precision,
    check_dots,
    named_format,
    precision_of,
)
from .sharing import UNSHARED, Sharing
from .storage import Storage
from .text import KINDS, NARROW, joined

__all__ = [
    "HELD",
    "KINDS",
    "NARROW",
    "OF_WEIGHTS",
    "SINGLE",
    "UNSHARED",
    "Classes",
    "LossScale",
    "Precision",
    "Sharing",
    "Storage",
    "check_dots",
    "joined",
    "joint_class",
    "joint_classes",
    "named_format",
    "narrowest",
    "precision_of",
    "sum_bits",
]
