"""The history of a run on rank 0, its log, and its results file, which is rewritten as epochs end."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...comm.exchange import step_sizes
from ..common import InputError, WholeFile
from ..data import Dataset, ngram_bits
from ..plan import Plan
from .history import History, Pace
from .results import Results, fixed_results, results_of, versions
from .results_file import fill_results
from .step_log import StepLog
from .steps import EpochResult, StepResult, StepShares, Weights, diverged
from .tables import growing_of

if TYPE_CHECKING:
    from typing_extensions import Self


class Recorder:
    """Keeps the results of epochs, and the usage up to the last one. As a context manager it writes them at the end.

    `mpi` is the MPI library's version, `out` the results file, if one is wanted.

    `ngrams` are the bits per character of the simplest models, where the network predicts each character of a text.
    Mini-batches go to `log`.
    """

    def __init__(
        self,
        plan: Plan,
        data: Dataset,
        mpi: str,
        out: WholeFile | None,
        log: StepLog | None = None,
    ) -> None:
        self.history = History()
        self.ngrams = ngram_bits(data) if data.symbols and plan.network.result_steps > 1 else None
        self._plan, self._samples, self._mpi, self._out = plan, data.n_train, mpi, out
        self._log, self._sizes = log or StepLog(), step_sizes(data.n_train, plan.config.batch)
        self._shares, self._pace = StepShares(self._sizes), Pace()
        self._unwritten: Weights | None = None

    def begin(self, history: Sequence[EpochResult], steps: Sequence[StepResult]) -> None:
        """Take what a run has done that goes on: finished epochs, and mini-batches of the one that is not."""
        self.history[:] = []
        self.history.extend(history)
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
        """Add an epoch, or replace the last one, log its last mini-batches, and write the results file if it is due.

        It is due after the last epoch, and before as `Pace` says.

        Raises:
            InputError: a file cannot be written, or the last update made weights whose test is not finite, where no
                bits flip; the file of the results holds the epochs before.
        """
        loss, config = result.test.mean_loss, self._plan.config
        flips = any(fault.rate for fault in self._plan.faults.flips)
        if result.test.samples and not math.isfinite(loss) and not flips:
            what = f"the test loss is {loss} after epoch {result.epoch + 1}"
            raise diverged(config.weight_decay, result.learning_rate, what)
        if self.history and self.history[-1].epoch == result.epoch:
            self.history[-1] = result
        else:
            self.history.append(result)
            self._log_epoch(result)
        self._unwritten = weights
        if result.epoch + 1 >= config.epochs or self._pace.due(self.history.nbytes):
            self.flush()

    def flush(self) -> None:
        """Write the results file, unless it has all epochs.

        Raises:
            InputError: it cannot be written; it holds what it held before.
        """
        weights, self._unwritten = self._unwritten, None
        if self._out is None or weights is None:
            return
        run = self._plan, self._samples, self.history
        with self._pace.writing(), self._out.building() as file:
            fill_results(file, fixed_results(*run, weights, self._versions), growing_of(*run, self.ngrams))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is not written yet, whatever has ended the run."""
        with contextlib.nullcontext() if kind is None else contextlib.suppress(InputError):
            self.flush()

    def _log_epoch(self, result: EpochResult) -> None:
        """Log an epoch, and those of its mini-batches that are not logged yet."""
        table = result.steps
        for step in range(self._shares.end_epoch(result.epoch), len(table)):
            loss, rate = float(table.loss[step]), float(table.learning_rate[step])
            self._log_step(result.epoch, step, loss, rate, int(table.virtual_time_ps[step]))
        self._log.epoch(result, self._number(result.epoch, len(table)))

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
