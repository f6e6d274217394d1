"""The work of a mini-batch: recurrent layers, and what the GPU does before, between and behind
them.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterator

from ...common import InputError
from ...network import Layer, Network, Recurrent
from ...number import SINGLE, Precision
from .formats import ArrayBytes, WorkFormats


class Cell(enum.Enum):
    """The kind of a recurrent layer's cells."""

    LSTM = "lstm"
    GRU = "gru"

    @property
    def gates(self) -> int:
        """Number of gates, each of which has its input and its recurrent weights."""
        return 4 if self is Cell.LSTM else 3


class Part(enum.Enum):
    """What a task does (FARNN, section 4)."""

    INPUTS = "I-MVM"
    STEPS = "R-MVM and activations"
    WEIGHTS = "weights"
    VALUES = "values"
    TRANSPOSE = "transposition"
    GRADIENTS = "GC"
    UPDATE = "WU"
    OTHERS = "others"


class Phase(enum.Enum):
    """Whether a task belongs to FW, or to BW, GC and WU, which overlap."""

    FORWARD = "FW"
    BACKWARD = "BW"


@dataclasses.dataclass(frozen=True)
class RecurrentWork:
    """A recurrent layer: `cells` cells, which take `inputs` values in each of `steps` time steps.

    With a `projection`, its output and the state that it hands on have as many values, else
    `cells`. A bidirectional layer has two `directions`, each with weights of its own; weights and
    multiply-accumulates are those of one. Where other layers take its inputs, too, it
    `reads_again`: errors of these inputs have other parts.
    """

    name: str
    cell: Cell
    inputs: int
    cells: int
    steps: int
    projection: int | None = None
    directions: int = 1
    reads_again: bool = False
    formats: WorkFormats = WorkFormats()  # noqa: RUF009  # is frozen
    arrays: ArrayBytes | None = None
    resets_before: bool = False
    """Whether a GRU resets states before it multiplies them."""

    @property
    def array_bytes(self) -> ArrayBytes:
        """Bytes of arrays of its parameters, of all directions; without `arrays`, in fp32."""
        return self.arrays or ArrayBytes.single(self.directions * self.parameters)

    @property
    def gates(self) -> int:
        """Number of gates."""
        return self.cell.gates

    @property
    def state(self) -> int:
        """Number of values of the output, which the next step takes."""
        return self.projection or self.cells

    @property
    def input_weights(self) -> int:
        """Number of weights W, and multiply-accumulates of I-MVM in a step."""
        return self.gates * self.cells * self.inputs

    @property
    def gate_weights(self) -> int:
        """Number of recurrent weights R, and multiply-accumulates of R-MVM in a step."""
        return self.gates * self.cells * self.state

    @property
    def projection_weights(self) -> int:
        """Number of weights of the projection, and its multiply-accumulates in a step."""
        return self.cells * (self.projection or 0)

    @property
    def recurrent_weights(self) -> int:
        """Number of weights that each step needs: R and the projection."""
        return self.gate_weights + self.projection_weights

    @property
    def biases(self) -> int:
        """Number of biases: two of each gate."""
        return 2 * self.gates * self.cells

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return self.input_weights + self.recurrent_weights + self.biases

    def padded(self, factor: float) -> RecurrentWork:
        """Return the work with sequences padded to `factor` times their mean length."""
        return dataclasses.replace(self, steps=math.ceil(self.steps * factor - 1e-9))


@dataclasses.dataclass(frozen=True)
class OtherWork:
    """Layers without a state, which the GPU does: `macs` are multiply-accumulates of a sample's
    FW.
    """

    name: str
    macs: int
    parameters: int = 0
    arrays: ArrayBytes | None = None

    @property
    def array_bytes(self) -> ArrayBytes:
        """Bytes of arrays of its parameters; without `arrays`, in fp32."""
        return self.arrays or ArrayBytes.single(self.parameters)


@dataclasses.dataclass(frozen=True)
class Workload:
    """A mini-batch of `batch` samples through `parts`, in the order of the network."""

    name: str
    parts: tuple[RecurrentWork | OtherWork, ...]
    batch: int = 1

    @property
    def recurrent(self) -> tuple[RecurrentWork, ...]:
        """The recurrent layers."""
        return tuple(part for part in self.parts if isinstance(part, RecurrentWork))

    @property
    def passes(self) -> Iterator[tuple[Phase, RecurrentWork | OtherWork]]:
        """FW of all parts in their order, then BW from the last one on."""
        yield from ((Phase.FORWARD, part) for part in self.parts)
        yield from ((Phase.BACKWARD, part) for part in reversed(self.parts))

    def padded(self, factor: float) -> Workload:
        """Return the same parts with sequences padded to `factor` times their length."""
        parts = (
            part.padded(factor) if isinstance(part, RecurrentWork) else part for part in self.parts
        )
        return dataclasses.replace(self, parts=tuple(parts))

    def of_batch(self, batch: int) -> Workload:
        """Return the same parts for a mini-batch of another size."""
        return dataclasses.replace(self, batch=batch)


def workload_of(network: Network, batch: int, precision: Precision = SINGLE) -> Workload:
    """Return the work of a mini-batch of `batch` samples in a run's formats. Layers between two
    recurrent ones are one part.

    Raises:
        InputError: the network has no recurrent layer.
    """
    parts: list[RecurrentWork | OtherWork] = []
    others: list[Layer] = []
    for layer in network.layers:
        if isinstance(layer.operation, Recurrent):
            parts += _together(others, precision)
            others = []
            parts.append(work_of(layer, precision))
        else:
            others.append(layer)
    for head in network.heads:
        raise InputError(
            f"`network` = {network.name!r}: {head.name} has the weights of {head.operation.tied},"
            " and a pair of a GPU and an FPGA trains no tied weights; leave `tied` out, or train"
            " on a chain, with a schedule such as 'sync'"
        )
    if not parts:
        raise InputError(
            f"`network` = {network.name!r}: has no recurrent layer, which a pair of a GPU and an"
            " FPGA is for; should have an lstm or a gru, or `schedule` be one of a chain, such as"
            " 'sync'"
        )
    return Workload(network.name, (*parts, *_together(others, precision)), batch)


def work_of(layer: Layer, precision: Precision = SINGLE) -> RecurrentWork:
    """Return the work of a recurrent layer in a run's formats."""
    operation = layer.operation
    assert isinstance(operation, Recurrent)
    inputs, steps, _ = layer.input
    return RecurrentWork(
        layer.name,
        Cell(operation.type),
        inputs,
        operation.units,
        steps,
        operation.projection,
        operation.directions,
        layer.reads_again and layer.needs_errors,
        WorkFormats.of(layer, precision),
        None if precision.is_single else ArrayBytes.of([layer], precision),
        getattr(operation, "reset", "after") == "before",
    )


def _together(layers: list[Layer], precision: Precision) -> list[OtherWork]:
    """Return layers without a state as one part, if there are any."""
    if not layers:
        return []
    name = layers[0].name + (f" to {layers[-1].name}" if len(layers) > 1 else "")
    macs = sum(layer.macs for layer in layers)
    arrays = None if precision.is_single else ArrayBytes.of(layers, precision)
    return [OtherWork(name, macs, sum(layer.parameters for layer in layers), arrays)]
