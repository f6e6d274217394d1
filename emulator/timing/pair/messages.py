"""What travels between the two devices of a pair, for one direction of a recurrent layer.

Weights go to the FPGA once a mini-batch, for FW and anew for BW; values travel for each time step of each sample. Both
the timeline's transfers and the messages of training are these.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

from ...network import Network
from .work import Cell, Part, Phase, RecurrentWork, work_of


class Content(enum.Enum):
    """What a message holds."""

    INPUT_WEIGHTS = "W"
    WEIGHTS = "R, projection and biases"
    INPUTS = "inputs"
    SUMS = "sums over inputs"
    OUTPUTS = "outputs"
    TURNED_WEIGHTS = "R and projection, for BW"
    TURNED_INPUT_WEIGHTS = "W, for BW"
    OUTPUT_ERRORS = "errors of outputs"
    DELTAS = "errors of gates' sums"
    RESET = "what a GRU's gradient of R also needs"
    CELLS = "inputs of the projection"
    PROJECTED_ERRORS = "errors of the projection's outputs"
    OTHER_INPUT_ERRORS = "errors of inputs from other layers"
    INPUT_ERRORS = "errors of inputs"


class PairKey(NamedTuple):
    """A stream between the devices: of a layer, by its number in the network, and of one of its directions."""

    layer: int
    direction: int
    content: Content


@dataclasses.dataclass(frozen=True)
class PairStream:
    """A stream of one direction of a layer: `values` in each time step of a sample; of weights, in a mini-batch.

    `part` is the task that it goes with: I-MVM or steps on the FPGA, or the transfer of weights.
    """

    content: Content
    phase: Phase
    part: Part
    values: int
    to_fpga: bool = True

    @property
    def holds_weights(self) -> bool:
        """Whether it carries weights."""
        return self.part is Part.WEIGHTS


def streams_of(work: RecurrentWork, direction: int, *, inputs_too: bool) -> list[PairStream]:
    """Return the streams of one direction of a layer; with `inputs_too`, I-MVM is the FPGA's."""
    return _forward(work, inputs_too) + _backward(work, direction, inputs_too)


def pair_streams(network: Network, *, inputs_too: bool) -> dict[PairKey, PairStream]:
    """Return all streams between the devices that train a network; with `inputs_too`, I-MVM is the FPGA's."""
    return {
        PairKey(layer.index, direction, stream.content): stream
        for layer in network.layers
        if layer.operation.recurs
        for direction in range(work_of(layer).directions)
        for stream in streams_of(work_of(layer), direction, inputs_too=inputs_too)
    }


def values_of(work: RecurrentWork, direction: int, phase: Phase, part: Part, *, inputs_too: bool) -> tuple[int, int]:
    """Return the values of a time step that go to the FPGA, and those that leave it, during one of its tasks."""
    streams = streams_of(work, direction, inputs_too=inputs_too)
    of_task = [stream for stream in streams if stream.phase is phase and stream.part is part]
    to_fpga, to_gpu = (sum(stream.values for stream in of_task if stream.to_fpga is way) for way in (True, False))
    return to_fpga, to_gpu


def _forward(work: RecurrentWork, inputs_too: bool) -> list[PairStream]:
    weights = PairStream(Content.WEIGHTS, Phase.FORWARD, Part.WEIGHTS, work.recurrent_weights + work.biases)
    outputs = PairStream(Content.OUTPUTS, Phase.FORWARD, Part.STEPS, work.state, to_fpga=False)
    if inputs_too:
        return [
            PairStream(Content.INPUT_WEIGHTS, Phase.FORWARD, Part.WEIGHTS, work.input_weights),
            PairStream(Content.INPUTS, Phase.FORWARD, Part.INPUTS, work.inputs),
            weights,
            outputs,
        ]
    return [weights, PairStream(Content.SUMS, Phase.FORWARD, Part.STEPS, work.gates * work.cells), outputs]


def _backward(work: RecurrentWork, direction: int, inputs_too: bool) -> list[PairStream]:
    streams = [
        PairStream(Content.TURNED_WEIGHTS, Phase.BACKWARD, Part.WEIGHTS, work.recurrent_weights),
        PairStream(Content.OUTPUT_ERRORS, Phase.BACKWARD, Part.STEPS, work.state),
        *(
            PairStream(content, Phase.BACKWARD, Part.STEPS, values, to_fpga=False)
            for content, values in _for_gradients(work).items()
        ),
    ]
    if inputs_too:
        streams.append(PairStream(Content.TURNED_INPUT_WEIGHTS, Phase.BACKWARD, Part.WEIGHTS, work.input_weights))
        if work.reads_again and direction == work.directions - 1:  # the first whose errors of inputs are summed
            streams.append(PairStream(Content.OTHER_INPUT_ERRORS, Phase.BACKWARD, Part.INPUTS, work.inputs))
        streams.append(PairStream(Content.INPUT_ERRORS, Phase.BACKWARD, Part.INPUTS, work.inputs, to_fpga=False))
    return streams


def _for_gradients(work: RecurrentWork) -> dict[Content, int]:
    """Return what GC needs of each time step, beside inputs and outputs, which the GPU has."""
    values = {Content.DELTAS: work.gates * work.cells}
    if work.cell is Cell.GRU:
        values[Content.RESET] = work.cells
    if work.projection is not None:
        values |= {Content.CELLS: work.cells, Content.PROJECTED_ERRORS: work.projection}
    return values
