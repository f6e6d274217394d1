"""Mini-batches and epochs of a run as its user sees them, whatever trains."""

from __future__ import annotations

from ..report import EpochRow, Progress
from ..run import EpochResult, Recorder, StepResult, Weights


class Shown:
    """Shows mini-batches and epochs as progress, and records the epochs; on rank 0."""

    def __init__(self, recorder: Recorder, progress: Progress) -> None:
        self.recorder, self._progress = recorder, progress
        self._samples_done = 0

    def step(self, result: StepResult) -> None:
        """Show a finished mini-batch, and log it."""
        self.recorder.step(result)
        tally = result.tally
        self._samples_done += tally.samples
        self._progress.step(
            self._samples_done, result.epoch + 1, tally.mean_loss, tally.accuracy, result.virtual_time_ps
        )

    def epoch(self, result: EpochResult, weights: Weights) -> None:
        """Show a finished epoch, and record it."""
        accuracy = result.test.accuracy if result.test.samples else None
        self._progress.epoch(
            EpochRow(result.epoch + 1, result.train.mean_loss, accuracy, result.virtual_time_ps, result.host_time_s)
        )
        self.recorder.record(result, weights)
