"""Initial weights: He or Xavier, each input channel from a random stream of its own.

So a device draws the channels of its slices and no others, and they are the same wherever they are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..network.layers import Layer, Relu


def initial_weights(
    layer: Layer, start: Literal["he", "xavier"], seed: int, in_channels: Sequence[int], out_channels: Sequence[int]
) -> NDArray[np.float32]:
    """The weights of a slice, (its output channels, its input channels, kh, kw).

    He: normal with variance 2 / fan-in, or 1 / fan-in where no ReLU follows, since it is ReLU that halves the variance
    (He et al., 2015). Xavier: uniform with variance 2 / (fan-in + fan-out) (Glorot and Bengio, 2010).
    """
    oc, ic, kh, kw = layer.weight_shape
    fan_in, fan_out = ic * kh * kw, oc * kh * kw
    gain = 2 if any(isinstance(step.operation, Relu) for step in layer.sfu) else 1
    weights = np.empty((len(out_channels), len(in_channels), kh, kw), np.float32)
    for place, channel in enumerate(in_channels):
        stream = np.random.Generator(np.random.Philox(key=[seed, layer.index << 32 | channel]))
        if start == "he":
            drawn = stream.standard_normal((oc, kh, kw)) * math.sqrt(gain / fan_in)
        else:
            limit = math.sqrt(6 / (fan_in + fan_out))
            drawn = stream.uniform(-limit, limit, (oc, kh, kw))
        weights[:, place] = drawn[out_channels[0] : out_channels[-1] + 1]
    return weights
