"""Long short-term memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..recurrent import Recurrent
from ..shape import Shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lstm(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), as in FARNN's equations (1) and (2).

    Gates are in PyTorch's order: input, forget, new, output.
    """

    type = "lstm"
    onnx = ("LSTM",)
    gates = 4

    @property
    def is_divisible(self) -> bool:
        """See `Recurrent`; the projection needs all cells."""
        return self.projection is None and not self.bidirectional

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes and returns (samples, steps, values), and the states."""
        keys = {"batch_first": True, "bidirectional": self.bidirectional, "proj_size": self.projection or 0}
        return [nn.LSTM(shape[0], self.units, **keys)]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: as of `recurrent_step`.
        """
        from ..onnx_graph import recurrent_step

        return recurrent_step(walk, node, cls, {}, gates=cls.gates, activations=("sigmoid", "tanh", "tanh"))
