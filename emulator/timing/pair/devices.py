"""Devices of a pair: a GPU with its times and its memory, an FPGA built of chains of PEs, and the link between them.

A GPU does products over all time steps at once, and dependent steps as cuDNN does them; some of it memory binds.
"""

from __future__ import annotations

import dataclasses
import math

from ....kernels.number import FP32
from ...cluster import Cluster, Fpga, Gpu, Link, PeArray
from ...common import InputError
from ...schedule import ScheduleKind
from .work import Cell, RecurrentWork, Workload

STATES = 1
"""Arrays that SGD keeps for each parameter: its velocity; Adam keeps two."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A GPU and an FPGA; of a GPU alone, the FPGA is None. The optimiser keeps `states` arrays for each parameter."""

    gpu: Gpu
    link: Link
    fpga: Fpga | None = None
    states: int = STATES

    @property
    def array(self) -> PeArray:
        """The FPGA's MVM units."""
        assert self.fpga is not None and self.fpga.pe_array is not None
        return self.fpga.pe_array

    @property
    def cycle_ps(self) -> int:
        """Clock period of the FPGA in ps."""
        assert self.fpga is not None
        return self.fpga.period_ps

    def values_ps(self, values: int) -> int:
        """Return the time in ps that values take on the link, without its latency."""
        return self.link.transfer_ps(FP32.bytes_of(values))

    def load_ps(self, weights: int) -> int:
        """Return the time in ps in which weights reach the PEs: by the link, or a weight a cycle into each chain."""
        return max(self.values_ps(weights), -(-weights // self.array.chains) * self.cycle_ps) + self.link.latency_ps


def pair_of(cluster: Cluster, kind: ScheduleKind, devices: int | None = None) -> Pair:
    """Return the devices of a cluster that a schedule of pairs takes: a GPU, and for most of them an FPGA behind it.

    Raises:
        InputError: the cluster has other boards, or `devices` is another number.
    """
    assert kind.offload is not None
    wanted = kind.offload.devices
    if devices not in (None, wanted):
        those = "a GPU and an FPGA" if wanted > 1 else "a GPU alone"
        raise InputError(f"`devices` = {devices}: `schedule` = {kind.name!r} takes {those}; should be {wanted}")
    gpu, fpga = cluster.board(0), cluster.board(1)
    if not isinstance(gpu, Gpu):
        raise InputError(
            f"`cluster` = {cluster.name!r}: device 0 is a {gpu.name}, where `schedule` = {kind.name!r} needs a GPU;"
            " should have a board with `kind` = 'gpu' first, as 'farnn-9p'"
        )
    if wanted == 1:
        return Pair(gpu, cluster.link_at(0))
    if not isinstance(fpga, Fpga) or fpga.pe_array is None:
        said = "a GPU, too" if isinstance(fpga, Gpu) else "an FPGA without `pe_chains`"
        raise InputError(
            f"`cluster` = {cluster.name!r}: device 1, {fpga.name}, is {said}, where `schedule` = {kind.name!r} needs"
            " an FPGA with chains of PEs; should have such a board second, as 'farnn-9p'"
        )
    return Pair(gpu, cluster.link_at(0), fpga)


FLOPS_PER_MAC = 2


def product_ps(gpu: Gpu, macs: int) -> int:
    """Return the time in ps of a large matrix product."""
    return math.ceil(FLOPS_PER_MAC * macs / (gpu.peak_tflops * gpu.gemm_efficiency))


def memory_ps(gpu: Gpu, moved_bytes: int) -> int:
    """Return the time in ps to move bytes from or to the GPU's memory."""
    return math.ceil(1000 * moved_bytes / gpu.memory_gbytes_per_s)


def transposition_ps(gpu: Gpu, weights: int) -> int:
    """Return the time in ps to read weights and write their transpose."""
    return memory_ps(gpu, 2 * FP32.bytes_of(weights))


def update_ps(gpu: Gpu, parameters: int, states: int = STATES) -> int:
    """Return the time in ps of WU: weight, gradient and the optimiser's states in, weight and states out."""
    return memory_ps(gpu, (3 + 2 * states) * FP32.bytes_of(parameters))


def standard_step_ps(gpu: Gpu, work: RecurrentWork, batch: int) -> int:
    """Return the time in ps of a time step in cuDNN's standard form, in FW or BW.

    R-MVM is a phase that waits for the step before it, and a projection is another. Each takes the least time of such
    a phase, unless its weights take longer from memory, or its multiply-accumulates to compute.
    """
    phases = [weights for weights in (work.gate_weights, work.projection_weights) if weights]
    return sum(
        max(gpu.recurrent_ps, memory_ps(gpu, FP32.bytes_of(weights)), product_ps(gpu, batch * weights))
        for weights in phases
    )


def persistent_step_ps(gpu: Gpu, work: RecurrentWork, batch: int) -> int:
    """Return the time in ps of a time step in cuDNN's persistent form: each sample reads the recurrent weights."""
    lstm = work.cell is Cell.LSTM
    gbytes_per_s = gpu.persistent_gbytes_per_s if lstm else gpu.persistent_gru_gbytes_per_s
    return math.ceil(1000 * batch * FP32.bytes_of(work.recurrent_weights) / gbytes_per_s)


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
    return FP32.bytes_of((COPIES + pair.states) * parameters + workload.batch * values)


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
