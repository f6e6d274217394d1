"""Optimisers: how a mini-batch's gradients change parameters; each is a file here."""

from .optimizer import OF_EVERY_RUN, Optimizer, optimizer_keys, optimizer_kind, optimizers
from .sgd import Sgd
from .statistics import NOT_FINITE, added, clip_factor, count_unmoved, norm, squares_sum

__all__ = [
    "NOT_FINITE",
    "OF_EVERY_RUN",
    "Optimizer",
    "Sgd",
    "added",
    "clip_factor",
    "count_unmoved",
    "norm",
    "optimizer_keys",
    "optimizer_kind",
    "optimizers",
    "squares_sum",
]
