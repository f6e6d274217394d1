"""FARNN's Figs. 2 and 7 to 10: throughput of a GPU, and synthetic layers on GPU, FARNN and its other configurations."""

from __future__ import annotations

import itertools

from ...emulator.cluster import Gpu
from ...emulator.timing.pair import Cell, Part, Phase
from ..claim import Measure, Measured
from . import runs
from .runs import FARNN, persistent_ps, reduction, standard_ps, synthetic, time_ps

FIG_2_STEPS = 576
LENGTHS = (100, 200, 400, 800, 1600)
BATCHES = (1, 2, 4)
CELL_COUNTS = (256, 512, 1024)
FIG_10_STEPS = 800
GBYTES_PER_S_OF_STEPS = 0.11


def gpu_tflops(batch: int, part: Part) -> float:
    """Return what the P100 does of I-MVM or R-MVM in FW of a layer of Fig. 2, in TFLOPS, in the standard form."""
    workload = synthetic(Cell.LSTM, steps=FIG_2_STEPS, batch=batch, layers=1)
    [work] = workload.recurrent
    timed = runs.timed(workload, "p100", runs.STANDARD).timed
    time_ps_ = sum(
        timed_task.task.duration_ps
        for timed_task in timed
        if timed_task.task.part is part and timed_task.task.phase is Phase.FORWARD
    )
    macs = work.input_weights if part is Part.INPUTS else work.gate_weights
    return 2 * macs * work.steps * batch / time_ps_


def _peak() -> float:
    board = runs.cluster("p100").board(0)
    assert isinstance(board, Gpu)
    return board.peak_tflops


def _recurrent_share() -> Measured:
    tflops = gpu_tflops(1, Part.STEPS)
    return Measured(100 * tflops / _peak(), f"{tflops:.3f} TFLOPS, as a dependent phase takes what 3.6 times requires")


def _input_share() -> Measured:
    return Measured([gpu_tflops(batch, Part.INPUTS) / _peak() for batch in BATCHES], "share of the peak: batch 1, 2, 4")


def _order() -> Measured:
    ratios = [gpu_tflops(batch, Part.INPUTS) / gpu_tflops(batch, Part.STEPS) for batch in BATCHES]
    return Measured(ratios, "I-MVM over R-MVM: batch 1, 2, 4")


def _gain(build: str, cell: Cell) -> float:
    """Return by how much less time FARNN takes than cuDNN-PD, in percent."""
    workload = synthetic(cell)
    return reduction(time_ps(workload, FARNN[build, cell]), persistent_ps(workload))


def _fig_7(build: str, cells: str) -> Measured:
    cell = Cell(cells)
    ms = time_ps(synthetic(cell), FARNN[build, cell]) / 1e9
    return Measured(_gain(build, cell), f"{ms:.1f} ms; cuDNN-PD {persistent_ps(synthetic(cell)) / 1e9:.1f} ms")


def _fig_7_order() -> Measured:
    gains = {(build, cell): _gain(build, cell) for build in ("9P", "13P") for cell in Cell}
    differences = [gains["13P", cell] - gains["9P", cell] for cell in Cell]
    differences += [gains[build, Cell.LSTM] - gains[build, Cell.GRU] for build in ("9P", "13P")]
    return Measured(differences, "points: 13P over 9P for LSTM, for GRU; LSTM over GRU on 9P, on 13P")


def _persistent_falls() -> Measured:
    gains = [
        standard_ps(synthetic(Cell.LSTM, cells=cells)) / persistent_ps(synthetic(Cell.LSTM, cells=cells))
        for cells in CELL_COUNTS
    ]
    falls = [before - after for before, after in itertools.pairwise(gains)]
    shown = ", ".join(f"{gain:.3g}" for gain in gains)
    return Measured(falls, f"falls of cuDNN-PD's speed-up, {shown}: 256, 512, 1,024 cells")


def _sizes() -> Measured:
    gru, lstm = (synthetic(cell).recurrent[0].gate_weights for cell in (Cell.GRU, Cell.LSTM))
    return Measured(gru / lstm, f"{gru / 1e6:.2f} M over {lstm / 1e6:.2f} M recurrent weights")


def speed_up(build: str, steps: int, batch: int = 1, cell: Cell = Cell.LSTM) -> float:
    """Return FARNN's speed-up over cuDNN-Std."""
    workload = synthetic(cell, steps=steps, batch=batch)
    return standard_ps(workload) / time_ps(workload, FARNN[build, cell])


def _short() -> Measured:
    return Measured([speed_up(build, 100) for build in ("9P", "13P")], "LSTM, 100 steps: 9P, 13P over cuDNN-Std")


def _long() -> Measured:
    return Measured(speed_up("13P", 1600), f"FARNN-13P; FARNN-9P has {speed_up('9P', 1600):.2f}")


def _growth() -> Measured:
    growths = [
        after - before
        for build, cell in itertools.product(("9P", "13P"), Cell)
        for before, after in itertools.pairwise(speed_up(build, steps, cell=cell) for steps in LENGTHS)
    ]
    return Measured(growths, "growth of the speed-up from 100 steps on, doubled each time: 9P, 13P, LSTM and GRU each")


def _batch_4() -> Measured:
    workload = synthetic(Cell.LSTM, batch=4)
    standard = standard_ps(workload)
    ratios = [persistent_ps(workload) / standard, time_ps(workload, FARNN["9P", Cell.LSTM]) / standard]
    return Measured(ratios, "LSTM, time over cuDNN-Std's: cuDNN-PD, FARNN-9P")


def _persistent_linear() -> Measured:
    ratio = persistent_ps(synthetic(Cell.LSTM, batch=4)) / persistent_ps(synthetic(Cell.LSTM))
    return Measured(ratio, "LSTM, batch 4 over 1: each sample reads the weights")


def batch_ratio(cell: Cell = Cell.LSTM, build: str = "9P") -> float:
    """Return FARNN's time with batch 4 over that with 1."""
    return time_ps(synthetic(cell, batch=4), FARNN[build, cell]) / time_ps(synthetic(cell), FARNN[build, cell])


def _batch_ratio() -> Measured:
    return Measured(batch_ratio(), f"LSTM on FARNN-9P; GRU {batch_ratio(Cell.GRU):.2f}")


def _sub_linear() -> Measured:
    ratios = [batch_ratio(cell, build) for cell in Cell for build in ("9P", "13P")]
    return Measured(ratios, "batch 4 over 1: LSTM on 9P and 13P, GRU on 9P and 13P")


def _utilisation(batch: int) -> Measured:
    run = runs.timed(synthetic(Cell.LSTM, batch=batch), FARNN["9P", Cell.LSTM])
    assert run.utilisation is not None
    return Measured(100 * run.utilisation, f"FARNN-9P: {run.mini_batch_ps / 1e9:.1f} ms")


def over_farnn(schedule: str, build: str = "9P") -> float:
    """Return the time of another configuration over FARNN's (Fig. 10)."""
    workload, cluster = synthetic(Cell.LSTM, steps=FIG_10_STEPS), FARNN[build, Cell.LSTM]
    return time_ps(workload, cluster, schedule) / time_ps(workload, cluster)


def _all_fpga() -> Measured:
    return Measured(over_farnn("farnn-all-fpga"), "FARNN-9P")


def _no_overlap() -> Measured:
    percents = [100 * (over_farnn("farnn-no-overlap", build) - 1) for build in ("9P", "13P")]
    return Measured(percents, "more time, in percent: 9P, 13P")


def _layers() -> Measured:
    gains = []
    for layers in (1, 2, 5):
        workload, cluster = synthetic(Cell.LSTM, layers=layers), FARNN["9P", Cell.LSTM]
        gains.append(time_ps(workload, cluster, "farnn-no-overlap") / time_ps(workload, cluster))
    shown = ", ".join(f"{gain:.4f}" for gain in gains)
    return Measured([b - a for a, b in itertools.pairwise(gains)], f"growth of the gain, {shown}: 1, 2, 5 layers")


def _step_rate() -> float:
    """Return what steps of FW bring to the FPGA, in GB/s."""
    timed = runs.timed(synthetic(Cell.LSTM), FARNN["9P", Cell.LSTM])
    step = next(timed_task.task for timed_task in timed.timed if timed_task.task.part is Part.STEPS)
    return 4 * 4 * 1024 * runs.STEPS * 1000 / step.duration_ps


def _rate() -> Measured:
    return Measured(_step_rate(), "4 x 1,024 values of 4 bytes in 4,300 cycles at 400 MHz")


def _rate_share() -> Measured:
    link = runs.cluster("farnn-9p").link.bandwidth_gbps / 8
    return Measured(_step_rate() / link, f"of {link:.3g} GB/s")


def _best_region() -> Measured:
    """Measure growth of the gain over the better of cuDNN's forms: smaller batches, longer sequences, more cells."""

    def gain(**keys: int) -> float:
        workload = synthetic(Cell.LSTM, **keys)
        best = min(standard_ps(workload), persistent_ps(workload))
        return best / time_ps(workload, FARNN["9P", Cell.LSTM])

    ways = (
        [gain(batch=batch) for batch in (4, 2, 1)],
        [gain(steps=steps) for steps in LENGTHS],
        [gain(cells=cells) for cells in CELL_COUNTS],
    )
    growths = [after - before for way in ways for before, after in itertools.pairwise(way)]
    return Measured(growths, "growth over the better of both: batch 4, 2, 1; 100 to 1,600 steps; 256 to 1,024 cells")


def _persistent_best() -> Measured:
    ratios = [standard_ps(synthetic(cell)) / persistent_ps(synthetic(cell)) for cell in Cell]
    return Measured(ratios, "cuDNN-Std over cuDNN-PD at batch 1: LSTM, GRU")


FUNCTIONS = {"fig_7": _fig_7, "utilisation": _utilisation}
MEASURES: dict[str, Measure] = {
    "farnn-fig2-rmvm": _recurrent_share,
    "farnn-fig2-imvm": _input_share,
    "farnn-fig2-order": _order,
    "farnn-pd-best-small": _persistent_best,
    "farnn-fig7-order": _fig_7_order,
    "farnn-fig7-pd-falls": _persistent_falls,
    "farnn-gru-lstm-size": _sizes,
    "farnn-fig8-length-100": _short,
    "farnn-fig8-length-1600": _long,
    "farnn-fig8-trend": _growth,
    "farnn-fig9-batch4": _batch_4,
    "farnn-fig9-pd-linear": _persistent_linear,
    "farnn-fig9-farnn-3p4": _batch_ratio,
    "farnn-fig9-sub-linear": _sub_linear,
    "farnn-fig10-allfpga": _all_fpga,
    "farnn-fig10-nooverlap": _no_overlap,
    "farnn-overlap-layers": _layers,
    "farnn-step-rate": _rate,
    "farnn-step-not-bottleneck": _rate_share,
    "farnn-best-region": _best_region,
}
