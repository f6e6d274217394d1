"""Attributes of ONNX operators that several operations read; what a description cannot express is refused.

Defaults are those of ONNX's operator reference, https://onnx.ai/onnx/operators/. LSTM and GRU share theirs.
"""

from __future__ import annotations

from typing import Any

from .node import OnnxNode
from .values import CELLS, MAPS, ONE, Axes, Keys, Value, shown_axes
from .walk import Walk


def kernel_of(node: OnnxNode) -> tuple[int, ...]:
    """Return the window (rows, columns) of a pooling node.

    Raises:
        InputError: the window is not two-dimensional.
    """
    kernel = node.integers("kernel_shape", ())
    if len(kernel) != 2:
        raise node.refusal(f"`kernel_shape` = {list(kernel)}: only windows of rows and columns are supported")
    return kernel


def window_keys(walk: Walk, node: OnnxNode, value: Value, kernel: tuple[int, ...]) -> Keys:
    """Return the keys `stride` and `pad` of a node's window over maps, and over the zeros around them.

    Padding that differs between sides, and sizes that are rounded up, are taken where the windows are those of equal
    padding and sizes rounded down.

    Raises:
        InputError: the windows are others, or a dilation is more than 1.
    """
    dilations = node.integers("dilations", (1, 1))
    if any(size > 1 and step != 1 for size, step in zip(kernel, dilations, strict=False)):
        raise node.refusal(f"`dilations` = {list(dilations)}: only (1, 1) is supported")
    stride = node.integers("strides", (1, 1))
    if len(stride) != 2 or min(stride) < 1:
        raise node.refusal(f"`strides` = {list(stride)}: there should be one for rows and one for columns")
    shape = walk.shape(value)
    sizes = (None, None) if shape is None else shape[1:]
    padding = _padding(walk, node, kernel, stride, sizes)
    extra = value.pads or (0, 0, 0, 0)
    pads = tuple(own + more for own, more in zip(padding, extra, strict=True))
    rounds_up = node.integer("ceil_mode", 0) != 0
    for place, size in enumerate(sizes):
        begin, end = pads[place], pads[place + 2]
        if begin == end and not rounds_up:
            continue
        if size is None or _windows(size, begin, end, kernel[place], stride[place], rounds_up) != _windows(
            size, begin, begin, kernel[place], stride[place], False
        ):
            if begin != end:
                said = f"`pads` = {list(pads)}: only as much padding at the end as at the beginning is supported"
            else:
                said = "`ceil_mode` = 1: its last windows reach beyond the maps; only sizes rounded down are supported"
            raise node.refusal(said)
    return {"stride": stride, "pad": pads[:2]}


def _windows(size: int, begin: int, end: int, kernel: int, stride: int, rounds_up: bool) -> int:
    """Return how many windows there are; of those by rounding up, none begins in the padding at the end (PyTorch)."""
    room = size + begin + end - kernel
    if not rounds_up:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - ((count - 1) * stride >= size + begin)


def _padding(
    walk: Walk, node: OnnxNode, kernel: tuple[int, ...], stride: tuple[int, ...], sizes: tuple[int | None, ...]
) -> tuple[int, ...]:
    """Return the node's own padding: above, left, below and right."""
    automatic, pads = node.attributes.get("auto_pad", "NOTSET"), node.integers("pads", (0, 0, 0, 0))
    if automatic != "NOTSET" and any(pads):
        raise node.refusal(f"`pads` = {list(pads)} beside `auto_pad` = {automatic!r}: there should be one of them")
    if automatic == "VALID":
        return 0, 0, 0, 0
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        begins, ends = [], []
        for size, length, step in zip(sizes, kernel, stride, strict=True):
            if size is None and step > 1:
                raise node.refusal(f"`auto_pad` = {automatic!r}: with strides, only on maps of known sizes")
            total = max(0, length - step if size is None or size % step == 0 else length - size % step)
            halves = total // 2, total - total // 2
            begins.append(halves[automatic == "SAME_LOWER"])
            ends.append(halves[automatic == "SAME_UPPER"])
        return *begins, *ends
    if automatic != "NOTSET":
        raise node.refusal(f"`auto_pad` = {automatic!r}: should be NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    if len(pads) != 4 or min(pads) < 0:
        raise node.refusal(f"`pads` = {list(pads)}: there should be four, above, left, below and right")
    return pads


def reduced(walk: Walk, node: OnnxNode, value: Value) -> tuple[set[str], Value]:
    """Return which axes of maps a node reduces, and the value with the axes that are left.

    Raises:
        InputError: they are others than rows and columns.
    """
    axes, given = walk.axes_of(value), walk.integers(node, "axes")
    places = {place % len(axes) for place in given if -len(axes) <= place < len(axes)}
    names = {part for place in places for part in axes[place].split("·")} - {ONE}
    if value.is_flat or not names or names - {*MAPS[2:]} or len(places) < len(given):
        raise node.refusal(
            f"`axes` = {list(given)} of {shown_axes(axes)}: only rows and columns, axes 2 and 3 of maps, are supported"
        )
    keeps = node.integer("keepdims", 1) != 0
    left = [ONE if place in places else axis for place, axis in enumerate(axes) if keeps or place not in places]
    return names, value.with_axes(tuple(left))


_LENGTHS, _FIRST_STATES, _PEEPHOLES = 4, (5, 6), 7
"""Places of optional inputs."""


def recurrent_step(
    walk: Walk, node: OnnxNode, kind: type[Any], keys: Keys, *, gates: int, activations: tuple[str, ...]
) -> Value:
    """Add the step of a recurrent layer; return all its outputs, and record its last state.

    Raises:
        InputError: the node does what no layer does here: one direction backwards, states that are not zero, peepholes,
            clipping, other activations, lengths that differ; or lacks its biases.
    """
    directions = _directions(node)
    _check(walk, node, activations * directions)
    batch_first = node.integer("layout", 0)
    outer: Axes = ("samples", "rows") if batch_first else ("rows", "samples")
    value = walk.take(node)
    walk.expect_axes(node, value, (*outer, "channels"))
    weights, recurrent, _ = (walk.weight(node, place) for place in (1, 2, 3))
    if len(weights) != 3 or len(recurrent) != 3 or weights[0] != directions or weights[1] % gates:
        raise node.refusal(
            f"weights {list(weights)} and {list(recurrent)}; they should be [directions, {gates} times units, inputs]"
            f" and [directions, {gates} times units, units]"
        )
    units = weights[1] // gates
    if node.integer("hidden_size", units) != units or recurrent[2] != units:
        raise node.refusal(f"weights of {units} units, where `hidden_size` or the recurrent weights say another number")
    begins = [begin for place in _FIRST_STATES if (begin := walk.constant(node, place)) is not None]
    if any(begin.shape[2:] not in ((), (units,)) for begin in begins):
        raise node.refusal(
            f"begins with states of other sizes than its {units} units, as PyTorch's new exporter writes layers with a"
            " projection (`proj_size`); only layers without are supported"
        )
    walk.expect(node, value, channels=weights[2], steps=_length(walk, node))
    outputs: Axes = ("samples", "rows", "directions") if batch_first else ("rows", "directions", "samples")
    keys = {"units": units, "bidirectional": directions == 2, **keys}
    made = walk.step(node, kind, keys, value, axes=(*outputs, "channels"))
    last: Axes = ("samples", "directions") if batch_first else ("directions", "samples")
    for place, state in ((1, made.step), (2, CELLS)):
        walk.name(node, Value(made.step, axes=(*last, "channels"), state=(state,)), place)
    return made


def _directions(node: OnnxNode) -> int:
    direction = node.attributes.get("direction", "forward")
    if direction not in ("forward", "bidirectional"):
        raise node.refusal(
            f"`direction` = {direction!r}: a layer goes 'forward', or both ways as 'bidirectional'; turn the sequence"
            " before it is exported"
        )
    return 2 if direction == "bidirectional" else 1


def _length(walk: Walk, node: OnnxNode) -> int | None:
    """Return the time steps of all samples; None where the node does not say it."""
    if not node.has_input(_LENGTHS):
        return None
    constant = walk.constant(node, _LENGTHS)
    lengths = set(() if constant is None or constant.entries is None else constant.entries)
    if len(lengths) != 1 or not isinstance(length := lengths.pop(), int):
        raise node.refusal("`sequence_lens`: should be left out, or all time steps for each sample")
    return length


def _check(walk: Walk, node: OnnxNode, activations: tuple[str, ...]) -> None:
    """Refuse what no layer does here."""
    given = node.attributes.get("activations", activations)
    if not isinstance(given, tuple) or tuple(str(name).lower() for name in given) != activations:
        names = list(given) if isinstance(given, tuple) else given
        raise node.refusal(f"`activations` = {names}: should be {[name.title() for name in activations]}, the defaults")
    for attribute in ("activation_alpha", "activation_beta", "clip"):
        if attribute in node.attributes:
            raise node.refusal(f"`{attribute}` is not supported; activations should be as they are, without it")
    if node.integer("input_forget", 0):
        raise node.refusal("`input_forget` = 1: coupled gates are not supported; should be 0")
    if not node.has_input(3):
        raise node.refusal("has no biases, where a layer here has two for each gate; export it with its input B")
    for place in _FIRST_STATES:
        state = walk.constant(node, place)
        if node.has_input(place) and (state is None or not walk.holds_zeros(state)):
            raise node.refusal(f"begins with the state {node.inputs[place]!r}; each sequence begins with zeros here")
    if node.has_input(_PEEPHOLES):
        raise node.refusal("has peepholes, its input P; only layers without are supported")
