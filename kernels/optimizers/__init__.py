"""Optimisers: how a mini-batch's gradients change parameters; each is a file here."""

from .optimizer import (
    NOT_FINITE,
    Optimizer,
    added,
    clip_factor,
    count_unmoved,
    norm,
    optimizer_kind,
    optimizers,
    parse_optimizer,
    squares_sum,
)
from .sgd import Sgd

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
