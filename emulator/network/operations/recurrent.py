"""Recurrent layers: an LSTM or GRU over a sequence, one time step a row (FARNN, section 3).

A step is a 1×1 convolution over its inputs and the hidden state of the step before, with `gates` results for each unit,
then element-wise activations. Each unit's weights stand together, gate after gate: those of the inputs, those of the
hidden state, and the two biases. So a cut by whole units leaves the order of accumulation as it is.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...common import Channels
from ..onnx_nodes import Export, Form
from ..operation import LayerRows, RowLayer
from ..shape import Shape, shown

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


BIASES = 2
"""Biases of a gate: b_W and b_R."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurrent(RowLayer):
    """A recurrent layer of `units` cells a direction; with `bidirectional`, results of both directions stand together.

    With `projection`, each step's outputs, which are also the hidden state, are that many sums over the cells.
    """

    units: Channels
    projection: Channels | None = None
    bidirectional: bool = False

    gates: ClassVar[int]
    """Results of a step for each unit, before the activations."""

    onnx_gates: ClassVar[tuple[int, ...]]
    """Places of ONNX's gates among PyTorch's."""

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

    def weight_columns(self, inputs: int) -> int:
        """Return the weights of a unit for each gate: inputs, hidden state, biases."""
        return inputs + self.hidden + BIASES

    def weight_shape(self, shape: Shape, made: Shape) -> tuple[int, int, int, int]:
        """See `LayerOperation`: (units, values of a unit, 1, 1), or (1, all values, 1, 1) if it is not divisible."""
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
                f"maps of {shown(shape)} have {shape[2]} columns, where {self.type} takes a sequence: one row a time"
                ' step and one column; put {type = "sequence"} before it'
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
            gates = (np.split(out.held[f"{key}_l0{end}"], self.gates) for end in ends)
            return np.stack([np.concatenate([parts[place] for place in self.onnx_gates]) for parts in gates])

        arrays = [
            nodes.array(f"{name}.W", stacked("weight_ih")),
            nodes.array(f"{name}.R", stacked("weight_hh")),
            nodes.array(f"{name}.B", np.concatenate([stacked("bias_ih"), stacked("bias_hh")], axis=1)),
        ]
        direction = "bidirectional" if self.bidirectional else "forward"
        turned = nodes.add("Transpose", [x], f"{name}/turned", perm=[1, 0, 2])
        keys = {"hidden_size": self.units, "direction": direction, **self.onnx_keys}
        outputs = nodes.add(self.onnx[0], [turned, *arrays], f"{name}/outputs", name, **keys)
        apart = nodes.add("Transpose", [outputs], f"{name}/apart", perm=[2, 0, 1, 3])
        channels, steps, _ = out.makes.shape
        nodes.add("Reshape", [apart, nodes.numbers(f"{name}.shape", 0, steps, channels)], out.result)
        nodes.name(out.makes, out.result, Form.STEPS)

    @property
    def onnx_keys(self) -> dict[str, Any]:
        """Attributes of its node that only this kind of layer has."""
        return {}

    @abc.abstractmethod
    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lstm(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), as in FARNN's equations (1) and (2).

    Gates are in PyTorch's order: input, forget, new, output.
    """

    type = "lstm"
    onnx = ("LSTM",)
    gates, onnx_gates = 4, (0, 3, 1, 2)

    @property
    def is_divisible(self) -> bool:
        """See `Recurrent`; the projection needs all cells."""
        return self.projection is None and not self.bidirectional

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes and returns (samples, steps, values), and the states."""
        keys = {"batch_first": True, "bidirectional": self.bidirectional, "proj_size": self.projection or 0}
        return [nn.LSTM(shape[0], self.units, **keys)]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: as of `recurrent_step`.
        """
        from ..onnx_graph import recurrent_step

        return recurrent_step(walk, node, cls, {}, gates=cls.gates, activations=("sigmoid", "tanh", "tanh"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gru(Recurrent):
    """Gated recurrent units (Cho et al., 2014); gates are in PyTorch's order: reset, update, new.

    The reset gate acts `after` the recurrent product, as in cuDNN and PyTorch, or `before` it, as first published.
    """

    reset: Literal["after", "before"] = "after"

    type = "gru"
    onnx = ("GRU",)
    gates, onnx_gates = 3, (1, 0, 2)

    def __post_init__(self) -> None:
        if self.projection is not None:
            raise ValueError("`projection`: a gru has none; an lstm has")

    @property
    def is_divisible(self) -> bool:
        """See `Recurrent`; a reset before the product needs the reset gates of all units."""
        return self.reset == "after" and not self.bidirectional

    @property
    def onnx_keys(self) -> dict[str, Any]:
        """See `Recurrent`."""
        return {"linear_before_reset": int(self.reset == "after")}

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes and returns (samples, steps, values), and the states.

        Raises:
            ValueError: the reset gate acts before the recurrent product, which PyTorch does not have.
        """
        if self.reset == "before":
            raise ValueError('PyTorch has only `reset` = "after"')
        return [nn.GRU(shape[0], self.units, batch_first=True, bidirectional=self.bidirectional)]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the reset gate acts after the recurrent product if it is linear before the reset.

        Raises:
            InputError: as of `recurrent_step`.
        """
        from ..onnx_graph import recurrent_step

        keys = {"reset": "after" if node.integer("linear_before_reset", 0) else "before"}
        return recurrent_step(walk, node, cls, keys, gates=cls.gates, activations=("sigmoid", "tanh"))
