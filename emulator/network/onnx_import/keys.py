"""ONNX's operators in the words of a description, with what these cannot say refused.

Defaults are those of ONNX's operator reference, https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from .plain import OnnxNode

Keys = dict[str, object]
"""The keys of an operation, as in a TOML file."""


def conv(node: OnnxNode, weight: tuple[int, ...]) -> Keys:
    """A convolution, from a weight of (output channels, input channels, rows, columns).

    Raises:
        InputError: groups, dilation, other than two dimensions, or padding that differs between sides.
    """
    if len(weight) != 4:
        raise node.refusal(
            f"a convolution over {len(weight) - 2} dimensions; only those over rows and columns are known"
        )
    if (groups := node.integer("group", 1)) != 1:
        raise node.refusal(f"`group` = {groups}: only convolutions without groups are known")
    kernel = weight[2:]
    if (size := node.integers("kernel_shape", kernel)) != kernel:
        raise node.refusal(f"`kernel_shape` = {list(size)}, but its weights are {'x'.join(map(str, weight))}")
    return {"type": "conv", "channels": weight[0], "kernel": kernel, **_window(node), "bias": _has_input(node, 2)}


def fc(node: OnnxNode, weight: tuple[int, ...]) -> tuple[Keys, int]:
    """A fully connected layer, and how many values it takes.

    Raises:
        InputError: it is more than inputs times weights plus bias.
    """
    if node.integer("transA", 0) or node.number("alpha", 1.0) != 1 or node.number("beta", 1.0) != 1:
        raise node.refusal("only inputs times weights plus bias is known: `transA` = 0, `alpha` = 1, `beta` = 1")
    if len(weight) != 2:
        raise node.refusal(f"weights of {len(weight)} dimensions, where a fully connected layer has 2")
    inputs, outputs = weight[::-1] if node.integer("transB", 0) else weight
    return {"type": "fc", "features": outputs, "bias": _has_input(node, 2)}, inputs


def max_pool(node: OnnxNode) -> Keys:
    """The maximum over windows.

    Raises:
        InputError: dilation, rounding up, or padding that differs between sides.
    """
    return {"type": "max-pool", "kernel": _kernel(node), **_window(node)}


def average_pool(node: OnnxNode) -> Keys:
    """The average over windows.

    Raises:
        InputError: as for `max_pool`, or padding that is not counted.
    """
    keys = {"type": "average-pool", "kernel": _kernel(node), **_window(node)}
    if keys["pad"] != (0, 0) and not node.integer("count_include_pad", 0):
        raise node.refusal("`count_include_pad` = 0 with padding; only averages that count the padding are known")
    return keys


def lrn(node: OnnxNode) -> Keys:
    """Local response normalisation.

    Raises:
        InputError: an even size, of which ONNX and emuchain have the odd channel on different sides.
    """
    size = node.integer("size", 0)
    if size % 2 == 0:
        raise node.refusal(f"`size` = {size}: only odd sizes are known")
    factors = {"alpha": node.number("alpha", 1e-4), "beta": node.number("beta", 0.75), "k": node.number("bias", 1.0)}
    return {"type": "lrn", "size": size, **factors}


def batch_norm(node: OnnxNode) -> Keys:
    """Batch normalisation; ONNX's momentum is the old average's part, and ours the new one's.

    Raises:
        InputError: it is not of whole channels.
    """
    if node.integer("spatial", 1) != 1:
        raise node.refusal("`spatial` = 0: only channels are normalised, each as a whole")
    momentum = round(1 - node.number("momentum", 0.9), 7)
    return {"type": "batch-norm", "epsilon": node.number("epsilon", 1e-5), "momentum": momentum}


def _has_input(node: OnnxNode, place: int) -> bool:
    return len(node.inputs) > place and node.inputs[place] != ""


def _kernel(node: OnnxNode) -> tuple[int, ...]:
    kernel = node.integers("kernel_shape", ())
    if len(kernel) != 2:
        raise node.refusal(f"`kernel_shape` = {list(kernel)}: only windows of rows and columns are known")
    return kernel


def _window(node: OnnxNode) -> Keys:
    """Stride and padding."""
    for attribute, default in (("dilations", (1, 1)), ("ceil_mode", 0)):
        if (value := node.attributes.get(attribute, default)) != default:
            value = list(value) if isinstance(value, tuple) else value
            raise node.refusal(f"`{attribute}` = {value}: only {default} is known")
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
        raise node.refusal(f"`auto_pad` = {automatic!r}: only padding that `pads` says is known")
    pads = node.integers("pads", (0, 0, 0, 0))
    if len(pads) != 4 or pads[:2] != pads[2:]:
        raise node.refusal(f"`pads` = {list(pads)}: only as much padding at the end as at the beginning is known")
    return pads[0], pads[1]
