"""Joins of shortcuts and branches: "aggregation ... gather and bypass" (FPDeep, section 5.1)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ...network import SfuStep
from ...network.operations.joins import Add, Concat
from .unit import Data, Site, State, Training, Unit


class AddUnit(Unit):
    """The sum of the inputs, in order."""

    operation = Add

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        self._terms = len(step.reads)

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        y = self.arena.take(xs[0].shape)
        np.add(xs[0], xs[1], out=y)
        for x in xs[2:]:
            y += x
        return y, ()

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        return [dz] * self._terms


class ConcatUnit(Unit):
    """The channels of all inputs, in order."""

    operation = Concat

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        ends = list(itertools.accumulate((tensor.shape[0] for tensor in step.reads), initial=0))
        self._spans = [slice(*ends) for ends in itertools.pairwise(ends)]

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        y = self.arena.take((*xs[0].shape[:3], self._spans[-1].stop))
        for span, x in zip(self._spans, xs, strict=True):
            y[..., span] = x
        return y, ()

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        return [dz[..., span] for span in self._spans]
