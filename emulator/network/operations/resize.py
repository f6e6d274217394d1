"""Maps made larger: each value repeated, means of its neighbours between, or zeros between and
around.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common import NotNegative, PositivePair
from ..onnx_nodes import Export, Form
from ..operation import Arithmetic, RowMap, SfuOperation, SfuRows, SfuStep
from ..shape import Pair, Shape
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


class Between(NamedTuple):
    """Of each row or column of a result: the two of the input that it lies between, and the share
    of the second.
    """

    first: RowMap
    second: RowMap
    share: NDArray[np.float32]


def between(count: int, factor: int, mode: str, *, corners: bool) -> Between:
    """Return where the `count` times `factor` rows or columns of a result lie among those of the
    input.

    Linear ones are at their middles, (n + 1/2) / factor - 1/2, and not beyond the first and the
    last; with `corners` the first and the last are those of the input (PyTorch's `align_corners`).
    """
    places = np.arange(count * factor)
    if mode == "nearest" or factor == 1:
        return Between(places // factor, places // factor, np.zeros(len(places), np.float32))
    if corners:
        at = places * ((count - 1) / max(1, len(places) - 1))
    else:
        at = np.maximum((places + 0.5) / factor - 0.5, 0)
    first = np.minimum(at.astype(np.int64), count - 1)
    second = np.minimum(first + 1, count - 1)
    return Between(first, second, (at - first).astype(np.float32))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Upsample(SfuOperation):
    """Maps of `scale` times as many rows and columns.

    Each value is repeated ("nearest"), or its neighbours are averaged by how near they are
    ("bilinear").
    """

    scale: PositivePair
    mode: Literal["nearest", "bilinear"] = "nearest"
    corners: bool = False

    by_channel = True
    type = "upsample"
    # Bilinear, over rows: two products, and two back; as many over columns, before the rows are.
    of_value = Arithmetic(4)
    onnx = ("Resize",)

    def __post_init__(self) -> None:
        if self.corners and self.mode == "nearest":
            raise ValueError('`corners` = true: goes with `mode` = "bilinear" alone')

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [(channels, rows, columns)] = inputs
        return channels, rows * self.scale[0], columns * self.scale[1]

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """See `SfuOperation`; repeating takes none."""
        if self.mode == "nearest":
            return Arithmetic()
        return self.of_value.times(math.prod(made) + shape[0] * shape[1] * made[2])

    def sides(self, shape: Shape) -> tuple[Between, Between]:
        """Return where rows and columns of the result lie."""
        return (
            between(shape[1], self.scale[0], self.mode, corners=self.corners),
            between(shape[2], self.scale[1], self.mode, corners=self.corners),
        )

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; a row waits for the second one that it lies between."""
        first, second, _ = self.sides(shape)[0]
        backward = np.zeros(shape[1], np.int64)
        np.maximum.at(backward, first, np.arange(made[1]))
        np.maximum.at(backward, second, np.arange(made[1]))
        # The last row waits for the whole map, and so do the errors of a row for those before.
        forward = np.maximum.accumulate(second)
        forward[-1] = shape[1] - 1
        return SfuRows(forward, np.maximum.accumulate(backward))

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        corners = {"align_corners": self.corners} if self.mode == "bilinear" else {}
        return nn.Upsample(scale_factor=self.scale, mode=self.mode, **corners)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: it makes maps smaller, by other factors than whole ones, or in another way.
        """
        value = walk.maps(node)
        shape = walk.shape(value)
        mode, form = node.attributes.get("mode", "nearest"), _form(node)
        if shape is None or mode not in _MODES or form not in _FORMS[str(mode)]:
            raise node.refusal(
                f"`mode` = {mode!r} with `coordinate_transformation_mode` = {form!r}: only values"
                " repeated (nearest), and linear ones at middles or corners, are supported"
            )
        given = walk.numbers(node, "scales", 2) if node.has_input(2) else ()
        if len(given) == 4:
            scale: tuple[float, ...] = given[2:]
        else:
            sizes = walk.entries(node, 3)[-2:]
            scale = tuple(
                size / own if isinstance(size, int) else 0.0
                for size, own in zip(sizes, shape[1:], strict=True)
            )
        if given[:2] not in ((), (1, 1)) or any(own < 1 or own != int(own) for own in scale):
            raise node.refusal(
                f"makes maps {' x '.join(f'{own:g}' for own in scale)} times as large; only whole"
                " factors for rows and columns are supported"
            )
        keys: dict[str, Any] = {"scale": tuple(map(int, scale)), "mode": _MODES[str(mode)]}
        if form == "align_corners":
            keys["corners"] = True
        return walk.step(node, cls, keys, value)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.expect(Form.MAPS)
        scales = out.nodes.array(f"{out.name}.scales", np.array([1, 1, *self.scale], np.float32))
        if self.mode == "nearest":
            keys = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        else:
            form = "align_corners" if self.corners else "half_pixel"
            keys = {"coordinate_transformation_mode": form, "mode": "linear"}
        out.write("Resize", "", scales, **keys)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return UpsampleUnit(self, step.input, site)


_MODES = {"nearest": "nearest", "linear": "bilinear"}
_FORMS = {
    "nearest": ("asymmetric", "half_pixel", "pytorch_half_pixel"),
    "linear": ("half_pixel", "pytorch_half_pixel", "align_corners"),
}


def _form(node: OnnxNode) -> str:
    """Return where a node takes the places of a result to be; whole factors make most alike."""
    form = str(node.attributes.get("coordinate_transformation_mode", "half_pixel"))
    way = node.attributes.get("nearest_mode", "round_prefer_floor")
    node.attributes.get("cubic_coeff_a")
    if node.attributes.get("mode", "nearest") == "nearest":
        # At n / factor the floor is the value that is repeated; at middles the nearest one is.
        fits = way == "floor" if form == "asymmetric" else way.startswith("round")
        return form if fits else f"{form}, {way}"
    return form


class UpsampleUnit(Unit):
    """Maps made larger: columns first, then rows; errors are added in ascending order."""

    def __init__(self, of: Upsample, shape: Shape, site: Site) -> None:
        super().__init__(site)
        self._nearest, self._scale = of.mode == "nearest", of.scale
        self._shape, self._sides = shape, of.sides(shape)

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        channels, rows, columns = self._shape
        down, across = self._scale
        y = self.arena.take((len(x), rows * down, columns * across, channels))
        if self._nearest:
            whole = y.reshape(len(x), rows, down, columns, across, channels)
            whole[...] = x[:, :, None, :, None]
            return y, ()
        (top, bottom, below), (left, right, beside) = self._sides
        one, share = np.float32(1), beside[:, None]
        wide = x[:, :, left] * (one - share) + x[:, :, right] * share
        share = below[:, None, None]
        np.multiply(wide[:, top], one - share, out=y)
        y += wide[:, bottom] * share
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        channels, rows, columns = self._shape
        down, across = self._scale
        dx = self.arena.take((len(dz), rows, columns, channels))
        if self._nearest:
            whole = dz.reshape(len(dz), rows, down, columns, across, channels)
            dx[...] = whole[:, :, 0, :, 0]
            for place in range(1, down * across):
                dx += whole[:, :, place // across, :, place % across]
            return (dx,)
        one, (top, bottom, below), (left, right, beside) = np.float32(1), *self._sides
        wide = np.zeros((len(dz), rows, columns * across, channels), np.float32)
        for row, share in enumerate(below):
            wide[:, top[row]] += dz[:, row] * (one - share)
            wide[:, bottom[row]] += dz[:, row] * share
        dx[...] = 0
        for column, share in enumerate(beside):
            dx[:, :, left[column]] += wide[:, :, column] * (one - share)
            dx[:, :, right[column]] += wide[:, :, column] * share
        return (dx,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Zeros(SfuOperation):
    """Zeros around maps, in any number on each side, and `scale` - 1 of them between two values.

    Before a convolution, these make padding that differs between sides, and a transposed
    convolution (Dumoulin and Visin, 2016, section 4).
    """

    scale: PositivePair = (1, 1)
    above: NotNegative = 0
    left: NotNegative = 0
    below: NotNegative = 0
    right: NotNegative = 0

    by_channel = True
    type = "zeros"

    @property
    def may_begin(self) -> bool:  # type: ignore[override]  # around images, but not between pixels
        """See `SfuOperation`."""
        return self.scale == (1, 1)

    @property
    def corner(self) -> Pair:  # type: ignore[override]  # as it says
        """See `SfuOperation`."""
        return self.above, self.left

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [(channels, rows, columns)] = inputs
        down, across = self.scale
        return (
            channels,
            (rows - 1) * down + 1 + self.above + self.below,
            (columns - 1) * across + 1 + self.left + self.right,
        )

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; a row of zeros waits for the row before it, the first ones for the
        first, and the last one for the whole map.
        """
        forward = (np.arange(made[1]) - self.above) // self.scale[0]
        forward[-1] = shape[1] - 1
        backward = np.arange(shape[1]) * self.scale[0] + self.above
        return SfuRows(np.clip(forward, 0, shape[1] - 1), backward)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        around = nn.ZeroPad2d((self.left, self.right, self.above, self.below))
        if self.scale == (1, 1):
            return around
        (_, rows, columns), (down, across) = shape, self.scale

        class Spread(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.around = around

            def forward(self, x: Any) -> Any:
                sizes = (rows - 1) * down + 1, (columns - 1) * across + 1
                y = x.new_zeros(*x.shape[:2], *sizes)
                y[:, :, ::down, ::across] = x
                return self.around(y)

        return Spread()

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; ONNX has zeros around maps alone."""
        out.expect(Form.MAPS)
        if self.scale != (1, 1):
            raise out.refusal(f"zeros between values, as of transposed convolutions ({out.layer})")
        pads = (0, 0, self.above, self.left, 0, 0, self.below, self.right)
        out.write("Pad", out.nodes.numbers(f"{out.name}.pads", *pads))

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return ZerosUnit(self, step, site)


class ZerosUnit(Unit):
    """Maps among zeros; the errors of these are left out."""

    def __init__(self, of: Zeros, step: SfuStep, site: Site) -> None:
        super().__init__(site)
        channels, *size = step.output
        self._output = (*size, channels)
        begins, (_, *counts) = (of.above, of.left), step.input
        # The places of the inputs' rows and columns.
        self._rows, self._columns = (
            slice(begin, begin + (count - 1) * scale + 1, scale)
            for begin, count, scale in zip(begins, counts, of.scale, strict=True)
        )

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take((len(x), *self._output))
        y[...] = 0
        y[:, self._rows, self._columns] = x
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        own = dz[:, self._rows, self._columns]
        dx = self.arena.take(own.shape)
        dx[...] = own
        return (dx,)
