"""What each recurrent layer takes of an FPGA: cycles of a step, words of a PE, bytes on the link and in memories."""

from __future__ import annotations

import dataclasses

from ..cluster import PeArray
from ..schedule import Offload
from .devices import Pair
from .messages import streams_of
from .steps import VALUE_BYTES, StepCycles, pe_words, step_cycles, unheld_bytes
from .tasks import Phase
from .work import RecurrentWork, Workload


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
    forward, backward = (step_cycles(work, array, backward=each) for each in (False, True))
    steps = VALUE_BYTES * work.directions * batch * work.steps
    weights = work.recurrent_weights + (work.input_weights if inputs_too else 0)
    gates = work.gates * work.cells
    streams = [
        each for direction in range(work.directions) for each in streams_of(work, direction, inputs_too=inputs_too)
    ]

    def travelled(phase: Phase, *, to_fpga: bool) -> int:
        found = [each for each in streams if each.phase is phase and each.to_fpga is to_fpga]
        return VALUE_BYTES * batch * work.steps * sum(each.values for each in found if not each.holds_weights)

    return LayerNeeds(
        work,
        forward,
        backward,
        pe_words(work, array, inputs_too=inputs_too),
        unheld_bytes(work, array, inputs_too=inputs_too),
        VALUE_BYTES * work.directions * weights,
        VALUE_BYTES * work.directions * work.biases,
        travelled(Phase.FORWARD, to_fpga=True),
        travelled(Phase.FORWARD, to_fpga=False),
        travelled(Phase.BACKWARD, to_fpga=True),
        travelled(Phase.BACKWARD, to_fpga=False),
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
