"""Operations fused into one pass: a first ReLU with the bias, and a max-pool after it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....kernels.layers import relu
from ...network import SfuOperation, SfuStep
from ...network.operations.pool import MaxPool
from ...network.operations.relu import Relu
from .pool import MaxPoolUnit
from .relu import ReluUnit
from .unit import Data, Site, State, Training, Unit


class Fusion(NamedTuple):
    """A unit for the first `steps` steps of an SFU, where a ReLU runs with the bias; it makes tensor `makes`."""

    unit: Unit
    steps: int
    makes: int


def fuse(steps: Sequence[SfuStep], outputs: int, shared: Collection[int], site: Site) -> Fusion | None:
    """Return the fusion of the first steps, if there is one.

    Args:
        steps: steps of the layer's SFU.
        outputs: the number of the layer's complete outputs.
        shared: numbers of the tensors that more than one operation needs.
        site: where the unit works.
    """
    if not _is_first(steps, Relu, outputs, shared):
        return None
    rectified = steps[0].makes.number
    if _is_first(steps[1:], MaxPool, rectified, shared):
        return Fusion(_RectifiedMaxPoolUnit(steps[1], site), 2, steps[1].makes.number)
    return Fusion(_RectifiedUnit(steps[0], site), 1, rectified)


def _is_first(steps: Sequence[SfuStep], kind: type[SfuOperation], tensor: int, shared: Collection[int]) -> bool:
    """Return whether the first step is an operation of type `kind` on `tensor`, which no other one needs."""
    if not steps or tensor in shared or not isinstance(steps[0].operation, kind):
        return False
    return steps[0].reads[0].number == tensor


class _RectifiedUnit(ReluUnit):
    """A ReLU that already ran with the bias, in place."""

    def infer(self, xs: Sequence[Data], version: int, lengths: NDArray[np.int64] | None) -> Data:
        [x] = xs
        return x


class _RectifiedMaxPoolUnit(MaxPoolUnit):
    """A ReLU that already ran with the bias, and a max-pool.

    Where a maximum is 0, so is its whole window. So ReLU's backward pass runs on the maxima, before they are spread.
    """

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        y, places = super().forward(xs, version, training)
        return y, (y, *places)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        y, *places = state
        relu.error(y, dz)
        return super().backward(tuple(places), dz, version)
