"""Softmax with cross-entropy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..operation import Closing
from ..shape import Shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class Softmax(Closing):
    """Softmax with cross-entropy, which closes every network."""

    type = "softmax"

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]
