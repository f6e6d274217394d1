"""Values of maps that change places, or stand at several: channels shuffled, channels that become
pixels and pixels that become channels, rows of values that become maps, and borders of copies.

No number is computed. Each operation says for each value of its result the place of one value of
its input; rows, values and errors follow from that.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...common import NotNegative, Positive, Sizes
from ..onnx_nodes import Export, Form
from ..operation import SfuOperation, SfuRows, SfuStep
from ..shape import Shape, shown
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk

Places = NDArray[np.int64]


class Move(SfuOperation):
    """Copies of values, each of which has one at least; the error of a value is the sum of those of
    its copies, in their order.
    """

    @abc.abstractmethod
    def moved(self, maps: NDArray[Any]) -> NDArray[Any]:
        """Return the values (channels, rows, columns) of a sample at their places in the result."""

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [shape] = inputs
        channels, rows, columns = self.moved(np.empty(shape, np.bool_)).shape
        return channels, rows, columns

    def rows(self, shape: Shape, made: Shape) -> SfuRows | None:
        """See `SfuOperation`; a row waits for the last row of which it has values."""
        row_of = np.broadcast_to(np.arange(shape[1])[:, None], shape)
        taken = self.moved(row_of).swapaxes(0, 1).reshape(made[1], -1)
        forward, backward = np.maximum.accumulate(taken.max(1)), np.zeros(shape[1], np.int64)
        np.maximum.at(backward, taken, np.arange(made[1])[:, None])
        # The last row waits for the whole map, and so do the errors of a row for those before.
        forward[-1] = shape[1] - 1
        backward = np.maximum.accumulate(backward)
        own = np.arange(shape[1])
        if made[1] == shape[1] and (forward == own).all() and (backward == own).all():
            return None
        return SfuRows(forward, backward)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return MoveUnit(self.moved(_numbered(step.input)), step.input, site)


def _numbered(shape: Shape) -> Places:
    """Return the place of each value (channels, rows, columns), as samples lie: channels last."""
    channels, rows, columns = shape
    return np.arange(math.prod(shape)).reshape(rows, columns, channels).transpose(2, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shuffle(Move):
    """Channels of `groups` groups in turn: the first of each, then the second of each (ShuffleNet;
    Zhang et al., 2018, section 3.1).
    """

    groups: Positive

    type = "shuffle"

    def moved(self, maps: NDArray[Any]) -> NDArray[Any]:
        """See `Move`.

        Raises:
            ValueError: the groups are not equal.
        """
        channels, *size = maps.shape
        if channels % self.groups:
            raise ValueError(f"`groups` = {self.groups} should divide {channels} channels")
        return maps.reshape(self.groups, -1, *size).swapaxes(0, 1).reshape(maps.shape)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.ChannelShuffle(self.groups)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.expect(Form.MAPS)
        channels, *size = out.makes.shape
        apart = (self.groups, channels // self.groups, *size)
        _write_views(out, apart, (1, 0, 2, 3))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PixelShuffle(Move):
    """Each `scale`² channels become one of `scale` times as many rows and columns (sub-pixel
    convolution; Shi et al., 2016, section 3.2).
    """

    scale: Positive

    type = "pixel-shuffle"
    onnx = ("DepthToSpace",)

    def moved(self, maps: NDArray[Any]) -> NDArray[Any]:
        """See `Move`.

        Raises:
            ValueError: the number of channels is no multiple of scale².
        """
        (channels, rows, columns), scale = maps.shape, self.scale
        if channels % scale**2:
            raise ValueError(f"`scale` = {scale}: {scale**2} should divide {channels} channels")
        apart = maps.reshape(-1, scale, scale, rows, columns).transpose(0, 3, 1, 4, 2)
        return apart.reshape(-1, rows * scale, columns * scale)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.PixelShuffle(self.scale)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: channels lie in TensorFlow's order, those of a pixel in a row.
        """
        mode = node.attributes.get("mode", "DCR")
        if mode != "CRD":
            raise node.refusal(
                f"`mode` = {mode!r}: only 'CRD' is supported, in which the pixels that become one"
                " channel are neighbours, as PyTorch's PixelShuffle has them"
            )
        return walk.step(node, cls, {"scale": node.integer("blocksize", 0)}, walk.maps(node))

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.expect(Form.MAPS)
        out.write("DepthToSpace", blocksize=self.scale, mode="CRD")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PixelUnshuffle(Move):
    """The reverse of `PixelShuffle`: squares of `scale` rows and columns become channels."""

    scale: Positive

    type = "pixel-unshuffle"

    def moved(self, maps: NDArray[Any]) -> NDArray[Any]:
        """See `Move`.

        Raises:
            ValueError: the squares do not cover the maps.
        """
        (channels, rows, columns), scale = maps.shape, self.scale
        if rows % scale or columns % scale:
            raise ValueError(f"`scale` = {scale} should divide {rows} rows and {columns} columns")
        down, across = rows // scale, columns // scale
        apart = maps.reshape(channels, down, scale, across, scale).transpose(0, 2, 4, 1, 3)
        return apart.reshape(-1, down, across)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.PixelUnshuffle(self.scale)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.expect(Form.MAPS)
        (channels, _, _), (_, down, across) = out.reads[0].shape, out.makes.shape
        apart = (channels, down, self.scale, across, self.scale)
        _write_views(out, apart, (0, 2, 4, 1, 3))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unflatten(Move):
    """Values in a row, channel by channel, as maps of another `shape`: where a decoder begins."""

    shape: Sizes

    type = "unflatten"

    def moved(self, maps: NDArray[Any]) -> NDArray[Any]:
        """See `Move`.

        Raises:
            ValueError: there are not as many values.
        """
        if maps.size != math.prod(self.shape):
            raise ValueError(
                f"`shape` = {list(self.shape)}: has {math.prod(self.shape)} values, but there are"
                f" {maps.size}"
            )
        return maps.reshape(self.shape)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.Sequential(nn.Flatten(), nn.Unflatten(1, self.shape))

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        row = out.nodes.row(out.x, f"{out.name}/row")
        sizes = out.nodes.numbers(f"{out.name}.shape", 0, *self.shape)
        out.write_of([row], "Reshape", sizes, form=Form.MAPS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Border(Move):
    """A border around maps, of copies of their values: by reflection at the edge, of the edge, or
    of the other side.
    """

    mode: Literal["reflect", "edge", "wrap"]
    above: NotNegative = 0
    left: NotNegative = 0
    below: NotNegative = 0
    right: NotNegative = 0

    by_channel = True
    type = "border"

    @property
    def collects_map(self) -> bool:  # type: ignore[override]  # the first row is the last one's
        """See `SfuOperation`."""
        return self.mode == "wrap"

    def moved(self, maps: NDArray[Any]) -> NDArray[Any]:
        """See `Move`.

        Raises:
            ValueError: it is wider than the maps have values for it.
        """
        (_, rows, columns), around = maps.shape, (self.above, self.below, self.left, self.right)
        least = 1 if self.mode == "reflect" else 0
        if self.mode != "edge" and (
            max(around[:2]) > rows - least or max(around[2:]) > columns - least
        ):
            raise ValueError(
                f'`mode` = "{self.mode}": a border of {shown(around)} (above, below, left, right)'
                f" is wider than maps of {rows}x{columns} have values for it"
            )
        return np.pad(maps, ((0, 0), around[:2], around[2:]), mode=self.mode)

    @classmethod
    def around(cls, walk: Walk, node: OnnxNode, value: Value, sides: Sequence[int]) -> Value:
        """Return maps with a border, of these sizes, of what the mode of a node says."""
        keys = {"mode": node.attributes["mode"]}
        names = "above", "left", "below", "right"
        keys |= dict(zip(names, sides, strict=True))
        return walk.step(node, cls, keys, value, axes=value.axes)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        kinds = {"reflect": "Reflection", "edge": "Replication", "wrap": "Circular"}
        sides = self.left, self.right, self.above, self.below
        return getattr(nn, f"{kinds[self.mode]}Pad2d")(sides)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.expect(Form.MAPS)
        sides = 0, 0, self.above, self.left, 0, 0, self.below, self.right
        out.write("Pad", out.nodes.numbers(f"{out.name}.pads", *sides), mode=self.mode)


def _write_views(out: Export, apart: Sequence[int], order: Sequence[int]) -> None:
    """Write maps taken apart into axes behind samples, which are put into an order, and merged."""
    axes = out.nodes.numbers(f"{out.name}.apart", 0, *apart)
    name = out.nodes.add("Reshape", [out.x, axes], f"{out.name}/apart")
    perm = [0, *(place + 1 for place in order)]
    name = out.nodes.add("Transpose", [name], f"{out.name}/in_order", perm=perm)
    sizes = out.nodes.numbers(f"{out.name}.shape", 0, *out.makes.shape)
    out.write_of([name], "Reshape", sizes, form=Form.MAPS)


class MoveUnit(Unit):
    """Copies of values, by the place of each: `moved` (channels, rows, columns)."""

    def __init__(self, moved: Places, shape: Shape, site: Site) -> None:
        super().__init__(site)
        channels, *size = moved.shape
        self._output, self._input = (*size, channels), (*shape[1:], shape[0])
        self._places = moved.transpose(1, 2, 0).ravel()
        self._copies = _copies(self._places, math.prod(shape))

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take((len(x), *self._output))
        made = y.reshape(len(x), -1)
        np.take(x.reshape(len(x), -1), self._places, axis=1, out=made, mode="clip")
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        dx = self.arena.take((len(dz), *self._input))
        errors, made = dz.reshape(len(dz), -1), dx.reshape(len(dz), -1)
        (_, first), *others = self._copies
        np.take(errors, first, axis=1, out=made, mode="clip")
        for values, copies in others:
            made[:, values] += errors[:, copies]
        return (dx,)


def _copies(places: Places, values: int) -> list[tuple[Places, Places]]:
    """Return all values and their first copies, those that have a second one and these, and so
    on.
    """
    order, counts = np.argsort(places, kind="stable"), np.bincount(places, minlength=values)
    begins = np.cumsum(counts) - counts
    several = (np.flatnonzero(counts > n) for n in range(counts.max()))
    return [(own, order[begins[own] + n]) for n, own in enumerate(several)]
