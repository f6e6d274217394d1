"""LPRAM and LGB: a device's own parameters, and the sums of their gradients (FPDeep, section 5.2.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from .rules import Rule
from .versions import Arrays, Versions, copied, zeros_like

Data = NDArray[np.float32]


class Parameter:
    """An array of parameters by version, and the sum of its gradients since the last update (LGB); all from an arena.

    `states` are the arrays that the update rule keeps, by name, of the value's shape; {} before the first update.
    """

    def __init__(self, value: Data, arena: Arena) -> None:
        self._arena = arena
        self.versions = Versions(copied(value, arena), arena)
        self.gradient = zeros_like(value, arena)
        self.states: dict[str, Data] = {}
        self._is_summed = False

    def __getitem__(self, version: int) -> Data:
        return self.versions[version]

    @property
    def newest(self) -> Data:
        """Value after the last update."""
        return self.versions.newest

    def begins_sum(self) -> bool:
        """Return whether the next gradient is the first since the update; the buffer's content is then invalid."""
        begins, self._is_summed = not self._is_summed, True
        return begins

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version from the mean of the gradients over `samples` (FPDeep, section 5.2.2)."""
        if self.begins_sum():
            self.gradient[...] = 0
        value = self.versions.advance(keeps=keeps)
        if not self.states:
            self.states = {name: zeros_like(value, self._arena) for name in rule.states}
        rule.update(value, self.gradient, self.states, samples)
        if rule.rounding is not None:
            flat = value.reshape(-1)
            flat[...] = rule.rounding.decompress(rule.rounding.compress(flat), flat.size)
        self._is_summed = False

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        self.versions.free(versions)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self.versions.begin_epoch()

    def state(self) -> Arrays:
        """Return the training state, copied: value, and what the rule keeps; call only when there is one version."""
        return {**self.versions.state(), **{name: array.copy() for name, array in self.states.items()}}

    def restore(self, state: Arrays) -> None:
        """Restore what `state` returned."""
        self.versions.restore(state)
        self.states = {name: copied(array, self._arena) for name, array in state.items() if name != "value"}
