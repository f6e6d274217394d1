"""What a simulation of RTL begins with: images and biases that are drawn, so that each part of the RTL counts.

Training starts with biases of 0, and a first update with velocities of 0: an SFU that adds no bias, or an update that
forgets its velocity, would have the same bits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset
from ..network import Layer
from ..plan import ChainPlan

MINI_BATCHES = 2
"""Mini-batches of a simulation: the second update reads the velocities that the first has left."""

_IMAGES, _BIASES = 1 << 62, (1 << 62) + 1
"""Second words of the keys of the streams; each layer's biases have one of their own."""


def drawn_images(plan: ChainPlan) -> Dataset:
    """Return mini-batches of drawn images and labels, for a network of any shape; they depend on the seed alone."""
    stream = _stream(plan.config.seed, _IMAGES)
    classes, samples = plan.network.layers[-1].channels, MINI_BATCHES * plan.config.batch
    images = stream.integers(0, 256, (samples, *plan.network.input), dtype=np.uint8)
    labels = stream.integers(0, classes, samples)
    return Dataset("drawn", images, labels, images[:0], labels[:0], tuple(map(str, range(classes))))


def drawn_biases(layer: Layer, seed: int) -> NDArray[np.float32]:
    """Return a layer's biases (oc,), by the seed alone: uniform within 1 / sqrt(weights of an output), as PyTorch's."""
    most = 1 / math.sqrt(math.prod(layer.weight_shape[1:]))
    return _stream(seed, _BIASES + layer.index).uniform(-most, most, layer.channels).astype(np.float32)


def _stream(seed: int, use: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, use]))
