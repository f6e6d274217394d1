"""A test of existing weights: loss and accuracy as after an epoch of training, without training."""

from __future__ import annotations

import dataclasses

from ...launch import SingleProcess
from ..common import InputError, plural
from ..config import settings_config
from ..data import Dataset, NgramBits, ngram_bits
from ..device import Tally
from ..network import Network
from ..plan import check_data, make_plan, training_data
from .chain_trainer import ChainTrainer
from .placement import check_needs
from .state import RunWeights, deal_weights

_OF_DATA = (
    *(
        "data",
        "resize",
        "crop",
        "channels",
        "mean",
        "std",
        "augment",
        "skip_broken",
        "test_share",
        "split_seed",
    ),
    *("text_samples", "samples", "test_samples", "seed", "batch", "micro_batch"),
)
"""Keys of a run on which its test depends; the order of sums follows from `micro_batch`."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The test of a network's weights on the data set called `data`.

    Of a text `ngrams` are the bits per character of the simplest models, as in a run's results.
    `note` says what was done to the data, such as what was left out.
    """

    network: Network
    data: str
    tested: Tally
    ngrams: NgramBits | None
    note: str = ""

    @property
    def test_accuracy(self) -> float:
        """Share of predictions that are right, from 0 to 1."""
        return self.tested.accuracy

    @property
    def test_loss(self) -> float:
        """Mean cross-entropy of a sample."""
        return self.tested.mean_loss

    @property
    def test_samples(self) -> int:
        """Number of samples."""
        return self.tested.samples

    @property
    def bits(self) -> tuple[float, NgramBits] | None:
        """Bits per character, and those of the simplest models; None without a text."""
        return None if self.ngrams is None else (self.tested.bits_per_step, self.ngrams)

    def __repr__(self) -> str:
        samples = plural(self.test_samples, f"test {self.network.sample_noun}")
        accuracy = f"accuracy {100 * self.test_accuracy:.2f} %, loss {self.test_loss:.4f}"
        return f"<Evaluation of {self.network.name} on {samples} of {self.data}: {accuracy}>"


def evaluate(
    run: RunWeights, data: Dataset | str | None = None, test_samples: int | None = None
) -> Evaluation:
    """Return the test of a run's weights, in this process; by default on the run's data, and as
    many test samples.

    Images are normalised as in the run; where that has no `mean` and `std`, by the training images
    of the data.

    Raises:
        InputError: the data are missing, do not fit the network, or have no test.
    """
    own = data if isinstance(data, Dataset) else None
    kept = {key: run.settings[key] for key in _OF_DATA if run.settings.get(key) not in (None, ())}
    overrides = {"data": None if own is not None else data, "test_samples": test_samples}
    given = {key: value for key, value in overrides.items() if value is not None}
    how = {"schedule": "sync", "devices": 1, "memory": "ignored", "network": run.network.name}
    config = settings_config({**kept, **given, **how})
    plan = make_plan(
        config.model_copy(update={"samples": None, "test_samples": None}), 1, network=run.network
    )
    if own is not None:
        check_data(plan, own)
    tests = training_data(plan) if own is None else own
    if not tests.n_test:
        raise InputError(f"`data` = {tests.name!r}: has no test samples")
    if config.test_samples is not None:  # the run's own number is for its own data
        tests = tests.test_first(test_samples or min(config.test_samples, tests.n_test))
    if config.samples is not None:
        tests = tests.first(min(config.samples, tests.n_train))
    ranks = SingleProcess()
    check_needs(plan, tests, ranks, gathers=False, trains=False)
    trainer = ChainTrainer.of(plan, tests, ranks)
    deal_weights(ranks, run.network, trainer.learnt(), run.weights)
    tested = trainer.evaluate()
    trainer.close()
    predicts_each = tests.symbols and run.network.result_steps > 1
    return Evaluation(
        run.network, tests.name, tested, ngram_bits(tests) if predicts_each else None, tests.note
    )
