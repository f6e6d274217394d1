"""Norms over whole maps, and pools, that a graph spells out, as one node each: norms of groups, of
the local response across channels, and of the global response.

ONNX has group normalisation since version 21; PyTorch's exporters write it for all versions as

    Reshape (samples, groups, all else) - InstanceNormalization - Reshape back - Mul - Add

They write the local response, for which ONNX has LRN, as

    Mul (x by x) - Reshape - Pad - AveragePool (channels) - Squeeze - Mul - Add - Pow - Div (x by it)

It has no word for global response normalisation, which is

    ReduceL2 - ReduceMean - Add - Div - Mul, where Div takes the length, too, and Mul what it is of

nor for averages over windows of several sizes: PyTorch gathers the places of all, and adds them up.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ...onnx_graph import OnnxGraph, OnnxNode
from .spelling import Spelled, Spelling, in_one

_OF_WINDOWS = frozenset("Add Cast Div Gather Mul ReduceSum Transpose Where".split())
"""Operators that make averages of places that were gathered."""

_ALIKE = ("Cast", "CastLike", "Identity", "Reshape", "Unsqueeze")
"""Operators whose result has the numbers of their first input, in the same order."""


def with_map_operators(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph with one node for each of these norms, and each pool of gathered windows, that
    several nodes make.
    """
    spelling = _MapOperators(graph)
    kinds = {
        "AveragePool": spelling.local_response,
        "InstanceNormalization": spelling.groups,
        "ReduceL2": spelling.response,
        "GatherND": spelling.pool,
    }
    return in_one(graph, kinds)


class _MapOperators(Spelling):
    """Norms and pools that nodes of a graph spell."""

    def groups(self, norm: OnnxNode) -> Spelled | None:
        """Return the nodes of the normalisation that a node belongs to, in order, and the one in
        their place.
        """
        apart, back = self._makers.get(norm.inputs[0]), self._taker(norm.outputs[0], "Reshape")
        if apart is None or apart.operator != "Reshape" or back is None:
            return None
        sizes, shape = self._numbers(apart.inputs[1]), self._makers.get(back.inputs[1])
        # To the shape that it had, or to numbers, which are checked where the shape is known.
        whole = self._numbers(back.inputs[1])
        is_back = (
            shape is not None and shape.operator == "Shape" and shape.inputs == apart.inputs[:1]
        )
        if not (is_back or len(whole) in (3, 4)) or len(sizes) != 3 or sizes[1] < 1:
            return None
        if {*self._numbers(norm.inputs[1])} != {1} or {*self._numbers(norm.inputs[2])} != {0}:
            return None
        nodes, arrays = [apart, norm, back], [apart.inputs[0]]
        for operator in ("Mul", "Add"):
            node = self._taker(nodes[-1].outputs[0], operator)
            others = (
                [] if node is None else [own for own in node.inputs if own != nodes[-1].outputs[0]]
            )
            array = self._array(others[0]) if len(others) == 1 else None
            if node is None or array is None:
                return None
            nodes, arrays = [*nodes, *self._on_the_way(others[0]), node], [*arrays, array]
        shapes = {math.prod(self._graph.constants[name].shape) for name in arrays[1:]}
        if len(shapes) != 1:
            return None
        keys: dict[str, Any] = {
            "num_groups": int(sizes[1]),
            "epsilon": norm.number("epsilon", 1e-5),
        }
        keys |= {} if is_back else {"whole": tuple(map(int, whole[1:]))}
        return nodes, dataclasses.replace(
            nodes[-1], operator="GroupNormalization", inputs=tuple(arrays), attributes=keys
        )

    def response(self, length: OnnxNode) -> Spelled | None:
        """Return the nodes of the global response normalisation that a length belongs to, in order,
        and the one in their place: a ReduceL2 with all that they say.
        """
        takers = {node.operator: node for node in self._takers[length.outputs[0]]}
        mean, share = takers.get("ReduceMean"), takers.get("Div")
        total = None if mean is None else self._taker(mean.outputs[0], "Add")
        product = None if share is None else self._taker(share.outputs[0], "Mul")
        if mean is None or share is None or total is None or product is None:
            return None
        [epsilon] = [self._numbers(own) for own in total.inputs if own != mean.outputs[0]]
        is_whole = (
            len(self._takers[length.outputs[0]]) == 2
            and length.outputs[0] not in self._graph.outputs
            and share.inputs == (length.outputs[0], total.outputs[0])
            and {*product.inputs} == {length.inputs[0], share.outputs[0]}
            and all(node.integer("keepdims", 1) == 1 for node in (length, mean))
        )
        if not is_whole or len(epsilon) != 1:
            return None
        keys: dict[str, Any] = {"epsilon": float(epsilon[0])}
        keys |= {"over": self._axes(length), "of": self._axes(mean)}
        made = dataclasses.replace(
            length, inputs=length.inputs[:1], outputs=product.outputs, attributes=keys
        )
        return [length, mean, total, share, product], made

    def _axes(self, node: OnnxNode) -> tuple[int, ...]:
        """Return the axes that a node reduces."""
        given = self._numbers(node.inputs[1]) if node.has_input(1) else ()
        return tuple(map(int, given)) or node.integers("axes", ())

    def local_response(self, pool: OnnxNode) -> Spelled | None:
        """Return the nodes of the local response that a mean over channels belongs to, in order,
        and the one in their place.
        """
        nodes, (size, *others) = [pool], pool.integers("kernel_shape", (0,))
        for kinds in (("Pad",), ("Reshape", "Unsqueeze"), ("Mul",)):
            before = self._makers.get(nodes[0].inputs[0])
            if before is None or before.operator not in kinds:
                return None
            nodes.insert(0, before)
        square, pads = nodes[0], self._numbers(nodes[2].inputs[1])
        [x, *_] = square.inputs
        around = 0, 0, size // 2, 0, 0, 0, 0, (size - 1) // 2, 0, 0
        if others != [1, 1] or {*square.inputs} != {x} or pads != around:
            return None
        while (back := self._taker(nodes[-1].outputs[0], "Squeeze", "Reshape")) is not None:
            nodes.append(back)
        numbers = []
        for operator in ("Mul", "Add", "Pow", "Div"):
            node = self._taker(nodes[-1].outputs[0], operator)
            if node is None:
                return None
            nodes.append(node)
            numbers.append(self._numbers(node.inputs[1]))
        alpha, k, beta, _ = numbers
        if {len(alpha), len(k), len(beta)} != {1} or nodes[-1].inputs[0] != x:
            return None
        keys = {"size": size, "alpha": alpha[0], "bias": k[0], "beta": beta[0]}
        return nodes, dataclasses.replace(nodes[-1], operator="LRN", inputs=(x,), attributes=keys)

    def pool(self, gather: OnnxNode) -> Spelled | None:
        """Return the nodes that make one value of places of another, which GatherND takes, in
        order, and the one in their place: a GatherND of these `nodes`.
        """
        first = self._makers.get(gather.inputs[0])
        if first is None or first.operator != "Transpose":
            return None
        nodes, made = [first], {*first.outputs}
        for node in self._graph.nodes:
            if made.isdisjoint(node.operands):
                continue
            if node is not gather and node.operator not in _OF_WINDOWS:
                return None
            nodes.append(node)
            made.update(node.outputs)
            if node.operator in ("Div", "ReduceSum") and self._is_whole(nodes, node):
                keys = {"nodes": tuple(nodes)}
                own = dataclasses.replace(
                    gather, inputs=first.inputs, outputs=node.outputs, attributes=keys
                )
                return nodes, own
        return None

    def _taker(self, name: str, *operators: str) -> OnnxNode | None:
        """Return the one node that takes a value's numbers, if it is of one of these operators."""
        takers = self._takers[name]
        fits = len(takers) == 1 and takers[0].operator in operators
        return takers[0] if fits and name not in self._graph.outputs else None

    def _array(self, name: str) -> str | None:
        """Return the array of the file whose numbers a value has."""
        while name not in self._graph.constants:
            maker = self._makers.get(name)
            if maker is None or maker.operator not in _ALIKE:
                return None
            name = maker.inputs[0]
        return name

    def _on_the_way(self, name: str) -> list[OnnxNode]:
        """Return the nodes between an array of the file and a value that reads types of others."""
        nodes = list[OnnxNode]()
        while name not in self._graph.constants:
            maker = self._makers[name]
            if len(self._takers[name]) == 1:
                nodes.insert(0, maker)
            name = maker.inputs[0]
        return nodes

    def _numbers(self, name: str) -> tuple[float, ...]:
        """Return the numbers of a small constant, or those that are repeated; none if unknown."""
        constant, maker = self._graph.constants.get(name), self._makers.get(name)
        if constant is not None:
            if constant.numbers is not None or name not in self._graph.arrays:
                return constant.numbers or ()
            return tuple(self._graph.arrays[name].ravel().tolist())
        if maker is None:
            return ()
        if maker.operator == "Constant":
            return maker.constant().numbers or ()
        if maker.operator == "Concat":
            parts = [self._numbers(own) for own in maker.inputs]
            return tuple(number for part in parts for number in part)
        return self._numbers(maker.inputs[0]) if maker.operator in (*_ALIKE, "Expand") else ()
