"""Optimisers: how a mini-batch's gradients change parameters; each is a file here."""

from .optimizer import Optimizer, optimizer_kind, optimizers, parse_optimizer
from .sgd import Sgd
from .statistics import NOT_FINITE, added, clip_factor, count_unmoved, norm, squares_sum

__all__ = [
    "NOT_FINITE",
    "Optimizer",
    "Sgd",
    "added",
    "clip_factor",
    "count_unmoved",
    "norm",
    "optimizer_kind",
    "optimizers",
    "parse_optimizer",
    "squares_sum",
]
