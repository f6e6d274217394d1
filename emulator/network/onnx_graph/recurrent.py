"""LSTM and GRU of ONNX, whose attributes they share."""

from __future__ import annotations

from typing import Any

from .node import OnnxNode
from .values import CELLS, Axes, Keys, Value
from .walk import Walk

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
    found = walk.constant(node, _LENGTHS)
    lengths = set(() if found is None or found.entries is None else found.entries)
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
