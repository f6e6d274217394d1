"""Memory of a long run: what rank 0 keeps does not grow with epochs, nor does what writing
takes.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from emuchain.comm.exchange import Traffic
from emuchain.emulator.device import Tally
from emuchain.emulator.plan import training_data
from emuchain.emulator.run import EpochRecord, Recorder, Usage, read_results
from emuchain.emulator.run.results.history import History
from emuchain.emulator.run.results.results import fixed_results
from emuchain.emulator.run.results.results_file import fill_results
from emuchain.emulator.run.results.schema import growing_of
from emuchain.emulator.run.results.steps import Exchanged, SentBy, StepTable
from emuchain.emulator.run.state.checkpoint_file import CheckpointWriter
from emuchain.emulator.run.state.checkpoints import write_history

FIRST, LAST = 100, 1100
MOST_BYTES = (
    40  # that an epoch may keep; of one with a codec it was thousands before histories had spools
)


def epoch(number: int) -> EpochRecord:
    """An epoch of a run that exchanges gradients through a codec."""
    values = np.arange(4.0)
    exchanged = Exchanged(Traffic(16, 8, {"width_2": number}), 5)
    return EpochRecord(
        *(
            number,
            0.1,
            Tally(8, 1.0, 2),
            Tally(),
            1000 * number,
            0.1 * number,
            Usage(0, (), ()),
            exchanged,
        ),
        sizes={SentBy(0, 0): np.full((8, 2), 16)},
        steps=StepTable(values, values, values.astype(np.int64)),
    )


def peaks(plan: Any, history: History, folder: Path) -> tuple[int, int]:
    """Return the bytes that writing a checkpoint and a results file takes at most."""
    of, found = (plan, 8, history), []

    def checkpoint(file: Any) -> None:
        writer = CheckpointWriter(file)
        rows, text = write_history(writer, history)
        writer.finish(text, rows)

    def results(file: Any) -> None:
        fill_results(file, fixed_results(*of, {}, {}), growing_of(*of))

    for name, write in (("run.ckpt", checkpoint), ("run.h5", results)):
        with open(folder / name, "w+b") as file:
            write(file)
            tracemalloc.start()
            file.seek(0)
            write(file)
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    return found[0], found[1]


def test_an_epoch_keeps_nothing(plan_of: Callable[..., Any]) -> None:
    """Of Python's memory and NumPy's, in what records a run."""
    plan = plan_of(
        replicas=2,
        compress="inceptionn:-10",
        schedule="sync",
        devices=1,
        samples=8,
        batch=2,
        epochs=LAST,
    )
    recorder, kept = Recorder(plan, training_data(plan), "none", None), {}
    tracemalloc.start()
    try:
        for number in range(LAST):
            recorder.record(epoch(number), {})
            if number + 1 in (FIRST, LAST):
                gc.collect()
                kept[number + 1] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(recorder.history) == LAST
    assert (kept[LAST] - kept[FIRST]) / (LAST - FIRST) < MOST_BYTES


def test_writing_takes_as_much_for_any_history(plan_of: Callable[..., Any], tmp_path: Path) -> None:
    plan = plan_of(
        replicas=2, compress="inceptionn:-10", schedule="sync", devices=1, samples=8, batch=2
    )
    few, many = History(map(epoch, range(1000))), History(map(epoch, range(5000)))
    for before, after in zip(peaks(plan, few, tmp_path), peaks(plan, many, tmp_path), strict=True):
        assert after < 1.2 * before
    found = read_results(tmp_path / "run.h5")
    assert found.epochs == 5000
    assert found.exchange["width_2"].tolist() == [*range(5000)]
    assert found.messages["compressed_bytes"].shape == (20_000, 2)
