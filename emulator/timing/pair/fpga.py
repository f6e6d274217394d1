"""What recurrent layers take of an FPGA's MVM units: cycles of products and steps, words of a PE, bytes on the link.

All PEs of a unit are fed the same vector of N values, one a cycle, and each sums one of H outputs (FARNN, section
5.1.3). M PEs take H outputs in rounds of N cycles. Where r outputs remain for the last round, floor(M/r) PEs share each
of them, and each PE is fed its part of the vector alone. Behind a single full round no more than two PEs share an
output: so has the paper's only example, 1,024 outputs on 768 PEs, which take 1,536 cycles, where floor(768/256) = 3 PEs
would take 1,366.

In FW each gate has its unit, which makes H outputs from the state. In BW each unit takes the errors of its gate through
the transpose, and the sum of the units' results is the error of the state. A projection takes all units: each takes
its part of the inputs, and their results are summed as in BW. The activations of the last values of a step end before
the next step begins.

What travels between the two devices, for one direction of a recurrent layer: weights go to the FPGA once a mini-batch,
for FW and anew for BW; values travel for each time step of each sample. Both the timeline's transfers and the messages
of training are these.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....kernels.number import FP32
from ...cluster import PeArray
from ...common import InputError
from ...network import Network
from ...schedule import Offload
from .devices import Pair
from .work import Cell, Part, Phase, RecurrentWork, Workload, work_of


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


def mvm_cycles(outputs: int, inputs: int, pes: int) -> int:
    """Return the cycles of a product, with outputs of the last round split over idle PEs.

    A PE uses each of its weights once, so this is also the number of weights in the fullest PE.
    """
    rounds, rest = divmod(outputs, pes)
    if not rest:
        return inputs * rounds
    sharing = pes // rest
    return inputs * rounds + -(-inputs // (min(sharing, 2) if rounds == 1 else sharing))


def unsplit_cycles(outputs: int, inputs: int, pes: int) -> int:
    """Return the cycles of a product in which each output is summed by one PE."""
    return inputs * -(-outputs // pes)


@dataclasses.dataclass(frozen=True)
class StepCycles:
    """Cycles of a time step: R-MVM, the same without split outputs, the projection, activations."""

    recurrent: int
    unsplit: int
    projection: int
    activation: int

    @property
    def total(self) -> int:
        """Cycles of a step, whose parts wait for one another."""
        return self.recurrent + self.projection + self.activation

    @property
    def pe_words(self) -> int:
        """Weights in the fullest PE."""
        return self.recurrent + self.projection


def step_cycles(work: RecurrentWork, array: PeArray, *, backward: bool) -> StepCycles:
    """Return the cycles of a time step in FW or BW.

    Raises:
        InputError: cells have more gates than there are MVM units.
    """
    if work.gates > array.units:
        raise InputError(
            f"`mvm_units` = {array.units}: the {work.cell.value} layer {work.name} has {work.gates} gates, each of"
            f" which needs a unit; should be {work.gates} or more"
        )
    outputs, inputs = (work.state, work.cells) if backward else (work.cells, work.state)
    projected = 0
    if work.projection is not None:
        made, taken = (work.cells, work.projection) if backward else (work.projection, work.cells)
        projected = mvm_cycles(made, -(-taken // array.units), array.pes)
    cycles = mvm_cycles(outputs, inputs, array.pes)
    return StepCycles(cycles, unsplit_cycles(outputs, inputs, array.pes), projected, array.activation_cycles)


def input_cycles(work: RecurrentWork, array: PeArray, *, backward: bool) -> int:
    """Return the cycles of I-MVM for a time step, which waits for no other step."""
    outputs, inputs = (work.inputs, work.cells) if backward else (work.cells, work.inputs)
    return mvm_cycles(outputs, inputs, array.pes)


def pe_words(work: RecurrentWork, array: PeArray, *, inputs_too: bool = False) -> int:
    """Return the weights of a PE where all PEs of a unit have as many; with I-MVM on the FPGA, those of W if more.

    The fullest PE may have more (`StepCycles.pe_words`). What it has no room for is taken to lie in memories of other
    PEs, two of which share one in any case (section 6.1).
    """
    in_unit = work.gate_weights // work.gates + -(-work.projection_weights // array.units)
    if inputs_too:
        in_unit = max(in_unit, work.input_weights // work.gates)
    return -(-in_unit // array.pes)


def unheld_bytes(work: RecurrentWork, array: PeArray, *, inputs_too: bool = False) -> int:
    """Return the bytes that the PEs' memories lack for the layer's weights; 0 if they are large enough."""
    lacking = max(0, pe_words(work, array, inputs_too=inputs_too) - array.words)
    return FP32.bytes_of(lacking * array.pes * work.gates)


@dataclasses.dataclass(frozen=True)
class LayerNeeds:
    """A recurrent layer on the FPGA, for a mini-batch; bytes are those of all directions.

    `words` are weights of a PE where all have as many. `weight_bytes` go to the FPGA in FW, with `bias_bytes`, and as
    many, transposed, in BW. Of values, `in_bytes` go to the FPGA and `out_bytes` leave it in FW; in BW,
    `errors_in_bytes` and `errors_out_bytes`. `kept_bytes` are gates, cells and states that the FPGA keeps off chip from
    FW to BW.
    """

    work: RecurrentWork
    forward: StepCycles
    backward: StepCycles
    words: int
    missing_bytes: int
    weight_bytes: int
    bias_bytes: int
    in_bytes: int
    out_bytes: int
    errors_in_bytes: int
    errors_out_bytes: int
    kept_bytes: int


def layer_needs(work: RecurrentWork, array: PeArray, batch: int, *, inputs_too: bool = False) -> LayerNeeds:
    """Return what a layer takes of an FPGA.

    Raises:
        InputError: its cells have more gates than there are MVM units.
    """
    forward, backward = (step_cycles(work, array, backward=is_backward) for is_backward in (False, True))
    steps = work.directions * batch * work.steps
    weights = work.recurrent_weights + (work.input_weights if inputs_too else 0)
    gates = work.gates * work.cells
    streams = [
        stream for direction in range(work.directions) for stream in streams_of(work, direction, inputs_too=inputs_too)
    ]

    def travelled(phase: Phase, *, to_fpga: bool) -> int:
        travelling = [stream for stream in streams if stream.phase is phase and stream.to_fpga is to_fpga]
        values = sum(stream.values for stream in travelling if not stream.holds_weights)
        return FP32.bytes_of(batch * work.steps * values)

    return LayerNeeds(
        work,
        forward,
        backward,
        pe_words(work, array, inputs_too=inputs_too),
        unheld_bytes(work, array, inputs_too=inputs_too),
        FP32.bytes_of(work.directions * weights),
        FP32.bytes_of(work.directions * work.biases),
        travelled(Phase.FORWARD, to_fpga=True),
        travelled(Phase.FORWARD, to_fpga=False),
        travelled(Phase.BACKWARD, to_fpga=True),
        travelled(Phase.BACKWARD, to_fpga=False),
        FP32.bytes_of(steps * (gates + work.cells + work.state)),
    )


def all_needs(workload: Workload, pair: Pair, offload: Offload) -> list[LayerNeeds]:
    """Return what each recurrent layer takes of a pair's FPGA; nothing of a GPU alone.

    Raises:
        InputError: cells have more gates than there are MVM units.
    """
    if pair.fpga is None:
        return []
    too = offload is Offload.ALL_STEPS
    return [layer_needs(work, pair.array, workload.batch, inputs_too=too) for work in workload.recurrent]


def needs_as_json(needs: Sequence[LayerNeeds], pair: Pair) -> dict[str, Any]:
    """Return the FPGA's MVM units, and what each layer takes of them; empty for a GPU alone."""
    if pair.fpga is None:
        return {}
    array = pair.array
    return {
        "pes": array.pes,
        "mvm_units": array.units,
        "pe_words": array.words,
        "clock_period_ps": pair.cycle_ps,
        "layers": [
            {
                "layer": need.work.name,
                "cell": need.work.cell.value,
                "inputs": need.work.inputs,
                "cells": need.work.cells,
                "projection": need.work.projection,
                "directions": need.work.directions,
                "steps": need.work.steps,
                "forward": _cycles_as_json(need.forward),
                "backward": _cycles_as_json(need.backward),
                "words_of_a_pe": need.words,
                "missing_bytes": need.missing_bytes,
                "weight_bytes": need.weight_bytes,
                "bias_bytes": need.bias_bytes,
                "values_in_bytes": need.in_bytes,
                "values_out_bytes": need.out_bytes,
                "errors_in_bytes": need.errors_in_bytes,
                "errors_out_bytes": need.errors_out_bytes,
                "kept_bytes": need.kept_bytes,
            }
            for need in needs
        ],
    }


def _cycles_as_json(cycles: StepCycles) -> dict[str, int]:
    names = {"recurrent": "cycles", "unsplit": "unsplit_cycles"}
    values = {names.get(key, f"{key}_cycles"): value for key, value in dataclasses.asdict(cycles).items()}
    return {**values, "step_cycles": cycles.total}
