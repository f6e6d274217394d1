"""Time steps of a recurrent layer on an FPGA's MVM units: cycles, and the memory of PEs.

In FW each gate has its unit, which makes H outputs from the state. In BW each unit takes the errors of its gate through
the transpose, and the sum of the units' results is the error of the state. A projection takes all units: each takes
its part of the inputs, and their results are summed as in BW. The activations of the last values of a step end before
the next step begins.
"""

from __future__ import annotations

import dataclasses

from ..cluster import PeArray
from ..common import InputError
from .pe_chain import mvm_cycles, unsplit_cycles
from .work import RecurrentWork

VALUE_BYTES = 4
"""Bytes of a value: single precision (section 6.3)."""


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
    return VALUE_BYTES * lacking * array.pes * work.gates
