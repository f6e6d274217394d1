"""Rectified linear units."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..element_wise import Rectifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relu(Rectifier):
    """max(0, x)."""

    type = "relu"
    onnx = ("Relu",)

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.ReLU(inplace=True)
