"""Training on all ranks, epoch after epoch: what each rank does, and what ranks other than 0 are
sent for it.

Separate from what rank 0 does besides (`training.py`), so that other ranks import only what they
need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np
from numpy.typing import NDArray

from ...comm import Observer
from ...comm.exchange import step_sizes
from ...launch import Ranks
from ..data import Dataset, Images, Normalisation
from ..plan import ChainPlan, PairPlan, Plan
from .chain_trainer import ChainTrainer
from .pair_trainer import PairTrainer
from .placement import Placement
from .results import EpochRecord, History, StepResult, Weights, mean_loss
from .segments import Position, Segment
from .simulate import segments_of
from .state import Keeping, RunCheckpoints
from .trainer import Trainer

OnStep = Callable[[StepResult], None]
OnEpoch = Callable[[EpochRecord, Weights], object]
"""If it returns True, training ends after this epoch."""


@dataclasses.dataclass(frozen=True)
class SharedData:
    """A data set without the images that only rank 0 needs: test images and, with one chain,
    training images.

    Only a chain's first device reads images. The first chain's is on rank 0; those of other
    replicas may be elsewhere.
    """

    name: str
    train_images: Images | None
    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    symbols: int = 0
    train_lengths: NDArray[np.int64] | None = None
    test_lengths: NDArray[np.int64] | None = None
    given: Normalisation | None = None
    by_targets: bool = False

    @classmethod
    def of(cls, data: Dataset, replicas: int) -> SharedData:
        """Return the part of `data` that all ranks need to train `replicas` replicas."""
        return cls(
            data.name,
            data.train_images if replicas > 1 else None,
            data.train_labels,
            data.test_labels,
            data.train_images.shape[1:],
            data.classes,
            data.symbols,
            data.train_lengths,
            data.test_lengths,
            data.given,
            data.by_targets,
        )

    def dataset(self) -> Dataset:
        """Return the data set; omitted images are all 0 and take no memory."""
        train, test = self.train_labels, self.test_labels
        images = self._images(len(train)) if self.train_images is None else self.train_images
        lengths = self.train_lengths, self.test_lengths
        return Dataset(
            self.name,
            images,
            train,
            self._images(len(test)),
            test,
            self.classes,
            "",
            self.symbols,
            *lengths,
            self.given,
            self.by_targets,
        )

    def _images(self, count: int) -> NDArray[np.uint8]:
        return np.broadcast_to(np.uint8(0), (count, *self.shape))


@dataclasses.dataclass(frozen=True)
class Task:
    """What ranks other than 0 need to take part in a run; `observer` is called on each with what it
    serves.
    """

    plan: Plan
    data: SharedData
    gather_weights: bool
    observer: Observer | None
    keeping: Keeping

    def __call__(self, ranks: Ranks) -> None:
        """Train on this rank's part; then rank 0 gathers the observers, if there are any."""
        checkpoints = RunCheckpoints(self.plan.network, ranks, self.keeping)
        train(
            *(self.plan, self.data.dataset(), ranks),
            gather_weights=self.gather_weights,
            observer=self.observer,
            checkpoints=checkpoints,
        )
        if self.observer is not None:
            ranks.gather(self.observer)


def train(
    plan: Plan,
    data: Dataset,
    ranks: Ranks,
    on_step: OnStep = lambda _: None,
    on_epoch: OnEpoch = lambda *_: None,
    *,
    gather_weights: bool,
    observer: Observer | None = None,
    checkpoints: RunCheckpoints | None = None,
) -> Sequence[EpochRecord]:
    """Train on all ranks together; return the history on rank 0, with the usage up to the last
    epoch.

    Args:
        plan: the plan to train.
        data: training and test images; ranks without an end of a chain need only the labels.
        ranks: the ranks of the run.
        on_step: called on rank 0 for each mini-batch.
        on_epoch: called on rank 0 for each epoch, with the weights of all layers if these are
            gathered, else {}; if it returns True, training ends there on all ranks.
        gather_weights: whether weights are gathered after each epoch; the same on all ranks.
        observer: called with what engines, links and exchanges of the first replica's devices on
            this rank serve; of a pair with nothing.
        checkpoints: where the run begins, and what is kept of it on the way.

    Raises:
        InputError: the loss is no longer finite.
    """
    placement = Placement.of(plan.work, ranks.size)
    ranks.name(placement.described)
    ranks.share_processors(placement.by_rank(plan.work, ranks.size))
    ranks.on_object = _noting(on_step, ranks, len(step_sizes(data.n_train, plan.config.batch)))
    trainer = _hosted(plan, data, ranks, observer)
    waits, epochs = checkpoints is not None and checkpoints.saves, plan.config.epochs
    with (
        ranks.watch_progress(plan.config.stall_timeout),
        ranks.end_request.noting() if waits else nullcontext(),
    ):
        ranks.running = ranks.size > 1
        try:
            trainer, at = (
                (trainer, Position()) if checkpoints is None else checkpoints.begin(trainer)
            )
            stuck = _is_stuck(trainer.history, plan.config.patience)
            ends = at.epoch >= epochs or any(ranks.share(stuck))
            if ends:  # nothing is left; the last epoch is reported again
                usage, weights = trainer.usage(), trainer.weights() if gather_weights else {}
                trainer.history[-1:] = [
                    dataclasses.replace(row, usage=usage) for row in trainer.history[-1:]
                ]
                for row in trainer.history[-1:]:
                    on_epoch(row, weights)
                if checkpoints is not None and checkpoints.keeping.moves:
                    checkpoints.reach(trainer, at, True)
            while at.epoch < epochs and not ends:
                trainer = trainer.at(at)
                # A run that resumes amid an epoch has the legs before `at` behind it.
                [leg, *later] = [leg for leg in trainer.legs if leg.first >= at.step]
                trainer.train(at.epoch, leg)
                if later:
                    at = Position(at.epoch, leg.last)
                else:
                    result = trainer.finish(at.epoch)
                    weights = trainer.weights() if gather_weights else {}
                    if result is not None:
                        trainer.history.append(result)
                        with ranks.away():
                            said = on_epoch(result, weights)
                        ends = isinstance(said, bool | np.bool_) and bool(said)
                        ends |= _is_stuck(trainer.history, plan.config.patience)
                    ends = any(ranks.share(ends))
                    at = Position(at.epoch + 1)
                if checkpoints is not None:
                    ends |= checkpoints.reach(trainer, at, ends)
        finally:
            ranks.on_object = lambda _: None
            if checkpoints is not None:
                checkpoints.close()
        ranks.running = False
        trainer.close()
    return trainer.history


def _hosted(plan: Plan, data: Dataset, ranks: Ranks, observer: Observer | None) -> Trainer:
    """Return what trains a plan: chains or a pair."""
    if isinstance(plan, PairPlan):
        return PairTrainer(plan, data, ranks)
    assert isinstance(plan, ChainPlan)
    trainer = ChainTrainer(_shared_segments(plan, data.n_train, ranks), data, ranks)
    trainer.observe(observer)
    return trainer


def _shared_segments(plan: ChainPlan, samples: int, ranks: Ranks) -> Sequence[Segment]:
    """Return the segments of a run on all ranks; rank 0 alone simulates where boards die."""
    if not plan.faults.deaths:
        return segments_of(plan, samples)
    segments: Sequence[Segment] = ranks.share(
        segments_of(plan, samples) if ranks.rank == 0 else None
    )[0]
    return segments


def _is_stuck(history: History, patience: int | None) -> bool:
    """Return whether none of the last `patience` epochs has the least test loss."""
    if patience is None or len(history) <= patience:
        return False
    losses = mean_loss(history.rows.read()["test"])
    return int(losses.argmin()) < len(losses) - patience


def _noting(on_step: OnStep, ranks: Ranks, steps: int) -> OnStep:
    """Return `on_step`, with a note of each mini-batch for the case that a rank dies."""

    def noted(result: StepResult) -> None:
        ranks.note(result.line(steps))
        on_step(result)

    return noted
