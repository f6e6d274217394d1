"""Gated recurrent units."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..recurrent import Recurrent
from ..shape import Shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gru(Recurrent):
    """Gated recurrent units (Cho et al., 2014); gates are in PyTorch's order: reset, update, new.

    The reset gate acts `after` the recurrent product, as in cuDNN and PyTorch, or `before` it, as first published.
    """

    reset: Literal["after", "before"] = "after"

    type = "gru"
    onnx = ("GRU",)
    gates = 3

    def __post_init__(self) -> None:
        if self.projection is not None:
            raise ValueError("`projection`: a gru has none; an lstm has")

    @property
    def is_divisible(self) -> bool:
        """See `Recurrent`; a reset before the product needs the reset gates of all units."""
        return self.reset == "after" and not self.bidirectional

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes and returns (samples, steps, values), and the states.

        Raises:
            ValueError: the reset gate acts before the recurrent product, which PyTorch does not have.
        """
        if self.reset == "before":
            raise ValueError('PyTorch has only `reset` = "after"')
        return [nn.GRU(shape[0], self.units, batch_first=True, bidirectional=self.bidirectional)]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the reset gate acts after the recurrent product if it is linear before the reset.

        Raises:
            InputError: as of `recurrent_step`.
        """
        from ..onnx_graph import recurrent_step

        keys = {"reset": "after" if node.integer("linear_before_reset", 0) else "before"}
        return recurrent_step(walk, node, cls, keys, gates=cls.gates, activations=("sigmoid", "tanh"))
