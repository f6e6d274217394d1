"""A test of existing weights: loss and accuracy as after an epoch of training, without training."""

from __future__ import annotations

import dataclasses

from ...comm import SingleProcess
from ..common import InputError
from ..config import settings_config
from ..data import NgramBits, ngram_bits
from ..device import Tally
from ..network import Network
from ..plan import make_plan, training_data
from .layer_states import deal_weights
from .own_weights import Found
from .train import Trainer

_OF_DATA = (
    *("data", "resize", "crop", "mean", "std", "augment", "skip_broken", "test_share", "split_seed", "text_samples"),
    *("samples", "test_samples", "seed", "batch", "micro_batch"),
)
"""Keys of a run on which its test depends; the order of sums follows from `micro_batch`."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The test of a network's weights on the data set called `data`.

    Of a text `ngrams` are the bits a character of the simplest models, as in a run's results.
    """

    network: Network
    data: str
    tested: Tally
    ngrams: NgramBits | None


def evaluate(found: Found, data: str | None = None, test_samples: int | None = None) -> Evaluation:
    """Return the test of a run's weights, in this process; by default on the run's data, and as many test samples.

    Images are normalised as in the run; where that has no `mean` and `std`, by the training images of the data.

    Raises:
        InputError: the data are missing, do not fit the network, or have no test.
    """
    kept = {key: found.settings[key] for key in _OF_DATA if found.settings.get(key) not in (None, ())}
    given = {key: value for key, value in (("data", data), ("test_samples", test_samples)) if value is not None}
    how = {"schedule": "sync", "devices": 1, "memory": "ignored", "network": found.network.name}
    config = settings_config({**kept, **given, **how})
    plan = make_plan(config.model_copy(update={"samples": None}), 1, network=found.network)
    tests = training_data(plan)
    if not tests.n_test:
        raise InputError(f"`data` = {tests.name!r}: has no test samples")
    if config.samples is not None:
        tests = tests.first(min(config.samples, tests.n_train))
    ranks = SingleProcess()
    trainer = Trainer(plan, tests, ranks)
    deal_weights(ranks, found.network, trainer.learnt(), found.weights)
    tested = trainer.evaluate()
    trainer.close()
    predicts_each = tests.symbols and found.network.result_steps > 1
    return Evaluation(found.network, tests.name, tested, ngram_bits(tests) if predicts_each else None)
