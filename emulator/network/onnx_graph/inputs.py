"""What nodes tell of an ONNX graph's inputs: images, also without an axis for channels, rows of
values, symbols, or rows that attention takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..shape import Shape
from .node import OnnxGraph
from .values import CHANNELS_LAST, FROM_IMAGES, Value

_FROM_CHANNELS_LAST = (0, 3, 1, 2)
"""The order in which Transpose brings images with their channels last to maps."""

_OF_MAPS = frozenset({"AveragePool", "BatchNormalization", "Conv", "MaxPool"})
"""Operators that take maps with their channels first."""

_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})

_OF_ROWS = frozenset({"Flatten", "Gemm", "MatMul"})
"""Operators that take a network's inputs if these are rows of values."""

_OF_NUMBERS = frozenset(
    "BatchNormalization Dropout Gelu LayerNormalization LeakyRelu Relu Sigmoid Tanh".split()
)
"""Operators that take no symbols: their inputs of two axes are rows of values."""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The network's inputs as a value; how many samples a file has, and the shape of their images,
    if they are such; by the number of an axis, its role, where that is known already. They may be
    rows of symbols (`has_rows`).
    """

    value: Value
    samples: int | None = None
    images: Shape | None = None
    roles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_rows: bool = False


def inputs_of(graph: OnnxGraph, *, has_attention: bool) -> Inputs:
    """Return what is known of a graph's inputs before its nodes are walked through.

    Raises:
        InputError: there is not exactly one input, or it is not images of a fixed size.
    """
    kinds = {node.operator for node in graph.nodes if {*node.inputs[:1]} & {*graph.inputs}}
    match graph.input_sizes:
        case samples, int(values) if kinds and kinds <= _OF_ROWS | _OF_NUMBERS:
            return Inputs(Value(FROM_IMAGES, is_flat=True), samples, (values, 1, 1))
        case samples, int(rows), int(columns) if are_pixels(graph, samples, rows * columns):
            value = Value(FROM_IMAGES, axes=("samples", "rows", "columns"))
            return Inputs(value, samples, (1, rows, columns))
        case (_, _) | (_, _, _):
            return _rows_of(graph, has_attention=has_attention)
    samples, images = graph.images
    own = alike(graph, "Cast", "Identity")
    takers = [
        node
        for node in graph.nodes
        if {*node.inputs} & own and not {*node.outputs} & own and node.operator != "Shape"
    ]
    orders = {node.attributes.get("perm") for node in takers if node.operator == "Transpose"}
    operators = {node.operator for node in takers}
    if orders == {_FROM_CHANNELS_LAST} and not operators & _OF_MAPS:
        rows, columns, channels = images
        return Inputs(Value(FROM_IMAGES, axes=CHANNELS_LAST), samples, (channels, rows, columns))
    if images[2] == 1 and operators <= {"Flatten", "Reshape"}:
        images = 1, *images[:2]  # images of one channel, the last axis
    return Inputs(Value(FROM_IMAGES), samples, images)


def _rows_of(graph: OnnxGraph, *, has_attention: bool) -> Inputs:
    """Return inputs of two or three axes, whose roles nodes will tell: where no recurrent layer
    does, rows of symbols, or a sequence of rows.
    """
    value = Value(FROM_IMAGES, axes=tuple(map(str, range(len(graph.input_sizes)))))
    if any(node.operator in _RECURRENT for node in graph.nodes):
        return Inputs(value)
    own = alike(graph, "Cast", "Identity", "Reshape", "Slice")
    looks_up = any(node.operator == "Gather" and {*node.inputs[1:]} & own for node in graph.nodes)
    takers = {node.operator for node in graph.nodes if {*node.inputs} & own} - {"Shape"}
    match graph.input_sizes:
        case (_, _) if looks_up:
            return Inputs(value, roles={"0": "samples", "1": "rows"}, has_rows=True)
        case samples, int(rows), int(channels) if has_attention or takers == {"MatMul"}:
            roles = {"0": "samples", "1": "rows", "2": "channels"}
            return Inputs(value, samples, (channels, rows, 1), roles)
    return Inputs(value)


def attends(graph: OnnxGraph) -> bool:
    """Return whether nodes of a graph are attention: a softmax whose result is multiplied by
    others.
    """
    products = {
        name
        for node in graph.nodes
        if node.operator in ("MatMul", "Dropout", "Where", "Cast", "Reshape")
        for name in node.inputs
    }
    return any(
        node.operator == "Attention" or (node.operator == "Softmax" and {*node.outputs} & products)
        for node in graph.nodes
    )


def are_pixels(graph: OnnxGraph, samples: int | None, pixels: int) -> bool:
    """Return whether inputs of three axes are images, to whose one channel nodes give an axis, or
    make rows of them.
    """
    takers = [
        node
        for node in graph.nodes
        if {*node.inputs} & {*graph.inputs} and node.operator != "Shape"
    ]
    known = {name: constant.numbers for name, constant in graph.known.items()}
    rows = (samples, pixels), (samples, -1), (0, pixels), (0, -1), (-1, pixels)
    return bool(takers) and all(
        node.operator in ("Flatten", "Unsqueeze")
        or (node.operator == "Reshape" and node.has_input(1) and known.get(node.inputs[1]) in rows)
        for node in takers
    )


def alike(graph: OnnxGraph, *operators: str) -> set[str]:
    """Return the names of a graph's inputs, and of what these operators make of them alone."""
    own = {*graph.inputs}
    for node in graph.nodes:
        if node.operator in operators and {*node.inputs[:1]} & own:
            own.update(node.outputs)
    return own
