"""What the user should know of a file that was imported: what of it is not taken, and what is another here."""

from __future__ import annotations

from collections.abc import Sequence

from ...common import plural
from ..onnx_graph import Attributes, OnnxGraph, Walk
from ..operations.activations import HardSigmoid, Sigmoid
from .pytorch import of_export

_WITHOUT_EFFECT = frozenset(
    "allowzero noop_with_empty_axes num_outputs qk_matmul_output_mode seed softmax_precision stash_type storage_order"
    " training_mode".split()
)
"""Attributes that need not be read: of what is refused, of results that nothing takes, and of how something is done."""

_BOUNDED = {Sigmoid: "Sigmoid", HardSigmoid: "HardSigmoid"}
"""Ends of models that have another loss than softmax and cross-entropy."""

_NARROW = {10: "half precision", 11: "double precision", 16: "bfloat16"}
"""ONNX's numbers of other types of parameters than single precision."""


def note_of(walk: Walk, graph: OnnxGraph) -> str:
    """Return in one line what the user should know, or nothing."""
    return "; ".join([*_of_end(walk), *of_export(walk), *_of_numbers(walk), *_left_out(walk, graph)])


def _of_end(walk: Walk) -> list[str]:
    """Return what is said of an end that tells of another loss."""
    output = walk.output()
    last = walk.step_of(output)
    if output.is_closed or last is None or last.kind not in _BOUNDED:
        return []
    return [
        f"its last operation is {_BOUNDED[last.kind]}, so the model has another loss, such as binary cross-entropy;"
        " training here is by softmax over its outputs, as classes, and cross-entropy"
    ]


def _of_numbers(walk: Walk) -> list[str]:
    """Return what is said of parameters that are stored in another format."""
    kinds = [walk.constants[name].kind for name in walk.parameters.names if name in walk.constants]
    return [
        f"its file has {plural(kinds.count(kind), 'array')} of weights in {name}; here, their format is what"
        " `precision` says"
        for kind, name in _NARROW.items()
        if kind in kinds
    ]


def _left_out(walk: Walk, graph: OnnxGraph) -> list[str]:
    """Return what is said of what nothing here takes: nodes, arrays, attributes, and states beside the output."""
    taken = {*graph.outputs, *(name for node in graph.nodes for name in node.inputs)}
    nodes = [node for node in graph.nodes if not taken & {*node.outputs}]
    arrays = [name for name in graph.constants if name not in taken]
    attributes = [
        f"`{name}` of node {node.name!r}"
        for node in walk.nodes
        if isinstance(node.attributes, Attributes) and not any(name in walk.constants for name in node.outputs)
        for name in node.attributes.unread
        if name not in _WITHOUT_EFFECT
    ]
    states = [name for name in graph.outputs if walk.is_state(name)]
    return [
        *_counted("node", [repr(node.name) for node in nodes], "whose results nothing takes"),
        *_counted("array", [*map(repr, arrays)], "that no node takes"),
        *_counted("attribute", attributes, "that no operation here has"),
        *_counted("output", [*map(repr, states)], "that are last states of layers"),
    ]


def _counted(noun: str, names: Sequence[str], which: str) -> list[str]:
    if not names:
        return []
    example = f", such as {names[0]}" if len(names) > 1 else f": {names[0]}"
    return [f"left out: {plural(len(names), noun)} {which}{example}"]
