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

CELLS = -2
"""The last cells of an LSTM, which no operation takes, in place of the number of a step whose last state it is."""


Axes = tuple[str, ...]
"""Names of axes, in order. Rows are time steps; `directions` are those of a recurrent layer, `last` is one step.

Axes of an input that is not images have their places as names, until a node says what they are.
"""

MAPS: Axes = ("samples", "channels", "rows", "columns")
FLAT: Axes = ("samples", "values")


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation of type `kind`, with its keys, the node that it comes from, and the steps whose results it takes.

    `order` is that of `Value`, of the first result that it takes.
    """

    node: OnnxNode
    kind: type[Any]
    keys: Keys
    takes: tuple[int, ...]
    order: Axes | None = None


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a node expects of the result of a step: a number of channels, of values in all, or of time steps."""

    node: OnnxNode
    step: int
    channels: int | None
    values: int | None
    steps: int | None = None

    def check(self, shape: Shape) -> None:
        """Check the expectation against the shape that follows from the graph.

        Raises:
            InputError: they differ.
        """
        wanted = ("channels", self.channels, shape[0]), ("values", self.values, math.prod(shape))
        for kind, count, found in (*wanted, ("time steps", self.steps, shape[1])):
            if count not in (None, found):
                raise self.node.refusal(f"is made for {count} {kind}, but takes maps of {shown(shape)}")


@dataclasses.dataclass(frozen=True)
class Value:
    """The result of a step, as maps or as one row of values; `is_closed` after softmax, when nothing may take it.

    With `axes`, a sequence or maps with their axes in this order. A recurrent layer's last state has the steps of all
    layers that it is of in `state`. A row of values has the axes that it was made of in `order`.
    """

    step: int
    is_flat: bool = False
    is_closed: bool = False
    axes: Axes | None = None
    state: tuple[int, ...] = ()
    order: Axes | None = None


class Walk:
    """Values, steps and expectations so far.

    All methods raise InputError if a node is not as they expect it.
    """

    def __init__(self, graph: OnnxGraph) -> None:
        self.steps: list[Step] = []
        self.expectations: list[Expectation] = []
        self._roles: dict[str, str] = {}
        self._symbols: int | None = None
        self.samples: int | None = None
        self.images: Shape | None = None
        axes = None
        if len(graph.input_sizes) in (2, 3):
            axes = tuple(map(str, range(len(graph.input_sizes))))
        else:
            self.samples, self.images = graph.images
        self.constants = dict(graph.constants)
        self._graph = graph
        self._values = {name: Value(FROM_IMAGES, axes=axes) for name in graph.inputs}
        self._weights: set[str] = set()
        self._made = {name for node in graph.nodes for name in node.outputs}
        self._uses = collections.Counter([*graph.outputs, *(name for node in graph.nodes for name in node.inputs)])

    def input_shape(self) -> Shape:
        """Return the (channels, rows, columns) of the network's input: of images, or of a sequence.

        Raises:
            InputError: it is neither, or the number of steps or of values is not fixed.
        """
        if self.images is not None:
            return self.images
        sizes = {self._roles.get(str(place)): size for place, size in enumerate(self._graph.input_sizes)}
        channels, steps = self._symbols or sizes.get("channels"), sizes.get("rows")
        if channels is None or steps is None:
            if "rows" not in sizes:
                return self._graph.images[1]
            [name] = self._graph.inputs
            raise InputError(
                f"{self._graph.source}: the input {name!r} has no fixed number of time steps or of values; export it"
                " with as many as are trained, such as 64 steps"
            )
        return channels, steps, 1

    def axes_of(self, value: Value) -> Axes:
        """Return the axes of a value, by their roles where these are known."""
        if value.axes is None:
            return FLAT if value.is_flat else MAPS
        return tuple(self._roles.get(axis, axis) for axis in value.axes)

    def expect_axes(self, node: OnnxNode, value: Value, wanted: Axes) -> None:
        """Check that a value has these axes; those of the input that have no role yet get theirs."""
        found = self.axes_of(value)
        if len(found) == len(wanted):
            self._roles.update({axis: role for axis, role in zip(found, wanted, strict=True) if axis.isdigit()})
        if self.axes_of(value) != wanted:
            raise node.refusal(
                f"takes {' x '.join(found)} where it should take {' x '.join(wanted)}; Transpose, Squeeze and Reshape"
                " bring axes into that order"
            )

    def look_up(self, node: OnnxNode, symbols: int) -> None:
        """Record that the network's inputs are numbers of symbols, and how many symbols there are."""
        if self._symbols not in (None, symbols):
            raise node.refusal(f"looks up {symbols} symbols, and another node {self._symbols}")
        self._symbols = symbols

    def name(self, node: OnnxNode, made: Value | Constant, place: int = 0) -> None:
        """Record a node's result under the name of one of its outputs."""
        name = node.outputs[place] if place < len(node.outputs) else ""
        if name == "" and place:
            return
        if name in ("", *self._values, *self.constants):
            raise node.refusal(f"makes {name!r}; each node must make a new value")
        if isinstance(made, Value):
            self._values[name] = made
        else:
            self.constants[name] = made

    def output(self) -> Value:
        """Return the graph's output; last states of recurrent layers beside it are left out."""
        source, outputs = self._graph.source, self._graph.outputs
        outputs = tuple(name for name in outputs if name not in self._values or not self._values[name].state)
        if len(outputs) != 1:
            raise InputError(f"{source}: {len(outputs)} outputs: {', '.join(map(repr, outputs))}; there should be one")
        if outputs[0] not in self._values:
            raise InputError(f"{source}: nothing makes the output {outputs[0]!r}: a hole")
        return self._values[outputs[0]]

    def take(self, node: OnnxNode, place: int = 0, *, states: bool = False) -> Value:
        """Return the input of a node at `place`, which may be the state of a recurrent layer if it takes `states`."""
        name = node.inputs[place] if place < len(node.inputs) else ""
        if name in self._values:
            if self._values[name].is_closed:
                raise node.refusal("takes what softmax made, but softmax should be the end")
            if self._values[name].state and not states:
                raise node.refusal("takes the states of recurrent layers; only one layer's last output may go on")
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
        if self.axes_of(value) != MAPS:
            raise node.refusal(f"takes {' x '.join(self.axes_of(value))} where it should take maps")
        return value

    def is_used_once(self, name: str) -> bool:
        """Return whether the value `name` is used once, by a node or as the graph's output."""
        return self._uses[name] == 1

    def constant(self, node: OnnxNode, place: int) -> Constant | None:
        """Return the constant that a node takes at `place`; None if it takes another value, or none."""
        return self.constants.get(node.inputs[place]) if len(node.inputs) > place else None

    def makes_zeros(self, node: OnnxNode, place: int) -> bool:
        """Return whether nodes before make the zeros that a node takes at `place`, where it could do without."""
        found = self.constant(node, place)
        return found is not None and found.is_zero and found.name not in self._graph.constants

    def entries(self, node: OnnxNode, place: int) -> tuple[int | str, ...]:
        """Return sizes that a node takes at `place`."""
        found = self.constant(node, place)
        if found is None or found.entries is None:
            raise node.refusal(f"its input {place + 1} should be sizes: numbers of the file, or of a shape")
        return found.entries

    def weight(self, node: OnnxNode, place: int = 1) -> tuple[int, ...]:
        """Return the shape of a node's weights, by default its second input."""
        found = self.constant(node, place)
        if found is None:
            raise node.refusal("its weights should be a constant of the file")
        if found.name in self._weights:
            raise node.refusal(f"shares its weights {found.name!r} with another node; here each layer has its own")
        self._weights.add(found.name)
        return found.shape

    def numbers(self, node: OnnxNode, attribute: str, place: int = 1) -> tuple[float, ...]:
        """Return an attribute's numbers, which newer versions of an operator take as input; () if not given.

        An input at that place that is not a constant of few numbers is refused.
        """
        if attribute in node.attributes:
            value = node.attributes[attribute]
            return (node.number(attribute, 0.0),) if isinstance(value, float) else node.integers(attribute, ())
        if not node.has_input(place):
            return ()
        found = self.constants.get(node.inputs[place])
        if found is None or found.numbers is None:
            raise node.refusal(f"its input {place + 1}, `{attribute}`, should be a constant of few numbers")
        return found.numbers

    def integers(self, node: OnnxNode, attribute: str) -> tuple[int, ...]:
        """Return the same as `numbers`, where these must be integers."""
        found = self.numbers(node, attribute)
        if not all(isinstance(number, int) for number in found):
            raise node.refusal(f"its input 2, `{attribute}`, should be of integers")
        return tuple(map(int, found))

    def expect(
        self,
        node: OnnxNode,
        value: Value,
        *,
        channels: int | None = None,
        values: int | None = None,
        steps: int | None = None,
    ) -> None:
        """Record the number of channels that a value must have, of values in all, or of time steps."""
        self.expectations.append(Expectation(node, value.step, channels, values, steps))

    def step(
        self,
        node: OnnxNode,
        kind: type[Any],
        keys: Keys,
        *takes: Value,
        is_flat: bool = False,
        axes: Axes | None = None,
        like: Value | None = None,
    ) -> Value:
        """Add a step of type `kind` with these keys; return its result, with these axes or as those of `like`."""
        order = takes[0].order if takes else None
        self.steps.append(Step(node, kind, keys, tuple(value.step for value in takes), order))
        if like is None:
            return Value(len(self.steps) - 1, is_flat, axes=axes)
        return Value(len(self.steps) - 1, like.is_flat, axes=like.axes, order=like.order)

    def flat(self, value: Value) -> Value:
        """Return maps or a sequence as one row of values."""
        order = value.order if value.is_flat else self.axes_of(value)
        return dataclasses.replace(value, is_flat=True, axes=None, order=order)

    def step_of(self, value: Value) -> Step | None:
        """Return the step that made a value; None for the network's inputs."""
        return None if value.step == FROM_IMAGES else self.steps[value.step]
