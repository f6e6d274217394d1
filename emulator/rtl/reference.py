"""What training in the emulator makes of one mini-batch: the weights before and after it, and what enters it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset
from ..plan import ChainPlan
from .chain import MiniBatch

Weights = Mapping[str, Mapping[str, NDArray[np.float32]]]
"""Weights (oc, ic, kh, kw) and bias (oc,) of each layer, by its name."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """A mini-batch that was trained, with all layers' weights before and after."""

    batch: MiniBatch
    before: Weights
    after: Weights


def drawn_images(plan: ChainPlan) -> Dataset:
    """Return a mini-batch of drawn images and labels, for a network of any shape; they depend on the seed alone."""
    stream = np.random.Generator(np.random.Philox(key=[plan.config.seed, 1 << 62]))
    classes, samples = plan.network.layers[-1].channels, plan.config.batch
    images = stream.integers(0, 256, (samples, *plan.network.input), dtype=np.uint8)
    labels = stream.integers(0, classes, samples)
    return Dataset("drawn", images, labels, images[:0], labels[:0], tuple(map(str, range(classes))))
