"""Devices of a pair, and what recurrent layers take of them: a GPU with its times and its memory,
an FPGA built of chains of PEs, and the link between them.

The GPU does products over all time steps at once, and dependent steps as cuDNN does them; some of
it memory binds.

Of the FPGA's MVM units all PEs are fed the same vector of N values, one a cycle, and each sums one
of H outputs (FARNN, section 5.1.3). M PEs take H outputs in rounds of N cycles. Where r outputs
remain for the last round, floor(M/r) PEs share each of them, and each PE is fed its part of the
vector alone. Behind a single full round no more than two PEs share an output: so has the paper's
only example, 1,024 outputs on 768 PEs, which take 1,536 cycles, where floor(768/256) = 3 PEs would
take 1,366.

In FW each gate has its unit, which makes H outputs from the state. In BW each unit takes the errors
of its gate through the transpose, and the sum of the units' results is the error of the state. A
projection takes all units: each takes its part of the inputs, and their results are summed as in
BW. The activations of the last values of a step end before the next step begins.

What travels between the two devices, for one direction of a recurrent layer: weights go to the FPGA
once a mini-batch, for FW and anew for BW; values travel for each time step of each sample. Both the
timeline's transfers and the messages of training are these.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ....kernels.number import FP32, Lines
from ...cluster import Cluster, Fpga, Gpu, Link, PeArray
from ...common import InputError
from ...network import Network
from ...number import Precision
from ...schedule import Offload, ScheduleKind
from .formats import ArrayBytes
from .work import Cell, Part, Phase, RecurrentWork, Workload, work_of

STATES = 1
"""Arrays that SGD keeps for each parameter: its velocity; Adam keeps two."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A GPU and an FPGA; of a GPU alone, the FPGA is None. The optimiser keeps `states` arrays for
    each parameter.
    """

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
        """Return the time in ps that values in fp32 take on the link, without its latency."""
        return self.bytes_ps(FP32.bytes_of(values))

    def bytes_ps(self, size: int) -> int:
        """Return the time in ps that bytes take on the link, without its latency."""
        return self.link.transfer_ps(size)

    def load_ps(self, weights: int, size: int | None = None) -> int:
        """Return the time in ps in which weights reach the PEs: by the link, `size` bytes or those
        of fp32, or a weight a cycle into each chain.
        """
        sent_ps = self.values_ps(weights) if size is None else self.bytes_ps(size)
        loaded_ps = -(-weights // self.array.chains) * self.cycle_ps
        return max(sent_ps, loaded_ps) + self.link.latency_ps


def pair_of(cluster: Cluster, kind: ScheduleKind, devices: int | None = None) -> Pair:
    """Return the devices of a cluster that a schedule of pairs takes: a GPU, and for most of them
    an FPGA behind it.

    Raises:
        InputError: the cluster has other boards, or `devices` is another number.
    """
    assert kind.offload is not None
    wanted = kind.offload.devices
    if devices not in (None, wanted):
        those = "a GPU and an FPGA" if wanted > 1 else "a GPU alone"
        raise InputError(
            f"`devices` = {devices}: `schedule` = {kind.name!r} takes {those}; should be {wanted}"
        )
    gpu, fpga = cluster.board(0), cluster.board(1)
    if not isinstance(gpu, Gpu):
        raise InputError(
            f"`cluster` = {cluster.name!r}: device 0 is a {gpu.name}, where `schedule` ="
            f" {kind.name!r} needs a GPU; should have a board with `kind` = 'gpu' first, as"
            " 'farnn-9p'"
        )
    if wanted == 1:
        return Pair(gpu, cluster.link_at(0))
    if not isinstance(fpga, Fpga) or fpga.pe_array is None:
        said = "a GPU, too" if isinstance(fpga, Gpu) else "an FPGA without `pe_chains`"
        raise InputError(
            f"`cluster` = {cluster.name!r}: device 1, {fpga.name}, is {said}, where `schedule` ="
            f" {kind.name!r} needs an FPGA with chains of PEs; should have such a board second, as"
            " 'farnn-9p'"
        )
    return Pair(gpu, cluster.link_at(0), fpga)


FLOPS_PER_MAC = 2


def product_ps(gpu: Gpu, macs: int) -> int:
    """Return the time in ps of a large matrix product."""
    # An operation at 1 TFLOP/s takes 1 ps.
    return math.ceil(FLOPS_PER_MAC * macs / (gpu.peak_tflops * gpu.gemm_efficiency))


def memory_ps(gpu: Gpu, moved_bytes: int) -> int:
    """Return the time in ps to move bytes from or to the GPU's memory."""
    # A byte at 1 GB/s takes 1 ns, 1,000 ps.
    return math.ceil(1000 * moved_bytes / gpu.memory_gbytes_per_s)


def transposition_ps(gpu: Gpu, size: int) -> int:
    """Return the time in ps to read weights of some bytes, and write their transpose."""
    return memory_ps(gpu, 2 * size)


def update_ps(gpu: Gpu, arrays: ArrayBytes, states: int = STATES) -> int:
    """Return the time in ps of WU: weight, gradient and the optimiser's states in, weight, copy and
    states out.
    """
    return memory_ps(gpu, arrays.updated(states))


def standard_step_ps(gpu: Gpu, work: RecurrentWork, batch: int) -> int:
    """Return the time in ps of a time step in cuDNN's standard form, in FW or BW.

    R-MVM is a phase that waits for the step before it, and a projection is another. Each takes the
    least time of such a phase, unless its weights take longer from memory, or its
    multiply-accumulates to compute.
    """
    of_projection = projection_bytes(work, backward=False)
    phases = [(work.gate_weights, state_bytes(work, backward=False))]
    phases += [(work.projection_weights, of_projection)] if of_projection else []
    return sum(
        max(
            gpu.recurrent_ps,
            memory_ps(gpu, size),
            product_ps(gpu, batch * weights),
        )
        for weights, size in phases
    )


def persistent_step_ps(gpu: Gpu, work: RecurrentWork, batch: int) -> int:
    """Return the time in ps of a time step in cuDNN's persistent form: each sample reads the
    recurrent weights.
    """
    lstm = work.cell is Cell.LSTM
    gbytes_per_s = gpu.persistent_gbytes_per_s if lstm else gpu.persistent_gru_gbytes_per_s
    return math.ceil(1000 * batch * recurrent_bytes(work, backward=False) / gbytes_per_s)


def gpu_bytes(workload: Workload, pair: Pair) -> int:
    """Return the bytes of all parameters, and of recurrent layers' values; those of other layers
    are not counted.

    Of each step there are inputs, outputs, sums of I-MVM and errors of the gates. Without an FPGA,
    which keeps them off chip, there are the gates' values and cells, too.
    """
    values = 0
    for work in workload.recurrent:
        gates = Lines(work.cells, work.gates)
        kept = 0 if pair.fpga else FP32.bytes_of(gates.values + work.cells)
        form = work.formats
        of_direction = Lines(work.state, 1).bytes_in(form.made) + gates.bytes_in(form.errors)
        of_direction += FP32.bytes_of(gates.values) + kept
        inputs = Lines(work.inputs, 1).bytes_in(form.inputs)
        values += work.steps * (inputs + work.directions * of_direction)
    parameters = sum(part.array_bytes.kept(pair.states) for part in workload.parts)
    return parameters + workload.batch * values


def check_gpu_memory(workload: Workload, pair: Pair) -> None:
    """Check that the GPU's memory holds a mini-batch.

    Raises:
        InputError: it does not; the message has the bytes that are missing.
    """
    has, needed = pair.gpu.off_chip_memory_bytes, gpu_bytes(workload, pair)
    if has is not None and needed > has:
        raise InputError(
            f"`batch` = {workload.batch}: takes {needed:,} bytes of {pair.gpu.name}'s memory,"
            f" {needed - has:,} more than it has; should be smaller"
        )


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
    """A stream between the devices: of a layer, by its number in the network, and of one of its
    directions.
    """

    layer: int
    direction: int
    content: Content


@dataclasses.dataclass(frozen=True)
class PairStream:
    """A stream of one direction of a layer: `values` in each time step of a sample; of weights, in
    a mini-batch.

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
    """Return all streams between the devices that train a network; with `inputs_too`, I-MVM is the
    FPGA's.
    """
    return {
        PairKey(layer.index, direction, stream.content): stream
        for layer in network.layers
        if layer.operation.recurs
        for direction in range(work_of(layer).directions)
        for stream in streams_of(work_of(layer), direction, inputs_too=inputs_too)
    }


def state_bytes(work: RecurrentWork, *, backward: bool) -> int:
    """Return the bytes of the recurrent weights R."""
    return work.formats.rows_bytes(work.cells, work.state, work.gates, backward=backward)


def projection_bytes(work: RecurrentWork, *, backward: bool) -> int:
    """Return the bytes of the projection's weights; 0 without one."""
    if work.projection is None:
        return 0
    return work.formats.rows_bytes(work.projection, work.cells, backward=backward)


def recurrent_bytes(work: RecurrentWork, *, backward: bool) -> int:
    """Return the bytes of the weights that each step needs: R and the projection."""
    return state_bytes(work, backward=backward) + projection_bytes(work, backward=backward)


def input_weight_bytes(work: RecurrentWork, *, backward: bool) -> int:
    """Return the bytes of the weights W."""
    return work.formats.rows_bytes(work.cells, work.inputs, work.gates, backward=backward)


def bytes_of_stream(work: RecurrentWork, content: Content, values: int) -> int:
    """Return the bytes of what a message holds: of a time step of a sample, or of all weights."""
    form, cells = work.formats, work.cells
    if content is Content.WEIGHTS:
        return recurrent_bytes(work, backward=False) + FP32.bytes_of(work.biases)
    if content is Content.TURNED_WEIGHTS:
        return recurrent_bytes(work, backward=True)
    if content in (Content.INPUT_WEIGHTS, Content.TURNED_INPUT_WEIGHTS):
        return input_weight_bytes(work, backward=content is Content.TURNED_INPUT_WEIGHTS)
    numbers = {
        Content.INPUTS: form.inputs,
        Content.SUMS: form.sums,
        Content.OUTPUTS: form.made,
        Content.OUTPUT_ERRORS: form.errors,
        Content.DELTAS: form.errors,
        Content.RESET: form.made if work.resets_before else form.errors,
        Content.CELLS: form.made,
        Content.PROJECTED_ERRORS: form.errors,
        Content.OTHER_INPUT_ERRORS: FP32,
        Content.INPUT_ERRORS: form.sums,
    }
    length = cells if content in (Content.DELTAS, Content.SUMS) else values
    return Lines(length, values // length).bytes_in(numbers[content])


def pair_bytes(network: Network, precision: Precision, *, inputs_too: bool) -> dict[PairKey, int]:
    """Return the bytes of a time step of a sample, or of weights, of each stream."""
    works = {
        layer.index: work_of(layer, precision) for layer in network.layers if layer.operation.recurs
    }
    return {
        key: bytes_of_stream(works[key.layer], key.content, stream.values)
        for key, stream in pair_streams(network, inputs_too=inputs_too).items()
    }


def step_bytes(
    work: RecurrentWork, direction: int, phase: Phase, part: Part, *, inputs_too: bool
) -> tuple[int, int]:
    """Return the bytes of a time step that go to the FPGA, and those that leave it, during one of
    its tasks.
    """
    to_fpga = to_gpu = 0
    for stream in streams_of(work, direction, inputs_too=inputs_too):
        if stream.phase is phase and stream.part is part:
            size = bytes_of_stream(work, stream.content, stream.values)
            to_fpga += size * stream.to_fpga
            to_gpu += size * (not stream.to_fpga)
    return to_fpga, to_gpu


def _forward(work: RecurrentWork, inputs_too: bool) -> list[PairStream]:
    weights = PairStream(
        Content.WEIGHTS, Phase.FORWARD, Part.WEIGHTS, work.recurrent_weights + work.biases
    )
    outputs = PairStream(Content.OUTPUTS, Phase.FORWARD, Part.STEPS, work.state, to_fpga=False)
    if inputs_too:
        return [
            PairStream(Content.INPUT_WEIGHTS, Phase.FORWARD, Part.WEIGHTS, work.input_weights),
            PairStream(Content.INPUTS, Phase.FORWARD, Part.INPUTS, work.inputs),
            weights,
            outputs,
        ]
    return [
        weights,
        PairStream(Content.SUMS, Phase.FORWARD, Part.STEPS, work.gates * work.cells),
        outputs,
    ]


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
        streams.append(
            PairStream(
                Content.TURNED_INPUT_WEIGHTS, Phase.BACKWARD, Part.WEIGHTS, work.input_weights
            )
        )
        if (
            work.reads_again and direction == work.directions - 1
        ):  # the first whose errors of inputs are summed
            streams.append(
                PairStream(Content.OTHER_INPUT_ERRORS, Phase.BACKWARD, Part.INPUTS, work.inputs)
            )
        streams.append(
            PairStream(
                Content.INPUT_ERRORS, Phase.BACKWARD, Part.INPUTS, work.inputs, to_fpga=False
            )
        )
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
            f"`mvm_units` = {array.units}: the {work.cell.value} layer {work.name} has {work.gates}"
            f" gates, each of which needs a unit; should be {work.gates} or more"
        )
    outputs, inputs = (work.state, work.cells) if backward else (work.cells, work.state)
    projected = 0
    if work.projection is not None:
        made, taken = (work.cells, work.projection) if backward else (work.projection, work.cells)
        projected = mvm_cycles(made, -(-taken // array.units), array.pes)
    cycles = mvm_cycles(outputs, inputs, array.pes)
    return StepCycles(
        cycles, unsplit_cycles(outputs, inputs, array.pes), projected, array.activation_cycles
    )


def input_cycles(work: RecurrentWork, array: PeArray, *, backward: bool) -> int:
    """Return the cycles of I-MVM for a time step, which waits for no other step."""
    outputs, inputs = (work.inputs, work.cells) if backward else (work.cells, work.inputs)
    return mvm_cycles(outputs, inputs, array.pes)


def pe_words(work: RecurrentWork, array: PeArray, *, inputs_too: bool = False) -> int:
    """Return the weights of a PE where all PEs of a unit have as many; with I-MVM on the FPGA,
    those of W if more.

    The fullest PE may have more (`StepCycles.pe_words`). What it has no room for is taken to lie in
    memories of other PEs, two of which share one in any case (section 6.1).
    """
    in_unit = work.gate_weights // work.gates + -(-work.projection_weights // array.units)
    words = in_unit * _words_of_a_weight(work.recurrent_weights, recurrent_bytes, work)
    if inputs_too:
        of_inputs = work.input_weights // work.gates
        each = _words_of_a_weight(work.input_weights, input_weight_bytes, work)
        words = max(words, of_inputs * each)
    return math.ceil(words / array.pes)


def _words_of_a_weight(weights: int, size: Callable[..., int], work: RecurrentWork) -> Fraction:
    """Return the words of 32 bits that a weight takes, with its part of scales."""
    largest = max(size(work, backward=backward) for backward in (False, True))
    return Fraction(largest, FP32.bytes_of(weights))


def unheld_bytes(work: RecurrentWork, array: PeArray, *, inputs_too: bool = False) -> int:
    """Return the bytes that the PEs' memories lack for the layer's weights; 0 if they are large
    enough.
    """
    lacking = max(0, pe_words(work, array, inputs_too=inputs_too) - array.words)
    return FP32.bytes_of(lacking * array.pes * work.gates)


@dataclasses.dataclass(frozen=True)
class LayerNeeds:
    """A recurrent layer on the FPGA, for a mini-batch; bytes are those of all directions.

    `words_of_a_pe` are weights of one where all have as many. `weight_bytes` go to the FPGA in FW,
    with `bias_bytes`, and as many, transposed, in BW. Of values, `values_in_bytes` go to the FPGA
    and `values_out_bytes` leave it in FW; in BW, `errors_in_bytes` and `errors_out_bytes`.
    `kept_bytes` are gates, cells and states that the FPGA keeps off chip from FW to BW.
    """

    work: RecurrentWork
    forward: StepCycles
    backward: StepCycles
    words_of_a_pe: int
    missing_bytes: int
    weight_bytes: int
    bias_bytes: int
    values_in_bytes: int
    values_out_bytes: int
    errors_in_bytes: int
    errors_out_bytes: int
    kept_bytes: int


def layer_needs(
    work: RecurrentWork, array: PeArray, batch: int, *, inputs_too: bool = False
) -> LayerNeeds:
    """Return what a layer takes of an FPGA.

    Raises:
        InputError: its cells have more gates than there are MVM units.
    """
    forward, backward = (
        step_cycles(work, array, backward=is_backward) for is_backward in (False, True)
    )
    steps = work.directions * batch * work.steps
    weights = recurrent_bytes(work, backward=False)
    weights += input_weight_bytes(work, backward=False) if inputs_too else 0
    gates = work.gates * work.cells
    streams = [
        stream
        for direction in range(work.directions)
        for stream in streams_of(work, direction, inputs_too=inputs_too)
    ]

    def travelled(phase: Phase, *, to_fpga: bool) -> int:
        travelling = [
            stream for stream in streams if stream.phase is phase and stream.to_fpga is to_fpga
        ]
        sizes = (
            bytes_of_stream(work, stream.content, stream.values)
            for stream in travelling
            if not stream.holds_weights
        )
        return batch * work.steps * sum(sizes)

    return LayerNeeds(
        work,
        forward,
        backward,
        pe_words(work, array, inputs_too=inputs_too),
        unheld_bytes(work, array, inputs_too=inputs_too),
        work.directions * weights,
        FP32.bytes_of(work.directions * work.biases),
        travelled(Phase.FORWARD, to_fpga=True),
        travelled(Phase.FORWARD, to_fpga=False),
        travelled(Phase.BACKWARD, to_fpga=True),
        travelled(Phase.BACKWARD, to_fpga=False),
        steps
        * (FP32.bytes_of(gates + work.cells) + Lines(work.state, 1).bytes_in(work.formats.made)),
    )


def all_needs(workload: Workload, pair: Pair, offload: Offload) -> list[LayerNeeds]:
    """Return what each recurrent layer takes of a pair's FPGA; nothing of a GPU alone.

    Raises:
        InputError: cells have more gates than there are MVM units.
    """
    if pair.fpga is None:
        return []
    too = offload is Offload.ALL_STEPS
    return [
        layer_needs(work, pair.array, workload.batch, inputs_too=too) for work in workload.recurrent
    ]


def needs_as_json(needs: Sequence[LayerNeeds], pair: Pair) -> dict[str, Any]:
    """Return the FPGA's MVM units, and what each layer takes of them; empty for a GPU alone."""
    if pair.fpga is None:
        return {}
    array = pair.array
    units = {
        "pes": array.pes,
        "mvm_units": array.units,
        "pe_words": array.words,
        "clock_period_ps": pair.cycle_ps,
    }
    return {**units, "layers": [_needs_as_json(need) for need in needs]}


def _needs_as_json(need: LayerNeeds) -> dict[str, Any]:
    work, own = need.work, dataclasses.asdict(need)
    del own["work"]
    of_work = {
        key: getattr(work, key) for key in ("inputs", "cells", "projection", "directions", "steps")
    }
    cycles = {"forward": _cycles_as_json(need.forward), "backward": _cycles_as_json(need.backward)}
    return {"layer": work.name, "cell": work.cell.value, **of_work, **own, **cycles}


def _cycles_as_json(cycles: StepCycles) -> dict[str, int]:
    names = {"recurrent": "cycles", "unsplit": "unsplit_cycles"}
    values = {
        names.get(key, f"{key}_cycles"): value for key, value in dataclasses.asdict(cycles).items()
    }
    return {**values, "step_cycles": cycles.total}
