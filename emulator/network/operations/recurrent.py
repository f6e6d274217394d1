"""Recurrent layers: an LSTM or GRU over a sequence, one time step a row (FARNN, section 3).

A step is a 1×1 convolution over its inputs and the hidden state of the step before, with `gates`
results for each unit, then element-wise activations. Each unit's weights stand together, gate after
gate: those of the inputs, those of the hidden state, and the two biases. So a cut by whole units
leaves the order of accumulation as it is.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...common import Channels
from ..onnx_nodes import Arrays, Export, Form
from ..operation import Arithmetic, LayerRows, RowLayer
from ..shape import Shape, shown

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


BIASES = 2
"""Biases of a gate: b_W and b_R."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurrent(RowLayer):
    """A recurrent layer of `units` cells a direction; with `bidirectional`, results of both
    directions stand together.

    With `projection`, each step's outputs, which are also the hidden state, are that many sums over
    the cells.
    """

    units: Channels
    projection: Channels | None = None
    bidirectional: bool = False

    gates: ClassVar[int]
    """Results of a step for each unit, before the activations."""

    of_unit: ClassVar[Arithmetic]
    """The arithmetic of a unit's step behind the gates."""

    onnx_gates: ClassVar[tuple[int, ...]]
    """Places of ONNX's gates among PyTorch's."""

    onnx_activations: ClassVar[tuple[str, ...]]
    """The activations of its node, which are ONNX's defaults."""

    bias: ClassVar[bool] = False  # type: ignore[misc]  # each unit's biases are among its weights
    recurs, looks_back = True, True

    @property
    def directions(self) -> int:
        """1, or 2 if bidirectional."""
        return 1 + self.bidirectional

    @property
    def hidden(self) -> int:
        """Values of a direction's hidden state: its units, or the projection's sums."""
        return self.units if self.projection is None else self.projection

    @property
    @abc.abstractmethod
    def is_divisible(self) -> bool:
        """Whether the layer may be cut by units."""

    @property
    def multiplies_inner(self) -> bool:
        """Whether weights multiply something of the units beside states: before a projection, or
        behind a reset.
        """
        return self.projection is not None

    @property
    def error_lines(self) -> int:
        """Errors of a unit by which weights or what they read are multiplied, at each step."""
        return self.gates

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """See `LayerOperation`: gates' activations, and what makes states of them."""
        return self.of_unit.times(self.directions * self.units * shape[1])

    @property
    def rows_of_piece(self) -> int:
        """Gates of all units that stay together where the layer is cut."""
        return self.gates * (1 if self.is_divisible else self.directions * self.units)

    def weight_columns(self, inputs: int) -> int:
        """Return the weights of a unit for each gate: inputs, hidden state, biases."""
        return inputs + self.hidden + BIASES

    def weight_shape(self, shape: Shape, made: Shape) -> tuple[int, int, int, int]:
        """See `LayerOperation`: (units, values of a unit, 1, 1), or (1, all values, 1, 1) if it is
        not divisible.
        """
        per_unit = self.gates * self.weight_columns(shape[0])
        if self.is_divisible:
            return self.units, per_unit, 1, 1
        whole = self.directions * (self.units * per_unit + (self.projection or 0) * self.units)
        return 1, whole, 1, 1

    def pieces(self, made: Shape) -> int:
        """See `LayerOperation`: units, if it is divisible."""
        return self.units if self.is_divisible else 1

    def taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """See `LayerOperation`: multiply-accumulates of a step for each of its pieces."""
        per_unit = self.gates * (with_inputs * shape[0] + self.hidden)
        if self.is_divisible:
            return per_unit
        return self.directions * self.units * (per_unit + (self.projection or 0))

    def kept_values(self, shape: Shape) -> int:
        """See `LayerOperation`: the hidden state, and each unit's gates and cell."""
        cells = self.directions * self.units * (self.gates + 1)
        return shape[1] * (self.directions * self.hidden + cells)

    def with_channels(self, channels: int) -> Recurrent:
        """See `LayerOperation`; the channels are units."""
        return dataclasses.replace(self, units=channels)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [shape] = inputs
        if shape[2] != 1:
            raise ValueError(
                f"maps of {shown(shape)} have {shape[2]} columns, where {self.type} takes a"
                ' sequence: one row a time step and one column; put {type = "sequence"}'
                " before it"
            )
        return self.directions * self.hidden, shape[1], 1

    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """See `LayerOperation`; a step of a bidirectional layer waits for the last one."""
        steps = np.arange(shape[1])
        needed = np.full_like(steps, shape[1] - 1) if self.bidirectional else steps
        return LayerRows(needed, needed, steps)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; ONNX has time steps first, and directions on an axis of their own.

        Raises:
            InputError: it has a projection.
        """
        nodes, name = out.nodes, out.name
        x = nodes.steps(out.x, f"{name}/steps")
        if self.projection is not None:
            raise out.refusal(f"{self.type} with a projection ({name})")
        ends = ("", "_reverse")[: self.directions]

        def stacked(key: str) -> NDArray[np.float32]:
            directions = []
            for end in ends:
                parts = np.split(out.held[f"{key}_l0{end}"], self.gates)
                directions.append(np.concatenate([parts[place] for place in self.onnx_gates]))
            return np.stack(directions)

        arrays = [
            nodes.array(f"{name}.W", stacked("weight_ih")),
            nodes.array(f"{name}.R", stacked("weight_hh")),
            nodes.array(
                f"{name}.B", np.concatenate([stacked("bias_ih"), stacked("bias_hh")], axis=1)
            ),
        ]
        direction = "bidirectional" if self.bidirectional else "forward"
        turned = nodes.add("Transpose", [x], f"{name}/turned", perm=[1, 0, 2])
        keys = {"hidden_size": self.units, "direction": direction, **self.onnx_keys}
        outputs = nodes.add(self.onnx[0], [turned, *arrays], f"{name}/outputs", name, **keys)
        # (rows, directions, samples, units) become (samples, rows, directions, units), so that
        # results of both directions stand together.
        apart = nodes.add("Transpose", [outputs], f"{name}/apart", perm=[2, 0, 1, 3])
        channels, steps, _ = out.makes.shape
        nodes.add(
            "Reshape", [apart, nodes.numbers(f"{name}.shape", 0, steps, channels)], out.result
        )
        nodes.name(out.makes, out.result, Form.STEPS)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; return all outputs, and record the last state.

        Raises:
            InputError: the node does what no layer does here: one direction backwards, states that
                are not zero, peepholes, clipping, other activations, lengths that differ; or lacks
                its biases.
        """
        from ..onnx_graph import CELLS, Value

        directions = _directions(node)
        # ONNX lists them once for each direction.
        _check(walk, node, cls.onnx_activations * directions)
        batch_first = node.integer("layout", 0)
        outer = ("samples", "rows") if batch_first else ("rows", "samples")
        value = walk.take(node)
        walk.expect_axes(node, value, (*outer, "channels"))
        weights, recurrent, _ = (walk.weight(node, place) for place in (1, 2, 3))
        are_stacked = len(weights) == len(recurrent) == 3 and weights[0] == directions
        if not are_stacked or weights[1] % cls.gates:
            rows = f"directions, {cls.gates} times units"
            raise node.refusal(
                f"weights {list(weights)} and {list(recurrent)}; they should be [{rows}, inputs]"
                f" and [{rows}, units]"
            )
        units = weights[1] // cls.gates
        if node.integer("hidden_size", units) != units or recurrent[2] != units:
            raise node.refusal(
                f"weights of {units} units, where `hidden_size` or the recurrent weights say"
                " another number"
            )
        begins = [walk.constant(node, place) for place in _FIRST_STATES]
        if any(own is not None and own.shape[2:] not in ((), (units,)) for own in begins):
            raise node.refusal(
                f"begins with states of other sizes than its {units} units, as PyTorch's new"
                " exporter writes layers with a projection (`proj_size`); only layers without are"
                " supported"
            )
        walk.expect(node, value, channels=weights[2], steps=_length(walk, node))
        outputs = (
            ("samples", "rows", "directions") if batch_first else ("rows", "directions", "samples")
        )
        keys = {"units": units, "bidirectional": directions == 2, **cls.imported_keys(node)}
        arrays = dict(zip("WRB", node.inputs[1:4], strict=True))
        made = walk.step(node, cls, keys, value, axes=(*outputs, "channels"), arrays=arrays)
        last = ("samples", "directions") if batch_first else ("directions", "samples")
        for place, state in ((1, made.step), (2, CELLS)):
            walk.name(node, Value(made.step, axes=(*last, "channels"), state=(state,)), place)
        return made

    @classmethod
    def imported_keys(cls, node: OnnxNode) -> dict[str, Any]:
        """Return the keys, from its node, that only this kind of layer has."""
        return {}

    @classmethod
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """See `Operation`: by PyTorch's names, from ONNX's of both directions."""
        b_w, b_r = np.split(arrays["B"], BIASES, axis=1)
        own = {"weight_ih": arrays["W"], "weight_hh": arrays["R"], "bias_ih": b_w, "bias_hh": b_r}
        weights = {}
        for direction, end in zip(range(len(b_w)), ("", "_reverse"), strict=False):
            for name, array in own.items():
                gates = np.split(array[direction], cls.gates)
                # The inverse of the permutation by which `to_onnx` takes PyTorch's gates.
                places = np.argsort(cls.onnx_gates)
                weights[f"{name}_l0{end}"] = np.concatenate([gates[place] for place in places])
        return weights

    @property
    def onnx_keys(self) -> dict[str, Any]:
        """Attributes of its node that only this kind of layer has."""
        return {}

    @abc.abstractmethod
    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lstm(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), as in FARNN's equations (1) and
    (2).

    Gates are in PyTorch's order: input, forget, new, output.
    """

    type = "lstm"
    onnx = ("LSTM",)
    # ONNX has them as input, output, forget, new.
    gates, onnx_gates = 4, (0, 3, 1, 2)
    of_unit = Arithmetic(29, 5, 5)  # three sigmoids, two tanh: 7; cell and result: 4; back: 18
    onnx_activations = "sigmoid", "tanh", "tanh"

    @property
    def is_divisible(self) -> bool:
        """See `Recurrent`; the projection needs all cells."""
        return self.projection is None and not self.bidirectional

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes and returns (samples, steps, values), and the states."""
        keys = {
            "batch_first": True,
            "bidirectional": self.bidirectional,
            "proj_size": self.projection or 0,
        }
        return [nn.LSTM(shape[0], self.units, **keys)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gru(Recurrent):
    """Gated recurrent units (Cho et al., 2014); gates are in PyTorch's order: reset, update, new.

    The reset gate acts `after` the recurrent product, as in cuDNN and PyTorch, or `before` it, as
    first published.
    """

    reset: Literal["after", "before"] = "after"

    type = "gru"
    onnx = ("GRU",)
    # ONNX has them as update, reset, new.
    gates, onnx_gates = 3, (1, 0, 2)
    of_unit = Arithmetic(21, 3, 3)  # two sigmoids, a tanh: 4; result: 3; back: 14
    onnx_activations = "sigmoid", "tanh"

    def __post_init__(self) -> None:
        if self.projection is not None:
            raise ValueError("`projection`: a gru has none; an lstm has")

    @property
    def is_divisible(self) -> bool:
        """See `Recurrent`; a reset before the product needs the reset gates of all units."""
        return self.reset == "after" and not self.bidirectional

    @property
    def multiplies_inner(self) -> bool:
        """See `Recurrent`: states times the reset."""
        return self.reset == "before"

    @property
    def error_lines(self) -> int:
        """See `Recurrent`: a reset behind the product has errors of n for W, and others for R."""
        return self.gates + (self.reset == "after")

    @property
    def onnx_keys(self) -> dict[str, Any]:
        """See `Recurrent`."""
        return {"linear_before_reset": int(self.reset == "after")}

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes and returns (samples, steps, values), and the states.

        Raises:
            ValueError: the reset gate acts before the recurrent product, which PyTorch does not
                have.
        """
        if self.reset == "before":
            raise ValueError('PyTorch has only `reset` = "after"')
        return [nn.GRU(shape[0], self.units, batch_first=True, bidirectional=self.bidirectional)]

    @classmethod
    def imported_keys(cls, node: OnnxNode) -> dict[str, Any]:
        """See `Recurrent`; the reset acts after the recurrent product if this is linear before
        it.
        """
        return {"reset": "after" if node.integer("linear_before_reset", 0) else "before"}


_LENGTHS, _FIRST_STATES, _PEEPHOLES = 4, (5, 6), 7
"""Places of optional inputs."""


def _directions(node: OnnxNode) -> int:
    direction = node.attributes.get("direction", "forward")
    if direction not in ("forward", "bidirectional"):
        raise node.refusal(
            f"`direction` = {direction!r}: a layer goes 'forward', or both ways as 'bidirectional';"
            " turn the sequence before it is exported"
        )
    return 2 if direction == "bidirectional" else 1


def _length(walk: Walk, node: OnnxNode) -> int | None:
    """Return the time steps of all samples; None where the node does not say it."""
    if not node.has_input(_LENGTHS):
        return None
    constant = walk.constant(node, _LENGTHS)
    lengths = set(() if constant is None or constant.entries is None else constant.entries)
    if len(lengths) != 1 or not isinstance(length := lengths.pop(), int):
        raise node.refusal("`sequence_lens`: should be left out, or all time steps for each sample")
    return length


def _check(walk: Walk, node: OnnxNode, activations: tuple[str, ...]) -> None:
    """Refuse what no layer does here."""
    given = node.attributes.get("activations", activations)
    if not isinstance(given, tuple) or tuple(str(name).lower() for name in given) != activations:
        names = list(given) if isinstance(given, tuple) else given
        raise node.refusal(
            f"`activations` = {names}: should be {[name.title() for name in activations]}, the"
            " defaults"
        )
    for attribute in ("activation_alpha", "activation_beta", "clip"):
        if attribute in node.attributes:
            raise node.refusal(
                f"`{attribute}` is not supported; activations should be as they are, without it"
            )
    if node.integer("input_forget", 0):
        raise node.refusal("`input_forget` = 1: coupled gates are not supported; should be 0")
    if not node.has_input(3):
        raise node.refusal(
            "has no biases, where a layer here has two for each gate; export it with its input B"
        )
    for place in _FIRST_STATES:
        state = walk.constant(node, place)
        if node.has_input(place) and (state is None or not walk.holds_zeros(state)):
            raise node.refusal(
                f"begins with the state {node.inputs[place]!r}; each sequence begins with zeros"
                " here"
            )
    if node.has_input(_PEEPHOLES):
        raise node.refusal("has peepholes, its input P; only layers without are supported")
