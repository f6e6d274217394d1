"""Positions that count the symbols before a token which are no padding (RoBERTa).

    positions = cumsum(symbols != padding) * (symbols != padding) + padding

Samples here have no padding: each symbol counts, and positions are those of an array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ...onnx_graph import INT64, Constant, OnnxGraph, OnnxNode


def with_places(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph in which all symbols count for positions."""
    masks = {node.outputs[0]: equal for node, equal in _masks(graph)}
    if not masks:
        return graph
    [(samples, rows)] = graph.inputs.values()
    assert rows is not None
    constants, nodes, dropped = dict(graph.constants), list[OnnxNode](), {*masks.values()}
    for node in graph.nodes:
        if node.outputs[0] in masks:
            sizes = f"{node.outputs[0]}/sizes"
            constants[sizes] = Constant(sizes, (2,), (samples or 1, rows), kind=INT64)
            nodes.append(_ones(node, sizes))
        elif node.outputs[0] not in dropped:
            nodes.append(node)
    return dataclasses.replace(graph, nodes=tuple(nodes), constants=constants)


def note_of_padding(graph: OnnxGraph) -> list[str]:
    """Return what is said of positions that count symbols."""
    if not any(_masks(graph)):
        return []
    return ["its positions count symbols that are no padding; samples here should have no padding"]


def _ones(node: OnnxNode, sizes: str) -> OnnxNode:
    from onnx.numpy_helper import from_array

    return node.replaced(
        "ConstantOfShape", [sizes], node.outputs[0], value=from_array(np.ones(1, bool))
    )


def _masks(graph: OnnxGraph) -> Iterator[tuple[OnnxNode, str]]:
    """Yield the nodes that say which symbols are no padding, where only sums of these take it, with
    the comparison that each inverts.
    """
    if len(graph.input_sizes) != 2 or graph.input_sizes[1] is None:
        return
    makers = graph.makers
    for node in graph.nodes:
        before = makers.get(node.inputs[0]) if node.operator == "Not" else None
        if before is None or before.operator != "Equal" or not {*before.inputs} & {*graph.inputs}:
            continue
        takers = sum(before.outputs[0] in own.inputs for own in graph.nodes)
        if takers == 1 and _is_summed(graph, node.outputs[0]):
            yield node, before.outputs[0]


def _is_summed(graph: OnnxGraph, mask: str) -> bool:
    """Return whether a mask, as numbers, is summed up and a factor, and nothing else."""
    numbers, operators = {mask}, set[str]()
    for node in graph.nodes:
        if numbers & {*node.inputs}:
            operators.add(node.operator)
            if node.operator == "Cast":
                numbers.update(node.outputs)
    return "CumSum" in operators and operators <= {"Cast", "CastLike", "CumSum", "Mul"}
