"""Which number formats a run has where: activations, weights, errors, gradients, master weights, and states."""

from .multiplier import joint_class, narrowest
from .precision import KINDS, SINGLE, Precision, joined, named_format, precision_of
from .storage import Storage

__all__ = [
    "KINDS",
    "SINGLE",
    "Precision",
    "Storage",
    "joined",
    "joint_class",
    "named_format",
    "narrowest",
    "precision_of",
]
