"""GELU, Mish, RMS norm and layer norm that a graph spells out by arithmetic, as one node each.

PyTorch's exporters write them so for versions of ONNX that have no operator for them, and people in
many orders. So arithmetic between a value and another is computed for a few numbers; it is the
operator that makes the same of them.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...onnx_graph import OnnxGraph, OnnxNode
from .spelling import Spelled, Spelling, in_one

Numbers = NDArray[np.float64]

_FAR = 9
"""Most nodes in a row between a value and what is made of it."""

_CLOSE = 1e-5

_BINARY: Mapping[str, Any] = {
    "Add": np.add,
    "Div": np.divide,
    "Mul": np.multiply,
    "Pow": np.power,
    "Sub": np.subtract,
}
_UNARY: Mapping[str, Any] = {
    "Cast": np.asarray,
    "Erf": np.vectorize(math.erf, otypes=[np.float64]),
    "Identity": np.asarray,
    "Reciprocal": np.reciprocal,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
_LIKE_FIRST = frozenset({"CastLike", "Expand"})
"""Operators whose result has the numbers of their first input, perhaps repeated."""
_OVER_ROWS: Mapping[str, Any] = {
    "ReduceMean": lambda x: x.mean(-1, keepdims=True),
    "ReduceL2": lambda x: np.sqrt((x**2).sum(-1, keepdims=True)),
}
_KNOWN = frozenset({*_BINARY, *_UNARY, *_LIKE_FIRST, *_OVER_ROWS, "Clip"})


def with_operators(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph with one node for each GELU, Mish and norm that several nodes make."""
    arithmetic = _Arithmetic(graph)
    norms = dict.fromkeys(_OVER_ROWS, arithmetic.norm)
    activations = dict.fromkeys(("Erf", "Tanh"), arithmetic.activation)
    return in_one(graph, {**activations, "LayerNormalization": arithmetic.scaled_norm, **norms})


class _Arithmetic(Spelling):
    """What the nodes of a graph compute."""

    def __init__(self, graph: OnnxGraph) -> None:
        super().__init__(graph)
        self._constants = graph.known
        for node in graph.nodes:
            if (
                node.operator in ("Reshape", "Cast", "CastLike")
                and (known := self._constants.get(node.inputs[0]))
                and known.numbers
            ):
                self._constants[node.outputs[0]] = known

    def activation(self, node: OnnxNode) -> Spelled | None:
        """Return the GELU or Mish that a node, Erf or Tanh, belongs to."""
        x = np.linspace(-4, 4, 33)
        cubic = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        forms: Mapping[str, tuple[str, dict[str, str], Numbers]] = {
            "none": (
                "Gelu",
                {"approximate": "none"},
                x * (1 + _UNARY["Erf"](x / math.sqrt(2))) / 2,
            ),
            "tanh": ("Gelu", {"approximate": "tanh"}, x * (1 + np.tanh(cubic)) / 2),
            "mish": ("Mish", {}, x * np.tanh(np.logaddexp(x, 0))),
        }
        names = ("none",) if node.operator == "Erf" else ("tanh", "mish")
        for begin, last in itertools.product(self._before(node), self._behind(node)):
            for operator, keys, y in map(forms.__getitem__, names):
                if self._makes(last, begin, x, y):
                    nodes = self._between(begin, last)
                    made = dataclasses.replace(
                        last, operator=operator, inputs=(begin,), attributes=keys
                    )
                    return (nodes, made) if self._is_whole(nodes, last) else None
        return None

    def norm(self, node: OnnxNode) -> Spelled | None:
        """Return the norm that a node, a mean or a length of rows, belongs to, with the arrays by
        which others multiply and add.
        """
        for begin in self._before(node):
            for last in self._behind(node):
                width = self._width(last)
                x = 0.01 * np.random.default_rng(0).normal(0.5, 1, (3, width or 1))
                square, centred = (x**2).mean(-1, keepdims=True), x - x.mean(-1, keepdims=True)
                variance = (centred**2).mean(-1, keepdims=True)
                nodes = self._between(begin, last)
                for epsilon in self._added(nodes, width) if width else ():
                    for operator, y in (
                        ("RMSNormalization", x / np.sqrt(square + epsilon)),
                        ("LayerNormalization", centred / np.sqrt(variance + epsilon)),
                    ):
                        if self._makes(last, begin, x, y):
                            [mean, *_] = (own for own in nodes if own.operator in _OVER_ROWS)
                            keys = {"axis": self._axis(mean), "epsilon": epsilon}
                            return self._scaled(operator, begin, nodes, last, keys)
        return self._by_length(node) if node.operator == "ReduceL2" else None

    def _by_length(self, length: OnnxNode) -> Spelled | None:
        """Return the division by a length, or by a least one, that a node makes."""
        x = 0.01 * np.random.default_rng(0).normal(0.5, 1, (3, 8))
        begin, y = length.inputs[0], x / np.sqrt((x**2).sum(-1, keepdims=True))
        for last in self._behind(length):
            if self._makes(last, begin, x, y):
                nodes = self._between(begin, last)
                clips = [own for own in nodes if own.operator == "Clip"]
                least = max((self._number(own.inputs[1]) or 0.0 for own in clips), default=0.0)
                keys = {"axis": self._axis(length), "p": 2, "epsilon": least}
                made = dataclasses.replace(
                    last, operator="LpNormalization", inputs=(begin,), attributes=keys
                )
                return (nodes, made) if self._is_whole(nodes, last) else None
        return None

    def scaled_norm(self, norm: OnnxNode) -> Spelled | None:
        """Return the layer norm with the array by which others multiply its result, in place of
        ones; or one whose own array is one plus a number.
        """
        if len(norm.inputs) < 2:
            return None
        keys, ones = dict(norm.attributes), self._makers.get(norm.inputs[1])
        array, offset = self._row(norm.inputs[1])
        if offset:
            inputs = norm.inputs[0], array, *norm.inputs[2:]
            own = dataclasses.replace(norm, inputs=inputs, attributes={**keys, "offset": offset})
            return [norm], own
        is_one = (
            ones is not None and ones.operator == "Expand" and self._number(ones.inputs[0]) == 1
        )
        if not is_one or len(norm.inputs) > 2 or not self._width(norm):
            return None
        return self._scaled(norm.operator, norm.inputs[0], [norm], norm, keys)

    def _width(self, last: OnnxNode) -> int:
        """Return the length of the array by which alone others multiply a node's result, or 0."""
        takers = self._takers[last.outputs[0]]
        if len(takers) != 1 or takers[0].operator != "Mul":
            return 0
        return max(map(self._length, takers[0].inputs))

    def _scaled(
        self,
        operator: str,
        begin: str,
        nodes: list[OnnxNode],
        last: OnnxNode,
        keys: dict[str, Any],
    ) -> Spelled | None:
        arrays: list[str] = []
        for kind in ("Mul", "Add") if operator == "LayerNormalization" else ("Mul",):
            takers = self._takers[last.outputs[0]]
            taken = [name for taker in takers for name in taker.inputs if self._length(name)]
            if len(takers) != 1 or takers[0].operator != kind or len(taken) != 1:
                break
            array, offset = self._row(taken[0])
            if offset and kind == "Add":
                break
            keys |= {"offset": offset} if offset else {}
            [last], nodes, arrays = takers, [*nodes, *takers], [*arrays, array]
        if not arrays or not self._is_whole(nodes, last):
            return None
        return nodes, dataclasses.replace(
            last, operator=operator, inputs=(begin, *arrays), attributes=keys
        )

    def _length(self, name: str) -> int:
        """Return the length of a row of the file's numbers, or of such a row plus one number; 0 for
        anything else.
        """
        known = self._constants.get(self._row(name)[0])
        is_row = known is not None and len(known.shape) == 1 and known.shape[0] > 1
        return known.shape[0] if known is not None and is_row else 0

    def _row(self, name: str) -> tuple[str, float]:
        """Return the array and the number that a node adds to make a value; itself and 0 if none
        does.
        """
        maker = self._makers.get(name)
        if name not in self._constants and maker is not None and maker.operator == "Add":
            numbers = [self._number(own) for own in maker.inputs]
            for own, number in zip(maker.inputs, reversed(numbers), strict=True):
                if number is not None:
                    return own, number
        return name, 0.0

    def _added(self, nodes: list[OnnxNode], width: int) -> list[float]:
        """Return the numbers that nodes add to mean squares; of the least length of a row of this
        width, its mean square.
        """
        made = []
        for node in nodes:
            numbers = [self._number(name) for name in node.inputs]
            own = [number for number in numbers if number is not None and number >= 0]
            if node.operator == "Add":
                made += own
            elif node.operator == "Clip":
                made += [number**2 / width for number in own]
        return made or [0.0]

    def _number(self, name: str) -> float | None:
        constant = self._constants.get(name)
        numbers = None if constant is None else constant.numbers
        return float(numbers[0]) if numbers is not None and len(numbers) == 1 else None

    def _axis(self, node: OnnxNode) -> int | None:
        """Return the one axis over which a node takes the mean; None if it is not one."""
        given = self._number(node.inputs[1]) if len(node.inputs) > 1 else None
        axes = node.attributes.get("axes", () if given is None else (int(given),))
        return axes[0] if isinstance(axes, tuple) and len(axes) == 1 else None

    def _before(self, node: OnnxNode) -> list[str]:
        """Return the values of which arithmetic makes what a node takes, the nearest first."""
        names = [name for name in node.inputs[:1] if name]
        for name in names:  # which grows
            maker = self._makers.get(name)
            if maker is not None and maker.operator in _KNOWN and len(names) < 2 * _FAR:
                names += [
                    own for own in maker.inputs if own not in names and own not in self._constants
                ]
        return names

    def _behind(self, node: OnnxNode) -> Iterator[OnnxNode]:
        """Yield the nodes that arithmetic leads to from a node, the nearest first."""
        todo, seen = collections.deque([(node, 0)]), {id(node)}
        while todo:
            own, far = todo.popleft()
            if own is not node:
                yield own
            for taker in self._takers[own.outputs[0]] if far < _FAR else ():
                if id(taker) not in seen and taker.operator in _KNOWN:
                    seen.add(id(taker))
                    todo.append((taker, far + 1))

    def _between(self, begin: str, last: OnnxNode) -> list[OnnxNode]:
        """Return the nodes that make a node's result of a value."""
        nodes = {id(last): last}
        todo = [last]
        while todo and len(nodes) < 4 * _FAR:
            for name in todo.pop().inputs:
                maker = self._makers.get(name)
                if (
                    name != begin
                    and maker is not None
                    and id(maker) not in nodes
                    and maker.operator in _KNOWN
                ):
                    nodes[id(maker)] = maker
                    todo.append(maker)
        return [*nodes.values()]

    def _makes(self, last: OnnxNode, begin: str, x: Numbers, y: Numbers) -> bool:
        """Return whether a node makes y if a value is x."""
        try:
            with np.errstate(all="ignore"):
                made = self._value(last.outputs[0], {begin: x}, 2 * _FAR)
        except _UnknownError:
            return False
        return made.shape == y.shape and bool((abs(made - y) <= _CLOSE * (1e-3 + abs(y))).all())

    def _value(self, name: str, known: dict[str, Numbers], far: int) -> Numbers:
        if name in known:
            return known[name]
        if (number := self._number(name)) is not None:
            return np.array(number)
        node = self._makers.get(name)
        if node is None or far == 0 or node.operator not in _KNOWN:
            raise _UnknownError
        if node.operator in _OVER_ROWS:
            if self._axis(node) is None or node.attributes.get("keepdims", 1) != 1:
                raise _UnknownError
            known[name] = _OVER_ROWS[node.operator](self._value(node.inputs[0], known, far - 1))
        elif node.operator in _LIKE_FIRST:
            known[name] = self._value(node.inputs[0], known, far - 1)
        elif node.operator == "Clip":
            least = self._number(node.inputs[1]) if len(node.inputs) == 2 else None
            if least is None:
                raise _UnknownError
            known[name] = np.maximum(self._value(node.inputs[0], known, far - 1), least)
        else:
            taken = [self._value(own, known, far - 1) for own in node.inputs]
            kind = _BINARY if node.operator in _BINARY else _UNARY
            if len(taken) != 1 + (kind is _BINARY):
                raise _UnknownError
            known[name] = kind[node.operator](*taken)
        return known[name]


class _UnknownError(Exception):
    """A value does not follow from another by arithmetic."""
