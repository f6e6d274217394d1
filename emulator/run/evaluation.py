"""Existing weights without training: a test with loss and accuracy as after an epoch, and logits of
given samples.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...launch import SingleProcess
from ..common import Figures, InputError, plural
from ..config import Config, settings_config
from ..data import Dataset, NgramBits, as_shape, ngram_bits
from ..device import ImageSource, LogitsHead, MapSource, Tally, TextSource
from ..network import Network
from ..plan import ChainPlan, fitting_data, make_plan, training_data
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
        "target_columns",
    ),
    *(
        "text_samples",
        "tokenizer",
        "masked_share",
        "samples",
        "test_samples",
        "seed",
        "batch",
        "micro_batch",
        "loss",
    ),
)
"""Keys of a run on which its test depends; the order of sums follows from `micro_batch`."""

_HOW = {
    **{"schedule": "sync", "devices": 1, "memory": "ignored"},
    "changes": {"board.multipliers": "one-per-dsp", "board.dsp": 30_000},
}
"""In this process, on one device, a board with room for the engines of any network: it says nothing
of time, and no board changes a bit.
"""


@dataclasses.dataclass(frozen=True)
class Evaluation(Figures):
    """The test of a network's weights on the data set called `data`.

    Of a text `ngrams` are the bits per character of the simplest models, as in a run's results.
    `note` says what was done to the data, such as what was left out.
    """

    _figures = "data test_samples test_accuracy test_loss bits note"

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
        """Mean loss of a sample."""
        return self.tested.mean_loss

    @property
    def test_samples(self) -> int:
        """Number of samples."""
        return self.tested.samples

    @property
    def bits(self) -> tuple[float, NgramBits] | None:
        """Bits per character, and those of the simplest models; None without a text."""
        return None if self.ngrams is None else (self.tested.bits_per_step, self.ngrams)

    def to_dict(self) -> dict[str, Any]:
        """Return the network's name, and figures under the names of the attributes."""
        return {"network": self.network.name, **super().to_dict()}

    def __repr__(self) -> str:
        samples = plural(self.test_samples, f"test {self.network.sample_noun}")
        shown = self.tested.shown.replace("test ", "")
        return f"<Evaluation of {self.network.name} on {samples} of {self.data}: {shown}>"


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
    overrides = {"data": None if own is not None else data, "test_samples": test_samples}
    plan, config = _on_data(run, overrides)
    tests = training_data(plan) if own is None else fitting_data(plan, own)
    if not tests.n_test:
        raise InputError(f"`data` = {tests.name!r}: has no test samples")
    if config.test_samples is not None:  # the run's own number is for its own data
        tests = tests.test_first(test_samples or min(config.test_samples, tests.n_test))
    if config.samples is not None:
        tests = tests.first(min(config.samples, tests.n_train))
    with _trained(plan, tests, run) as trainer:
        tested = trainer.evaluate()
    predicts_each = tests.is_text and run.network.result_steps > 1
    return Evaluation(
        run.network, tests.name, tested, ngram_bits(tests) if predicts_each else None, tests.note
    )


def _on_data(run: RunWeights, overrides: Mapping[str, object]) -> tuple[ChainPlan, Config]:
    """Return a plan of a run's network with all of its data, and the configuration that says which
    of them; `overrides` that are None are the run's own.
    """
    kept = {key: run.settings[key] for key in _OF_DATA if run.settings.get(key) not in (None, ())}
    given = {key: value for key, value in overrides.items() if value is not None}
    config = settings_config({**kept, **given, **_HOW, "network": run.network.name})
    whole = config.model_copy(update={"samples": None, "test_samples": None})
    return make_plan(whole, 1, network=run.network), config


def symbols_of(run: RunWeights) -> tuple[str, ...]:
    """Return the symbols of the text on which a run trained, in the order of their numbers.

    Raises:
        InputError: its data are missing, or no text.
    """
    data = training_data(_on_data(run, {})[0])
    if not data.symbols:
        raise InputError(f"`data` = {data.name!r}: is no text, whose symbols could be continued")
    return data.classes


def predict(run: RunWeights, samples: NDArray[Any]) -> NDArray[np.float32]:
    """Return the logits (n, classes) that a run's weights make of samples, in evaluation; where
    each step has a result, (n, steps, classes), and where each pixel has one, (n, classes, rows,
    columns).

    Samples are what the network takes, normalised already: floats (n, channels, rows, columns), (n,
    rows, columns) of one channel, (n, steps, values) of a sequence or (n, values); or symbols,
    whole numbers (n, steps). Values, or classes, stand before steps where the network has its
    `channels_first`.

    Raises:
        InputError: they are something else, or devices divide the logits.
    """
    source, count = _source(samples, run)
    with predicting(run, count) as logits_of:
        logits = logits_of(source)
    if run.network.result_steps > 1 and "results" in run.network.channels_first:
        return np.ascontiguousarray(logits.swapaxes(1, 2))
    return logits


@contextlib.contextmanager
def predicting(
    run: RunWeights, count: int
) -> Iterator[Callable[[ImageSource], NDArray[np.float32]]]:
    """Yield what makes logits, as `predict` returns them, of a source of `count` samples; as often
    as it is called.

    Raises:
        InputError: devices divide the logits, or there is no room.
    """
    network = run.network
    if network.layers[-1].vocabulary_parallel:
        raise InputError(
            f"predict: slices of {network.name} have the logits of their own classes alone; leave"
            " `vocabulary_parallel` out of its softmax"
        )
    config = settings_config({**_HOW, "network": network.name, "batch": 1, "micro_batch": 1})
    plan = make_plan(config, 1, network=network)
    nothing = np.broadcast_to(np.uint8(0), (count, *network.input)), np.zeros(count, np.int64)
    data = Dataset("samples", *nothing, *nothing, tuple(map(str, range(network.classes))))
    classes, rows, columns = network.layers[-1].feeds
    steps = (network.result_steps,) if network.result_steps > 1 else ()

    with _trained(plan, data, run) as trainer:

        def logits_of(source: ImageSource) -> NDArray[np.float32]:
            head = LogitsHead(count, network.result_steps * network.classes)
            with np.errstate(over="ignore", invalid="ignore"):
                trainer.infer(source, head)
            if not network.has_map_results:
                return head.logits.reshape(count, *steps, classes)
            by_pixel = head.logits.reshape(count, rows, columns, classes)
            return np.ascontiguousarray(by_pixel.transpose(0, 3, 1, 2))

        yield logits_of


@contextlib.contextmanager
def _trained(plan: ChainPlan, data: Dataset, run: RunWeights) -> Iterator[ChainTrainer]:
    """Yield the chain of a plan, in this process, with a run's weights.

    Raises:
        InputError: there is no room for it.
    """
    ranks = SingleProcess()
    check_needs(plan, data, ranks, gathers=False, trains=False)
    trainer = ChainTrainer.of(plan, data, ranks)
    deal_weights(ranks, run.network, trainer.learnt(), run.weights)
    yield trainer
    trainer.close()


def _source(samples: NDArray[Any], run: RunWeights) -> tuple[ImageSource, int]:
    """Return the source of samples as the network takes them, and how many there are.

    Raises:
        InputError: the network does not take them.
    """
    network, shape, arena = run.network, samples.shape[1:], Arena()
    channels, rows, columns = network.input
    if network.takes_symbols:
        if samples.dtype.kind not in "iu" or shape != (rows,) or not len(samples):
            raise _refused(samples, f"whole numbers (n, {rows}), the symbols of each step")
        if samples.min() < 0 or samples.max() >= channels:
            raise InputError(
                f"`samples`: hold symbols from {samples.min()} to {samples.max()};"
                f" {network.name} knows 0 to {channels - 1}"
            )
        symbols = samples.astype(np.int32).reshape(-1, 1, rows, 1)
        return TextSource(symbols, arena, network.entry, one_hot=False), len(samples)
    forms: dict[tuple[int, ...], NDArray[Any]] = {network.input: samples}
    channels_first = "inputs" in network.channels_first
    if shape == (math.prod(network.input),):
        forms[shape] = as_shape(
            samples[:, :, None, None], network.input, channels_first=channels_first
        )
    if columns == 1:
        forms[rows, channels] = samples.swapaxes(1, -1)
    if channels_first:
        forms[channels, rows] = samples
    elif channels == 1:
        forms[rows, columns] = samples
    if samples.dtype.kind != "f" or shape not in forms or not len(samples):
        likely = (rows, channels) if network.takes_sequence else network.input
        if channels_first:
            likely = channels, rows
        raise _refused(
            samples,
            f"floats (n, {', '.join(map(str, likely))}), normalised as for training, such as by"
            " `data.normalisation().apply(images)`",
        )
    maps = forms[shape].reshape(-1, *network.input).astype(np.float32)
    return MapSource(maps, arena, network.entry, network.corner), len(samples)


def _refused(samples: NDArray[Any], wanted: str) -> InputError:
    sizes = ", ".join(map(str, samples.shape))
    return InputError(f"`samples`: are {samples.dtype} ({sizes}); should be {wanted}")
