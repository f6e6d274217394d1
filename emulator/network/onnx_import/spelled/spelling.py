"""Operators that a graph spells out by several nodes, and how one node takes their place."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping

from ...onnx_graph import OnnxGraph, OnnxNode

Spelled = tuple[list[OnnxNode], OnnxNode]
"""Nodes, and the one in their place, whose results are those of one of them."""


class Spelling:
    """Which nodes of a graph make values, and which take the numbers of them."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph, self._makers = graph, graph.makers
        self._takers: dict[str, list[OnnxNode]] = collections.defaultdict(list)
        for node in graph.nodes:
            for name in node.operands:
                self._takers[name].append(node)

    def _is_whole(self, nodes: list[OnnxNode], last: OnnxNode) -> bool:
        """Return whether nothing else takes what nodes make, but for the last one's result."""
        own = {*map(id, nodes)}
        made = [node.outputs[0] for node in nodes if node is not last]
        return {*self._graph.outputs}.isdisjoint(made) and all(
            id(taker) in own for name in made for taker in self._takers[name]
        )


def in_one(
    graph: OnnxGraph, operators: Mapping[str, Callable[[OnnxNode], Spelled | None]]
) -> OnnxGraph:
    """Return a graph with one node in place of those that spell an operator, which a function knows
    by one of them: that of the node's own operator.
    """
    dropped, placed, fixed = set[int](), dict[int, OnnxNode](), graph.fixed
    for node in graph.nodes:
        if id(node) in dropped or node.operator not in operators or {*node.outputs} & fixed:
            continue  # what constants alone make is computed
        spelled = operators[node.operator](node)
        if spelled is not None:
            nodes, operator = spelled
            dropped.update(map(id, nodes))
            [last] = (own for own in nodes if own.outputs == operator.outputs)
            placed[id(last)] = operator
    kept = (
        placed.get(id(node), node)
        for node in graph.nodes
        if id(node) in placed or id(node) not in dropped
    )
    return dataclasses.replace(graph, nodes=tuple(kept))
