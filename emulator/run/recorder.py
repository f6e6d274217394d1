"""The history of a run on rank 0, and its results file, which is rewritten after each epoch."""

from __future__ import annotations

import functools

from ..common import WholeFile
from ..data import Dataset, ngram_bits
from ..plan import PairPlan, Plan
from .epochs import EpochResult, Weights
from .results import Results, results_of, versions
from .results_file import results_image


class Recorder:
    """Keeps the results of epochs, and the usage up to the last one.

    `mpi` is the MPI library's version, `out` the results file, if one is wanted.

    `ngrams` are the bits a character of the simplest models, where the network predicts each character of a text.
    """

    def __init__(self, plan: Plan | PairPlan, data: Dataset, mpi: str, out: WholeFile | None) -> None:
        self.history: list[EpochResult] = []
        self.ngrams = ngram_bits(data) if data.symbols and plan.network.result_steps > 1 else None
        self._plan, self._samples, self._mpi, self._out = plan, data.n_train, mpi, out

    def record(self, result: EpochResult, weights: Weights) -> None:
        """Add an epoch, or replace one that is there, and write the results file with all epochs so far.

        Raises:
            InputError: the file cannot be written; it holds the epochs before.
        """
        before = [row for row in self.history if row.epoch < result.epoch]
        self.history[:] = [*before[:-1], *(row.row() for row in before[-1:]), result]
        if self._out is not None:
            self._out.write(results_image(self.results(weights)))

    def results(self, weights: Weights) -> Results:
        """Return the results of all epochs so far, with these weights."""
        return results_of(self._plan, self._samples, self.history, weights, self._versions, self.ngrams)

    @functools.cached_property
    def _versions(self) -> dict[str, str]:
        return versions(self._mpi)
