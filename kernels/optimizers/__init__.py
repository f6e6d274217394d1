"""Optimisers: how a mini-batch's gradients change parameters; each is a file here."""

from .optimizer import Optimizer, optimizers
from .sgd import Sgd

__all__ = ["Optimizer", "Sgd", "optimizers"]
