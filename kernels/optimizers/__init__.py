"""Optimisers: how a mini-batch's gradients change parameters; each is a file here."""

from .optimizer import Optimizer, optimizers
from .sgd import Sgd
from .unmoved import count_unmoved

__all__ = ["Optimizer", "Sgd", "count_unmoved", "optimizers"]
