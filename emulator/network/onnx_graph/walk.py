"""The walk through an ONNX graph: the values that nodes have made so far, and the steps that nodes
became.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...common import InputError
from ..shape import Shape, shown
from .expressions import Expressions
from .inputs import attends, inputs_of
from .node import Constant, OnnxGraph, OnnxNode
from .values import (
    CHANNELS_LAST,
    FLAT,
    FROM_IMAGES,
    LINES,
    MAPS,
    ONE,
    Axes,
    Expectation,
    Keys,
    MixedTokens,
    Parameters,
    Step,
    Value,
    shown_axes,
)

OutputShape = Callable[[type[Any], dict[str, Any], str, Sequence[Shape]], Shape]
"""Function that returns the shape that an operation with these keys makes of others; its messages
begin with a place.

Raises ValueError where the operation does not take them.
"""


TurnedTo = Callable[["Walk", OnnxNode, Value, int], Value]
"""Function that returns a sequence whose axis at a place is its channels, by more steps if needed."""


class Walk:
    """Values, steps and expectations so far.

    All methods raise InputError if a node is not as they expect it. With `has_tokens`, and where
    the graph has attention, pixels whose channels come last are rows of a sequence.
    """

    def __init__(
        self,
        graph: OnnxGraph,
        output_shape: OutputShape,
        turned_to: TurnedTo,
        *,
        has_tokens: bool = False,
    ) -> None:
        self.steps: list[Step] = []
        self.expectations: list[Expectation] = []
        self._symbols: int | None = None
        self.constants = dict(graph.constants)
        self.expressions, self.parameters = Expressions(graph), Parameters(graph)
        self._graph, self._output_shape, self._turned_to = graph, output_shape, turned_to
        self.attends = attends(graph)
        self.has_tokens = has_tokens or self.attends
        self._shapes: list[Shape] = []
        given = inputs_of(graph, has_attention=self.attends)
        self.samples, self.images = given.samples, given.images
        self._has_rows, self._roles = given.has_rows, dict(given.roles)
        self._values = dict.fromkeys(graph.inputs, given.value)
        self._views: dict[int, list[str]] = collections.defaultdict(
            list, {FROM_IMAGES: [*graph.inputs]}
        )
        self._made = {name for node in graph.nodes for name in node.outputs}
        self._makers: dict[str, OnnxNode] = {}
        self._uses = collections.Counter(
            [*graph.outputs, *(name for node in graph.nodes for name in node.operands)]
        )

    @property
    def nodes(self) -> tuple[OnnxNode, ...]:
        """All nodes of the graph."""
        return self._graph.nodes

    @property
    def inputs(self) -> Sequence[str]:
        """The names of the graph's inputs."""
        return [*self._graph.inputs]

    def input_shape(self) -> Shape:
        """Return the (channels, rows, columns) of the network's input: of images, or of a sequence.

        Raises:
            InputError: it is neither, or the number of steps or of values is not fixed.
        """
        if self.images is not None:
            return self.images
        sizes = self._sizes_by_role
        channels, steps = self._symbols or sizes.get("channels"), sizes.get("rows")
        if channels is None or steps is None:
            if "rows" not in sizes:
                return self._graph.images[1]
            [name] = self._graph.inputs
            raise InputError(
                f"{self._graph.source}: the input {name!r} has no fixed number of time steps or of"
                " values; export it with as many as are trained, such as 64 steps"
            )
        return channels, steps, 1

    def input_axes(self) -> Axes:
        """Return the axes of the network's inputs, by their roles where these are known."""
        return self.axes_of(self._values[self.inputs[0]])

    @property
    def batch(self) -> int | None:
        """The number of samples with which the graph was exported; None if it is open, or not known
        yet.
        """
        return self._sizes_by_role.get("samples") if self.samples is None else self.samples

    @property
    def _sizes_by_role(self) -> dict[str | None, int | None]:
        return {
            self._roles.get(str(place)): size for place, size in enumerate(self._graph.input_sizes)
        }

    def axes_of(self, value: Value) -> Axes:
        """Return the axes of a value, by their roles where these are known."""
        if value.axes is None:
            return FLAT if value.is_flat else MAPS
        return tuple(self._roles.get(axis, axis) for axis in value.axes)

    def shown_axes(self, value: Value) -> str:
        """Return the axes of a value as text for messages."""
        return shown_axes(self.axes_of(value))

    def shape(self, value: Value) -> Shape | None:
        """Return the (channels, rows, columns) of a value; None while those of the network's input
        are not known.
        """
        if self.images is None or min(self.images) < 1:
            return None
        for step in self.steps[len(self._shapes) :]:
            taken = [self.images if n == FROM_IMAGES else self._shapes[n] for n in step.takes]
            keys = {**step.keys, "from": ["one", "other"]} if step.kind.joins else dict(step.keys)
            try:
                self._shapes.append(self._output_shape(step.kind, keys, step.node.where, taken))
            except ValueError as error:
                raise step.node.refusal(str(error)) from None
        return self.images if value.step == FROM_IMAGES else self._shapes[value.step]

    def sizes(self, value: Value) -> tuple[int | str, ...]:
        """Return the size of each axis of a value; the axis itself where it is not known, as of
        samples.
        """
        axes, shape = self.axes_of(value), self.shape(value)
        if shape is None and value.step == FROM_IMAGES and self._has_rows:
            steps = self._graph.input_sizes[1] if value.rows is None else value.rows[1]
            return tuple(axis if axis != "rows" or steps is None else steps for axis in axes)
        if shape is None or value.state:
            return axes
        known = {
            **dict(zip(MAPS[1:], shape, strict=True)),
            "one": 1,
            "last": 1,
            "values": math.prod(shape),
        }
        sizes: list[int | str] = []
        for axis in axes:
            factors = axis.split("·")
            is_known = known.keys() >= {*factors} and "directions" not in axes
            sizes.append(math.prod(known[part] for part in factors) if is_known else axis)
        return tuple(sizes)

    def layout(self, value: Value) -> Axes:
        """Return the axes of maps that hold several values of a sample each, in the order in which
        these values lie.
        """
        shape, axes = (
            self.shape(value),
            (value.order or MAPS) if value.is_flat else self.axes_of(value),
        )
        sizes = {} if shape is None else dict(zip(MAPS[1:], shape, strict=True))
        return tuple(part for part in _parts(axes) if sizes.get(part) != 1)

    def are_alike(self, *values: Value) -> bool:
        """Return whether values have the same axes in the same order."""
        return (
            len({(value.is_flat, self.axes_of(value), self.layout(value)) for value in values}) == 1
        )

    def expect_axes(self, node: OnnxNode, value: Value, wanted: Axes) -> None:
        """Check that a value has these axes; those of the input that have no role yet get
        theirs.
        """
        axes = self.axes_of(value)
        if len(axes) == len(wanted):
            self._roles.update(
                {axis: role for axis, role in zip(axes, wanted, strict=True) if axis.isdigit()}
            )
        if self.axes_of(value) != wanted:
            raise node.refusal(
                f"takes {shown_axes(axes)} where it should take {shown_axes(wanted)}; Transpose,"
                " Squeeze and Reshape bring axes into that order"
            )

    def look_up(self, node: OnnxNode, symbols: int) -> None:
        """Record that the network's inputs are numbers of symbols, and how many symbols there
        are.
        """
        if self._symbols not in (None, symbols):
            raise node.refusal(
                f"looks up {symbols} symbols, and another node {self._symbols}; all tables should"
                " have as many, of which some may stay unused"
            )
        self._symbols = symbols
        steps = self._sizes_by_role.get("rows")
        if steps is not None:
            self.samples, self.images = self.batch, (symbols, steps, 1)

    def name(self, node: OnnxNode, made: Value | Constant, place: int = 0) -> None:
        """Record a node's result under the name of one of its outputs."""
        name = node.outputs[place] if place < len(node.outputs) else ""
        if name == "" and (place or len(node.outputs) > 1):
            return
        if name == "" or name in self._values or name in self.constants:
            raise node.refusal(f"makes {name!r}; each node must make a new value")
        if isinstance(made, Value):
            self._values[name] = made
            self._views[made.step].append(name)
        else:
            self.constants[name] = made
            if node.operator != "Constant":
                self._makers[name] = node

    def output(self) -> Value:
        """Return the graph's output; last states of recurrent layers beside it are left out."""
        source, outputs = self._graph.source, self._graph.outputs
        outputs = tuple(
            name for name in outputs if name not in self._values or not self._values[name].state
        )
        if len(outputs) != 1:
            raise InputError(
                f"{source}: {len(outputs)} outputs: {', '.join(map(repr, outputs))}; there should"
                " be one"
            )
        if outputs[0] not in self._values:
            raise InputError(f"{source}: nothing makes the output {outputs[0]!r}: a hole")
        return self._values[outputs[0]]

    def is_state(self, name: str) -> bool:
        """Return whether a value is the last state of recurrent layers."""
        return name in self._values and bool(self._values[name].state)

    def take(
        self,
        node: OnnxNode,
        place: int = 0,
        *,
        states: bool = False,
        padded: bool = False,
        spread: bool = False,
        mixed: bool = False,
        apart: bool = False,
    ) -> Value:
        """Return the input of a node at `place`.

        It may be the state of a recurrent layer if the node takes `states`, be `padded` with zeros,
        `spread` over rows and columns, and have its channels `mixed` or axes taken `apart`.
        """
        name = node.inputs[place] if place < len(node.inputs) else ""
        if name in self._values:
            if self._values[name].is_closed:
                raise node.refusal(
                    "takes the result of softmax, which should be the last operation"
                )
            if self._values[name].state and not states:
                raise node.refusal(
                    "takes the states of recurrent layers; only one layer's last output may be used"
                )
            if (pad := self._values[name].padded_by) is not None and not padded:
                raise pad.refusal(
                    f"puts zeros around maps that node {node.name!r} ({node.operator}) takes; only"
                    " padding of a convolution or a pool is supported"
                )
            if (whole := self._values[name].apart) is not None and not apart:
                sizes = shown(whole.places.shape)
                raise whole.node.refusal(
                    f"takes axes of maps apart, and node {node.name!r} ({node.operator}) takes them as"
                    f" samples of {sizes}; only those that ChannelShuffle, PixelShuffle,"
                    " PixelUnshuffle or Unflatten put together are supported"
                )
            if (by := self._values[name].spread_by) is not None and not spread:
                raise by.refusal(
                    f"repeats values that node {node.name!r} ({node.operator}) takes; only factors of"
                    " channels may be repeated"
                )
            if self._values[name].channels is not None and not mixed:
                raise node.refusal(
                    "takes channels of heads that share keys and values, which are not side by side;"
                    " only a layer may take them"
                )
            return self._values[name]
        if name == "":
            raise node.refusal(f"lacks its input {place + 1}")
        if name in self.constants:
            by = self._makers.get(name)
            whose = (
                ""
                if by is None
                else f", which node {by.name!r} ({by.operator}) computes of others,"
            )
            raise node.refusal(
                f"takes the constant {name!r}{whose} where it should take what a node makes"
            )
        if name in self._made:
            raise node.refusal(
                f"takes {name!r}, which no node before it makes as its first output: a cycle, or"
                " nodes out of order"
            )
        raise node.refusal(f"takes {name!r}, which nothing makes: a hole")

    def with_number(self, node: OnnxNode) -> tuple[Value, float | None]:
        """Return the value and the number that a node of two inputs takes; None if the other one is
        no number.

        Zeros for each place of the value are a number, too.
        """
        places = [place for place, name in enumerate(node.inputs) if name in self.constants]
        if len(node.inputs) != 2 or len(places) != 1:
            return self.take(node), None
        [place] = places
        value, constant = self.take(node, 1 - place), self.constants[node.inputs[place]]
        if constant.numbers is not None and len(constant.numbers) == 1:
            return value, constant.numbers[0]
        sizes, extents = (
            self.sizes(value),
            constant.shape if constant.extents is None else constant.extents,
        )
        fits = len(extents) <= len(sizes) and all(
            size in (1, own, self.samples if own == "samples" else own)
            for size, own in zip(extents[::-1], sizes[::-1], strict=False)
        )
        return value, 0.0 if fits and self.holds_zeros(constant) else None

    def maps(self, node: OnnxNode, *, padded: bool = False, over: int = 2) -> Value:
        """Return the first input of a node, which must be maps, not flattened values; they may be
        `padded`.

        Of a node `over` one axis, they are maps of one column, without an axis for it.
        """
        value = self.take(node, padded=padded)
        if over == 1:
            return self._lines(node, self.with_channels(node, value, 1))
        if value.is_flat:
            raise node.refusal("takes values that were flattened where it should take maps")
        axes = self.axes_of(value)
        if axes != MAPS and sorted(axes) == sorted(MAPS):
            moved = "" if axes == CHANNELS_LAST else f", so that {axes[1]} are its channels"
            raise node.refusal(
                f"takes maps with their axes moved, {shown_axes(axes)}{moved}, which is not"
                " supported"
            )
        if axes != MAPS:
            raise node.refusal(f"takes {shown_axes(axes)} where it should take maps")
        return value

    def _lines(self, node: OnnxNode, value: Value) -> Value:
        """Return a value as maps of one column; the network's inputs are such maps, where nothing
        else tells.
        """
        axes = self.axes_of(value)
        if len(axes) != 3 or axes[:2] != LINES[:2] or axes[2] not in (ONE, "last"):
            self.expect_sequence(node, value, LINES)
        return dataclasses.replace(value, axes=LINES)

    def expect_sequence(self, node: OnnxNode, value: Value, wanted: Axes) -> None:
        """Check that a value has these axes, as `expect_axes`; the sizes of a sequence that is the
        network's input are known then.
        """
        self.expect_axes(node, value, wanted)
        sizes = self._sizes_by_role
        channels, steps = sizes.get("channels"), sizes.get("rows")
        if self.images is None and channels is not None and steps is not None:
            self.samples, self.images = self.batch, (channels, steps, 1)

    def with_channels(self, node: OnnxNode, value: Value, place: int) -> Value:
        """Return a value with channels at a place of its axes, as `TurnedTo` says."""
        return self._turned_to(self, node, value, place)

    def expect_channels(self, node: OnnxNode, value: Value, place: int) -> None:
        """Say that an axis of the network's input, of which nothing has told so far, is channels.

        Raises:
            MixedTokens: another one was channels before, or it is not the last one.
        """
        axes = self.axes_of(value)
        if len(axes) != 3 or not axes[place].isdigit():
            return
        if self.has_tokens:
            rows = ("rows", "channels") if place == -1 else ("channels", "rows")
            self.expect_sequence(node, value, ("samples", *rows))
        elif place != -1 or "channels" in axes:
            raise MixedTokens
        else:
            self.expect_axes(node, value, (*axes[:2], "channels"))

    def is_used(self, name: str) -> bool:
        """Return whether a node takes the value `name`, or it is the graph's output."""
        return self._uses[name] > 0

    def is_used_once(self, name: str) -> bool:
        """Return whether the value `name` is used once, by a node or as the graph's output, and so
        is what it views.
        """
        return all(self._uses[view] == 1 for view in self._views[self._values[name].step])

    def are_sizes(self, node: OnnxNode) -> bool:
        """Return whether a node takes sizes that the graph computes, one of them open, and nothing
        but constants.
        """
        taken = [self.constants.get(name) for name in node.inputs if name]
        return all(taken) and any(
            own is not None and own.sizes is not None and own.numbers is None for own in taken
        )

    def constant(self, node: OnnxNode, place: int) -> Constant | None:
        """Return the constant that a node takes at `place`; None if it takes another value, or
        none.
        """
        return self.constants.get(node.inputs[place]) if len(node.inputs) > place else None

    def has_bias(self, node: OnnxNode) -> bool:
        """Return whether a node adds a bias, its third input; zeros that nodes before it make are
        none.
        """
        bias = self.constant(node, 2)
        if not node.has_input(2) or (bias is not None and self._is_made_zero(bias)):
            return False
        if bias is not None:
            self.parameters.use(node, 2, bias)
        return True

    def _is_made_zero(self, constant: Constant) -> bool:
        return (
            constant.is_zero and not constant.roots and constant.name not in self._graph.constants
        )

    def holds_zeros(self, constant: Constant) -> bool:
        """Return whether a constant holds zeros alone; its values are read if nothing else
        tells.
        """
        if constant.holds_zeros or constant.numbers is not None or constant.sizes is not None:
            return constant.holds_zeros
        try:
            return not self.expressions.value(constant.name).any()
        except KeyError:
            return False

    def entries(self, node: OnnxNode, place: int) -> tuple[int | str, ...]:
        """Return sizes that a node takes at `place`."""
        constant = self.constant(node, place)
        if constant is None or constant.entries is None:
            raise node.refusal(
                f"its input {place + 1} should be sizes: numbers of the file, or of a shape"
            )
        return constant.entries

    def weight(self, node: OnnxNode, place: int = 1) -> tuple[int, ...]:
        """Return the shape of a node's weights, by default its second input."""
        weight = self.constant(node, place)
        if weight is None:
            raise node.refusal("its weights should be a constant of the file")
        self.parameters.use(node, place, weight)
        return weight.shape

    def numbers(self, node: OnnxNode, attribute: str, place: int = 1) -> tuple[float, ...]:
        """Return an attribute's numbers, which newer versions of an operator take as input; () if
        not given.

        An input at that place that is not a constant of few numbers is refused.
        """
        if attribute in node.attributes:
            value = node.attributes[attribute]
            return (
                (node.number(attribute, 0.0),)
                if isinstance(value, float)
                else node.integers(attribute, ())
            )
        if not node.has_input(place):
            return ()
        constant = self.constants.get(node.inputs[place])
        if constant is None or constant.numbers is None:
            raise node.refusal(
                f"its input {place + 1}, `{attribute}`, should be a constant of few numbers"
            )
        return constant.numbers

    def integers(self, node: OnnxNode, attribute: str) -> tuple[int, ...]:
        """Return the same as `numbers`, where these must be integers."""
        numbers = self.numbers(node, attribute)
        if not all(isinstance(number, int) for number in numbers):
            raise node.refusal(f"its input 2, `{attribute}`, should be of integers")
        return tuple(map(int, numbers))

    def expect(
        self,
        node: OnnxNode,
        value: Value,
        *,
        channels: int | None = None,
        values: int | None = None,
        steps: int | None = None,
    ) -> None:
        """Record the number of channels that a value must have, of values in all, or of time
        steps.
        """
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
        arrays: Mapping[str, str] | None = None,
    ) -> Value:
        """Add a step of type `kind` with these keys; return its result, with these axes or as those
        of `like`.

        `arrays` are those of `Step`.
        """
        if any(value.rows is not None for value in takes):
            raise node.refusal("takes some of the network's symbols; only an embedding may")
        order = takes[0].order if takes else None
        self.steps.append(
            Step(node, kind, keys, tuple(value.step for value in takes), order, arrays or {})
        )
        if like is None:
            return Value(len(self.steps) - 1, is_flat, axes=axes)
        return Value(len(self.steps) - 1, like.is_flat, axes=like.axes, order=like.order)

    def replace(self, step: int, **fields: Any) -> None:
        """Give a step other fields; what it makes may have another shape."""
        self.steps[step] = dataclasses.replace(self.steps[step], **fields)
        del self._shapes[step:]

    def flat(self, value: Value) -> Value:
        """Return maps or a sequence as one row of values."""
        order = value.order if value.is_flat else ("samples", *_parts(self.axes_of(value)))
        return dataclasses.replace(value, is_flat=True, axes=None, order=order)

    def step_of(self, value: Value) -> Step | None:
        """Return the step that made a value; None for the network's inputs."""
        return None if value.step == FROM_IMAGES else self.steps[value.step]


def _parts(axes: Axes) -> list[str]:
    """Return the axes of maps that axes behind samples are made of; those of one are left out."""
    return [part for axis in axes[1:] for part in axis.split("·") if part not in (ONE, "last")]
