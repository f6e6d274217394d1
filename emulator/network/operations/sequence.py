"""Sequences: maps as time steps, the last step, and the embedding of symbols."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Several
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...common import Channels, NotNegative, Positive
from ..onnx_nodes import Arrays, Export, Form
from ..operation import LayerRows, RowLayer, SfuOperation, SfuRows, SfuStep
from ..shape import Shape, shown
from ..unit import Data, Inputs, Lengths, Made, Site, State, Training, Unit, Weights
from .moves import Move

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequence(SfuOperation):
    """A map's rows become time steps: the columns of each channel stand one after the other as
    channels.
    """

    type = "sequence"
    may_begin = True

    def output(self, inputs: Several[Shape]) -> Shape:
        """See `Operation`."""
        [(channels, rows, columns)] = inputs
        return channels * columns, rows, 1

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`; maps become (samples, steps, values)."""

        class Rows(nn.Module):
            def forward(self, x: Any) -> Any:
                return x.permute(0, 2, 1, 3).flatten(2)

        return Rows()

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.nodes.name(out.makes, out.nodes.steps(out.x, out.name), Form.STEPS)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return SequenceUnit(step.input, site)


class SequenceUnit(Unit):
    """The columns of each channel, one after the other, as channels of one column."""

    def __init__(self, shape: Shape, site: Site) -> None:
        super().__init__(site)
        self._channels, self._rows, self._columns = shape

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take((len(x), self._rows, 1, self._channels * self._columns))
        self._as_maps(y)[...] = x
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        dx = self.arena.take((len(dz), self._rows, self._columns, self._channels))
        dx[...] = self._as_maps(dz)
        return (dx,)

    def _as_maps(self, steps: Data) -> Data:
        """Return a view of a sequence as maps (samples, rows, columns, channels)."""
        return steps.reshape(len(steps), self._rows, self._channels, self._columns).swapaxes(2, 3)


def sequence_shape(inputs: Several[Shape], kind: str, row: str) -> Shape:
    """Return the shape of the one input of an operation, which calls its rows so.

    Raises:
        ValueError: it is not a sequence.
    """
    [shape] = inputs
    if shape[2] != 1:
        raise ValueError(
            f"maps of {shown(shape)}: {kind} takes a sequence, one row a {row} and one column"
        )
    return shape


class OneStep(SfuOperation):
    """One row of a sequence: that at a `place`, as Python counts."""

    by_channel = True
    torch_form = "rows"
    place: ClassVar[int]
    row: ClassVar[str] = "step"

    def output(self, inputs: Several[Shape]) -> Shape:
        """See `Operation`."""
        channels, _, _ = sequence_shape(inputs, self.type, self.row)
        return channels, 1, 1

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; it waits for the last row, so that no error goes back for rows that
        have not come.
        """
        return SfuRows(np.array([shape[1] - 1]), np.zeros(shape[1], np.int64))

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        sequence = out.nodes.steps(out.x, f"{out.name}/steps")
        place = out.nodes.array(f"{out.name}.place", np.array(self.place))
        out.write_of([sequence], "Gather", place, form=Form.ROW, axis=1)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return OneStepUnit(self.place, step.input, site)


class OneStepUnit(Unit):
    """One row of each sample's sequence; from the end, one of the sample's own length, if given."""

    def __init__(self, place: int, shape: Shape, site: Site) -> None:
        super().__init__(site)
        self._place = place
        self._channels, self._steps, _ = shape

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        rows = self._rows(len(x), None if training is None else training.lengths)
        return self._picked(x, rows), (rows,)

    def infer(self, xs: Inputs, weights: Weights, lengths: Lengths | None) -> Data:
        """See `Unit`."""
        [x] = xs
        return self._picked(x, self._rows(len(x), lengths))

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`; all other steps, and those of the padding, have no error."""
        [rows] = state
        dx = self.arena.take((len(dz), self._steps, 1, self._channels))
        dx[...] = 0
        dx[np.arange(len(dz)), rows] = dz[:, 0]
        return (dx,)

    def _rows(self, samples: int, lengths: Lengths | None) -> Lengths:
        """Return the number of each sample's row."""
        rows = self.arena.take((samples,), np.int64)
        rows[...] = self._place % self._steps
        if lengths is not None and self._place < 0:
            np.add(lengths, self._place, out=rows)
        return rows

    def _picked(self, x: Data, rows: NDArray[np.int64]) -> Data:
        y = self.arena.take((len(x), 1, 1, self._channels))
        y[:, 0] = x[np.arange(len(x)), rows]
        return y


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows(SfuOperation):
    """`count` rows of a sequence, from row `first` on, such as the source's of a sequence of source
    and target.
    """

    first: NotNegative = 0
    count: Positive

    type = "rows"
    by_channel = True
    torch_form = "rows"

    def output(self, inputs: Several[Shape]) -> Shape:
        """See `Operation`."""
        channels, rows, columns = sequence_shape(inputs, self.type, "token")
        if self.first + self.count > rows:
            raise ValueError(
                f"takes {self.count} rows from row {self.first} on, and there are {rows}"
            )
        return channels, self.count, columns

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; the last row waits for all, so that no error goes back for rows that
        have not come.
        """
        forward = np.arange(made[1]) + self.first
        forward[-1] = shape[1] - 1
        backward = np.clip(np.arange(shape[1]) - self.first, 0, made[1] - 1)
        return SfuRows(forward, backward)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`; takes (samples, steps, values)."""
        rows = slice(self.first, self.first + self.count)

        class Some(nn.Module):
            def forward(self, x: Any) -> Any:
                return x[:, rows]

        return Some()

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        nodes, name = out.nodes, out.name
        steps = nodes.steps(out.x, f"{name}/steps")
        bounds = {"first": self.first, "end": self.first + self.count, "axis": 1}
        numbers = [nodes.numbers(f"{name}.{key}", number) for key, number in bounds.items()]
        out.write_of([steps], "Slice", *numbers, form=Form.STEPS)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return RowsUnit(slice(self.first, self.first + self.count), step.input, site)


class RowsUnit(Unit):
    """Some rows; all others have no error."""

    def __init__(self, some: slice, shape: Shape, site: Site) -> None:
        super().__init__(site)
        self._some, (self._channels, self._rows, _) = some, shape

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take((len(x), self._some.stop - self._some.start, 1, self._channels))
        y[...] = x[:, self._some]
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        dx = self.arena.take((len(dz), self._rows, 1, self._channels))
        dx[...] = 0
        dx[:, self._some] = dz
        return (dx,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transpose(Move):
    """The rows of a sequence as channels, and its channels as rows, so that the next layer mixes
    rows (Tolstikhin et al., 2021).

    All rows of its result wait for the last row of its input, and so do errors.
    """

    type = "transpose"
    torch_form = "rows"
    collects_map = True

    def output(self, inputs: Several[Shape]) -> Shape:
        """See `Operation`."""
        channels, rows, columns = sequence_shape(inputs, self.type, "token")
        return rows, channels, columns

    def moved(self, maps: NDArray[Any]) -> NDArray[Any]:
        """See `Move`."""
        return maps.swapaxes(0, 1)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`; takes (samples, rows, channels)."""

        class Transposed(nn.Module):
            def forward(self, x: Any) -> Any:
                return x.transpose(1, 2)

        return Transposed()

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        steps = out.nodes.steps(out.x, f"{out.name}/steps")
        out.write_of([steps], "Transpose", form=Form.STEPS, perm=[0, 2, 1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class LastStep(OneStep):
    """The last time step of a sequence: of each sample's own length, where lengths differ."""

    type = "last-step"
    place = -1

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`; takes (samples, steps, values)."""

        class Last(nn.Module):
            def forward(self, x: Any) -> Any:
                return (x[0] if isinstance(x, tuple) else x)[:, -1]

        return Last()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding(RowLayer):
    """For each step, the column of weights of its symbol: `features` values.

    It takes one channel for each symbol, of which the one that is there is 1 and the others are 0.
    On boards and links, a row of inputs is the symbol itself.
    """

    features: Channels

    type = "embedding"
    bias: ClassVar[bool] = False  # type: ignore[misc]  # it has none
    looks_up = True

    @property
    def cuts_outputs(self) -> bool:
        """See `LayerOperation`."""
        return True

    def with_channels(self, channels: int) -> Embedding:
        """See `LayerOperation`."""
        return dataclasses.replace(self, features=channels)

    def output(self, inputs: Several[Shape]) -> Shape:
        """See `Operation`."""
        [shape] = inputs
        if shape[2] != 1:
            raise ValueError(
                f"maps of {shown(shape)}: an embedding takes a sequence of symbols, one row a step"
                " and one column"
            )
        return self.features, *shape[1:]

    def taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """See `LayerOperation`: one value is looked up."""
        return 1

    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """See `LayerOperation`."""
        steps = np.arange(shape[1])
        return LayerRows(steps, steps, steps)

    def torch(self, nn: Any, shape: Shape) -> Several[Any]:
        """See `LayerOperation`; takes the numbers of the symbols."""
        return [nn.Embedding(shape[0], self.features)]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the node is a Gather from weights (symbols, features) by the network's
        input, or by some of its steps, which are picked of what is looked up for all.

        Raises:
            InputError: it looks up something else, or by something else.
        """
        from ..onnx_graph import FROM_IMAGES

        value, table = walk.take(node, 1), walk.constant(node, 0)
        axes, weight = walk.axes_of(value), () if table is None else table.shape
        if (
            value.step != FROM_IMAGES
            or len(axes) != 2
            or len(weight) != 2
            or node.integer("axis", 0) != 0
        ):
            raise node.refusal(
                "looks up constants; only the input's symbols (samples x steps) in weights (symbols"
                " x features) are supported"
            )
        walk.look_up(node, weight[0])
        arrays, axes = {"weight": node.inputs[0]}, (*axes, "channels")
        known = (n for n, own in enumerate(walk.steps) if own.kind is cls and own.arrays == arrays)
        step = next(known, None)
        if step is None:
            walk.weight(node, 0)
            keys, whole = {"features": weight[1]}, dataclasses.replace(value, rows=None)
            step = walk.step(node, cls, keys, whole, arrays=arrays).step
        made = dataclasses.replace(value, step=step, axes=axes, rows=None)
        if value.rows is None:
            return made
        first, count = value.rows
        return walk.step(node, Rows, {"first": first, "count": count}, made, axes=axes)

    @classmethod
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """See `Operation`; they are (symbols, features)."""
        return cls.from_torch(arrays)

    @classmethod
    def from_torch(cls, arrays: Arrays) -> Arrays:
        """See `LayerOperation`; they are (symbols, features)."""
        return {"weight": arrays["weight"].T}

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        if out.form is not Form.SYMBOLS:
            super().to_onnx(out)
        table = out.weight("weight", lambda weight: weight.reshape(self.features, -1).T)
        out.write_of([table], "Gather", *out.taken, form=Form.STEPS, axis=0)
