"""A device's gradients in one row, as replicas exchange them: of its slices, and of the parameters that it stores.

What its slices borrow counts where it is stored. Each replica's gradient is the mean over its samples, so that values
are of the size that INCEPTIONN's codec is made for; they are added up, and the update takes the mean over replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm.exchange.gradient import Gradient
from ..mapping.balancing import Loan, channel_bytes, loans_of
from ..mapping.slices import Slice
from ..mapping.traffic import VALUE_BYTES
from .numerics import Numerics


class Exchange(Protocol):
    """A device's exchange with its like in other replicas."""

    replicas: int

    async def total(self, gradient: Gradient, ready_ps: int) -> int:
        """Sum a gradient over all replicas, in place; when that is done."""


class GradientRow:
    """How a device's gradients lie in a row."""

    def __init__(self, device: int, slices: Sequence[Slice], loans: Sequence[Loan]) -> None:
        self._kept = [_kept(part, [loan for _, loan in loans_of(loans, part, device)]) for part in slices]
        self._slices = slices
        self._stored = [loan.parameter_bytes // VALUE_BYTES for loan in loans if loan.store_device == device]

    @property
    def count(self) -> int:
        """How many values."""
        return sum(map(_values, self._slices, self._kept)) + sum(self._stored)

    def gather(self, numerics: Sequence[Numerics], returned: Sequence[Any], scale: float) -> Gradient:
        """Gradient sums times a scale: of slices, and what has been returned of stored parameters."""
        found = [part for of, kept in zip(numerics, self._kept, strict=True) for part in of.gradients(kept)]
        found += [gradient.ravel() for gradient in returned if gradient is not None]
        if not found:
            return Gradient(self.count, None)
        row = np.concatenate(found)
        row *= np.float32(scale)
        return Gradient(self.count, row)

    def scatter(self, gradient: Gradient, numerics: Sequence[Numerics]) -> list[Any]:
        """Give slices their gradients back; what is left is that of stored parameters, loan by loan."""
        row = gradient.values
        if row is None:
            return [None] * len(self._stored)
        for of, kept in zip(numerics, self._kept, strict=True):
            row = of.take_gradients(kept, row)
        return np.split(row, np.cumsum(self._stored)[:-1]) if self._stored else []


def _kept(part: Slice, lent: Sequence[Loan]) -> NDArray[np.bool_]:
    """Which of a slice's channels, along which its layer is cut, are its own and not borrowed."""
    kept = np.ones(part.end - part.begin, np.bool_)
    for loan in lent:
        kept[loan.begin - part.begin : loan.end - part.begin] = False
    return kept


def _values(part: Slice, kept: NDArray[np.bool_]) -> int:
    """The parameters of a slice, without what is borrowed."""
    weights = int(kept.sum()) * channel_bytes(part) // VALUE_BYTES
    return weights + part.is_last * (part.layer.parameters - part.layer.weights)
