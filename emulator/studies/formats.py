"""One run in several formats of numbers: what each costs in accuracy, and what it saves in time,
bytes and memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common import logger
from ..number import Precision
from ..plan import Plan, plan_run
from ..run import Diverged, EpochRecord, Position, Results, Training
from ..view import new_figure, save_figure

if TYPE_CHECKING:
    from ...launch import Ranks
    from ..run import Resumed, Runs

_MEMORIES = (
    "lpram_bytes",
    "lgb_bytes",
    "act_ram_bytes",
    "bpram_bytes",
    "bgb_bytes",
    "off_chip_bytes",
)
_WITHIN = 0.01
"""By how much less of the test samples a format may classify correctly and still be said to hold.
"""


@dataclasses.dataclass(frozen=True)
class FormatOutcome:
    """What a run in some formats gave: accuracies, losses and virtual times by epoch, and what its
    boards and links had to do. Losses are those of the test, or where none was, of training.

    Bytes of links are those of a sample, over all links, and on the fullest direction of one; those
    of memory are over all boards. `failure` is why the run ended early, where it did; the others
    are then those of the epochs before.
    """

    precision: Precision
    accuracies: tuple[float, ...]
    times_ps: tuple[int, ...]
    images_per_s: float
    link_bytes: float
    fullest_bytes: float
    memory_bytes: int
    failure: str | None = None
    losses: tuple[float, ...] = ()

    @property
    def accuracy(self) -> float:
        """Share of test samples that are classified correctly in the end; NaN before the first
        epoch's end.
        """
        return self.accuracies[-1] if self.accuracies else float("nan")

    @property
    def loss(self) -> float:
        """The last loss; NaN before the first epoch's end."""
        return self.losses[-1] if self.losses else float("nan")

    @property
    def bits(self) -> int:
        """Bits of activations, weights and errors together."""
        precision = self.precision
        return precision.activations.bits + precision.weights.bits + precision.errors.bits

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            **dataclasses.asdict(self),
            "precision": str(self.precision),
            "accuracy": self.accuracy,
        }


def train_formats(
    runs: Runs, process: Ranks, note: Callable[[str], None] = lambda _: None
) -> list[FormatOutcome]:
    """Train runs that differ in their precisions in this process, or go on with them; return their
    outcomes.

    One process trains them: a run that diverges leaves other ranks amid what they send. `note` is
    called with a line after each epoch.

    Raises:
        InputError: something in a configuration is invalid; a run that diverges is an outcome.
        StoppedRun: a signal has ended one of them at a checkpoint.
    """
    runs.check_outputs()
    network, cluster = (
        (None, None) if runs.first is None else (runs.first.network, runs.first.cluster)
    )
    starts = [*runs.starts()]  # all are planned before one is trained
    planned = [
        (plan_run(config, network=network, cluster=cluster), start) for config, start in starts
    ]
    note = logged(note)
    return [trained_in(plan, process, start, runs.series, note) for plan, start in planned]


def logged(note: Callable[[str], None]) -> Callable[[str], None]:
    """Return what writes a line into the library's log, and calls `note` with it."""
    log = logger("precision")

    def both(line: str) -> None:
        log.info("%s", line)
        note(line)

    return both


def trained_in(
    plan: Plan, process: Ranks, start: Resumed | None, series: str, note: Callable[[str], None]
) -> FormatOutcome:
    """Train a run in its precision, or go on with it, and return its outcome; see
    `train_formats`.
    """
    failure, precision, epochs = None, plan.config.precision, plan.config.epochs

    def on_epoch(result: EpochRecord, *_: object) -> None:
        note(f"{precision}: epoch {result.epoch + 1} of {epochs}, {result.test.shown}")

    with Training(plan, process, start, series=series) as training:

        def on_resume(at: Position) -> None:
            note(f"{precision}: resuming from {plan.config.resume}: {training.place(at)}")

        training.lead()
        try:
            training.run(on_epoch=on_epoch, on_resume=on_resume)
        except Diverged as error:
            failure = str(error)
        history, results = training.recorder.history, training.recorder.results({})
        samples = len(history) * training.data.n_train
    accuracies, times_ps = (
        tuple(results.history[name].tolist()) for name in ("test_accuracy", "virtual_time_ps")
    )
    tested = bool(history and history[0].test.samples)
    losses = tuple(results.history["test_loss" if tested else "train_loss"].tolist())
    sizes = _bytes(results, samples)
    return FormatOutcome(
        precision, accuracies, times_ps, results.images_per_s, *sizes, failure, losses
    )


def _bytes(results: Results, samples: int) -> tuple[float, float, int]:
    """Return the bytes of a sample over all links, and on the fullest direction of one, and the
    bytes in memory.
    """
    paths = [column for name, column in results.links.items() if name.startswith("path")]
    by_direction = [sum(map(float, sizes)) for sizes in zip(*paths, strict=True)]
    memory = sum(
        int(np.sum(results.devices[name])) for name in _MEMORIES if name in results.devices
    )
    if not samples:
        return 0.0, 0.0, memory
    return sum(by_direction) / samples, max(by_direction, default=0.0) / samples, memory


def narrowest(outcomes: Sequence[FormatOutcome]) -> FormatOutcome | None:
    """Return the outcome of fewest bits that is within a point of the first one's accuracy; None if
    only that is.
    """
    first, *others = outcomes
    holding = [
        outcome
        for outcome in others
        if outcome.failure is None and outcome.accuracy >= first.accuracy - _WITHIN
    ]
    return min(holding, key=lambda outcome: (outcome.bits, -outcome.accuracy), default=None)


def draw_formats(outcomes: Sequence[FormatOutcome], title: str, picture: Any) -> None:
    """Draw the test accuracy of each format over virtual time, epoch by epoch."""
    figure = new_figure(8, 5, "--plot")
    axes = figure.subplots()
    for outcome in outcomes:
        times_ms = [time_ps / 1e9 for time_ps in outcome.times_ps]
        axes.plot(
            times_ms,
            [100 * share for share in outcome.accuracies],
            "o-",
            label=str(outcome.precision),
        )
    axes.set_xlabel("virtual time / ms")
    axes.set_ylabel("test accuracy / %")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, picture, "--plot")
