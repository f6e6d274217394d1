"""Products of two values by Einstein's convention, which are matrix products of moved axes.

b h i d, b h j d -> b h i j    is    (b h i d) (b h d j)
b h i d, b j d   -> b h i j    is    (b h i d) (b 1 d j)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..onnx_graph import OnnxGraph, OnnxNode


def with_products(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph with Transpose and MatMul in place of each Einsum that is a matrix product."""
    nodes: list[OnnxNode] = []
    for node in graph.nodes:
        nodes += _product(node) if node.operator == "Einsum" and len(node.inputs) == 2 else [node]
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _product(node: OnnxNode) -> list[OnnxNode]:
    """Return the nodes that compute a sum of products; the node itself where they cannot."""
    terms, arrow, made = str(node.attributes.get("equation", "")).replace(" ", "").partition("->")
    operands = list(zip(terms.split(","), node.inputs, strict=False))
    if arrow == "" or len(operands) != 2 or "." in terms:
        return [node]
    if len({*operands[1][0]} - {*operands[0][0]}) > 1:
        operands.reverse()  # such as weights before rows
    (one, _), (other, _) = operands
    batch, left, right = [
        [axis for axis in made if (axis in one, axis in other) == where]
        for where in ((True, True), (True, False), (False, True))
    ]
    summed = [axis for axis in one if axis in other and axis not in made]
    whole = len(summed) == 1 == len(right) and len(left) >= 1
    orders = [*batch, *left, *summed], [*batch, *summed, *right], [*batch, *left, *right]
    if not whole or any(
        sorted(order) != sorted(term)
        for order, term in zip(orders, (one, other, made), strict=True)
    ):
        return [node]
    nodes, taken, lone = list[OnnxNode](), list[str](), left[:-1] if batch else []
    for number, ((term, name), order) in enumerate(zip(operands, orders[:2], strict=True)):
        own = _moved(node, name, term, order, f"{node.outputs[0]}/{number}")
        nodes += own
        taken.append(own[0].outputs[0] if own else name)
        if number and lone:
            places = range(len(batch), len(batch) + len(lone))
            result = f"{node.outputs[0]}/{number}/lone"
            nodes.append(node.replaced("Unsqueeze", [taken[-1]], result, axes=[*places]))
            taken[-1] = result
    back = _moved(node, f"{node.outputs[0]}/product", "".join(orders[2]), [*made], node.outputs[0])
    result = back[0].inputs[0] if back else node.outputs[0]
    return [*nodes, node.replaced("MatMul", taken, result), *back]


def _moved(
    node: OnnxNode, name: str, term: str, order: Sequence[str], result: str
) -> list[OnnxNode]:
    """Return the node that brings the axes of a value into an order, if that is another one."""
    places = [term.index(axis) for axis in order]
    if places == sorted(places):
        return []
    return [node.replaced("Transpose", [name], result, perm=places)]
