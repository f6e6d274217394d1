"""The walk through an ONNX graph: the values that nodes have made so far, and the steps that nodes became."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ...common import InputError
from ..shape import Shape, shown
from .node import Constant, OnnxGraph, OnnxNode

Keys = Mapping[str, object]
"""The keys of an operation, as in a TOML file."""

FROM_IMAGES = -1
"""The network's inputs, in place of a step's number."""


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation of type `kind`, with its keys, the node that it comes from, and the steps whose results it takes."""

    node: OnnxNode
    kind: type[Any]
    keys: Keys
    takes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a node expects of the result of a step: a number of channels, or of values in all."""

    node: OnnxNode
    step: int
    channels: int | None
    values: int | None

    def check(self, shape: Shape) -> None:
        """Check the expectation against the shape that follows from the graph.

        Raises:
            InputError: they differ.
        """
        for kind, count, found in (("channels", self.channels, shape[0]), ("values", self.values, math.prod(shape))):
            if count not in (None, found):
                raise self.node.refusal(f"is made for {count} {kind}, but takes maps of {shown(shape)}")


@dataclasses.dataclass(frozen=True)
class Value:
    """The result of a step, as maps or as one row of values; `is_closed` after softmax, when nothing may take it."""

    step: int
    is_flat: bool = False
    is_closed: bool = False


class Walk:
    """Values, steps and expectations so far.

    All methods raise InputError if a node is not as they expect it.
    """

    def __init__(self, graph: OnnxGraph) -> None:
        self.steps: list[Step] = []
        self.expectations: list[Expectation] = []
        self.samples, self.images = graph.images
        self.constants = dict(graph.constants)
        self._graph = graph
        self._values = {name: Value(FROM_IMAGES) for name in graph.inputs}
        self._weights: set[str] = set()
        self._made = {name for node in graph.nodes for name in node.outputs}
        self._uses = collections.Counter([*graph.outputs, *(name for node in graph.nodes for name in node.inputs)])

    def name(self, node: OnnxNode, made: Value | Constant) -> None:
        """Record a node's result under the name of its first output."""
        name = node.outputs[0] if node.outputs else ""
        if name in ("", *self._values, *self.constants):
            raise node.refusal(f"makes {name!r}; each node must make a new value")
        if isinstance(made, Value):
            self._values[name] = made
        else:
            self.constants[name] = made

    def output(self) -> Value:
        """Return the graph's output."""
        source, outputs = self._graph.source, self._graph.outputs
        if len(outputs) != 1:
            raise InputError(f"{source}: {len(outputs)} outputs: {', '.join(map(repr, outputs))}; there should be one")
        if outputs[0] not in self._values:
            raise InputError(f"{source}: nothing makes the output {outputs[0]!r}: a hole")
        return self._values[outputs[0]]

    def take(self, node: OnnxNode, place: int = 0) -> Value:
        """Return the input of a node at `place`."""
        name = node.inputs[place] if place < len(node.inputs) else ""
        if name in self._values:
            if self._values[name].is_closed:
                raise node.refusal("takes what softmax made, but softmax should be the end")
            return self._values[name]
        if name == "":
            raise node.refusal(f"lacks its input {place + 1}")
        if name in self.constants:
            raise node.refusal(f"takes the constant {name!r} where it should take what a node makes")
        if name in self._made:
            raise node.refusal(
                f"takes {name!r}, which no node before it makes as its first output: a cycle, or nodes out of order"
            )
        raise node.refusal(f"takes {name!r}, which nothing makes: a hole")

    def maps(self, node: OnnxNode) -> Value:
        """Return the first input of a node, which must be maps, not flattened values."""
        value = self.take(node)
        if value.is_flat:
            raise node.refusal("takes values that were flattened where it should take maps")
        return value

    def is_used_once(self, name: str) -> bool:
        """Return whether the value `name` is used once, by a node or as the graph's output."""
        return self._uses[name] == 1

    def weight(self, node: OnnxNode) -> tuple[int, ...]:
        """Return the shape of a node's weights, its second input."""
        found = self.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if found is None:
            raise node.refusal("its weights should be a constant of the file")
        if found.name in self._weights:
            raise node.refusal(f"shares its weights {found.name!r} with another node; here each layer has its own")
        self._weights.add(found.name)
        return found.shape

    def numbers(self, node: OnnxNode, attribute: str) -> tuple[float, ...]:
        """Return an attribute's numbers, which newer versions of an operator take as second input; () if not given.

        A second input that is not a constant of few numbers is refused.
        """
        if attribute in node.attributes:
            value = node.attributes[attribute]
            return (node.number(attribute, 0.0),) if isinstance(value, float) else node.integers(attribute, ())
        if len(node.inputs) < 2 or node.inputs[1] == "":
            return ()
        found = self.constants.get(node.inputs[1])
        if found is None or found.numbers is None:
            raise node.refusal(f"its second input, `{attribute}`, should be a constant of few numbers")
        return found.numbers

    def integers(self, node: OnnxNode, attribute: str) -> tuple[int, ...]:
        """Return the same as `numbers`, where these must be integers."""
        found = self.numbers(node, attribute)
        if not all(isinstance(number, int) for number in found):
            raise node.refusal(f"its second input, `{attribute}`, should be of integers")
        return tuple(map(int, found))

    def expect(self, node: OnnxNode, value: Value, *, channels: int | None = None, values: int | None = None) -> None:
        """Record the number of channels that a value must have, or of values in all."""
        self.expectations.append(Expectation(node, value.step, channels, values))

    def step(self, node: OnnxNode, kind: type[Any], keys: Keys, *takes: Value, is_flat: bool = False) -> Value:
        """Add a step of type `kind` with these keys; return its result."""
        self.steps.append(Step(node, kind, keys, tuple(value.step for value in takes)))
        return Value(len(self.steps) - 1, is_flat)

    def step_of(self, value: Value) -> Step | None:
        """Return the step that made a value; None for the network's inputs."""
        return None if value.step == FROM_IMAGES else self.steps[value.step]
