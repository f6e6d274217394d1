"""Rotary positions of queries and keys (Su et al., 2021), their norms, and tables of terms of
scores (Raffel et al., 2020), between the layer that makes queries and keys and attention.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.attention import table_places, table_rows
from ....kernels.layers.element_wise import add_bias_gradient
from ....kernels.layers.rotary import rotate, turns
from ....kernels.layers.row_norm import rms_norm_forward, row_norm_error, row_norm_gradient
from ....kernels.layers.scale import total_gradient
from ...common import Channels, Finite, Positive, PositiveFinite
from ..onnx_nodes import Arrays, Export, Form
from ..operation import Arithmetic, SfuRows, SfuStep
from ..shape import Shape
from ..unit import (
    NORMAL_DEVIATION,
    Data,
    Inputs,
    Made,
    Site,
    State,
    Training,
    Unit,
    Weights,
)
from .attention import check_heads
from .sequence import sequence_shape
from .tokens import RowOperation

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadOperation(RowOperation):
    """An operation on each head's queries and keys, whose channels come head by head, or group by
    group, as `attention` takes them; values stay.
    """

    heads: Channels
    kv_heads: Channels | None = None

    torch_form = "rows"

    @property
    def groups(self) -> int:
        """Those of heads that share k and v."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def parts(self) -> tuple[int, int]:
        """Of a group: queries, keys and values; and how many of these, from the first, are not
        values.
        """
        sharing = self.heads // self.groups
        return sharing + 2, sharing + 1

    def size(self, shape: Shape) -> int:
        """Return the channels of a head's queries, keys or values."""
        return shape[0] // (self.parts[0] * self.groups)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadNorm(HeadOperation):
    """Each head's queries and keys over the root of their mean square, by a scale for each of
    their channels, of queries and of keys, which all heads share (Qwen3): multiplied by `offset`
    plus the scale. Without `scale`, it learns nothing: over their length times the root of their
    size.
    """

    epsilon: PositiveFinite = 1e-5
    scale: bool = True
    offset: Finite = 0.0

    type = "head-norm"
    keeps_map = True
    of_value = Arithmetic(7)  # as of `rms-norm`

    def __post_init__(self) -> None:
        if not self.scale and self.offset:
            raise ValueError("`scale` = false goes with no `offset`")

    @property
    def learnt(self) -> tuple[str, ...]:
        """The names of the arrays that are learnt."""
        return ("queries", "keys") if self.scale else ()

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        norm, (parts, normed), size = self, self.parts, self.size(shape)

        class Normed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for name in norm.learnt:
                    setattr(self, name, nn.Parameter(torch.full((size,), 1 - norm.offset)))

            def forward(self, x: Any) -> Any:
                whole = x.unflatten(2, (-1, parts, size))
                q, k, v = whole.split([normed - 1, 1, 1], 3)
                q, k = (self.normed(own, name) for own, name in ((q, "queries"), (k, "keys")))
                return torch.cat([q, k, v], 3).flatten(2)

            def normed(self, x: Any, name: str) -> Any:
                factor = getattr(self, name) + norm.offset if norm.scale else None
                return nn.functional.rms_norm(x, [size], factor, norm.epsilon)

        return Normed()

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        shape = sequence_shape(inputs, self.type, "token")
        check_heads(self.heads, self.groups, shape, self.parts[0] * self.groups)
        return shape

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """See `SfuOperation`; each query and key has a root and a division."""
        vectors = shape[1] * self.groups * self.parts[1]
        of_values = self.of_value.times(vectors * self.size(shape))
        return of_values._replace(divisions=2 * vectors)

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`."""
        return len(self.learnt) * self.size(made)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return HeadNormUnit(self, step, site)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotary(HeadOperation):
    """Pairs of channels of each head's queries and keys, turned by angles that grow with the row's
    number.

    It takes channels head by head, as attention does; values stay. Pair i of a head's e channels is
    (i, i + e / 2), as in Llama; where `interleaved`, it is (2 i, 2 i + 1). Its angle in row t is
    t * base ^ (-2 i / e). Of a head's channels only the first `turned` may be, as in GPT-NeoX; then
    e is their number.
    """

    base: PositiveFinite = 10000.0
    interleaved: bool = False
    turned: Channels | None = None

    type = "rotary"

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        interleaved, (parts, rotated), size = self.interleaved, self.parts, self.size(shape)
        count = self.turned or size
        # Of a row, the same for all groups and parts.
        tables = [table[:, None, None] for table in turns(shape[1], count, self.base)]

        class Turned(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for name, table in zip(("cosines", "sines"), tables, strict=True):
                    self.register_buffer(name, torch.from_numpy(table.copy()), persistent=False)

            def forward(self, x: Any) -> Any:
                whole = x.unflatten(2, (-1, parts, size))
                turned = whole[:, :, :, :rotated, :count]
                # Pairs on an axis of their own: (i, i + size / 2), or (2 i, 2 i + 1).
                axis, sizes = (-1, (-1, 2)) if interleaved else (-2, (2, -1))
                a, b = turned.unflatten(-1, sizes).unbind(axis)
                pairs = a * self.cosines - b * self.sines, b * self.cosines + a * self.sines
                made = torch.stack(pairs, axis).flatten(-2)
                made = torch.cat([made, whole[:, :, :, :rotated, count:]], 4)
                return torch.cat([made, whole[:, :, :, rotated:]], 3).flatten(2)

        return Turned()

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        shape = sequence_shape(inputs, self.type, "token")
        check_heads(
            self.heads, self.groups, shape, 2 * self.parts[0] * self.groups, "heads of pairs"
        )
        if self.turned is not None and (self.turned % 2 or self.turned > self.size(shape)):
            raise ValueError(
                f"`turned` = {self.turned}: should be an even number of a head's {self.size(shape)}"
                " channels"
            )
        return shape

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; by products and sums, as Llama's code does."""
        nodes, name, (channels, rows, _) = out.nodes, out.name, out.reads[0].shape
        (parts, rotated), size = self.parts, self.size(out.reads[0].shape)
        count = self.turned or size

        def cut(x: str, what: str, axis: int, first: int, last: int, step: int = 1) -> str:
            bounds = [(first, "first"), (last, "last"), (axis, "axis"), (step, "step")]
            own = [nodes.numbers(f"{name}.{what}.{key}", number) for number, key in bounds]
            return nodes.add("Slice", [x, *own], f"{name}/{what}")

        def product(x: str, table: str, what: str) -> str:
            return nodes.add("Mul", [x, table], f"{name}/{what}")

        tables = []
        for key, own in zip(("cosines", "sines"), turns(rows, count, self.base), strict=True):
            tables.append(nodes.array(f"{name}.{key}", own[:, None, None]))
        cosines, sines = tables
        sizes = nodes.numbers(f"{name}.parts", 0, rows, self.groups, parts, size)
        whole = nodes.add("Reshape", [nodes.steps(out.x, f"{name}/steps"), sizes], f"{name}/parts")
        heads = cut(whole, "heads", 3, 0, rotated)
        if self.interleaved:
            a, b = (cut(heads, what, 4, n, count, 2) for n, what in enumerate("ab"))
        else:
            a, b = cut(heads, "a", 4, 0, count // 2), cut(heads, "b", 4, count // 2, count)
        made = [
            nodes.add("Sub", [product(a, cosines, "ac"), product(b, sines, "bs")], f"{name}/less"),
            nodes.add("Add", [product(b, cosines, "bc"), product(a, sines, "as")], f"{name}/more"),
        ]
        if self.interleaved:
            last = nodes.numbers(f"{name}.last", -1)
            made = [nodes.add("Unsqueeze", [own, last], f"{own}/pair") for own in made]
        turned = nodes.add("Concat", made, f"{name}/pairs", axis=-1)
        if self.interleaved:
            sizes = nodes.numbers(f"{name}.turned", 0, rows, self.groups, rotated, count)
            turned = nodes.add("Reshape", [turned, sizes], f"{name}/turned")
        if count < size:
            rest = cut(heads, "rest", 4, count, size)
            turned = nodes.add("Concat", [turned, rest], f"{name}/whole", axis=-1)
        values = cut(whole, "values", 3, rotated, parts)
        both = nodes.add("Concat", [turned, values], f"{name}/both", axis=3)
        shape = nodes.numbers(f"{name}.shape", 0, rows, channels)
        nodes.add("Reshape", [both, shape], out.result)
        nodes.name(out.makes, out.result, Form.STEPS)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return RotaryUnit(self, step, site)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreTable(HeadOperation):
    """A learnt table of a term for each head and bucket of distances, the same for all samples: as
    rows of as many channels as those that it stands beside (`kernels/attention/terms.py`), of which
    it takes no number.

    Several layers of attention may have one table, whose rows then pass those between them.
    """

    buckets: Positive

    type = "score-table"

    def _width(self, shape: Shape) -> int:
        return shape[0] // self.groups

    def places(self, shape: Shape) -> NDArray[np.int64]:
        """Return where the numbers (heads, buckets) stand in the rows."""
        sharing = self.heads // self.groups
        return table_places(self.groups, sharing, self.buckets, self._width(shape))

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        shape = sequence_shape(inputs, self.type, "token")
        check_heads(self.heads, self.groups, shape, self.parts[0] * self.groups)
        sharing = self.heads // self.groups
        return shape[0], table_rows(sharing, self.buckets, self._width(shape)), 1

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; it waits for a sample's first row, whose errors alone wait for its
        own.
        """
        backward = np.full(shape[1], -1)
        backward[0] = made[1] - 1
        return SfuRows(np.zeros(made[1], np.int64), backward)

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`."""
        return self.heads * self.buckets

    @classmethod
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """See `Operation`; (buckets, heads), as embeddings of PyTorch."""
        return {key: own.ravel() for key, own in arrays.items()}

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        sizes = self.buckets, self.heads
        table = out.weight("table", lambda own: own.reshape(sizes))
        out.nodes.name(out.makes, table, Form.TABLE)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        sizes, (channels, rows, _) = (self.buckets, self.heads), self.output([shape])
        places = torch.from_numpy(self.places(shape).ravel())

        class Table(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table = nn.Parameter(NORMAL_DEVIATION * torch.randn(sizes))

            def forward(self, x: Any) -> Any:
                flat = x.new_zeros(rows * channels).index_copy(0, places, self.table.T.flatten())
                return flat.view(rows, channels).expand(len(x), -1, -1)

        return Table()

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return ScoreTableUnit(self, step, site)


class ScoreTableUnit(Unit):
    """A table as rows, which are the same for all samples; it has numbers bucket by bucket."""

    def __init__(self, table: ScoreTable, step: SfuStep, site: Site) -> None:
        super().__init__(site)
        self._places = table.places(step.input).T.ravel()
        self._input, self._output = step.input, step.output
        self.learns = {"table": site.drawn(self._places.size)}

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        channels, rows, _ = self._output
        y = self.arena.take((len(x), rows, 1, channels))
        y[...] = 0
        y.reshape(len(x), -1)[:, self._places] = weights["table"]
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`; it takes no number of its input."""
        channels, rows, _ = self._input
        dx = self.arena.take((len(dz), rows, 1, channels))
        dx[...] = 0
        return (dx,)

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        own = np.ascontiguousarray(dz).reshape(len(dz), -1)[:, self._places]
        return (np.ascontiguousarray(own).reshape(len(dz), 1, 1, -1),)

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        add_bias_gradient(sums["table"], *kept, fresh=fresh)


class RotaryUnit(Unit):
    """Pairs of channels turned by angles of the row; errors are turned back."""

    overwrites = True

    def __init__(self, rotary: Rotary, step: SfuStep, site: Site) -> None:
        super().__init__(site)
        self._size = rotary.size(step.input)
        count = rotary.turned or self._size
        self._cosines, self._sines = turns(step.input[1], count, rotary.base)
        self._parts, self._interleaved = rotary.parts, rotary.interleaved

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        self._turn(x, 1)
        return x, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        self._turn(dz, -1)
        return (dz,)

    def _turn(self, maps: Data, way: int) -> None:
        parts, rotated = self._parts
        # The inverse of a rotation is that by the negative angle, of which only the sine differs.
        sines = self._sines * np.float32(way)
        rotate(
            maps,
            maps,
            self._cosines,
            sines,
            parts=parts,
            rotated=rotated,
            interleaved=self._interleaved,
            size=self._size,
        )


class HeadNormUnit(Unit):
    """Norms of queries and keys; it keeps its inputs, and two numbers for each query and key."""

    def __init__(self, norm: HeadNorm, step: SfuStep, site: Site) -> None:
        super().__init__(site)
        self._epsilon, self._size = norm.epsilon, norm.size(step.input)
        (self._parts, normed), self._groups = norm.parts, norm.groups
        self._spans = {"queries": slice(0, normed - 1), "keys": slice(normed - 1, normed)}
        self._ones, self._offset = np.ones(self._size, np.float32), np.float32(norm.offset)
        self.learns = {key: self._ones - self._offset for key in norm.learnt}

    def _factor(self, weights: Weights, key: str) -> Data:
        """Return what queries or keys that are normalised are multiplied by."""
        own = weights.get(key, self._ones)
        return own + self._offset if self._offset else own

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y, statistics = self.arena.take(x.shape), list[Data]()
        y[...] = x
        for key, span in self._spans.items():
            own = self._own(x, span)
            made, numbers = np.empty_like(own), np.empty((*own.shape[:3], 2), np.float32)
            factor = self._factor(weights, key)
            rms_norm_forward(own, made, numbers, factor, epsilon=self._epsilon)
            self._put(y, span, made)
            statistics.append(numbers)
        return y, (x, *statistics)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        x, *statistics = state
        dx = self.arena.take(dz.shape)
        dx[...] = dz
        for (key, span), numbers in zip(self._spans.items(), statistics, strict=True):
            own, errors = self._own(x, span), self._own(dz, span)
            made = np.empty_like(errors)
            row_norm_error(own, numbers, self._factor(weights, key), errors, made, centred=False)
            self._put(dx, span, made)
        return (dx,)

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        return *state, dz

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        x, *statistics, dz = kept
        for (key, span), numbers in zip(self._spans.items(), statistics, strict=True):
            own, errors = self._own(x, span), self._own(dz, span)
            row_norm_gradient(own, numbers, errors, sums[key], None, fresh=fresh)

    def _own(self, maps: Data, span: slice) -> Data:
        """Return a copy of the queries or the keys of maps: (samples, rows, vectors, channels)."""
        parts = maps.reshape(*maps.shape[:2], self._groups, self._parts, self._size)[:, :, :, span]
        return np.ascontiguousarray(parts).reshape(*maps.shape[:2], -1, self._size)

    def _put(self, maps: Data, span: slice, own: Data) -> None:
        """Write queries or keys to their places in maps."""
        parts = maps.reshape(*maps.shape[:2], self._groups, self._parts, self._size)
        parts[:, :, :, span] = own.reshape(parts[:, :, :, span].shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sinusoids(RowOperation):
    """Sines and cosines of a row's number, times one learnt factor, added: at first 1 over the root
    of the channels.

    Channel i of c has the sine of t * base ^ (-2 i / c) in row t, channel c / 2 + i its cosine
    (Vaswani et al., 2017, section 3.5).
    """

    base: PositiveFinite = 10000.0

    type = "sinusoids"
    torch_form = "rows"
    of_value = Arithmetic(2)  # the product; back: the gradient

    def table(self, shape: Shape) -> Data:
        """Return the sines and cosines (rows, channels)."""
        cosines, sines = turns(shape[1], shape[0], self.base)
        return np.concatenate([sines, cosines], 1)

    @classmethod
    def keys_of(cls, table: NDArray[Any]) -> dict[str, Any] | None:
        """Return the keys of which an array (…, rows, channels) is the table; None if there are
        none.
        """
        rows, channels = table.shape[-2:]
        if rows < 2 or channels < 4 or channels % 2 or table.dtype.kind != "f":
            return None
        own = table.reshape(-1, rows, channels)
        angle = math.atan2(own[0, 1, 1], own[0, 1, channels // 2 + 1])
        if angle <= 0:
            return None
        keys = {"base": float(f"{angle ** (-channels / 2):.4g}")}
        expected = cls(**keys).table((channels, rows, 1))
        return keys if np.abs(own - expected).max() <= 1e-6 * rows else None

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        channels, *_ = shape = sequence_shape(inputs, self.type, "token")
        if channels % 2:
            raise ValueError(f"takes an even number of channels, and these are {channels}")
        return shape

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`."""
        return 1

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        table, first = torch.from_numpy(self.table(shape)), shape[0] ** -0.5

        class Sinusoids(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.factor = nn.Parameter(torch.full((1,), first))
                self.register_buffer("table", table, persistent=False)

            def forward(self, x: Any) -> Any:
                return x + self.factor * self.table

        return Sinusoids()

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        nodes, name = out.nodes, out.name
        steps = nodes.steps(out.x, f"{name}/steps")
        table = nodes.array(f"{name}.table", self.table(out.makes.shape))
        scaled = nodes.add("Mul", [table, out.weight("factor")], f"{name}/scaled")
        out.write_of([steps], "Add", scaled, form=Form.STEPS)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return SinusoidsUnit(self.table(step.output), site)


class SinusoidsUnit(Unit):
    """A table of rows and channels, times one learnt factor."""

    def __init__(self, table: Data, site: Site) -> None:
        super().__init__(site)
        self._table = table[:, None]
        self.learns = {"factor": np.array([table.shape[1] ** -0.5], np.float32)}

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take(x.shape)
        np.add(x, self._table * weights["factor"], out=y)
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`; what is before it may overwrite its errors, which it keeps."""
        dx = self.arena.take(dz.shape)
        dx[...] = dz
        return (dx,)

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        return (dz,)

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        [dz] = kept
        total_gradient(np.broadcast_to(self._table, dz.shape), dz, sums["factor"], fresh=fresh)
