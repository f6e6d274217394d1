"""Which number formats a run has where: activations, weights, errors, gradients, master weights,
and states.
"""

from .exact import sum_bits
from .loss_scale import LossScale
from .precision import (
    HELD,
    KINDS,
    SINGLE,
    Precision,
    Storage,
    joined,
    joint_class,
    named_format,
    narrowest,
    precision_of,
)
from .sharing import UNSHARED, Sharing

__all__ = [
    "HELD",
    "KINDS",
    "SINGLE",
    "UNSHARED",
    "LossScale",
    "Precision",
    "Sharing",
    "Storage",
    "joined",
    "joint_class",
    "named_format",
    "narrowest",
    "precision_of",
    "sum_bits",
]
