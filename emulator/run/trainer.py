"""This rank's part of what trains, chain or pair: a leg of an epoch at a time, with a test after
each epoch.

Images or texts enter at the start of what a rank hosts, and labels at the end.
"""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm import Pump, run
from ...comm.exchange import step_sizes
from ...kernels import Arena
from ...launch import Ranks
from ..data import Dataset, Images
from ..device import (
    BceHead,
    DeviceNumerics,
    ImageSource,
    Learnt,
    MseHead,
    Rules,
    SliceNumerics,
    SoftmaxHead,
    Tally,
    TextSource,
    VocabularyHead,
    epoch_order,
)
from ..network import Network
from ..plan import Plan
from ..schedule import MicroBatch, cut_samples
from .chain import Carriers
from .results import EpochRecord, EpochSizes, History, SoFar, StepReports, StepTable, Usage, Weights
from .segments import Leg, Position, legs_of
from .state import gathered_weights

if TYPE_CHECKING:
    from ..config import Config

_EVALUATION_MICRO_BATCH = 16  # at least; larger ones gain little and take memory
_EVALUATION_ROUND = 4  # micro-batches for each rank

Programs = list[Coroutine[Any, Any, None]]


class Hosted(Protocol):
    """This rank's part of a chain, or of a pair."""

    arena: Arena

    @property
    def numerics(self) -> list[DeviceNumerics]:
        """What holds the parameters of devices on this rank."""

    @property
    def starts_here(self) -> bool:
        """Whether images enter on this rank."""

    @property
    def ends_here(self) -> bool:
        """Whether losses are computed on this rank."""

    def attach(
        self,
        source: ImageSource | None,
        head: SoftmaxHead | None,
        lengths: NDArray[np.int64] | None = None,
    ) -> None:
        """Take the ends, and the time steps of each sample by its place in the epoch, where they
        differ.
        """

    def evaluate(self, batches: Sequence[MicroBatch]) -> Programs:
        """Return the programs of a test."""


@dataclasses.dataclass(frozen=True)
class Ends:
    """Image sources and heads, for training and evaluation, where the ends are on this rank."""

    train_source: ImageSource | None
    test_source: ImageSource | None
    train_head: SoftmaxHead | None
    test_head: SoftmaxHead | None
    train_lengths: NDArray[np.int64] | None = None
    test_lengths: NDArray[np.int64] | None = None
    batch: int = 1

    @classmethod
    def of(cls, chain: Hosted, data: Dataset, network: Network, config: Config) -> Ends:
        """Return the ends of a chain for a data set's images and labels.

        Training labels are smoothed, and weighted; losses of tests are those of the labels
        themselves.
        """
        normalisation = data.normalisation() if chain.starts_here and not data.symbols else None

        def source(images: Images) -> ImageSource | None:
            if normalisation is not None:
                own = network.entry, network.corner
                return ImageSource(images, normalisation, chain.arena, *own)
            if not chain.starts_here:
                return None
            return TextSource(
                np.asarray(images), chain.arena, network.entry, one_hot=not network.takes_symbols
            )

        def head(labels: NDArray[Any], **of_training: Any) -> SoftmaxHead | None:
            if not chain.ends_here:
                return None
            is_parallel = network.layers[-1].vocabulary_parallel
            by_targets = data.by_targets or network.loss != "softmax"
            if network.loss == "mse":
                return MseHead(labels, by_targets=by_targets)
            if network.loss == "bce":
                of_training.pop("smoothing", None)
                of_training["probabilities"] = network.ends_in_sigmoid
                return BceHead(labels, by_targets=by_targets, **of_training)
            head = VocabularyHead if is_parallel else SoftmaxHead
            return head(labels, by_targets=by_targets, **of_training)

        train, test = source(data.train_images), source(data.test_images)
        of_training = {"smoothing": config.label_smoothing, "weights": config.class_weights}
        heads = head(data.train_labels, **of_training), head(data.test_labels)
        if heads[1] is not None and data.n_test:
            heads[1].take_order(np.arange(data.n_test), data.n_test, slice(None))
        return cls(train, test, *heads, data.train_lengths, data.test_lengths, config.batch)

    def attach_training(
        self,
        chain: Hosted,
        order: NDArray[np.int64],
        epoch: int = 0,
        places: NDArray[np.int64] | range | slice = slice(None),
    ) -> None:
        """Attach the ends for training, with the images at `places` of this order, augmented as in
        this epoch.
        """
        if self.train_source is not None:
            self.train_source.epoch = epoch
            self.train_source.order = order[places]
        if self.train_head is not None:
            self.train_head.take_order(order, self.batch, places)
        lengths = None if self.train_lengths is None else self.train_lengths[order[places]]
        chain.attach(self.train_source, self.train_head, lengths)


class Trainer(abc.ABC):
    """This rank's part of a run: what it hosts of each replica, and the data at the ends.

    `so_far` has the epoch's legs before the next one, and `history` the finished epochs, both on
    rank 0. Training began at `started_s` by `time.perf_counter`, as if it had never been
    interrupted.
    """

    def __init__(
        self,
        plan: Plan,
        data: Dataset,
        ranks: Ranks,
        carriers: Carriers,
        hosted: Sequence[Hosted],
        from_ps: int = 0,
    ) -> None:
        config = plan.config
        self.plan, self.ranks = plan, ranks
        self.so_far, self.history = SoFar(), History()
        self._data, self._hosted, self._from_ps = data, hosted, from_ps
        self._samples, self._step_sizes = data.n_train, step_sizes(data.n_train, config.batch)
        self._carriers = ranks.transport = carriers
        self._pumps: list[Pump] = (
            [*carriers.pumps] if ranks.comm is None else [*carriers.pumps, ranks]
        )
        self._ends = [Ends.of(replica, data, plan.network, config) for replica in hosted]
        self._test_batches = cut_samples(data.n_test, max(data.n_test, 1), self.most_samples(plan))
        ranks.gather(None)  # all are ready
        self.started_s = time.perf_counter()

    @staticmethod
    def most_samples(plan: Plan) -> int:
        """Return the most samples of a message between devices, in training and in tests."""
        return max(plan.config.micro_batch, _EVALUATION_MICRO_BATCH)

    @property
    def legs(self) -> list[Leg]:
        """The legs of each epoch."""
        return legs_of(len(self._step_sizes), self.plan.config.checkpoint_every)

    def train(self, number: int, leg: Leg) -> None:
        """Train a leg of an epoch."""
        rules = self._rules(number)
        order = epoch_order(self.plan.config.seed, number, self._samples)
        flips = bool(self.plan.faults.flips)
        reports = StepReports(self.ranks, rules, leg.first, self._from_ps, flips=flips)
        programs = self._programs(number, leg, order, rules, reports)
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is detected by the loss
            run(programs, self._pumps, self.ranks.settling, self.ranks.watchdog)
        for shares, sent in self.ranks.gather((reports.shares, self._take_sent())):
            self.so_far.add(shares, self._sizes_of(sent))

    @abc.abstractmethod
    def _programs(
        self, number: int, leg: Leg, order: NDArray[np.int64], rules: Rules, reports: StepReports
    ) -> Programs:
        """Return what devices here do in a leg; the epoch takes samples in this order."""

    @abc.abstractmethod
    def _take_sent(self) -> Any:
        """Return what is counted of messages from here since the last call."""

    @abc.abstractmethod
    def _sizes_of(self, sent: Any) -> EpochSizes:
        """Take a rank's `_take_sent` on rank 0; return the sizes of what has passed a codec."""

    def epoch(self, number: int) -> EpochRecord | None:
        """Train an epoch and evaluate; return the result on rank 0, else None."""
        for leg in self.legs:
            self.train(number, leg)
        return self.finish(number)

    def finish(self, number: int) -> EpochRecord | None:
        """Evaluate after an epoch; return its result on rank 0, else None."""
        tested, usage = self.evaluate(), self.usage()
        of_ranks = self.ranks.gather((tested, self._totals()))
        if self.ranks.rank > 0:
            return None
        so_far, self.so_far = self.so_far, SoFar()
        steps = so_far.steps
        trained = sum((step.tally for step in steps), Tally())
        result = EpochRecord(
            number,
            self._rules(number).last_rate,
            trained,
            sum((tested for tested, _ in of_ranks), Tally()),
            usage.virtual_time_ps + self._from_ps,
            time.perf_counter() - self.started_s,
            usage,
            sizes=so_far.sizes,
            steps=StepTable.of(steps),
        )
        return self._completed(result, [totals for _, totals in of_ranks])

    @abc.abstractmethod
    def _totals(self) -> Any:
        """Return what this rank adds to an epoch's result beside its test."""

    @abc.abstractmethod
    def _completed(self, result: EpochRecord, totals: list[Any]) -> EpochRecord:
        """Return an epoch's result with what the ranks' `_totals` and the devices add to it; on
        rank 0.
        """

    @np.errstate(over="ignore", invalid="ignore")
    def evaluate(self) -> Tally:
        """Test on the first replica, as all have the same weights; return what is known on this
        rank.
        """
        ends = self._ends[0]
        self.infer(ends.test_source, ends.test_head, ends.test_lengths)
        if ends.test_head is None or not self._test_batches:
            return Tally()
        return ends.test_head.step_done(0)

    def infer(
        self,
        source: ImageSource | None,
        head: SoftmaxHead | None,
        lengths: NDArray[np.int64] | None = None,
    ) -> None:
        """Hand all test samples of a source to a head, through the first replica in evaluation.

        Both are where the chain's ends are on this rank; `lengths` are the steps of each sample,
        where they differ.
        """
        first = self._hosted[0]
        first.attach(source, head, lengths)
        # In rounds, so that a rank that is ahead does not fill its memory with maps that no device
        # needs yet.
        size = _EVALUATION_ROUND * self.ranks.size
        for begin in range(0, len(self._test_batches), size):
            programs = first.evaluate(self._test_batches[begin : begin + size])
            run(programs, self._pumps, self.ranks.settling, self.ranks.watchdog)

    def weights(self) -> Weights:
        """Return all layers' weights (oc, ic, kh, kw), and the arrays of their SFUs, on rank 0; for
        all together.
        """
        return gathered_weights(self.ranks, self.plan.network, self.slices)

    @property
    def slices(self) -> list[SliceNumerics]:
        """The slices of the first replica on this rank."""
        return [part for numerics in self._hosted[0].numerics for part in numerics.slices]

    def learnt(self) -> list[list[Learnt]]:
        """Return what holds parameters on this rank, by replica."""
        learnt: list[list[Learnt]] = []
        for replica in self._hosted:
            learnt.append([part for numerics in replica.numerics for part in numerics.learnt])
        return learnt

    @abc.abstractmethod
    def usage(self) -> Usage:
        """Return the usage up to now, which is complete on rank 0; for all ranks together."""

    @abc.abstractmethod
    def now_ps(self, position: Position) -> int:
        """Return the virtual time so far, over the devices of this rank."""

    @property
    @abc.abstractmethod
    def began(self) -> tuple[Position, int]:
        """Where and at what virtual time in ps its clocks began at 0."""

    @abc.abstractmethod
    def begin_at(self, position: Position, now_ps: int, *, ended: bool = False) -> Trainer:
        """Return the trainer whose clocks begin at 0 at a position and a virtual time; it has
        nothing of this one. With `ended`, it has the formats of what was trained up to there.
        """

    def at(self, position: Position) -> Trainer:
        """Return the trainer that trains on from a position, with all that this one has; mostly
        this one.
        """
        return self

    @abc.abstractmethod
    def clocks(self) -> dict[str, Any]:
        """Return this rank's clocks and counters, as JSON has them; call only between legs."""

    @abc.abstractmethod
    def restore_clocks(self, state: Mapping[str, Any]) -> None:
        """Restore what all ranks' `clocks` returned."""

    @abc.abstractmethod
    def take_loss_scale(self, state: Mapping[str, Any]) -> None:
        """Go on with the loss scale of a run on other boards, if it follows overflows, from what
        all ranks' `clocks` returned.
        """

    def residuals(self) -> Mapping[str, NDArray[np.float32]]:
        """Return what codecs have dropped of gradients sent from this rank, by name, not copied."""
        return {}

    def close(self) -> None:
        """End all communication."""
        self._carriers.close()

    def _rules(self, number: int) -> Rules:
        return Rules(self.plan.config, number, len(self._step_sizes))
