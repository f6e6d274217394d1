"""What each recurrent layer takes of an FPGA: cycles of a step, words of a PE, bytes on the link and in memories."""

from __future__ import annotations

import dataclasses

from ..cluster import PeArray
from ..schedule import Offload
from .devices import Pair
from .steps import VALUE_BYTES, StepCycles, pe_words, step_cycles, unheld_bytes
from .work import RecurrentWork, Workload


@dataclasses.dataclass(frozen=True)
class LayerNeeds:
    """A recurrent layer on the FPGA, for a mini-batch; bytes are those of all directions.

    `words` are weights of a PE where all have as many. `weight_bytes` go to the FPGA in FW, and as many, transposed, in
    BW. Of values, `in_bytes` go to the FPGA and `out_bytes` leave it in FW; in BW it is the other way round.
    `kept_bytes` are gates, cells and states that the FPGA keeps off chip from FW to BW.
    """

    work: RecurrentWork
    forward: StepCycles
    backward: StepCycles
    words: int
    missing_bytes: int
    weight_bytes: int
    in_bytes: int
    out_bytes: int
    kept_bytes: int


def layer_needs(work: RecurrentWork, array: PeArray, batch: int, *, inputs_too: bool = False) -> LayerNeeds:
    """Return what a layer takes of an FPGA.

    Raises:
        InputError: its cells have more gates than there are MVM units.
    """
    forward, backward = (step_cycles(work, array, backward=each) for each in (False, True))
    steps = VALUE_BYTES * work.directions * batch * work.steps
    weights = work.recurrent_weights + (work.input_weights if inputs_too else 0)
    gates = work.gates * work.cells
    return LayerNeeds(
        work,
        forward,
        backward,
        pe_words(work, array, inputs_too=inputs_too),
        unheld_bytes(work, array, inputs_too=inputs_too),
        VALUE_BYTES * work.directions * weights,
        steps * (work.inputs if inputs_too else gates),
        steps * work.state,
        steps * (gates + work.cells + work.state),
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
