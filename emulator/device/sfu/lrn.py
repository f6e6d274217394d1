"""Local response normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....kernels.layers import lrn
from ...network import SfuStep
from ...network.operations.lrn import Lrn
from .unit import Data, Site, State, Training, Unit


class LrnUnit(Unit):
    """Local response normalisation across channels."""

    operation = Lrn

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        of = step.operation
        assert isinstance(of, Lrn)
        self._rule: dict[str, Any] = {"size": of.size, "alpha": of.alpha, "beta": of.beta, "k": of.k}

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y, scale = self.arena.take(x.shape), self.arena.take(x.shape)
        lrn.forward(x, y, scale, **self._rule)
        return y, (x, y, scale)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        x, y, scale = state
        lrn.error(x, y, scale, dz, dz, **self._rule)
        return (dz,)
