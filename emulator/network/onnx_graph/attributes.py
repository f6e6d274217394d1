"""Attributes of ONNX operators that several operations read; what a description cannot express is refused.

Defaults are those of ONNX's operator reference, https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from .node import OnnxNode
from .walk import Keys, Walk


def kernel_of(node: OnnxNode) -> tuple[int, ...]:
    """Return the window (rows, columns) of a pooling node.

    Raises:
        InputError: the window is not two-dimensional.
    """
    kernel = node.integers("kernel_shape", ())
    if len(kernel) != 2:
        raise node.refusal(f"`kernel_shape` = {list(kernel)}: only windows of rows and columns are supported")
    return kernel


def window_keys(node: OnnxNode) -> Keys:
    """Return the keys `stride` and `pad`.

    Raises:
        InputError: dilation, rounding up, or padding that differs between sides.
    """
    for attribute, default in (("dilations", (1, 1)), ("ceil_mode", 0)):
        if (value := node.attributes.get(attribute, default)) != default:
            value = list(value) if isinstance(value, tuple) else value
            raise node.refusal(f"`{attribute}` = {value}: only {default} is supported")
    pad = _pad(node)
    stride = node.integers("strides", (1, 1))
    if len(stride) != 2:
        raise node.refusal(f"`strides` = {list(stride)}: there should be one for rows and one for columns")
    return {"stride": stride, "pad": pad}


def _pad(node: OnnxNode) -> tuple[int, int]:
    automatic = node.attributes.get("auto_pad", "NOTSET")
    if automatic == "VALID":
        return 0, 0
    if automatic != "NOTSET":
        raise node.refusal(f"`auto_pad` = {automatic!r}: only padding that `pads` says is supported")
    pads = node.integers("pads", (0, 0, 0, 0))
    if len(pads) != 4 or pads[:2] != pads[2:]:
        raise node.refusal(f"`pads` = {list(pads)}: only as much padding at the end as at the beginning is supported")
    return pads[0], pads[1]


def check_spatial_axes(walk: Walk, node: OnnxNode) -> None:
    """Check that a reduction is over rows and columns.

    Raises:
        InputError: it is over other axes.
    """
    axes = walk.integers(node, "axes")
    if sorted(axes) not in ([2, 3], [-2, -1]):
        raise node.refusal(f"`axes` = {list(axes)}: only rows and columns, axes 2 and 3, are supported")
