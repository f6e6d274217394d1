"""The history of a run on rank 0, its log, and its results file, which is rewritten after each epoch."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from ...comm.exchange import step_sizes
from ..common import WholeFile
from ..data import Dataset, ngram_bits
from ..plan import PairPlan, Plan
from .epoch_result import EpochResult, Weights
from .history import History
from .results import Results, results_of, versions
from .results_file import results_image
from .step_log import StepLog
from .steps import StepResult, StepShares, diverged


class Recorder:
    """Keeps the results of epochs, and the usage up to the last one.

    `mpi` is the MPI library's version, `out` the results file, if one is wanted.

    `ngrams` are the bits a character of the simplest models, where the network predicts each character of a text.
    Mini-batches go to `log`.
    """

    def __init__(
        self,
        plan: Plan | PairPlan,
        data: Dataset,
        mpi: str,
        out: WholeFile | None,
        log: StepLog | None = None,
    ) -> None:
        self.history = History()
        self.ngrams = ngram_bits(data) if data.symbols and plan.network.result_steps > 1 else None
        self._plan, self._samples, self._mpi, self._out = plan, data.n_train, mpi, out
        self._log, self._sizes = log or StepLog(), step_sizes(data.n_train, plan.config.batch)
        self._shares = StepShares(self._sizes)

    def begin(self, history: Sequence[EpochResult], steps: Sequence[StepResult]) -> None:
        """Take what a run has done that goes on: finished epochs, and mini-batches of the one that is not."""
        self.history[:] = history
        for result in history:
            self._log_epoch(result)
        for step in steps:
            self.step(step)

    def step(self, share: StepResult) -> None:
        """Log what a replica's share of a mini-batch completes."""
        for whole in self._shares.add(share):
            loss, rate = whole.tally.mean_loss, whole.learning_rate
            self._log_step(whole.epoch, whole.step, loss, rate, whole.virtual_time_ps)

    def record(self, result: EpochResult, weights: Weights) -> None:
        """Add an epoch, or replace one that is there, log its last mini-batches, and write the results file.

        Raises:
            InputError: a file cannot be written, or the last update made weights whose test is not finite, where no
                bits flip; the file of the results holds the epochs before.
        """
        loss, config = result.test.mean_loss, self._plan.config
        flips = isinstance(self._plan, Plan) and any(each.rate for each in self._plan.faults.flips)
        if result.test.samples and not math.isfinite(loss) and not flips:
            what = f"the test loss is {loss} after epoch {result.epoch + 1}"
            raise diverged(config.weight_decay, result.learning_rate, what)
        before = int(np.searchsorted(self.history.rows["epoch"], result.epoch))
        again = before < len(self.history)
        self.history[before:] = [result]
        if not again:
            self._log_epoch(result)
        if self._out is not None:
            self._out.write(results_image(self.results(weights)))

    def _log_epoch(self, result: EpochResult) -> None:
        """Log an epoch, and those of its mini-batches that are not logged yet."""
        of = result.steps
        for step in range(self._shares.end_epoch(result.epoch), len(of)):
            loss, rate = float(of.loss[step]), float(of.learning_rate[step])
            self._log_step(result.epoch, step, loss, rate, int(of.virtual_time_ps[step]))
        self._log.epoch(result, self._number(result.epoch, len(of)))

    def _log_step(self, epoch: int, step: int, loss: float, learning_rate: float, virtual_time_ps: int) -> None:
        self._log.step(
            epoch,
            step,
            self._number(epoch, step + 1),
            loss=loss,
            learning_rate=learning_rate,
            virtual_time_ps=virtual_time_ps,
        )

    def _number(self, epoch: int, step: int) -> int:
        """Return the number of a mini-batch since the start of training, from 1, as `step` is in its epoch."""
        return epoch * len(self._sizes) + step

    def results(self, weights: Weights) -> Results:
        """Return the results of all epochs so far, with these weights."""
        return results_of(self._plan, self._samples, self.history, weights, self._versions, self.ngrams)

    @functools.cached_property
    def _versions(self) -> dict[str, str]:
        return versions(self._mpi)
