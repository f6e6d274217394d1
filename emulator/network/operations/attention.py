"""Attention of a sequence's rows to one another, by heads (Vaswani et al., 2017, section 3.2).

A token is a row. What makes queries, keys and values, and what takes the heads' results, are `conv`s of kernel 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ...common import Channels
from ..operation import EngineView, LayerOperation, LayerRows, Window
from ..shape import Shape, shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attention(LayerOperation):
    """Scaled dot products of queries and keys, softmax over the keys, and sums of values, in `heads` heads.

    It takes the channels head by head: q, k and v of head 0, then those of head 1, and so on, so that a cut by whole
    heads needs no others. It has no weights. Where it is `causal`, a row sees itself and the rows before it, else all.
    """

    heads: Channels
    causal: bool = False

    type = "attention"
    bias: ClassVar[bool] = False  # type: ignore[misc]  # it has no weights
    convolves, may_be_off_chip, one_memory = False, False, True
    looks_back, has_pg = True, False

    @property
    def groups(self) -> int:  # type: ignore[override]  # as a key, of convolutions, it is a number
        """See `LayerOperation`: heads."""
        return self.heads

    @property
    def cuts_outputs(self) -> bool:
        """See `LayerOperation`."""
        return True

    def size(self, shape: Shape) -> int:
        """Return the channels of a head's queries, keys or values."""
        return shape[0] // (3 * self.heads)

    def weight_shape(self, shape: Shape, made: Shape) -> tuple[int, int, int, int]:
        """See `LayerOperation`: there are none."""
        return self.heads, 0, 1, 1

    def pieces(self, made: Shape) -> int:
        """See `LayerOperation`: heads."""
        return self.heads

    def taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """See `LayerOperation`: products of q and k, and of p and v, of a head's row with the mean of its keys."""
        return self._products(2, shape)

    def eb_taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """See `LayerOperation`: scores again, and the errors of p, q, k and v."""
        return self._products(5, shape)

    def _products(self, matrices: int, shape: Shape) -> int:
        """Return the products of a head's row, for as many matrices, rounded up; all rows take the mean number."""
        rows, size = shape[1], self.size(shape)
        return -(-matrices * size * (rows + 1) // 2) if self.causal else matrices * size * rows

    def reread(self, shape: Shape) -> tuple[int, int]:
        """See `LayerOperation`: k and v of what each row sees, and in EB also errors of these, in and out."""
        rows, size = shape[1], self.size(shape)
        seen = rows * (rows + 1) // 2 if self.causal else rows * rows
        return 2 * size * seen, 6 * size * seen

    def kept_values(self, shape: Shape) -> int:
        """See `LayerOperation`: the largest score of each row and head, and 1 / sum (FlashAttention)."""
        return 2 * self.heads * shape[1]

    def with_channels(self, channels: int) -> Attention:
        """See `LayerOperation`; the channels are heads."""
        return dataclasses.replace(self, heads=channels)

    def window(self, shape: Shape) -> Window:
        """See `LayerOperation`."""
        return Window((1, 1), (1, 1), (0, 0))

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [shape] = inputs
        if shape[2] != 1:
            raise ValueError(
                f"maps of {shown(shape)} have {shape[2]} columns, where attention takes a sequence: one row a token"
                ' and one column; put {type = "sequence"} or {type = "tokens"} before it'
            )
        if shape[0] % (3 * self.heads):
            raise ValueError(
                f"`heads` = {self.heads}: {shape[0]} channels do not divide into q, k and v of that many heads;"
                f" should be a multiple of {3 * self.heads}"
            )
        return shape[0] // 3, shape[1], 1

    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """See `LayerOperation`; full attention waits for the last row, and all its errors leave with the last one."""
        tokens = np.arange(shape[1])
        last = tokens if self.causal else np.full_like(tokens, shape[1] - 1)
        return LayerRows(last, tokens, last, by_outputs=True)

    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """See `LayerOperation`."""
        return EngineView(shape[1], 1, shape[1], 1, tile=1, values=1)

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes (samples, tokens, values), with the channels as here."""
        heads, causal = self.heads, self.causal

        class Heads(nn.Module):
            def forward(self, x: Any) -> Any:
                samples, tokens, channels = x.shape
                q, k, v = x.view(samples, tokens, heads, 3, channels // heads // 3).permute(3, 0, 2, 1, 4)
                y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                return y.transpose(1, 2).flatten(2)

        return [Heads()]
