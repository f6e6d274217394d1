"""Tables IV and VI of BaPipe: the FPGA boards, and ResNet-50 on four of them, by roofline and explorer.

Values have 2 bytes, a micro-batch is one sample, a mini-batch 128. Links are not given: messages and the all-reduce of
DP take no time. A clock of 116 MHz a DSP is fitted.
"""

from __future__ import annotations

from ...comm import Interconnect
from ...emulator.cluster import Board, Link, board_keys, load_cluster
from ...emulator.common import InputError
from ...emulator.explore import Candidate, Wires, data_parallel, pipelined
from ...emulator.network import load_network
from ...emulator.profile import BoardStages
from ...emulator.schedule import pipeline_kind
from ...kernels.number import FP16
from ..claim import Measure, Measured
from ..constants import beside, cluster_changes, in_use, kept
from .constants import DSP_MHZ

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
    """Return the boards of a cluster, at the effective clock and Table IV's bandwidth."""
    changes = cluster_changes(board__clock_mhz=in_use(DSP_MHZ))
    changes.setdefault("board.off_chip_gbytes_per_s", DDR_GBYTES_PER_S)
    boards = [{"type": kind, "count": 1} for kind in CLUSTERS[cluster]]
    said = {"name": cluster, "boards": boards, "links": {"bandwidth_gbps": 100, "latency_ns": 0}}
    return load_cluster(said, changes).boards


@kept
def _stages(cluster: str) -> BoardStages:
    return BoardStages(load_network("resnet50"), boards_of(cluster), MICRO_BATCH, NUMBER)


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
    """Return a mini-batch of DP, whose samples are dealt so that all boards end together; weights are in DDR."""
    return data_parallel(_stages(cluster), _wires(), MINI_BATCH // MICRO_BATCH)


def _time_ps(candidate: Candidate) -> int:
    if candidate.time_ps is None:
        raise InputError(candidate.why_not)
    return candidate.time_ps


def speedup(cluster: str) -> float:
    """Return the speed-up of BaPipe over DP on the same boards."""
    return _time_ps(dp(cluster)) / _time_ps(pipeline(cluster))


def _row(cluster: str) -> Measured:
    ours, theirs = _time_ps(pipeline(cluster)) / 1e9, _time_ps(dp(cluster)) / 1e9
    return Measured(speedup(cluster), f"mini-batch {ours:.0f} ms against {theirs:.0f} ms; {pipeline(cluster).limit}")


def _trend() -> Measured:
    speedups = [speedup(name) for name in ("4vcu129", "2plus2", "4vcu118")]
    return Measured(
        [speedups[0] / speedups[1], speedups[1] / speedups[2]], "four VCU129 over mixed, mixed over four VCU118"
    )


def _schedule() -> Measured:
    """Let the explorer's rank choose between the asynchronous schedules: time, then send peak, features, name."""
    tried = {name: pipeline("2plus2", name) for name in ("1f1b-as", SCHEDULE)}
    ratio = _time_ps(tried["1f1b-as"]) / _time_ps(tried[SCHEDULE])
    how = f"2 VCU129, 2 VCU118: 1F1B-AS takes {ratio:.4f} of its time; of equal times the lower send peak comes first"
    return Measured(min(tried, key=lambda name: tried[name].rank), how)


def _limit() -> Measured:
    """Measure the speed-up with DSPs twice as fast over that at the clock in use."""
    now = speedup("4vcu129")
    with beside({DSP_MHZ.key: 2 * in_use(DSP_MHZ)}):
        twice = speedup("4vcu129")
    return Measured(twice / now, f"four VCU129: {twice:.2f} with DSPs twice as fast")


def _better_for_unequal() -> Measured:
    """Measure the slowest stage of the cut for unequal boards over that of the cut for equal ones."""
    equal, ours = pipeline("4vcu118").partition, pipeline("2plus2").partition
    assert equal is not None and ours is not None
    slowest = max(
        _stages("2plus2").costs(begin, end, device, 2 * (4 - device)).work_ps
        for device, (begin, end) in enumerate(equal.cut.spans)
    )
    most = max(stage.work_ps for stage in ours.costs)
    return Measured(most / slowest, "2 VCU129 and 2 VCU118: slowest stage over that of stages for equal boards")


def _transceivers(board: str) -> Measured:
    """Return the transceivers of a board's file: GTY, GTM; those above 33 Gb/s are GTM."""
    keys = board_keys(board)
    count, gbps = keys["transceivers"], keys["transceiver_gbps"]
    return Measured([0, count] if gbps > 33 else [count, 0], f"boards/{board}.toml: {count} of {gbps:g} Gb/s")


def _settings() -> Measured:
    micro_batches = pipeline("4vcu118").micro_batches
    return Measured(
        [MINI_BATCH // micro_batches, MINI_BATCH], f"{micro_batches} micro-batches; {NUMBER.bytes_of(1)} bytes a value"
    )


FUNCTIONS = {"transceivers": _transceivers, "over_dp": _row}
MEASURES: dict[str, Measure] = {
    "bapipe-t6-trend": _trend,
    "bapipe-t6-schedule": _schedule,
    "bapipe-t6-settings": _settings,
    "bapipe-fpga-limit": _limit,
    "bapipe-fpdeep-homogeneous": _better_for_unequal,
}
