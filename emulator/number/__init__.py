"""Which number formats a run has where: activations, weights, errors, gradients, master weights, and states."""

from .precision import KINDS, SINGLE, Precision, joined, precision_of
from .storage import Storage

__all__ = ["KINDS", "SINGLE", "Precision", "Storage", "joined", "precision_of"]
