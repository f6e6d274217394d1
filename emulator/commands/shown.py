"""Mini-batches and epochs of a run as its user sees them, whatever trains."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..common import plural
from ..data import Dataset
from ..plan import PairPlan, Plan
from ..run import Ended, EpochResult, Position, Recorder, StepResult, Weights
from ..view import EpochRow, Line, Progress, next_line


def hosts(ranks: int, needed: int) -> str:
    """Return what trains, in words: the ranks, and how many of them are idle."""
    idle = f" ({plural(ranks - needed, 'rank')} idle)" if ranks > needed else ""
    return f"{ranks} ranks{idle}" if ranks > 1 else "one process"


class Shown:
    """Shows mini-batches and epochs as progress, and records the epochs; on rank 0."""

    def __init__(self, plan: Plan | PairPlan, data: Dataset, recorder: Recorder, progress: Progress) -> None:
        self.recorder, self._plan, self._data, self._progress = recorder, plan, data, progress
        self._samples_done = 0

    def begin(self, history: Sequence[EpochResult], steps: Sequence[StepResult], at: Position) -> None:
        """Take what a run has done that goes on."""
        config = self._plan.config
        self.recorder.begin(history, steps)
        self._samples_done = at.epoch * self._data.n_train + at.step * config.batch
        self._progress.note(f"resuming from {config.resume}: {self._place(at)}")

    def step(self, result: StepResult) -> None:
        """Show a finished mini-batch, and log it."""
        self.recorder.step(result)
        tally = result.tally
        self._samples_done += tally.samples
        self._progress.step(
            self._samples_done, result.epoch + 1, tally.mean_loss, tally.accuracy, result.virtual_time_ps
        )

    def epoch(self, result: EpochResult, weights: Weights) -> None:
        """Record a finished epoch; show it as finished once its results are in their file."""
        self.recorder.record(result, weights)
        accuracy = result.test.accuracy if result.test.samples else None
        self._progress.epoch(
            EpochRow(result.epoch + 1, result.train.mean_loss, accuracy, result.virtual_time_ps, result.host_time_s)
        )

    def stopped(self, ended: Ended) -> list[Line]:
        """Return the lines about a run that a signal has ended at a checkpoint."""
        file = self._plan.config.checkpoint or ""
        return [
            Line(f"stopped by {ended.signal.name}: {self._place(ended.at)}; {file} has all of it"),
            next_line(shlex.join(["emuchain", "train", "--resume", file])),
        ]

    def _place(self, at: Position) -> str:
        config = self._plan.config
        if at.step == 0:
            return f"{at.epoch} of {plural(config.epochs, 'epoch')} done"
        steps = -(-self._data.n_train // config.batch)
        return f"epoch {at.epoch + 1} of {config.epochs}, {at.step:,} of {plural(steps, 'mini-batch')} done"
