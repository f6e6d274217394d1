"""Training: the chain with numerics, epoch after epoch, on one rank or many."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from ...comm import Observer
from ...comm.exchange import step_sizes
from ...launch import Ranks
from ..data import Dataset
from ..plan import PairPlan, Plan
from .epochs import Checkpoints, OnEpoch, OnStep, train_epochs
from .epochs import Trainer as AnyTrainer
from .pair import PairTrainer
from .placement import Placement, work_of
from .record import EpochResult, StepResult
from .segment import Segment
from .segments import segments_of
from .trainer import Trainer


def train(
    plan: Plan | PairPlan,
    data: Dataset,
    ranks: Ranks,
    on_step: OnStep = lambda _: None,
    on_epoch: OnEpoch = lambda *_: None,
    *,
    gather_weights: bool,
    observer: Observer | None = None,
    checkpoints: Checkpoints | None = None,
) -> Sequence[EpochResult]:
    """Train on all ranks together; return the history, on rank 0.

    Args:
        plan: the plan to train.
        data: training and test images; ranks without an end of a chain need only the labels.
        ranks: the ranks of the run.
        on_step: called on rank 0 for each mini-batch.
        on_epoch: called on rank 0 for each epoch, with the weights of all layers if these are gathered, else {}.
        gather_weights: whether weights are gathered after each epoch; the same on all ranks.
        observer: called with what engines, links and exchanges of the first replica's devices on this rank serve; of a
            pair with nothing.
        checkpoints: where the run begins, and what is kept of it on the way.

    Raises:
        InputError: the loss is no longer finite.
    """
    work = _work(plan)
    placement = Placement.of(work, ranks.size)
    ranks.name(placement.described)
    ranks.share_processors(placement.by_rank(work, ranks.size))
    ranks.on_object = _noting(on_step, ranks, len(step_sizes(data.n_train, plan.config.batch)))
    trainer: AnyTrainer
    if isinstance(plan, PairPlan):
        trainer = PairTrainer(plan, data, ranks)
    else:
        trainer = Trainer(_shared_segments(plan, data.n_train, ranks), data, ranks)
        if observer is not None:
            trainer.replicas.observe(observer)
    waits = checkpoints is not None and checkpoints.saves
    with ranks.watch_progress(plan.config.stall_timeout), ranks.end_request.noting() if waits else nullcontext():
        return train_epochs(
            trainer, plan.config.epochs, ranks, on_epoch, gather_weights=gather_weights, checkpoints=checkpoints
        )


def _shared_segments(plan: Plan, samples: int, ranks: Ranks) -> Sequence[Segment]:
    """Return the segments of a run on all ranks; rank 0 alone simulates where boards die."""
    if not plan.faults.deaths:
        return segments_of(plan, samples)
    found: Sequence[Segment] = ranks.share(segments_of(plan, samples) if ranks.rank == 0 else None)[0]
    return found


def _work(plan: Plan | PairPlan) -> list[int]:
    """Return the work of all devices, of all replicas."""
    return [1] * plan.devices if isinstance(plan, PairPlan) else work_of(plan) * plan.data_parallel.replicas


def _noting(on_step: OnStep, ranks: Ranks, steps: int) -> OnStep:
    """Return `on_step`, with a note of each mini-batch for the case that a rank dies."""

    def noted(result: StepResult) -> None:
        ranks.note(result.told(steps))
        on_step(result)

    return noted
