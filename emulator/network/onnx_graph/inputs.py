"""What nodes tell of an ONNX graph's inputs: images without an axis for channels, rows that
attention takes.
"""

from __future__ import annotations

from .node import OnnxGraph


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
