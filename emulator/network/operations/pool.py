"""Pooling over windows, and over whole maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....kernels import MOST_PLACES
from ...common import NotNegativePair, PositivePair
from ..operation import SfuOperation, Window, windows
from ..rows import SfuRows, rows_needed, rows_reaching
from ..shape import Pair, Shape

if TYPE_CHECKING:
    from ..onnx_graph import Keys, OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pool(SfuOperation):
    """The base of pooling operations; without a stride, windows are adjacent."""

    by_channel = True

    kernel: PositivePair
    stride: PositivePair | None = None
    pad: NotNegativePair = (0, 0)

    @property
    def step(self) -> Pair:
        """The stride."""
        return self.stride or self.kernel

    def resolved(self, inputs: Sequence[Shape]) -> SfuOperation:
        """See `SfuOperation`; the stride is filled in, so that equal pools are equal however they are described."""
        return dataclasses.replace(self, stride=self.step)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0][0], *windows(inputs[0], Window(self.kernel, self.step, self.pad))

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`."""
        down = shape[1], made[1], self.kernel[0], self.step[0], self.pad[0]
        return SfuRows(rows_needed(*down), rows_reaching(*down))

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; windows are over rows and columns.

        Raises:
            InputError: dilation, rounding up, or padding that differs between sides.
        """
        from ..onnx_graph import kernel_of, window_keys

        keys = {"kernel": kernel_of(node), **window_keys(node)}
        return walk.step(node, cls, {**keys, **cls.onnx_keys(node, keys)}, walk.maps(node))

    @classmethod
    def onnx_keys(cls, node: OnnxNode, keys: Keys) -> Keys:
        """Return the keys of a node besides those of its window, `keys`."""
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaxPool(_Pool):
    """The maximum of each window."""

    type = "max-pool"
    onnx = ("MaxPool",)

    def __post_init__(self) -> None:
        if self.kernel[0] * self.kernel[1] > MOST_PLACES:
            size = "x".join(map(str, self.kernel))
            raise ValueError(
                f"a max-pool's window has at most {MOST_PLACES} places, not {size}; use several smaller pools in a row"
            )

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.MaxPool2d(self.kernel, self.step, self.pad)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AveragePool(_Pool):
    """The average of each window, of all its places, or of those that are not padding."""

    count_include_pad: bool = True

    type = "average-pool"
    onnx = ("AveragePool",)

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.AvgPool2d(self.kernel, self.step, self.pad, count_include_pad=self.count_include_pad)

    @classmethod
    def onnx_keys(cls, node: OnnxNode, keys: Keys) -> Keys:
        """See `_Pool`; without padding, whether it counts makes no difference."""
        counts = keys["pad"] == (0, 0) or node.integer("count_include_pad", 0) != 0
        return {} if counts else {"count_include_pad": False}


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
        """See `Operation`; the node is GlobalAveragePool, or ReduceMean over rows and columns.

        Raises:
            InputError: ReduceMean is over other axes.
        """
        from ..onnx_graph import check_spatial_axes

        is_flat = False
        if node.operator == "ReduceMean":
            check_spatial_axes(walk, node)
            is_flat = not node.integer("keepdims", 1)
        return dataclasses.replace(walk.step(node, cls, {}, walk.maps(node)), is_flat=is_flat)
