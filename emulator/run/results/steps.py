"""Results of a run as it goes: each replica's share of a mini-batch, whole mini-batches, exchanges,
and epochs.

Sizes of compressed messages are kept in training, and given where the run is timed again.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import BINS, GivenBytes, Traffic
from ....launch import Ranks
from ...common import InputError, format_time_ps, plain
from ...device import Rules, Tally
from .usage import ResourceUse, Usage


class StepRow(NamedTuple):
    """A mini-batch as files have it, with the columns of `schema.STEPS`: epochs and steps are
    counted from 1.
    """

    epoch: int
    step: int
    loss: float
    learning_rate: float
    virtual_time_ps: int


@dataclasses.dataclass(frozen=True)
class StepResult:
    """A replica's share of a mini-batch that its chain's last device has finished."""

    epoch: int
    step: int
    tally: Tally
    virtual_time_ps: int
    learning_rate: float = float("nan")
    replica: int = 0

    @property
    def columns(self) -> tuple[float, float, int]:
        """Mean loss, learning rate, and virtual time, as in a `StepTable`."""
        return self.tally.mean_loss, self.learning_rate, self.virtual_time_ps

    def line(self, steps: int) -> str:
        """Return what has been done, as text, in an epoch of `steps` mini-batches."""
        return f"epoch {self.epoch + 1}, step {self.step + 1} of {steps}"


def mini_batches(shares: Iterable[StepResult]) -> list[StepResult]:
    """Return whole mini-batches, in order: shares of replicas added up in their order, at the time
    of the last.
    """
    shares_of_steps: dict[tuple[int, int], list[StepResult]] = collections.defaultdict(list)
    for share in shares:
        shares_of_steps[share.epoch, share.step].append(share)
    return [
        _whole(sorted(shares_of_steps[key], key=lambda share: share.replica))
        for key in sorted(shares_of_steps)
    ]


def _whole(shares: Sequence[StepResult]) -> StepResult:
    tally = sum((share.tally for share in shares), Tally())
    last_ps = max(share.virtual_time_ps for share in shares)
    return dataclasses.replace(shares[0], tally=tally, virtual_time_ps=last_ps, replica=0)


@dataclasses.dataclass(frozen=True, eq=False)
class StepTable:
    """The mini-batches of an epoch in order: mean loss, learning rate, and virtual time since the
    start of training.
    """

    loss: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    learning_rate: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    virtual_time_ps: NDArray[np.int64] = dataclasses.field(
        default_factory=lambda: np.zeros(0, np.int64)
    )

    @classmethod
    def of(cls, steps: Sequence[StepResult]) -> StepTable:
        """Return the table of whole mini-batches."""
        if not steps:
            return cls()
        losses, rates, times_ps = zip(*(step.columns for step in steps), strict=True)
        return cls(
            np.array(losses, np.float64), np.array(rates, np.float64), np.array(times_ps, np.int64)
        )

    def __eq__(self, other: object) -> bool:
        """Return whether all values are the same."""
        if not isinstance(other, StepTable):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name))
            for f in dataclasses.fields(self)
        )

    __hash__ = None  # type: ignore[assignment]  # as of anything with arrays

    def __getitem__(self, step: int) -> tuple[float, float, int]:
        """Return the values of a mini-batch."""
        return (
            float(self.loss[step]),
            float(self.learning_rate[step]),
            int(self.virtual_time_ps[step]),
        )

    def __len__(self) -> int:
        """Return the number of mini-batches."""
        return len(self.loss)


class StepShares:
    """Puts mini-batches together from the shares of replicas, as they come on rank 0.

    `sizes` are the samples of an epoch's mini-batches. What comes after its epoch's end is left
    out.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes, self._ended, self._done = sizes, -1, 0
        self._shares: dict[int, list[StepResult]] = collections.defaultdict(list)

    def add(self, share: StepResult) -> Iterator[StepResult]:
        """Take a share; yield the mini-batches that are whole now, in order."""
        if share.epoch <= self._ended:
            return
        self._shares[share.step].append(share)
        while self._is_whole(self._done):
            [whole] = mini_batches(self._shares.pop(self._done))
            self._done += 1
            yield whole

    def _is_whole(self, step: int) -> bool:
        shares = self._shares.get(step)
        return (
            shares is not None and sum(share.tally.samples for share in shares) == self._sizes[step]
        )

    def end_epoch(self, epoch: int) -> int:
        """End an epoch; return how many of its first mini-batches have been whole."""
        done, self._ended, self._done = self._done, epoch, 0
        self._shares.clear()
        return done


class StepReports:
    """Takes the mini-batches of a leg that end on this rank, and reports each of them to rank 0.

    `rules` are those of the epoch. The leg begins with mini-batch `first`; clocks began at the
    virtual time `from_ps`. `flips` says whether bits flip in the run.
    """

    def __init__(
        self, ranks: Ranks, rules: Rules, first: int = 0, from_ps: int = 0, *, flips: bool = False
    ) -> None:
        self.shares: list[StepResult] = []
        self._ranks, self._rules, self._first, self._from_ps = ranks, rules, first, from_ps
        self._flips = flips

    def of(self, replica: int) -> Callable[[int, Tally, int], None]:
        """Return a callback that takes a finished mini-batch of a replica, by its number in the
        leg.
        """
        return functools.partial(self._take, replica)

    def _take(self, replica: int, step: int, tally: Tally, virtual_time_ps: int) -> None:
        """Take a finished mini-batch.

        Raises:
            InputError: its loss is not finite.
        """
        rules, step = self._rules, self._first + step
        rate = rules.rate(step)
        if not math.isfinite(tally.loss) and self._flips:
            raise InputError(
                f"`faults.flips`: bits that flip have driven the loss to {tally.mean_loss} in epoch"
                f" {rules.epoch + 1}, step {step + 1}; try a lower `rate`, or `highest_bit` = 22,"
                " which spares exponents of all but gradients"
            )
        if not math.isfinite(tally.loss):
            where = f"in epoch {rules.epoch + 1}, step {step + 1}"
            raise diverged(
                rules.config.weight_decay, rate, f"the loss is {tally.mean_loss} {where}"
            )
        result = StepResult(
            rules.epoch, step, tally, virtual_time_ps + self._from_ps, rate, replica
        )
        self.shares.append(result)
        self._ranks.note(result.line(rules.epoch_steps))  # on hosts without rank 0, too
        self._ranks.send_to_root(result)


class Diverged(InputError):
    """Training has made a loss that is not finite."""


def diverged(decay: float, rate: float, what: str) -> Diverged:
    """Return the error for a loss that is not finite, which names the setting that is the cause.

    An update takes the share `rate` times `decay` of a weight away: from 1 on, weights turn over
    and grow.
    """
    by_decay = rate * decay >= 1 and decay > rate
    name, value = ("weight_decay", decay) if by_decay else ("learning_rate", rate)
    if by_decay:
        smaller = min(value, 1 / rate) / 10
    else:  # of a rate that no network takes, a tenth is another such rate
        from ...config import Config  # here, since ranks that follow do without pydantic

        smaller = value / 10 if value <= 1 else Config.model_fields[name].default
    return Diverged(
        f"`{name}` = {value:g}: training diverged, {what}; try a smaller one, such as {smaller:g}"
    )


@dataclasses.dataclass(frozen=True)
class Exchanged:
    """Totals of exchanges: traffic, the time that devices spent on them, and the distribution of
    gradients.
    """

    traffic: Traffic = dataclasses.field(default_factory=Traffic)
    spent_ps: int = 0
    histogram: NDArray[np.int64] = dataclasses.field(
        default_factory=lambda: np.zeros((2, BINS), np.int64)
    )

    def __add__(self, other: Exchanged) -> Exchanged:
        return Exchanged(
            self.traffic + other.traffic,
            self.spent_ps + other.spent_ps,
            self.histogram + other.histogram,
        )

    def plain(self) -> dict[str, Any]:
        """Return traffic and time as JSON's values."""
        return {"traffic": dataclasses.asdict(self.traffic), "spent_ps": self.spent_ps}

    @classmethod
    def of_plain(cls, said: Mapping[str, Any], *histogram: NDArray[np.int64]) -> Exchanged:
        """Return what `plain` has made these values of."""
        return cls(Traffic(**said["traffic"]), int(said["spent_ps"]), *histogram)

    def since(self, before: Exchanged) -> Exchanged:
        """Return the difference from an earlier total; the histogram remains that of the last
        gradients.
        """
        return Exchanged(
            self.traffic - before.traffic, self.spent_ps - before.spent_ps, self.histogram
        )


EXCHANGE = -1
"""In place of a block: what a device exchanges with other replicas."""


class SentBy(NamedTuple):
    """A source of compressed messages: a device's exchange with other replicas, or a block of
    balanced parameters.

    It sends the same number of messages in every mini-batch.
    """

    replica: int
    device: int
    block: int = EXCHANGE


class OtherMessages(LookupError):
    """Sizes are given of other messages than those that a run sends."""


EpochSizes = Mapping[SentBy, NDArray[np.int64]]
"""Bytes of an epoch's messages before and after the codec (message, 2), by source, in order."""


Weights = dict[str, dict[str, NDArray[np.float32]]]
"""Arrays by name, by layer: weight (oc, ic, kh, kw), bias (oc,), and other arrays of its SFU.

A recurrent layer has PyTorch's names: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0,
weight_hr_l0 with a projection, and the same with _reverse of its second direction.
"""


class EpochResult(NamedTuple):
    """A finished epoch as files have it, with the columns of `schema.HISTORY`: epochs are counted
    from 1, losses are means, and what was not tested is nan.
    """

    epoch: int
    learning_rate: float
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    virtual_time_ps: int
    host_time_s: float

    def shown(self, epochs: int) -> str:
        """Return it as a line about one of `epochs`."""
        tested = f", test accuracy {100 * self.test_accuracy:.2f} %"
        return (
            f"epoch {self.epoch}/{epochs} done: loss {self.train_loss:.4f}"
            f"{'' if math.isnan(self.test_accuracy) else tested}, "
            f"virtual {format_time_ps(self.virtual_time_ps)}, host {self.host_time_s:.1f} s"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as JSON's values; NaN is None."""
        said: dict[str, Any] = plain(self)
        return said

    def __dir__(self) -> list[str]:
        return [*self._fields, "shown", "to_dict"]


@dataclasses.dataclass(frozen=True)
class EpochRecord:
    """One row of the history, with the usage so far; epochs are counted from 0, times are since the
    start of training.

    `exchanged` and `sizes`, those of compressed messages, are of this epoch, over all devices.
    `resources` are those of a pair, or of a GPU alone. `rounded` counts what was rounded in narrow
    formats (`device.RoundingTally`).
    """

    epoch: int
    learning_rate: float
    train: Tally
    test: Tally
    virtual_time_ps: int
    host_time_s: float
    usage: Usage
    exchanged: Exchanged = dataclasses.field(default_factory=Exchanged)
    sizes: EpochSizes = dataclasses.field(default_factory=dict, repr=False, compare=False)
    resources: tuple[ResourceUse, ...] = ()
    steps: StepTable = dataclasses.field(default_factory=StepTable, repr=False)
    rounded: Mapping[str, int] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def result(self) -> EpochResult:
        """The epoch as files have it."""
        tested = (
            self.train.mean_loss,
            self.train.accuracy,
            self.test.mean_loss,
            self.test.accuracy,
        )
        times = self.virtual_time_ps, self.host_time_s
        return EpochResult(self.epoch + 1, self.learning_rate, *tested, *times)

    def row(self) -> EpochRecord:
        """Return the epoch without the usage up to its end, which that of the next one replaces."""
        exchanged = self.exchanged if self.exchanged.traffic.value_bytes else NOTHING
        return dataclasses.replace(self, usage=UNUSED, resources=(), exchanged=exchanged)


NOTHING, UNUSED = Exchanged(), Usage(0, (), ())


@dataclasses.dataclass
class SoFar:
    """What rank 0 knows of an epoch that is not finished: replicas' mini-batches, and sizes
    sent.
    """

    shares: list[StepResult] = dataclasses.field(default_factory=list)
    sizes: dict[SentBy, NDArray[np.int64]] = dataclasses.field(default_factory=dict)

    def add(self, shares: Sequence[StepResult], sizes: EpochSizes) -> None:
        """Add a leg, of some of the replicas."""
        self.shares += shares
        for source, of_leg in sizes.items():
            before = [self.sizes[source]] if source in self.sizes else []
            self.sizes[source] = np.concatenate([*before, of_leg])

    @property
    def steps(self) -> list[StepResult]:
        """Whole mini-batches in order."""
        return mini_batches(self.shares)


class GivenSizes(Protocol):
    """An epoch's sizes for a run without numerics."""

    def bytes_of(self, source: SentBy) -> GivenBytes:
        """Return the function that gives the compressed bytes of the source's messages, one after
        another.
        """

    def shares_of(self, source: SentBy) -> Iterator[float]:
        """Return the shares of its messages' bytes that are left by the codec."""


@dataclasses.dataclass(frozen=True)
class RecordedSizes:
    """The sizes that a run had in an epoch."""

    sizes: EpochSizes

    def bytes_of(self, source: SentBy) -> GivenBytes:
        """See `GivenSizes`."""
        sizes = self._of(source)[:, 1].tolist()
        following = itertools.chain(sizes, _no_more(source, len(sizes)))
        return lambda _: next(following)

    def shares_of(self, source: SentBy) -> Iterator[float]:
        """See `GivenSizes`."""
        sizes = self._of(source).tolist()
        return itertools.chain(
            (after / before for before, after in sizes), _no_more(source, len(sizes))
        )

    def _of(self, source: SentBy) -> NDArray[np.int64]:
        if source not in self.sizes:
            raise OtherMessages(f"there are none of {source}")
        return self.sizes[source]

    @property
    def ratio(self) -> float:
        """Bytes before over bytes after the codec, of all messages."""
        before, after = np.concatenate(list(self.sizes.values())).sum(axis=0).tolist()
        return before / after


def _no_more(source: SentBy, count: int) -> Iterator[Any]:
    raise OtherMessages(f"there are only {count} of {source}")
    yield


@dataclasses.dataclass(frozen=True)
class MeanRatio:
    """Sizes by an epoch's compression ratio alone."""

    ratio: float

    def bytes_of(self, source: SentBy) -> GivenBytes:
        """See `GivenSizes`."""
        return lambda value_bytes: math.ceil(value_bytes / self.ratio)

    def shares_of(self, source: SentBy) -> Iterator[float]:
        """See `GivenSizes`."""
        return itertools.repeat(1 / self.ratio)


def message_columns(first: EpochSizes, steps: int) -> dict[str, np.ndarray]:
    """Return `replica`, `device`, `block` and `value_bytes` of a mini-batch's messages; {} where
    none passed a codec.

    All mini-batches are alike in these; the first epoch has `steps` of them.
    """
    if not first:
        return {}
    sources = sorted(first)
    count = [len(first[source]) // steps for source in sources]
    columns = zip(SentBy._fields, zip(*sources, strict=True), strict=True)
    return {
        **{name: np.repeat(values, count) for name, values in columns},
        "value_bytes": _by_step(first, steps)[0, :, 0],
    }


def compressed_bytes(epochs: Sequence[EpochSizes], steps: int) -> NDArray[np.uint32]:
    """Return the compressed bytes (mini-batch, message) of epochs of `steps` mini-batches each."""
    return np.concatenate([_by_step(epoch, steps)[:, :, 1].astype(np.uint32) for epoch in epochs])


def _by_step(epoch: EpochSizes, steps: int) -> NDArray[np.int64]:
    return np.concatenate([epoch[source].reshape(steps, -1, 2) for source in sorted(epoch)], axis=1)


def recorded_sizes(table: Mapping[str, np.ndarray], epochs: int) -> list[RecordedSizes]:
    """Return the sizes of each of a run's epochs from the columns of `messages/`."""
    sources = np.array([table[name] for name in SentBy._fields]).T
    places = {
        SentBy(*source): np.flatnonzero((sources == source).all(axis=1))
        for source in np.unique(sources, axis=0).tolist()
    }
    after = table["compressed_bytes"].astype(np.int64)
    both = np.stack([np.broadcast_to(table["value_bytes"], after.shape), after], axis=2)
    recorded = []
    for epoch in both.reshape(epochs, -1, *both.shape[1:]):
        sizes = {source: epoch[:, place].reshape(-1, 2) for source, place in places.items()}
        recorded.append(RecordedSizes(sizes))
    return recorded
