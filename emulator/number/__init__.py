"""Which number formats a run has where: activations, weights, errors, gradients, master weights, and states."""

from .multiplier import joint_class, narrowest
from .precision import KINDS, Precision, joined, precision_of

__all__ = ["KINDS", "Precision", "joined", "joint_class", "narrowest", "precision_of"]
