"""FARNN's applications and platforms: Deep Speech 2, RNN-T (sections 6.4, 6.5), energy (6.6),
devices (6.1, 6.7, 6.8).

What is not recurrent of Deep Speech 2, `Others` in Fig. 11, has no published time and is left out.
RNN-T's encoder is timed; of the rest its published share is taken. Power is the published one of
one row for all of them. The platforms are the devices, half the PCIe lanes, and a Versal beside a
V100.
"""

from __future__ import annotations

import itertools

from ...emulator.cluster import Gpu
from ...emulator.timing.pair import Cell, Workload
from ..claim import Measured, constant
from ..constants import beside, in_use
from . import runs
from .runs import (
    FARNN,
    cluster,
    deep_speech,
    deepbench_ps,
    encoder,
    persistent_ps,
    reduction,
    standard_ps,
    time_ps,
    v100_ratio,
)
from .subtasks import array

ENCODER_SHARE = constant("farnn", "rnnt.encoder_share")
PCIE_GBPS = constant("farnn", "link.bandwidth_gbps")
POWER = 1.27
"""Power of GPU and FPGA over the GPU's alone: 27 % more (DS2 LSTM, batch 1). No board's is given.
"""


def ds2_standard_ratio(batch: int, cell: Cell) -> float:
    """Return FARNN-9P's time of Deep Speech 2 over that of cuDNN-Std."""
    workload = deep_speech(cell, batch)
    return time_ps(workload, FARNN["9P", cell]) / standard_ps(workload)


def ds2_time_ratio(batch: int, cell: Cell = Cell.LSTM) -> float:
    """Return FARNN-9P's time of Deep Speech 2 over that of the better of cuDNN's forms."""
    workload = deep_speech(cell, batch)
    return time_ps(workload, FARNN["9P", cell]) / min(
        standard_ps(workload), persistent_ps(workload)
    )


def rnnt_time_ratio(batch: int) -> float:
    """Return FARNN-9P's time of all of RNN-T over cuDNN-Std's, with the encoder's published
    share.
    """
    share = in_use(ENCODER_SHARE)
    return 1 - share + share / encoder_speed_up("9P", batch)


def large_batch() -> Measured:
    """Measure the energy over that of one form, cuDNN-Std, which the paper compares with at larger
    batches.
    """
    ratios = []
    for cell in Cell:
        ratios.append([ds2_standard_ratio(batch, cell) for batch in DS2_BATCHES])
    ratios.append([rnnt_time_ratio(batch) for batch in RNNT_BATCHES])
    growths = [
        POWER * (after - before)
        for series in ratios
        for before, after in itertools.pairwise(series)
    ]
    return Measured(
        growths, "growth of energy over cuDNN-Std's: DS2 LSTM and GRU, batch 1, 2, 4; RNN-T to 8"
    )


DS2_BATCHES = (1, 2, 4)
RNNT_BATCHES = (1, 2, 4, 8)
ENCODERS = {"9P": runs.LARGE_9P, "13P": FARNN["13P", Cell.LSTM]}


def ds2_reduction(build: str, cell: Cell | str, batch: int, form: str = runs.STANDARD) -> float:
    """Return by how much less time FARNN takes than cuDNN, by default its standard form, in
    percent.
    """
    workload = deep_speech(cell, batch)
    return reduction(time_ps(workload, FARNN[build, Cell(cell)]), time_ps(workload, "p100", form))


def ds2_batches() -> Measured:
    """Measure Deep Speech 2's speed-up over the better of cuDNN's forms, by batch."""
    gains = []
    for cell in Cell:
        for batch in DS2_BATCHES:
            workload = deep_speech(cell, batch)
            best = min(standard_ps(workload), persistent_ps(workload))
            gains.append(best / time_ps(workload, FARNN["13P", cell]))
    return Measured(gains, "FARNN-13P over the better of both: LSTM, then GRU, batch 1, 2, 4")


def encoder_speed_up(build: str, batch: int = 1) -> float:
    """Return the encoder's speed-up over cuDNN-Std."""
    return standard_ps(encoder(batch)) / time_ps(encoder(batch), ENCODERS[build])


def total_reduction(build: str) -> float:
    """Return by how much less time all of RNN-T takes, in percent, with the encoder's published
    share.
    """
    return 100 * in_use(ENCODER_SHARE) * (1 - 1 / encoder_speed_up(build))


def encoder_batches(build: str, most: int) -> Measured:
    """Measure the encoder's speed-up over cuDNN-Std, by batch."""
    batches = [batch for batch in RNNT_BATCHES if batch <= most]
    speed_ups = [encoder_speed_up(build, batch) for batch in batches]
    longer = ", ".join(
        f"{deepbench_ps(encoder(b)) / time_ps(encoder(b), ENCODERS[build]):.3g}" for b in batches
    )
    shown = ", ".join(map(str, batches))
    return Measured(
        speed_ups, f"encoder over cuDNN-Std: batch {shown}; with phases as DeepBench's, {longer}"
    )


XEON_LANES, CARD_LANES = 48, 16
"""PCIe lanes of a Xeon 6130, and of a card."""


def halved_ps(workload: Workload, cluster: str) -> int:
    """Return the time of a mini-batch with half the link's bandwidth."""
    with beside({PCIE_GBPS.key: in_use(PCIE_GBPS) / 2}):
        return time_ps(workload, cluster)


def halved_growth(build: str) -> float:
    """Return by how much more time Deep Speech 2 takes with half the link's bandwidth, in
    percent.
    """
    workload, cluster = deep_speech(Cell.LSTM, 2), FARNN[build, Cell.LSTM]
    return 100 * (halved_ps(workload, cluster) / time_ps(workload, cluster) - 1)


def halved_reduction(build: str) -> float:
    """Return by how much less time it takes then than the better of cuDNN's forms, in percent."""
    workload = deep_speech(Cell.LSTM, 2)
    best = min(standard_ps(workload), persistent_ps(workload))
    return reduction(halved_ps(workload, FARNN[build, Cell.LSTM]), best)


def versal_gains() -> dict[str, float]:
    """Return by how much less time FARNN-VS takes than a V100, in percent: all of RNN-T, DS2's
    recurrent layers.

    Of cuDNN's forms the better one counts. RNN-T's other parts take the P100 its published share,
    and the V100 less by the memory bandwidths, as all that it does.
    """
    gains = {}
    for cell in Cell:
        for batch in DS2_BATCHES:
            workload = deep_speech(cell, batch)
            best = min(standard_ps(workload, "v100"), persistent_ps(workload, "v100"))
            gains[f"{workload.name}, batch {batch}"] = reduction(
                time_ps(workload, FARNN["VS", cell]), best
            )
    share = in_use(ENCODER_SHARE)
    for batch in RNNT_BATCHES:
        workload = encoder(batch)
        others_ps = standard_ps(workload) * (1 - share) / share
        theirs_ps = standard_ps(workload, "v100") + others_ps / v100_ratio()
        ours_ps = time_ps(workload, FARNN["VS", Cell.LSTM]) + others_ps
        gains[f"{RNNT_NAME}, batch {batch}"] = reduction(ours_ps, theirs_ps)
    return gains


RNNT_NAME = "rnnt"


def versal() -> Measured:
    """Measure the largest reduction of all of RNN-T's time by FARNN-VS."""
    gains = versal_gains()
    whole = {name: gain for name, gain in gains.items() if name.startswith(RNNT_NAME)}
    best = max(whole, key=lambda name: whole[name])
    most = max(gain for name, gain in gains.items() if name not in whole)
    return Measured(
        whole[best], f"all of {best}; DS2's recurrent layers alone, at most {most:.0f} %"
    )


def assumptions() -> Measured:
    """Return FARNN-VS's GPU, and whether link and activations are as on FARNN-13P."""
    versal, base = cluster("farnn-vs"), cluster("farnn-13p")
    gpu = versal.board(0)
    assert isinstance(gpu, Gpu)
    same = (
        versal.link == base.link,
        array("farnn-vs").activation_cycles == array("farnn-13p").activation_cycles,
    )
    return Measured([gpu.name, *same], "GPU; the same link and activations as FARNN-13P")


def devices() -> Measured:
    """Return the names of FARNN-9P's devices."""
    pair = cluster("farnn-9p")
    return Measured([pair.board(0).name, pair.board(1).name], "clusters/farnn-9p.toml")
