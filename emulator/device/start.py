"""Initial weights: He or Xavier, each input channel (of a group, where there are groups) from its own random stream.

So a device draws only the channels of its slices, and the values do not depend on the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..network import Layer


def initial_weights(
    layer: Layer, start: Literal["he", "xavier"], seed: int, in_channels: Sequence[int], out_channels: Sequence[int]
) -> NDArray[np.float32]:
    """Return the weights of a slice, (its output channels, its input channels, kh, kw).

    He: normal with variance 2 / fan-in where a ReLU follows, which halves the variance, else 1 / fan-in (He et al.,
    2015; `SfuOperation.he_gain`). Xavier: uniform with variance 2 / (fan-in + fan-out) (Glorot and Bengio, 2010).
    """
    oc, ic, kh, kw = layer.weight_shape
    fan_in, fan_out = ic * kh * kw, oc * kh * kw
    gain = max((step.operation.he_gain for step in layer.sfu), default=1.0)
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
