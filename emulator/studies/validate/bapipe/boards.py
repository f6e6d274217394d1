"""Tables IV and VI of BaPipe: the FPGA boards, and ResNet-50 on four of them, by the roofline of `emulator/profile`.

Values have 2 bytes, a micro-batch is one sample, a mini-batch 128. Links are not given: messages and the all-reduce of
DP take no time. A clock of 100 MHz a DSP is fitted.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Sequence

from ....cluster import Board, board_keys, load_cluster
from ....common import InputError
from ....mapping import Slice, cut_channels
from ....network import load_network
from ....pipeline import Shape, StageCosts, pipeline_kind, time_pipeline
from ....profile import DoesNotFit, PartNeeds, board_stage, stage_of_needs
from ..constants import changed, kept
from ..measure import Measure, Measured
from .constants import DSP_MHZ, in_use

VALUE_BYTES, MICRO_BATCH, MINI_BATCH = 2, 1, 128
"""Section IV-C: fp16, micro-batch 1, mini-batch 128."""
DDR_GBYTES_PER_S = 40
"""Table IV: "~40"."""
CLUSTERS = {
    "4vcu118": ("vcu118",) * 4,
    "2plus2": ("vcu129", "vcu129", "vcu118", "vcu118"),
    "4vcu129": ("vcu129",) * 4,
}
SCHEDULE = "fbp-as"
_STEPS = 14
_BITS_OF_MB = 1024


@kept
def boards_of(cluster: str) -> tuple[Board, ...]:
    """Return the boards of a cluster, at the effective clock and Table IV's bandwidth."""
    changes = changed(board__clock_mhz=in_use(DSP_MHZ))
    changes.setdefault("board.off_chip_gbytes_per_s", DDR_GBYTES_PER_S)
    boards = [{"type": kind, "count": 1} for kind in CLUSTERS[cluster]]
    said = {"name": cluster, "boards": boards, "links": {"bandwidth_gbps": 100, "latency_ns": 0}}
    return load_cluster(said, {key: value for key, value in changes.items() if not key.startswith("gpus.")}).boards


class _Chain:
    """ResNet-50 as a row of channels, which a cut divides anywhere (BaPipe's intra-layer partition)."""

    def __init__(self) -> None:
        self.layers = load_network("resnet50").layers
        self.firsts = [0, *itertools.accumulate(map(cut_channels, self.layers))]

    def needs(self, begin: int, end: int) -> list[PartNeeds]:
        """Return the needs of channels begin … end-1 of the row."""
        found = []
        for place in range(bisect.bisect_right(self.firsts, begin) - 1, len(self.layers)):
            first, after = self.firsts[place], self.firsts[place + 1]
            if first >= end:
                break
            found.append(_needs(Slice(self.layers[place], max(begin, first) - first, min(end, after) - first)))
        return found


@functools.cache
def _needs(part: Slice) -> PartNeeds:
    return PartNeeds.of(part, VALUE_BYTES)


@functools.cache
def _chain() -> _Chain:
    return _Chain()


def _costs(begin: int, end: int, boards: Sequence[Board], device: int) -> StageCosts | None:
    """Return the costs of a stage, None if it does not fit; FBP-AS keeps 2(N-i+1) micro-batches."""
    keeps = 2 * (len(boards) - device)
    try:
        needs = _chain().needs(begin, end)
        return stage_of_needs(needs, boards[device], MICRO_BATCH, keeps * MICRO_BATCH, stage=device).costs
    except DoesNotFit:
        return None


def _cut(boards: Sequence[Board], most_ps: float) -> list[int] | None:
    """Return the ends of stages of at most `most_ps`, each as long as possible; None if they do not reach the end.

    Where `most_ps` is generous, the last boards have none.
    """
    ends, total = [0], _chain().firsts[-1]

    def too_long(end: int, begin: int, device: int) -> bool:
        costs = _costs(begin, end, boards, device)
        return costs is None or costs.work_ps > most_ps

    for device in range(len(boards)):
        begin = ends[-1]
        longer = range(begin + 1, total + 1)
        place = bisect.bisect_left(longer, True, key=functools.partial(too_long, begin=begin, device=device))
        if place == 0:
            return None
        ends.append(begin + place)
        if ends[-1] == total:
            break
    return ends if ends[-1] == total else None


@kept
def stages(cluster: str) -> tuple[StageCosts, ...]:
    """Return BaPipe's stages: T of equation (1) is the bound that the slowest comes close to, by bisection.

    Raises:
        InputError: no cut fits.
    """
    boards = boards_of(cluster)
    low = 1 / sum(1 / _work_ps(board) for board in boards)
    high, best = 2 * low, None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        found = _cut(boards, middle)
        if found is None:
            low = middle
        else:
            high, best = middle, found
    if best is None or len(best) <= len(boards):
        raise InputError(f"{cluster}: ResNet-50 has no cut into {len(boards)} stages that fit")
    costs = [_costs(begin, end, boards, device) for device, (begin, end) in enumerate(itertools.pairwise(best))]
    return tuple(each for each in costs if each is not None)


def _work_ps(board: Board) -> float:
    """Return the time of F and B of a sample on one board, as if all data were on chip."""
    macs = sum(layer.macs * (2 + layer.needs_errors) for layer in load_network("resnet50").layers)
    return macs / board.capacity


@kept
def pipeline_ps(cluster: str, schedule: str = SCHEDULE) -> int:
    """Return the time of a mini-batch on the timeline engine."""
    costs, kind = stages(cluster), pipeline_kind(schedule)
    order, _ = kind.schedule(Shape(len(costs), MINI_BATCH, costs, kind.machine))
    return time_pipeline(order, costs, kind.machine).makespan_ps


@kept
def dp_ps(cluster: str) -> float:
    """Return the time of a mini-batch with DP: weights and gradients in DDR, samples shared in proportion to speed."""
    chain = _chain()
    parts = [Slice(layer, 0, cut_channels(layer)) for layer in chain.layers]
    sample_ps = [
        board_stage(parts, board, 1, 1, value_bytes=VALUE_BYTES, parameters_together=True).costs.work_ps
        for board in boards_of(cluster)
    ]
    return MINI_BATCH / sum(1 / each for each in sample_ps)


def speedup(cluster: str) -> float:
    """Return the speed-up of BaPipe over DP on the same boards."""
    return dp_ps(cluster) / pipeline_ps(cluster)


def _row(cluster: str) -> Measured:
    slowest = max(each.work_ps for each in stages(cluster)) / 1e9
    how = f"mini-batch {pipeline_ps(cluster) / 1e9:.0f} ms against {dp_ps(cluster) / 1e9:.0f} ms, slowest stage"
    return Measured(speedup(cluster), f"{how} {slowest:.2f} ms a sample")


def _trend() -> Measured:
    found = [speedup(name) for name in ("4vcu129", "2plus2", "4vcu118")]
    return Measured([found[0] / found[1], found[1] / found[2]], "four VCU129 over mixed, mixed over four VCU118")


def _schedule() -> Measured:
    """Choose between the asynchronous schedules: by time, then by the bandwidth of messages."""
    costs = stages("2plus2")
    keys = {}
    for name in ("1f1b-as", SCHEDULE):
        kind = pipeline_kind(name)
        order, _ = kind.schedule(Shape(len(costs), MINI_BATCH, costs, kind.machine))
        result = time_pipeline(order, costs, kind.machine)
        keys[name] = result.makespan_ps, result.send_peak
    first, second = (key[0] for key in keys.values())
    how = f"2 VCU129, 2 VCU118: 1F1B-AS takes {first / second:.4f} of its time; ties go to the lower bandwidth"
    return Measured(min(keys, key=lambda name: keys[name]), how)


def _limit() -> Measured:
    """Measure the speed-up with DSPs twice as fast over that at the clock in use."""
    from ..constants import in_force

    now = speedup("4vcu129")
    with in_force({**changed(), DSP_MHZ.key: 2 * in_use(DSP_MHZ)}):
        twice = speedup("4vcu129")
    return Measured(twice / now, f"four VCU129: {twice:.2f} with DSPs twice as fast")


def _better_for_unequal() -> Measured:
    """Measure the slowest stage of the cut for unequal boards over that of the cut for equal ones."""
    boards = boards_of("2plus2")
    equal = boards_of("4vcu118")
    low, high = (f / sum(1 / _work_ps(board) for board in equal) for f in (1, 2))
    ends = None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        found = _cut(equal, middle)
        low, high, ends = (low, middle, found) if found else (middle, high, ends)
    assert ends is not None
    costs = [_costs(begin, end, boards, device) for device, (begin, end) in enumerate(itertools.pairwise(ends))]
    slowest = max(each.work_ps for each in costs if each is not None)
    ours = max(each.work_ps for each in stages("2plus2"))
    return Measured(ours / slowest, "2 VCU129 and 2 VCU118, over the same stages on all")


def _key(board: str, key: str, unit: float = 1) -> Measured:
    return Measured(board_keys(board)[key] / unit, f"boards/{board}.toml: {key}")


def _transceivers(board: str) -> Measured:
    """Return the transceivers of a board's file: GTY, GTM; those above 33 Gb/s are GTM."""
    keys = board_keys(board)
    count, gbps = keys["transceivers"], keys["transceiver_gbps"]
    return Measured([0, count] if gbps > 33 else [count, 0], f"boards/{board}.toml: {count} of {gbps:g} Gb/s")


def _platforms() -> Measured:
    return Measured([board_keys(board)["name"] for board in ("vcu118", "vcu129")], "boards that come with emuchain")


_TABLE_4 = {"dsp": ("dsp", 1), "ram": ("on_chip_memory_kbit", _BITS_OF_MB), "ddr": ("off_chip_gbytes_per_s", 1)}

MEASURES: dict[str, Measure] = {
    **{
        f"bapipe-t4-{board}-{row}": functools.partial(_key, board, key, unit)
        for board in ("vcu118", "vcu129")
        for row, (key, unit) in _TABLE_4.items()
    },
    **{f"bapipe-t4-{board}-trx": functools.partial(_transceivers, board) for board in ("vcu118", "vcu129")},
    "bapipe-fpga-cluster": _platforms,
    **{f"bapipe-t6-{cluster}": functools.partial(_row, cluster) for cluster in CLUSTERS},
    "bapipe-t6-trend": _trend,
    "bapipe-t6-schedule": _schedule,
    "bapipe-fpga-limit": _limit,
    "bapipe-fpdeep-homogeneous": _better_for_unequal,
}
