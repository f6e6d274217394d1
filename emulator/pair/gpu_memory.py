"""The memory that a GPU needs for a mini-batch: weights, and the values of recurrent layers."""

from __future__ import annotations

from ..common import InputError
from .devices import Pair
from .steps import VALUE_BYTES
from .work import RecurrentWork, Workload

COPIES = 2
"""Weight and gradient of each parameter; an optimiser's states come in addition."""


def gpu_bytes(workload: Workload, pair: Pair) -> int:
    """Return the bytes of all parameters, and of recurrent layers' values; those of other layers are not counted.

    Of each step there are inputs, outputs, sums of I-MVM and errors of the gates. Without an FPGA, which keeps them
    off chip, there are the gates' values and cells, too.
    """
    values = 0
    for work in workload.recurrent:
        gates = work.gates * work.cells
        kept = 0 if pair.fpga else gates + work.cells
        values += work.steps * (work.inputs + work.directions * (work.state + 2 * gates + kept))
    parameters = sum(
        part.parameters * (part.directions if isinstance(part, RecurrentWork) else 1) for part in workload.parts
    )
    return VALUE_BYTES * ((COPIES + pair.states) * parameters + workload.batch * values)


def check_gpu_memory(workload: Workload, pair: Pair) -> None:
    """Check that the GPU's memory holds a mini-batch.

    Raises:
        InputError: it does not; the message has the bytes that are missing.
    """
    has, needed = pair.gpu.off_chip_memory_bytes, gpu_bytes(workload, pair)
    if has is not None and needed > has:
        raise InputError(
            f"`batch` = {workload.batch}: takes {needed:,} bytes of {pair.gpu.name}'s memory, {needed - has:,} more"
            " than it has; should be smaller"
        )
