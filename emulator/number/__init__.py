"""Which number formats a run has where: activations, weights, errors, gradients, master weights,
and states.
"""

from .exact import sum_bits
from .loss_scale import LossScale
from .precision import (
    HELD,
    SINGLE,
    Precision,
    Storage,
    check_dots,
    joint_class,
    named_format,
    narrowest,
    precision_of,
)
from .sharing import UNSHARED, Sharing
from .text import KINDS, joined

__all__ = [
    "HELD",
    "KINDS",
    "SINGLE",
    "UNSHARED",
    "LossScale",
    "Precision",
    "Sharing",
    "Storage",
    "check_dots",
    "joined",
    "joint_class",
    "named_format",
    "narrowest",
    "precision_of",
    "sum_bits",
]
