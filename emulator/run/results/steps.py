"""Results of a run as it goes: each replica's share of a mini-batch, whole mini-batches, exchanges, and epochs."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import BINS, Traffic
from ....launch import Ranks
from ...common import InputError
from ...device import Rules, Tally
from .sizes import EpochSizes, SentBy
from .usage import ResourceUse, Usage


@dataclasses.dataclass(frozen=True)
class StepResult:
    """A replica's share of a mini-batch that its chain's last device has finished."""

    epoch: int
    step: int
    tally: Tally
    virtual_time_ps: int
    learning_rate: float = float("nan")
    replica: int = 0

    def told(self, steps: int) -> str:
        """Return what has been done, as text, in an epoch of `steps` mini-batches."""
        return f"epoch {self.epoch + 1}, step {self.step + 1} of {steps}"


def mini_batches(shares: Iterable[StepResult]) -> list[StepResult]:
    """Return whole mini-batches, in order: shares of replicas added up in their order, at the time of the last."""
    shares_of_steps: dict[tuple[int, int], list[StepResult]] = collections.defaultdict(list)
    for share in shares:
        shares_of_steps[share.epoch, share.step].append(share)
    return [_whole(sorted(shares_of_steps[key], key=lambda share: share.replica)) for key in sorted(shares_of_steps)]


def _whole(shares: Sequence[StepResult]) -> StepResult:
    tally, last_ps = sum((share.tally for share in shares), Tally()), max(share.virtual_time_ps for share in shares)
    return dataclasses.replace(shares[0], tally=tally, virtual_time_ps=last_ps, replica=0)


@dataclasses.dataclass(frozen=True, eq=False)
class StepTable:
    """The mini-batches of an epoch in order: mean loss, learning rate, and virtual time since the start of training."""

    loss: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    learning_rate: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    virtual_time_ps: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, steps: Sequence[StepResult]) -> StepTable:
        """Return the table of whole mini-batches."""
        return cls(
            np.array([step.tally.mean_loss for step in steps], np.float64),
            np.array([step.learning_rate for step in steps], np.float64),
            np.array([step.virtual_time_ps for step in steps], np.int64),
        )

    def __eq__(self, other: object) -> bool:
        """Return whether all values are the same."""
        if not isinstance(other, StepTable):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self))

    __hash__ = None  # type: ignore[assignment]  # as of anything with arrays

    def __len__(self) -> int:
        """Return the number of mini-batches."""
        return len(self.loss)


class StepShares:
    """Puts mini-batches together from the shares of replicas, as they come on rank 0.

    `sizes` are the samples of an epoch's mini-batches. What comes after its epoch's end is left out.
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
        return shares is not None and sum(share.tally.samples for share in shares) == self._sizes[step]

    def end_epoch(self, epoch: int) -> int:
        """End an epoch; return how many of its first mini-batches have been whole."""
        done, self._ended, self._done = self._done, epoch, 0
        self._shares.clear()
        return done


class StepReports:
    """Takes the mini-batches of a leg that end on this rank, and reports each of them to rank 0.

    `rules` are those of the epoch. The leg begins with mini-batch `first`; clocks began at the virtual time `from_ps`.
    `flips` says whether bits flip in the run.
    """

    def __init__(self, ranks: Ranks, rules: Rules, first: int = 0, from_ps: int = 0, *, flips: bool = False) -> None:
        self.shares: list[StepResult] = []
        self._ranks, self._rules, self._first, self._from_ps = ranks, rules, first, from_ps
        self._flips = flips

    def of(self, replica: int) -> Callable[[int, Tally, int], None]:
        """Return a callback that takes a finished mini-batch of a replica, by its number in the leg."""
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
                f" {rules.epoch + 1}, step {step + 1}; try a lower `rate`, or `highest_bit` = 22, which spares"
                " exponents of all but gradients"
            )
        if not math.isfinite(tally.loss):
            where = f"in epoch {rules.epoch + 1}, step {step + 1}"
            raise diverged(rules.config.weight_decay, rate, f"the loss is {tally.mean_loss} {where}")
        result = StepResult(rules.epoch, step, tally, virtual_time_ps + self._from_ps, rate, replica)
        self.shares.append(result)
        self._ranks.note(result.told(rules.epoch_steps))  # on hosts without rank 0, too
        self._ranks.send_to_root(result)


class Diverged(InputError):
    """Training has made a loss that is not finite."""


def diverged(decay: float, rate: float, what: str) -> Diverged:
    """Return the error for a loss that is not finite, which names the setting that is the cause.

    An update takes the share `rate` times `decay` of a weight away: from 1 on, weights turn over and grow.
    """
    by_decay = rate * decay >= 1 and decay > rate
    name, value = ("weight_decay", decay) if by_decay else ("learning_rate", rate)
    if by_decay:
        smaller = min(value, 1 / rate) / 10
    else:  # of a rate that no network takes, a tenth is another such rate
        from ...config import Config  # here, since ranks that follow do without pydantic

        smaller = value / 10 if value <= 1 else Config.model_fields[name].default
    return Diverged(f"`{name}` = {value:g}: training diverged, {what}; try a smaller one, such as {smaller:g}")


@dataclasses.dataclass(frozen=True)
class Exchanged:
    """Totals of exchanges: traffic, the time that devices spent on them, and the distribution of gradients."""

    traffic: Traffic = dataclasses.field(default_factory=Traffic)
    spent_ps: int = 0
    histogram: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros((2, BINS), np.int64))

    def __add__(self, other: Exchanged) -> Exchanged:
        return Exchanged(self.traffic + other.traffic, self.spent_ps + other.spent_ps, self.histogram + other.histogram)

    def since(self, before: Exchanged) -> Exchanged:
        """Return the difference from an earlier total; the histogram remains that of the last gradients."""
        return Exchanged(self.traffic - before.traffic, self.spent_ps - before.spent_ps, self.histogram)


Weights = dict[str, dict[str, NDArray[np.float32]]]
"""Arrays by name, by layer: weight (oc, ic, kh, kw), bias (oc,), and other arrays of its SFU.

A recurrent layer has PyTorch's names: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0 with a
projection, and the same with _reverse of its second direction.
"""


@dataclasses.dataclass(frozen=True)
class EpochResult:
    """One row of the history, with the usage so far; times are since the start of training.

    `exchanged` and `sizes`, those of compressed messages, are of this epoch, over all devices. `resources` are those of
    a pair, or of a GPU alone. `rounded` counts what was rounded in narrow formats (`device.RoundingTally`).
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

    def row(self) -> EpochResult:
        """Return the epoch without the usage up to its end, which that of the next one replaces."""
        exchanged = self.exchanged if self.exchanged.traffic.value_bytes else NOTHING
        return dataclasses.replace(self, usage=_UNUSED, resources=(), exchanged=exchanged)


NOTHING, _UNUSED = Exchanged(), Usage(0, (), ())


@dataclasses.dataclass
class SoFar:
    """What rank 0 knows of an epoch that is not finished: replicas' mini-batches, and sizes sent."""

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
