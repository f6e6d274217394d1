"""Attention of a sequence's rows to one another, by heads (Vaswani et al., 2017, section 3.2).

A token is a row. What makes queries, keys and values, and what takes the heads' results, are `conv`s of kernel 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ...common import Channels, Rate
from ..onnx_nodes import Export, Form
from ..operation import LayerRows, RowLayer
from ..shape import Shape, shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attention(RowLayer):
    """Scaled dot products of queries and keys, softmax over the keys, and sums of values, in `heads` heads.

    It takes the channels head by head: q, k and v of head 0, then those of head 1, and so on, so that a cut by whole
    heads needs no others. It has no weights. Where it is `causal`, a row sees itself and the rows before it, else all.
    In training, each share that a row has of another is zeroed with probability `dropout`, and the others are scaled.
    """

    heads: Channels
    causal: bool = False
    dropout: Rate = 0.0

    type = "attention"
    onnx = ("Attention",)
    bias: ClassVar[bool] = False  # type: ignore[misc]  # it has no weights
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

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; scaled products of q and k, with a mask where it is causal, softmax, products with v."""
        nodes, name, (channels, rows, _) = out.nodes, out.name, out.reads[0].shape
        x, size = nodes.steps(out.x, f"{name}/steps"), self.size(out.reads[0].shape)
        apart = nodes.add("Reshape", [x, nodes.numbers(f"{name}.parts", 0, rows, self.heads, 3, size)], f"{name}/parts")
        heads = nodes.add("Transpose", [apart], f"{name}/heads", perm=[3, 0, 2, 1, 4])
        q, k, v = (
            nodes.add("Gather", [heads, nodes.array(f"{name}.{part}", np.array(place))], f"{name}/{part}", axis=0)
            for place, part in enumerate("qkv")
        )
        turned = nodes.add("Transpose", [k], f"{name}/turned", perm=[0, 1, 3, 2])
        products = nodes.add("MatMul", [q, turned], f"{name}/products")
        scores = nodes.add("Mul", [products, out.number("scale", size**-0.5)], f"{name}/scores")
        if self.causal:
            scores = nodes.add("Add", [scores, nodes.later(rows)], f"{name}/earlier")
        shares = nodes.add("Softmax", [scores], f"{name}/shares", name, axis=-1)
        if self.dropout:
            shares = nodes.add("Dropout", [shares, out.number("dropout", self.dropout)], f"{name}/kept")
        sums = nodes.add("MatMul", [shares, v], f"{name}/sums")
        beside = nodes.add("Transpose", [sums], f"{name}/beside", perm=[0, 2, 1, 3])
        nodes.add("Reshape", [beside, nodes.numbers(f"{name}.shape", 0, rows, channels // 3)], out.result)
        nodes.name(out.makes, out.result, Form.STEPS)

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes (samples, tokens, values), with the channels as here."""
        heads, causal, dropout = self.heads, self.causal, self.dropout

        class Heads(nn.Module):
            def forward(self, x: Any) -> Any:
                samples, tokens, channels = x.shape
                q, k, v = x.view(samples, tokens, heads, 3, channels // heads // 3).permute(3, 0, 2, 1, 4)
                rate = dropout if self.training else 0.0
                y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=causal)
                return y.transpose(1, 2).flatten(2)

        return [Heads()]
