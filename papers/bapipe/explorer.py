"""BaPipe's explorer: its framework and balanced partition (sections III and III-B), on cuts; and
Tables IV and VI, the FPGA boards, and ResNet-50 on four of them, by roofline.

Of the tables, values have 2 bytes, a micro-batch is one sample, a mini-batch 128. Links are not
given: messages and the all-reduce of DP take no time. A clock of 116 MHz a DSP is fitted.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

from ...comm import Interconnect
from ...emulator.cluster import KBIT, Board, Cluster, Link, board_keys, load_cluster
from ...emulator.common import InputError
from ...emulator.explore import Candidate, Demand, Wires, data_parallel, ideal, partition, pipelined
from ...emulator.mapping import LayerCut, cut_layers, whole_layers
from ...emulator.network import load_network
from ...emulator.number import Storage
from ...emulator.profile import BoardStages, board_stage
from ...emulator.schedule import pipeline_kind
from ...kernels.number import FP16
from ..claim import Measured, constant
from ..constants import COUNTED, beside, cluster_changes, in_use, kept
from . import gpus
from .layers import pipedream_stages, zoo_layers
from .speedups import stages_of

DSP_MHZ = constant("bapipe", "board.clock_mhz")
NUMBER, MICRO_BATCH, MINI_BATCH = FP16, 1, 128
"""Section IV-C: fp16, micro-batch 1, mini-batch 128."""
DDR_GBYTES_PER_S = 40
"""Table IV: "~40"."""
CLUSTERS = {
    "4vcu118": ("vcu118",) * 4,
    "2plus2": ("vcu129", "vcu129", "vcu118", "vcu118"),
    "4vcu129": ("vcu129",) * 4,
}
SCHEDULE = "fbp-as"
_FREE_MBPS = 10**9


@kept
def boards_of(cluster: str) -> tuple[Board, ...]:
    """Return the boards of a cluster as papers count, at the effective clock and with Table IV's
    bandwidth.
    """
    changes = cluster_changes(board__clock_mhz=in_use(DSP_MHZ))
    changes.setdefault("board.off_chip_gbytes_per_s", DDR_GBYTES_PER_S)
    boards = [{"type": kind, "count": 1} for kind in CLUSTERS[cluster]]
    said = {"name": cluster, "boards": boards, "links": {"bandwidth_gbps": 100, "latency_ns": 0}}
    return load_cluster(said, {**COUNTED, **changes}).boards


@kept
def _stages(cluster: str) -> BoardStages:
    return BoardStages(
        load_network("resnet50"), boards_of(cluster), MICRO_BATCH, Storage.all_in(NUMBER)
    )


@kept
def _wires() -> Wires:
    return Wires((Link(_FREE_MBPS, 0),) * 3, Interconnect(_FREE_MBPS, 0))


@kept
def pipeline(cluster: str, schedule: str = SCHEDULE) -> Candidate:
    """Return a mini-batch of BaPipe's, cut within layers by the explorer."""
    kind = pipeline_kind(schedule)
    candidate = pipelined(kind, kind.machine, _stages(cluster), _wires(), MINI_BATCH // MICRO_BATCH)
    assert candidate is not None
    return candidate


@kept
def dp(cluster: str) -> Candidate:
    """Return a mini-batch of DP, whose samples are dealt so that all boards end together; weights
    are in DDR.
    """
    return data_parallel(_stages(cluster), _wires(), MINI_BATCH // MICRO_BATCH)


def _time_ps(candidate: Candidate) -> int:
    if candidate.time_ps is None:
        raise InputError(candidate.why_not)
    return candidate.time_ps


def speedup(cluster: str) -> float:
    """Return the speed-up of BaPipe over DP on the same boards."""
    return _time_ps(dp(cluster)) / _time_ps(pipeline(cluster))


def over_dp(cluster: str) -> Measured:
    """Measure the speed-up of BaPipe over DP on the same boards."""
    ours, theirs = _time_ps(pipeline(cluster)) / 1e9, _time_ps(dp(cluster)) / 1e9
    return Measured(
        speedup(cluster),
        f"mini-batch {ours:.0f} ms against {theirs:.0f} ms; {pipeline(cluster).limit}",
    )


def schedule() -> Measured:
    """Let the explorer's rank choose between the asynchronous schedules: time, then send peak,
    features, name.
    """
    tried = {name: pipeline("2plus2", name) for name in ("1f1b-as", SCHEDULE)}
    ratio = _time_ps(tried["1f1b-as"]) / _time_ps(tried[SCHEDULE])
    how = (
        f"2 VCU129, 2 VCU118: 1F1B-AS takes {ratio:.4f} of its time; of equal times the lower send"
        " peak comes first"
    )
    return Measured(min(tried, key=lambda name: tried[name].rank), how)


def limit() -> Measured:
    """Measure the speed-up with DSPs twice as fast over that at the clock in use."""
    now = speedup("4vcu129")
    with beside({DSP_MHZ.key: 2 * in_use(DSP_MHZ)}):
        twice = speedup("4vcu129")
    return Measured(twice / now, f"four VCU129: {twice:.2f} with DSPs twice as fast")


def better_for_unequal() -> Measured:
    """Measure the slowest stage of the cut for unequal boards over that of the cut for equal
    ones.
    """
    equal, ours = pipeline("4vcu118").partition, pipeline("2plus2").partition
    assert equal is not None and ours is not None
    slowest = max(
        _stages("2plus2").costs(begin, end, device, 2 * (4 - device)).work_ps
        for device, (begin, end) in enumerate(equal.cut.spans)
    )
    most = max(stage.work_ps for stage in ours.costs)
    return Measured(
        most / slowest, "2 VCU129 and 2 VCU118: slowest stage over that of stages for equal boards"
    )


def transceivers(board: str) -> Measured:
    """Return the transceivers of a board's file: GTY, GTM; those above 33 Gb/s are GTM."""
    keys = board_keys(board)
    count, gbps = keys["transceivers"], keys["transceiver_gbps"]
    return Measured(
        [0, count] if gbps > 33 else [count, 0], f"boards/{board}.toml: {count} of {gbps:g} Gb/s"
    )


def settings() -> Measured:
    """Measure the samples of a micro-batch and of a mini-batch."""
    micro_batches = pipeline("4vcu118").micro_batches
    return Measured(
        [MINI_BATCH // micro_batches, MINI_BATCH],
        f"{micro_batches} micro-batches; {NUMBER.bytes_of(1)} bytes a value",
    )


EQUATION_1 = (10, 10, 20, 20)
"""Times of the network on each accelerator."""
_UNIFORM_LAYERS = 48


def equation_1() -> Measured:
    """Measure the fastest cut of many equal layers over unequal accelerators."""
    by_equation = float(ideal(EQUATION_1)[0])
    how = (
        f"T_n = {EQUATION_1}, {_UNIFORM_LAYERS} equal layers; the explorer's ideal"
        f" {by_equation:.4f}"
    )
    return Measured([_uniform_cut().slowest, by_equation], how)


@functools.cache
def _uniform_cut() -> LayerCut:
    layers = _UNIFORM_LAYERS
    return cut_layers(
        layers, 4, lambda device, begin, end: (end - begin) * EQUATION_1[device] / layers
    )


def shares() -> Measured:
    """Measure the share of the layers on each accelerator."""
    ends = _uniform_cut().ends
    shares = [(end - begin) / _UNIFORM_LAYERS for begin, end in itertools.pairwise((0, *ends))]
    return Measured(
        shares, f"of the layers; by the explorer {', '.join(map(str, ideal(EQUATION_1)[1]))}"
    )


def profile() -> Measured:
    """Return what the profile of a layer has on a board."""
    [part], board = whole_layers(load_network("vgg16"), 3, 4), _u280({}).board(0)
    costs = board_stage([part], board, 1, 1, storage=Storage.all_in(NUMBER)).costs
    said = {
        "FP time": costs.forward_ps,
        "BP time": costs.backward_ps,
        "weight size": costs.parameter_bytes,
        "feature size": costs.feature_bytes,
    }
    return Measured(
        [name for name, value in said.items() if value > 0],
        f"{part.layer.name} of VGG-16 on {board.name}",
    )


def _u280(changes: Mapping[str, object]) -> Cluster:
    """Return the cluster `u280` as papers count, at 200 MHz."""
    return load_cluster("u280", {**COUNTED, "board.clock_mhz": 200, **changes})


def _explored(**keys: float) -> list[str]:
    """Return the steps by which the explorer cuts VGG-16 over four U280, with other values of some
    keys.
    """
    changes = {key.replace("__", "."): value for key, value in keys.items()}
    cluster = _u280(changes)
    boards = (cluster.board(0),) * 4
    stages = BoardStages(load_network("vgg16"), boards, 1, Storage.all_in(NUMBER))
    cut = partition(stages, (cluster.slowest_link,) * 3, Demand((4, 3, 2, 1)))
    return [f"{step.name}: {step.reason}" for step in cut.steps]


def inputs() -> Measured:
    """Name the hardware constraints of which another value changes what the explorer says."""
    board, now = _u280({}).board(0), _explored()
    assert board.off_chip_gbytes_per_s is not None
    steps_by_key = {
        "compute": _explored(board__clock_mhz=100),
        "memory bandwidth": _explored(
            board__off_chip_gbytes_per_s=board.off_chip_gbytes_per_s / 100
        ),
        "memory capacity": _explored(board__on_chip_memory_kbit=board.on_chip_memory_bytes // KBIT),
        "link bandwidth": _explored(link__bandwidth_gbps=1),
    }
    return Measured(
        [name for name, steps in steps_by_key.items() if steps != now],
        "of which another value changes a cut",
    )


def steps() -> Measured:
    """Return the explorer's steps, where links do not limit and where they do."""
    names = []
    for gbps in (1000, 1):
        explored = _explored(link__bandwidth_gbps=gbps)
        names.append([step.partition(":")[0] for step in explored])
    return Measured(names, "VGG-16 on four U280, links of 1,000 and of 1 Gb/s")


def three_parts() -> Measured:
    """Name the parts of an exploration that it has: times of layers, a schedule, a cut."""
    candidate = pipeline("4vcu118")
    said = {
        "profile": (
            candidate.partition is not None and candidate.partition.steps[0].name == "profile"
        ),
        "schedule": candidate.timeline is not None,
        "partition": candidate.partition is not None and len(candidate.partition.costs) == 4,
    }
    return Measured(
        [name for name, there in said.items() if there], "of a candidate of the explorer's"
    )


def threshold() -> Measured:
    """Measure the largest features across a cut over those that a link takes in T, the slowest
    stage or link.
    """
    shares = []
    for network in ("vgg16", "resnet50"):
        for devices in gpus.GPUS:
            cut = stages_of(network, devices)
            slowest = max(gpus.work_ps(part) for part in cut)
            longest = max(part[-1].sent_bytes for part in cut[:-1]) / gpus.link_bytes_per_ps()
            shares.append(longest / max(slowest, _least_ps(network, devices)))
    return Measured(
        shares, "largest features across a cut, over a_th: VGG-16 and ResNet-50 on 4 and 8 GPUs"
    )


def _least_ps(network: str, devices: int) -> float:
    """Return the least time of the slowest stage or link, whatever the cut."""
    layers = gpus.layers_of(network)
    work_ps = gpus.stage_work_ps(layers)

    def slowest_ps(_device: int, begin: int, end: int) -> float:
        return max(work_ps(begin, end), gpus.message_ps(layers[begin - 1], 1) if begin else 0)

    return cut_layers(len(layers), devices, slowest_ps).slowest


def pipedream() -> Measured:
    """Measure PipeDream's slowest stage over that of the best of all partitions, tried one by
    one.
    """
    layers = zoo_layers("vgg16")[8:]
    links = [2 * gpus.message_ps(layer, 64) for layer in layers]

    def stage(begin: int, end: int, count: int) -> float:
        ring = gpus.all_reduce_ps(layers[begin:end], count)
        return (gpus.work_ps(layers[begin:end], 64) + ring) / count

    def best(begin: int, count: int) -> float:
        times = [stage(begin, len(layers), count)]
        for end in range(begin + 1, len(layers)):
            for here in range(1, count):
                times.append(max(stage(begin, end, here), links[end - 1], best(end, count - here)))
        return min(times)

    stages = pipedream_stages(layers, 4, stage, links)
    slowest_stage = max(stage(*part) for part in stages)
    ours = max([slowest_stage, *(links[part.end - 1] for part in stages[:-1])])
    return Measured(
        ours / best(0, 4), "VGG-16 from conv4_2 on, 4 GPUs, over all partitions tried one by one"
    )
