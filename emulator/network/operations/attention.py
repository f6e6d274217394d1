"""Attention of a sequence's rows to one another, or to those of another sequence, by heads (Vaswani
et al., 2017, section 3.2).

A token is a row. What makes queries, keys and values, and what takes the heads' results, are
`conv`s of kernel 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ....kernels.attention import (
    alibi_slopes,
    bucket_numbers,
    sloped,
    table_places,
    table_rows,
)
from ...common import Channels, Numbers, Positive, PositiveNumber, Rate
from ..onnx_nodes import Export, Form
from ..operation import Arithmetic, EngineView, LayerRows, Reread, RowLayer
from ..shape import Shape, shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attention(RowLayer):
    """Scaled dot products of queries and keys, softmax over the keys, and sums of values, in
    `heads` heads.

    It takes the channels head by head: q, k and v of head 0, then those of head 1, and so on, so
    that a cut by whole heads needs no others. With fewer `kv_heads`, as many groups of heads share
    k and v (Ainslie et al., 2023): the channels come group by group, q of its heads, then k, then
    v, and a cut is by whole groups. It has no weights. Where it is `causal`, a row sees itself and
    the rows before it, else all. In training, each share that a row has of another is zeroed with
    probability `dropout`, and the others are scaled.

    With `keys`, queries see that many rows of another sequence, as a decoder's see an encoder's
    results (section 3.2.3). The map that it takes has rows of keys, then as many of values, then
    those of the queries, each head by head: a `concat` of rows makes it of three layers' results.

    Products of queries and keys are multiplied by `scale`; without one, by 1 over the root of a
    head's size.

    Scores fall with the distance of a query from a key, by the `slopes` of the heads for each row;
    with `alibi`, by those of Press et al. (2022). With `buckets`, each head has a learnt term for
    each of them (Raffel et al., 2020): a `score-table` makes rows of these, which a `concat` puts
    before those of queries, keys and values.
    """

    heads: Channels
    kv_heads: Channels | None = None
    causal: bool = False
    dropout: Rate = 0.0
    keys: Positive | None = None
    scale: PositiveNumber | None = None
    alibi: bool = False
    slopes: Numbers | None = None
    buckets: Positive | None = None
    max_distance: Positive = 128

    type = "attention"
    onnx = ("Attention",)
    bias: ClassVar[bool] = False  # type: ignore[misc]  # it has no weights
    looks_back, has_pg = True, False

    def __post_init__(self) -> None:
        if self.keys is not None and (self.causal or self.kv_heads not in (None, self.heads)):
            raise ValueError(
                f"`keys` = {self.keys}: rows of another sequence have no order with the queries, and"
                " stand in as many channels; should be without `causal` and `kv_heads`"
            )
        if self.alibi and self.slopes is not None:
            raise ValueError("`alibi` = true has slopes of its own; should be without `slopes`")
        if self.slopes is not None and len(self.slopes) != self.heads:
            raise ValueError(
                f"`slopes` = {list(self.slopes)}: should be one for each of {self.heads} heads"
            )
        if self.keys is not None and (self.is_sloped or self.buckets):
            raise ValueError(
                f"`keys` = {self.keys}: rows of another sequence have no distance from the queries;"
                " should be without `alibi`, `slopes` and `buckets`"
            )
        if self.buckets is not None:
            self._check_buckets(self.buckets)

    def _check_buckets(self, buckets: int) -> None:
        if self.is_sloped:
            raise ValueError("`buckets` have terms of their own; should be without slopes")
        own = buckets if self.causal else buckets // 2
        if own < 2 or (not self.causal and buckets % 2):
            wanted = "at least 2" if self.causal else "an even number, at least 4"
            raise ValueError(f"`buckets` = {buckets}: should be {wanted}")
        if self.max_distance <= own // 2:
            raise ValueError(
                f"`max_distance` = {self.max_distance}: should be above {own // 2}, as distances up"
                " to it have buckets of their own"
            )

    @property
    def is_sloped(self) -> bool:
        """Whether scores fall with the distance."""
        return self.alibi or self.slopes is not None

    def terms(self, heads: range, rows: int) -> NDArray[np.float32] | None:
        """Return what slopes add to the scores of some heads, as kernels take it."""
        if not self.is_sloped:
            return None
        slopes = alibi_slopes(self.heads) if self.slopes is None else self.slopes
        return sloped(slopes[heads.start : heads.stop], rows, rows)

    @property
    def parts(self) -> int:
        """The channels of a group's row, in heads: queries, keys and values; with `keys`, one."""
        return 1 if self.keys else self.sharing + 2

    def table(self, shape: Shape) -> int:
        """Return the rows of the table of terms, before the others."""
        width = self.parts * self.size(shape)
        return 0 if self.buckets is None else table_rows(self.sharing, self.buckets, width)

    def table_places(self, shape: Shape, groups: int) -> NDArray[np.int64]:
        """Return where the numbers (heads, buckets) of some groups stand in their rows."""
        width = self.parts * self.size(shape)
        return table_places(groups, self.sharing, self.buckets or 0, width)

    def bucket_numbers(self, rows: int) -> NDArray[np.int64]:
        """Return the buckets of distances, as kernels take terms."""
        buckets = self.buckets or 0
        return bucket_numbers(rows, rows, buckets, self.max_distance, causal=self.causal)

    def rows_of(self, shape: Shape) -> tuple[int, int]:
        """Return the rows of queries, and those of keys that a row may see."""
        if self.keys is None:
            rows = shape[1] - self.table(shape)
            return rows, rows
        return shape[1] - 2 * self.keys, self.keys

    @property
    def groups(self) -> int:  # type: ignore[override]  # as a key, of convolutions, it is a number
        """See `LayerOperation`: those of heads that share k and v."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def sharing(self) -> int:
        """The heads of a group, which share k and v."""
        return self.heads // self.groups

    @property
    def cuts_outputs(self) -> bool:
        """See `LayerOperation`."""
        return True

    def size(self, shape: Shape) -> int:
        """Return the channels of a head's queries, keys or values."""
        return shape[0] // (self.groups * self.parts)

    def are_keys(self, shape: Shape) -> NDArray[np.bool_]:
        """Return which channels of its input are keys. What all keys have more, as by a bias, adds one
        number to all scores of a query, which softmax does not see.
        """
        of_parts = np.arange(shape[0]) // self.size(shape) % self.parts
        return of_parts == self.sharing if self.keys is None else np.zeros(shape[0], bool)

    def weight_shape(self, shape: Shape, made: Shape) -> tuple[int, int, int, int]:
        """See `LayerOperation`: there are none."""
        return self.groups, 0, 1, 1

    def pieces(self, made: Shape) -> int:
        """See `LayerOperation`: groups."""
        return self.groups

    def taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """See `LayerOperation`: products of q and k, and of p and v, of a group's row with the mean
        of its keys.
        """
        return self._products(2, shape)

    def eb_taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """See `LayerOperation`: scores again, and the errors of p, q, k and v."""
        return self._products(5, shape)

    def _products(self, matrices: int, shape: Shape) -> int:
        """Return the products of a group's row, for as many matrices, by heads rounded up; all rows
        take the mean.
        """
        (_, keys), size = self.rows_of(shape), self.size(shape)
        # A causal row t, from 0, sees t + 1 keys: (keys + 1) / 2 on average.
        of_head = -(-matrices * size * (keys + 1) // 2) if self.causal else matrices * size * keys
        return self.sharing * of_head

    def reread(self, shape: Shape, rows_at_once: int = 1) -> Reread:
        """See `LayerOperation`: k and v of what each row sees, and in EB also errors of these, in
        and out.
        """
        (rows, keys), size = self.rows_of(shape), self.size(shape)
        seen = rows * (rows + 1) // 2 if self.causal else rows * keys
        moved = -(-seen // rows_at_once)
        # FP reads k and v. EB reads k, v and the sums of their errors so far, and writes these.
        return Reread(2 * size * moved, 2 * size * moved, 4 * size * moved)

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """See `LayerOperation`: softmax of the scores, again in EB (FlashAttention).

        A score is scaled, its exponential summed; in EB scaled again, and its error is p (dp - d),
        where d is a sum over the head's results. Each row and head has a division. A slope takes
        one more, in EB again.
        """
        own, keys = self.rows_of(shape)
        rows = self.heads * own
        scores = rows * (keys + 1) // 2 if self.causal else rows * keys
        of_score = 5 + 2 * self.is_sloped
        return Arithmetic(of_score * scores + math.prod(made), 2 * scores, rows)

    def kept_values(self, shape: Shape) -> int:
        """See `LayerOperation`: the largest score of each row and head, and 1 / sum
        (FlashAttention).
        """
        return 2 * self.heads * self.rows_of(shape)[0]

    def with_channels(self, channels: int) -> Attention:
        """See `LayerOperation`; the channels are heads, none of which share k and v."""
        slopes: dict[str, Any] = {"alibi": self.is_sloped, "slopes": None}
        return dataclasses.replace(self, heads=channels, kv_heads=None, **slopes)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [shape] = inputs
        if shape[2] != 1:
            raise ValueError(
                f"maps of {shown(shape)} have {shape[2]} columns, where attention takes a sequence:"
                ' one row a token and one column; put {type = "sequence"} or {type = "tokens"}'
                " before it"
            )
        if shape[1] <= self.table(shape):
            raise ValueError(
                f"`buckets` = {self.buckets}: {shape[1]} rows are not {self.table(shape)} of a table"
                " of terms, and those of queries, keys and values"
            )
        rows, keys = self.rows_of(shape)
        if rows < 1:
            raise ValueError(
                f"`keys` = {keys}: {shape[1]} rows are not {keys} of keys, as many of values, and"
                " queries"
            )
        check_heads(self.heads, self.groups, shape, self.groups * self.parts)
        return self.heads * self.size(shape), rows, 1

    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """See `LayerOperation`."""
        return super().engine_view(shape, made)._replace(out_rows=made[1])

    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """See `LayerOperation`; full attention waits for the last row, and all its errors leave
        with the last one, as those of a table do. With `keys`, a row waits for its own query, and
        all keys and values before it; its errors leave with its own row, those of keys and values
        with the last one.
        """
        tokens = np.arange(made[1])
        if self.keys is not None:
            leaves = np.minimum(np.arange(shape[1]), made[1] - 1)
            return LayerRows(tokens + 2 * self.keys, tokens, leaves, by_outputs=True)
        leaves, table = np.minimum(np.arange(shape[1]), made[1] - 1), self.table(shape)
        if self.causal:
            return LayerRows(tokens + table, tokens, leaves, by_outputs=True)
        last = np.full_like(tokens, shape[1] - 1)
        return LayerRows(last, tokens, np.full_like(leaves, made[1] - 1), by_outputs=True)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; scaled products of q and k, with a mask where it is causal, softmax,
        products with v.
        """
        nodes, name, (rows, _) = out.nodes, out.name, self.rows_of(out.reads[0].shape)
        q, k, v = self._rows_of_parts(out) if self.keys else self._parts(out)
        size = self.size(out.reads[0].shape)
        turned = nodes.add("Transpose", [k], f"{name}/turned", perm=[0, 1, 3, 2])
        products = nodes.add("MatMul", [q, turned], f"{name}/products")
        scale = out.number("scale", size**-0.5 if self.scale is None else self.scale)
        scores = nodes.add("Mul", [products, scale], f"{name}/scores")
        if self.buckets:
            far = np.arange(rows)[:, None] - np.arange(rows) + rows - 1
            numbers = nodes.array(f"{name}.buckets", self.bucket_numbers(rows)[far])
            by_row = nodes.add("Gather", [nodes.table(out.reads[0]), numbers], f"{name}/by_row")
            terms = nodes.add("Transpose", [by_row], f"{name}/terms", perm=[2, 0, 1])
            scores = nodes.add("Add", [scores, terms], f"{name}/with_terms")
        if self.is_sloped:
            slopes = np.array(self.slopes or alibi_slopes(self.heads), np.float32)[:, None, None]
            own = [nodes.distance(rows), nodes.array(f"{name}.slopes", -slopes)]
            terms = nodes.add("Mul", own, f"{name}/terms")
            scores = nodes.add("Add", [scores, terms], f"{name}/with_terms")
        if self.causal:
            scores = nodes.add("Add", [scores, nodes.later(rows)], f"{name}/earlier")
        shares = nodes.add("Softmax", [scores], f"{name}/shares", name, axis=-1)
        if self.dropout:
            shares = nodes.add(
                "Dropout", [shares, out.number("dropout", self.dropout)], f"{name}/kept"
            )
        sums = nodes.add("MatMul", [shares, v], f"{name}/sums")
        beside = nodes.add("Transpose", [sums], f"{name}/beside", perm=[0, 2, 1, 3])
        nodes.add(
            "Reshape",
            [beside, nodes.numbers(f"{name}.shape", 0, rows, self.heads * size)],
            out.result,
        )
        nodes.name(out.makes, out.result, Form.STEPS)

    def _rows_of_parts(self, out: Export) -> Sequence[str]:
        """Do as `_parts`, where these are rows of what is taken."""
        nodes, name, size = out.nodes, out.name, self.size(out.reads[0].shape)
        x, made = nodes.steps(out.x, f"{name}/steps"), {}
        rows, keys = self.rows_of(out.reads[0].shape)
        for part, first, count in (("k", 0, keys), ("v", keys, keys), ("q", 2 * keys, rows)):
            bounds = (
                nodes.numbers(f"{name}.{part}", first),
                nodes.numbers(f"{name}.{part}.end", first + count),
            )
            axis = nodes.numbers(f"{name}.{part}.axis", 1)
            own = nodes.add("Slice", [x, *bounds, axis], f"{name}/{part}_rows")
            sizes = nodes.numbers(f"{name}.{part}.heads", 0, count, self.heads, size)
            apart = nodes.add("Reshape", [own, sizes], f"{name}/{part}s")
            made[part] = nodes.add("Transpose", [apart], f"{name}/{part}", perm=[0, 2, 1, 3])
        return [made[part] for part in "qkv"]

    def _parts(self, out: Export) -> Sequence[str]:
        """Write the nodes of queries, keys and values, (samples, heads, rows, size) each; return
        their names.
        """
        nodes, name, (rows, _) = out.nodes, out.name, self.rows_of(out.reads[0].shape)
        size = self.size(out.reads[0].shape)
        x, parts = nodes.steps(out.x, f"{name}/steps"), self.sharing + 2
        sizes = nodes.numbers(f"{name}.parts", 0, rows, self.groups, parts, size)
        apart = nodes.add("Reshape", [x, sizes], f"{name}/parts")
        if parts == 3:
            # q, k and v come first: Gather by a number without axes takes one and drops the axis.
            heads = nodes.add("Transpose", [apart], f"{name}/heads", perm=[3, 0, 2, 1, 4])
            return [
                nodes.add(
                    "Gather",
                    [heads, nodes.array(f"{name}.{part}", np.array(place))],
                    f"{name}/{part}",
                    axis=0,
                )
                for place, part in enumerate("qkv")
            ]
        heads, made = nodes.add("Transpose", [apart], f"{name}/heads", perm=[0, 2, 3, 1, 4]), []
        whole = nodes.numbers(f"{name}.heads", 0, self.heads, rows, size)
        for part, first in zip(
            "qkv", (0, parts - 2, parts - 1), strict=True
        ):  # k and v are repeated
            places = [first] * self.sharing if first else [*range(self.sharing)]
            own = nodes.add(
                "Gather",
                [heads, nodes.numbers(f"{name}.{part}", *places)],
                f"{name}/{part}s",
                axis=2,
            )
            made.append(nodes.add("Reshape", [own, whole], f"{name}/{part}"))
        return made

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes (samples, tokens, values), with the channels as here."""
        groups, sharing, causal, dropout = self.groups, self.sharing, self.causal, self.dropout
        rows, before = self.rows_of(shape)
        of_scores = {} if self.scale is None else {"scale": self.scale}
        far = np.arange(rows)[:, None] - np.arange(rows) + rows - 1
        terms, table = self.terms(range(self.heads), rows), self.table(shape)
        places = self.table_places(shape, groups) if table else None
        numbers = self.bucket_numbers(rows)[far] if table else None

        class Crossed(nn.Module):
            def forward(self, x: Any) -> Any:
                apart = x.unflatten(2, (groups, -1)).transpose(1, 2)
                k, v, q = apart.split([before, before, rows], 2)
                rate = dropout if self.training else 0.0
                y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=rate, **of_scores)
                return y.transpose(1, 2).flatten(2)

        class Heads(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                if terms is not None or table:
                    import torch

                    own = np.zeros((1, 1, rows, rows)) if terms is None else terms[:, :, far]
                    mask = torch.from_numpy(own.astype(np.float32))
                    if causal:
                        mask = mask.masked_fill(torch.from_numpy(far < rows - 1), -torch.inf)
                    self.register_buffer("terms", mask, persistent=False)

            def forward(self, x: Any) -> Any:
                own, x = x[:, :table], x[:, table:]
                samples, tokens, _ = x.shape
                parts = x.view(samples, tokens, groups, sharing + 2, -1).permute(0, 2, 3, 1, 4)
                q = parts[:, :, :sharing].flatten(1, 2)
                k, v = parts[:, :, sharing], parts[:, :, sharing + 1]
                rate = dropout if self.training else 0.0
                keys = {"dropout_p": rate, "is_causal": causal, "enable_gqa": sharing > 1}
                if terms is not None or table:
                    mask = self.terms
                    if table:
                        mask = mask + own.flatten(1)[:, places][:, :, numbers]
                    keys |= {"attn_mask": mask, "is_causal": False}
                y = nn.functional.scaled_dot_product_attention(q, k, v, **keys, **of_scores)
                return y.transpose(1, 2).flatten(2)

        return [Crossed() if self.keys else Heads()]


def check_heads(heads: int, groups: int, shape: Shape, step: int, kind: str = "heads") -> None:
    """Check that heads fall into groups that share k and v, and the channels of q, k and v into
    `step` equal parts.

    Raises:
        ValueError: they do not.
    """
    if heads % groups:
        raise ValueError(
            f"`kv_heads` = {groups} should divide `heads` = {heads}: each k and v has equally many"
            " heads"
        )
    if shape[0] % step:
        shared = "" if heads == groups else f", {heads // groups} to a k and v"
        raise ValueError(
            f"`heads` = {heads}: {shape[0]} channels do not divide into q, k and v of that many"
            f" {kind}{shared}; should be a multiple of {step}"
        )
