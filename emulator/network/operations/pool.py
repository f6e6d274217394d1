"""Pooling over windows, and over whole maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....kernels import MOST_PLACES
from ....kernels.layers import pool
from ...common import NotNegativePair, PositivePair
from ..onnx_nodes import Export, Form
from ..operation import (
    RowMap,
    SfuOperation,
    SfuRows,
    SfuStep,
    Window,
    rows_needed,
    rows_reaching,
    windows,
)
from ..shape import Pair, Shape
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights
from .conv import window_keys

if TYPE_CHECKING:
    from ..onnx_graph import Keys, OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pool(SfuOperation):
    """The base of pooling operations; without a stride, windows are adjacent."""

    by_channel = True

    kernel: PositivePair
    stride: PositivePair | None = None
    pad: NotNegativePair = (0, 0)
    ceil: bool = False

    @property
    def step(self) -> Pair:
        """The stride."""
        return self.stride or self.kernel

    def resolved(self, inputs: Sequence[Shape]) -> SfuOperation:
        """See `SfuOperation`; the stride is filled in, and sizes that are whole are not rounded, so
        that equal pools are equal however they are described.
        """
        fits = dataclasses.replace(self, stride=self.step, ceil=False)
        return fits if fits.output(inputs) == self.output(inputs) else self._with_stride()

    def _with_stride(self) -> SfuOperation:
        return dataclasses.replace(self, stride=self.step)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0][0], *windows(
            inputs[0], Window(self.kernel, self.step, self.pad), ceil=self.ceil
        )

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`."""
        down = shape[1], made[1], self.kernel[0], self.step[0], self.pad[0]
        return SfuRows(rows_needed(*down), rows_reaching(*down))

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; windows are over rows and columns, over rows alone, or over all that a
        reduction names.

        Raises:
            InputError: dilation, or padding that differs between sides or sizes rounded up where
                that matters.
        """
        kernel = _kernel_of(node)
        value = walk.maps(node, padded=True, over=len(kernel))
        keys, _ = window_keys(walk, node, value, kernel)
        if "dilation" in keys:
            raise node.refusal(
                f"`dilations` = {list(node.integers('dilations', ()))}: a pool with gaps between its"
                " values is not supported, only a convolution with them; use dilation = 1"
            )
        return cls.imported(walk, node, {**keys, **cls.onnx_keys(walk, node, value, keys)}, value)

    @classmethod
    def imported(cls, walk: Walk, node: OnnxNode, keys: Mapping[str, Any], value: Value) -> Value:
        """Add the steps of a node whose pool has these keys; return the result."""
        return walk.step(node, cls, keys, value, axes=value.axes)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.expect(Form.MAPS)
        out.write(
            self.onnx[0],
            kernel_shape=self.kernel,
            strides=self.step,
            # ONNX has the beginnings of both axes, then their ends.
            pads=self.pad * 2,
            **({"ceil_mode": 1} if self.ceil else {}),
            **self._counts(),
        )

    def _counts(self) -> dict[str, int]:
        """Return the keys of ONNX that say what is averaged."""
        return {}

    @classmethod
    def onnx_keys(cls, walk: Walk, node: OnnxNode, value: Value, keys: Keys) -> Keys:
        """Return the keys of a node besides those of its window, `keys`.

        Raises:
            InputError: zeros around the maps would count otherwise than a pool's own padding.
        """
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaxPool(_Pool):
    """The maximum of each window."""

    type = "max-pool"
    onnx = ("MaxPool", "GlobalMaxPool", "ReduceMax")

    def __post_init__(self) -> None:
        # The place of each maximum is kept as one byte (`MaxPoolUnit`).
        if self.kernel[0] * self.kernel[1] > MOST_PLACES:
            size = "x".join(map(str, self.kernel))
            raise ValueError(
                f"a max-pool's window has at most {MOST_PLACES} places, not {size}; use several"
                " smaller pools in a row"
            )

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.MaxPool2d(self.kernel, self.step, self.pad, ceil_mode=self.ceil)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return MaxPoolUnit(self, step, site)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `_Pool`; GlobalMaxPool and ReduceMax have windows of the whole map, or of whole rows
        or columns.
        """
        if node.operator == "MaxPool":
            return super().from_onnx(walk, node)
        return _over_axes(walk, node, cls)

    @classmethod
    def imported(cls, walk: Walk, node: OnnxNode, keys: Mapping[str, Any], value: Value) -> Value:
        """See `_Pool`; a window that is too large becomes smaller ones in a row, which find the
        same places.
        """
        if keys.get("ceil") and keys["kernel"][0] * keys["kernel"][1] > MOST_PLACES:
            raise node.refusal(f"`ceil_mode` = 1 with windows of more than {MOST_PLACES} places")
        for part in _parts(**keys):
            value = walk.step(node, cls, part, value, axes=value.axes)
        return value

    @classmethod
    def onnx_keys(cls, walk: Walk, node: OnnxNode, value: Value, keys: Keys) -> Keys:
        """See `_Pool`; a pool's own padding is below all numbers, so zeros do as well where nothing
        is below them.
        """
        step = walk.step_of(value)
        if value.padded_by is not None and (step is None or not step.kind.never_negative):
            raise value.padded_by.refusal(
                f"puts zeros around maps that may be negative, of which node {node.name!r} takes"
                " the maximum; padding of a max-pool itself is not counted"
            )
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AveragePool(_Pool):
    """The average of each window, of all its places, or of those that are not padding."""

    count_include_pad: bool = True

    type = "average-pool"
    onnx = ("AveragePool",)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.AvgPool2d(
            self.kernel,
            self.step,
            self.pad,
            ceil_mode=self.ceil,
            count_include_pad=self.count_include_pad,
        )

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return AveragePoolUnit(self, step, site)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; over all rows of a sequence, it is a mean."""
        if out.form is Form.STEPS and self.kernel == out.reads[0].shape[1:] and self.pad == (0, 0):
            out.write_of(out.taken, "ReduceMean", form=Form.ROW, axes=[1], keepdims=0)
        else:
            super().to_onnx(out)

    def _counts(self) -> dict[str, int]:
        return {"count_include_pad": int(self.count_include_pad)}

    @classmethod
    def onnx_keys(cls, walk: Walk, node: OnnxNode, value: Value, keys: Keys) -> Keys:
        """See `_Pool`; without padding, whether it counts makes no difference, and zeros around
        maps count.
        """
        counts = node.integer("count_include_pad", 0) != 0
        if value.padded_by is not None and not counts and keys["pad"] != (value.pads or ())[:2]:
            raise value.padded_by.refusal(
                f"puts zeros around maps that count, where padding by node {node.name!r} itself"
                " does not"
            )
        return (
            {}
            if counts or keys["pad"] == (0, 0) or value.padded_by is not None
            else {"count_include_pad": False}
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalAveragePool(SfuOperation):
    """The average of each whole map."""

    by_channel = True
    type = "global-average-pool"
    onnx = ("GlobalAveragePool", "ReduceMean")

    def resolved(self, inputs: Sequence[Shape]) -> SfuOperation:
        """See `SfuOperation`; the result is an average over one window, the map."""
        return AveragePool(kernel=inputs[0][1:], stride=inputs[0][1:])

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0][0], 1, 1

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the node is GlobalAveragePool, or ReduceMean over rows, columns or both.

        Raises:
            InputError: ReduceMean is over other axes.
        """
        return _over_axes(walk, node, AveragePool)


def spans(count: int, made: int) -> RowMap:
    """Return (made, 2): the first of `count` rows or columns of each window, and the one behind its
    last (PyTorch's adaptive pools).
    """
    places = np.arange(made)
    return np.stack([places * count // made, -(-(places + 1) * count // made)], 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveAveragePool(SfuOperation):
    """Averages of as many windows as `size` says, over rows and columns, which are as alike as can
    be: they may overlap, and repeat values where maps are smaller.
    """

    size: PositivePair

    by_channel = True
    type = "adaptive-average-pool"
    onnx = ("GatherND",)

    def resolved(self, inputs: Sequence[Shape]) -> SfuOperation:
        """See `SfuOperation`; windows that are all alike are those of an average pool."""
        _, rows, columns = inputs[0]
        down, across = self.size
        if rows % down or columns % across:
            return self
        kernel = rows // down, columns // across
        return AveragePool(kernel=kernel, stride=kernel)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0][0], *self.size

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`."""
        begin, end = spans(shape[1], made[1]).T
        own = np.arange(shape[1])
        return SfuRows(end - 1, np.searchsorted(begin, own, side="right") - 1)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.AdaptiveAvgPool2d(self.size)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the nodes that `with_map_operators` found are computed once.

        Raises:
            InputError: they make something else.
        """
        from ..onnx_graph import MAPS

        nodes: tuple[OnnxNode, ...] = node.attributes.get("nodes", ())
        value = walk.take(node)
        shape = walk.shape(value)
        if nodes and shape is not None and walk.axes_of(value) == MAPS:
            x = np.random.default_rng(0).standard_normal((1, *shape[1:], 1), np.float32)
            made = walk.expressions.applied(nodes, x.transpose(0, 3, 1, 2), walk.constants)
            if made.ndim == 4 and made.shape[:2] == (1, 1):
                expected = np.empty((1, *made.shape[2:], 1), np.float32)
                _average(x, expected)
                if np.abs(made[0, 0] - expected[0, ..., 0]).max() <= 1e-5:
                    return walk.step(node, cls, {"size": made.shape[2:]}, value)
        raise node.refusal(
            "gathers values by places; only averages over windows of maps, as those of"
            " AdaptiveAvgPool2d, are supported"
        )

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; ONNX has no word for it, so places are gathered and added, as PyTorch
        does.
        """
        out.expect(Form.MAPS)
        nodes, name = out.nodes, out.name
        sides = [_places(*own) for own in zip(out.reads[0].shape[1:], self.size, strict=True)]
        (down, is_below), (across, is_beside) = sides
        places = np.stack(np.broadcast_arrays(down[:, :, None, None], across), -1)
        shares = (is_below[:, :, None, None] & is_beside) / (
            is_below.sum(1)[:, None, None, None] * is_beside.sum(1)[:, None]
        )
        last = nodes.add("Transpose", [out.x], f"{name}/last", perm=[2, 3, 0, 1])
        given = nodes.array(f"{name}.places", places.astype(np.int64))
        gathered = nodes.add("GatherND", [last, given], f"{name}/gathered", name)
        maps = nodes.add("Transpose", [gathered], f"{name}/windows", perm=[4, 5, 0, 1, 2, 3])
        weights = nodes.array(f"{name}.shares", shares.astype(np.float32))
        weighted = nodes.add("Mul", [maps, weights], f"{name}/weighted")
        axes = nodes.numbers(f"{name}.axes", 3, 5)
        nodes.add("ReduceSum", [weighted, axes], out.result, keepdims=0)
        nodes.name(out.makes, out.result, Form.MAPS)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return AdaptiveAveragePoolUnit(step, site)


def _places(count: int, made: int) -> tuple[RowMap, NDArray[np.bool_]]:
    """Return the places of each window, as many as the largest one has, and which are its own."""
    begin, end = spans(count, made).T
    places = begin[:, None] + np.arange(max(end - begin))
    return np.minimum(places, count - 1), places < end[:, None]


def _parts(
    kernel: Pair, stride: Pair | None = None, pad: Pair = (0, 0), ceil: bool = False
) -> list[Keys]:
    """Return the keys of max-pools in a row that have no more places than a window may, and make
    the same as one.

    A maximum over columns, and then over rows, is one over both: of equal values, the first one in
    the first row is the first of all. A longer side is one of windows that overlap.
    """
    if kernel[0] * kernel[1] <= MOST_PLACES:
        return [
            {"kernel": kernel, "stride": stride, "pad": pad, **({"ceil": True} if ceil else {})}
        ]
    parts: list[Keys] = []
    for side in (1, 0):
        size, padding = kernel[side], pad[side]
        while size > MOST_PLACES:
            parts.append(
                {
                    "kernel": _along(side, MOST_PLACES),
                    "stride": (1, 1),
                    "pad": _along(side, padding, 0),
                }
            )
            # Maxima over n places at every step, then over m of these, are maxima over n + m - 1.
            # Only the first window meets the padding.
            size, padding = size - MOST_PLACES + 1, 0
        step = (stride or kernel)[side]
        if (size, step) != (1, 1):
            parts.append(
                {
                    "kernel": _along(side, size),
                    "stride": _along(side, step),
                    "pad": _along(side, padding, 0),
                }
            )
    return parts


def _along(side: int, size: int, other: int = 1) -> Pair:
    """Return (rows, columns) of which one has this size."""
    return (other, size) if side else (size, other)


def _over_axes(walk: Walk, node: OnnxNode, kind: type[_Pool]) -> Value:
    """Return the result of a pool over whole rows, columns or both; axes that are reduced are 1, or
    left out.

    Raises:
        InputError: the node reduces other axes, or it is not known how long they are.
    """
    from ..onnx_graph import MAPS

    if node.operator.startswith("Global"):
        value = left = walk.maps(node, over=len(walk.axes_of(walk.take(node))) - 2)
        over = {*MAPS[2:]}
    else:
        value = _facing(walk, node, walk.take(node))
        over, left = _reduced(walk, node, value)
    shape, names = walk.shape(value), "·".join(walk.axes_of(value)).split("·")
    if kind is AveragePool and (over == {*MAPS[2:]} or "columns" not in names):
        made = walk.step(node, GlobalAveragePool, {}, value)
    elif shape is None:
        raise node.refusal(
            f"reduces {' and '.join(sorted(over))}, whose sizes are not known where it stands"
        )
    else:
        rows, columns = (
            size if name in over else 1 for name, size in zip(MAPS[2:], shape[1:], strict=True)
        )
        made = kind.imported(walk, node, {"kernel": (rows, columns)}, value)
    return dataclasses.replace(left, step=made.step)


def _kernel_of(node: OnnxNode) -> tuple[int, ...]:
    """Return the window (rows, columns), or (rows), of a pooling node.

    Raises:
        InputError: the window has other dimensions.
    """
    kernel = node.integers("kernel_shape", ())
    if len(kernel) not in (1, 2):
        raise node.refusal(
            f"`kernel_shape` = {list(kernel)}: only windows of rows and columns, and of rows alone,"
            " are supported"
        )
    return kernel


def _facing(walk: Walk, node: OnnxNode, value: Value) -> Value:
    """Return a sequence with rows where a node reduces an axis that is channels of it."""
    axes, places = walk.axes_of(value), walk.integers(node, "axes")
    if len(axes) != 3 or axes[0] != "samples" or places not in ((1,), (2,), (-1,), (-2,)):
        return value
    rows = 3 - places[0] % 3
    return value if axes[rows] == "channels" else walk.with_channels(node, value, rows)


def _reduced(walk: Walk, node: OnnxNode, value: Value) -> tuple[set[str], Value]:
    """Return which axes of maps a node reduces, and the value with the axes that are left.

    Raises:
        InputError: they are others than rows and columns.
    """
    from ..onnx_graph import MAPS, ONE, shown_axes

    axes, given = walk.axes_of(value), walk.integers(node, "axes")
    places = {place % len(axes) for place in given if -len(axes) <= place < len(axes)}
    names = {part for place in places for part in axes[place].split("·")} - {ONE}
    if value.is_flat or not names or names - {*MAPS[2:]} or len(places) < len(given):
        raise node.refusal(
            f"`axes` = {list(given)} of {shown_axes(axes)}: only rows and columns, axes 2 and 3 of"
            " maps, are supported"
        )
    keeps = node.integer("keepdims", 1) != 0
    left = [
        ONE if place in places else axis
        for place, axis in enumerate(axes)
        if keeps or place not in places
    ]
    return names, value.with_axes(tuple(left))


class _PoolUnit(Unit):
    """Base class of pooling units."""

    def __init__(self, of: _Pool, step: SfuStep, site: Site) -> None:
        super().__init__(site)
        self._window: dict[str, Any] = {"kernel": of.kernel, "stride": of.step, "pad": of.pad}
        self._window["ceil"] = of.ceil
        # Shapes are (channels, rows, columns), but maps in memory have channels last.
        channels, *size = step.input
        self._input = (*size, channels)
        channels, *size = step.output
        self._output = (*size, channels)


class MaxPoolUnit(_PoolUnit):
    """The maximum of each window, and its position for the backward pass."""

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        shape = (len(x), *self._output)
        y, places = self.arena.take(shape), self.arena.take(shape, np.uint8)
        pool.max_forward(x, y, places, **self._window)
        return y, (places,)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        dx = self.arena.take((len(dz), *self._input))
        pool.max_error(dz, state[0], dx, **self._window)
        return (dx,)


class AveragePoolUnit(_PoolUnit):
    """The average of each window."""

    def __init__(self, of: AveragePool, step: SfuStep, site: Site) -> None:
        super().__init__(of, step, site)
        self._window["count_include_pad"] = of.count_include_pad

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take((len(x), *self._output))
        pool.average_forward(x, y, **self._window)
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        dx = self.arena.take((len(dz), *self._input))
        pool.average_error(dz, dx, **self._window)
        return (dx,)


class AdaptiveAveragePoolUnit(Unit):
    """Averages of windows of several sizes."""

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(site)
        (channels, *self._taken), (_, *self._made) = step.input, step.output
        self._channels = channels

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take((len(x), *self._made, self._channels))
        _average(x, y)
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`; errors are added in the order of the windows, rows first."""
        dx = self.arena.take((len(dz), *self._taken, self._channels))
        rows, columns = (spans(*own) for own in zip(self._taken, self._made, strict=True))
        wide = np.zeros((len(dz), self._made[0], self._taken[1], self._channels), np.float32)
        for column, (begin, end) in enumerate(columns):
            wide[:, :, begin:end] += dz[:, :, column, None] / np.float32(end - begin)
        dx[...] = 0
        for row, (begin, end) in enumerate(rows):
            dx[:, begin:end] += wide[:, row, None] / np.float32(end - begin)
        return (dx,)


def _average(x: Data, y: Data) -> None:
    """Write the averages of the windows of `x` (n, rows, columns, channels) to `y`, which has as
    many: sums over rows, then over columns, ascending.
    """
    for row, (begin, end) in enumerate(spans(x.shape[1], y.shape[1])):
        tall = x[:, begin].copy()
        for place in range(begin + 1, end):
            tall += x[:, place]
        for column, (left, right) in enumerate(spans(x.shape[2], y.shape[2])):
            total = tall[:, left].copy()
            for place in range(left + 1, right):
                total += tall[:, place]
            np.divide(total, np.float32((end - begin) * (right - left)), out=y[:, row, column])
