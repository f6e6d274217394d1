"""A run of training from its plan to its end, for the command line and for the Python face alike.

A `Training` has the data, the files that are written, and where the run begins. Then all ranks
train together: those of a launcher follow rank 0 (`lead`), those of a communicator have each a
`Training` of their own (`prepared_on_all`, `ending_together`).
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...comm import Observer
from ...launch import RankFailed, Ranks, Stopped
from ..common import BUG_STATUS, INPUT_STATUS, InputError, WholeFile, logger, plural
from ..data import Dataset
from ..plan import ChainPlan, Plan, check_normalised, fitting_data, limited, training_data
from .epochs import OnEpoch, OnStep, SharedData, Task, train
from .placement import check_needs
from .results import EpochRecord, Recorder, StepResult, Weights, open_log
from .segments import Position
from .simulate import Trace, both
from .state import Ended, Resumed, checkpoints_of

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

OnMiniBatch = Callable[[int, float, int], object]
"""Called with the number of a mini-batch since the start of training, from 1, its mean loss, and
its virtual time in ps."""


class Training:
    """A run that is ready on this rank: plan, data, files, and where it begins. As a context
    manager it closes files.

    Only rank 0 writes. `start` is the run that goes on, `data` a loaded data set in place of the
    configuration's. `gathers` says whether weights of all layers come together on rank 0 even
    without a results file; `trace` is that of a chain; `series` is that of the runs to which this
    one belongs.

    Raises:
        InputError: data, a file or the checkpoint do not suit the plan, or memory does not suffice.
    """

    def __init__(
        self,
        plan: Plan,
        ranks: Ranks,
        start: Resumed | None = None,
        *,
        data: Dataset | None = None,
        trace: Trace | None = None,
        gathers: bool = False,
        series: str = "",
    ) -> None:
        self.plan, self._ranks, self._trace, self.series = plan, ranks, trace, series
        config, self._gathers = plan.config, gathers or plan.config.out is not None
        leads = ranks.rank == 0
        with contextlib.ExitStack() as files:
            out = (
                files.enter_context(WholeFile(config.out))
                if config.out is not None and leads
                else None
            )
            if trace is not None and leads:
                files.enter_context(trace)
            own = training_data(plan) if data is None else limited(plan, fitting_data(plan, data))
            self.data = own
            check_normalised(plan, self.data.n_train)
            if config.patience is not None and not self.data.n_test:
                raise InputError(
                    f"`patience` = {config.patience}: {self.data.name} has no test samples, whose"
                    " loss would have to fall; leave it out"
                )
            self._check_device()
            check_needs(plan, self.data, ranks, gathers=self._gathers)
            log = files.enter_context(open_log(config.log if leads else None))
            self._observer = (
                None if trace is None else trace.recorder(self._chain("a trace"), self.data.n_train)
            )
            self.recorder = Recorder(plan, self.data, ranks.describe(), out, log)
            self.checkpoints = checkpoints_of(plan, self.data, ranks, start, series, self._begin)
            files.callback(self.checkpoints.close)
            self._files = files.pop_all()
        self._on_resume: Callable[[Position], None] = lambda _: None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.__exit__(kind, error, trace)

    def _chain(self, what: str) -> ChainPlan:
        if not isinstance(self.plan, ChainPlan):
            raise InputError(
                f"`schedule` = {self.plan.config.schedule.name!r}: {what} is of a chain; leave"
                " it out"
            )
        return self.plan

    def _check_device(self) -> None:
        device = self.plan.config.rtl_device
        if device is None:
            return
        if not isinstance(self.plan, ChainPlan):
            raise InputError(
                f"`rtl_device` = {device}: a chain's device can be RTL; leave it out on a pair"
            )
        from ..rtl import check_device

        check_device(self.plan)

    def _begin(
        self, history: Sequence[EpochRecord], steps: Sequence[StepResult], at: Position
    ) -> None:
        """Take what a run has done that goes on."""
        self.recorder.begin(history, steps)
        self._on_resume(at)

    def lead(self) -> None:
        """Make all ranks of a launcher follow, which wait for tasks; on rank 0."""
        data = SharedData.of(self.data, self.plan.replicas)
        self._ranks.start(
            Task(self.plan, data, self._gathers, self._observer, self.checkpoints.keeping)
        )

    def run(
        self,
        on_step: OnStep = lambda _: None,
        on_epoch: OnEpoch = lambda *_: None,
        on_resume: Callable[[Position], None] = lambda _: None,
        on_mini_batch: OnMiniBatch = lambda *_: None,
        observer: Observer | None = None,
    ) -> Sequence[EpochRecord]:
        """Train with all ranks, record what is done, and write the trace; return the history, on
        rank 0.

        Args:
            on_step: called on rank 0 for each replica's share of a mini-batch, once it is logged.
            on_epoch: called on rank 0 for each epoch with the gathered weights, once it is
                recorded; if it returns True, training ends there.
            on_resume: called on rank 0 with the position from which a run goes on. on_mini_batch:
            called on rank 0 for each whole mini-batch with its number since the start
                of training, from 1, its mean loss, and its virtual time in ps.
            observer: called with what devices of the first replica on this rank serve.

        Raises:
            InputError: the loss is no longer finite, or a file cannot be written.
            StoppedRun: a signal has ended the run at a checkpoint.
        """

        def step(result: StepResult) -> None:
            for row, number in self.recorder.step(result):
                log.debug(
                    "mini-batch %d: loss %.4f, virtual time %d ps",
                    *(number, row.loss, row.virtual_time_ps),
                )
                on_mini_batch(number, row.loss, row.virtual_time_ps)
            on_step(result)

        def epoch(result: EpochRecord, weights: Weights) -> object:
            self.recorder.record(result, weights)
            log.info("%s", result.result.shown(config.epochs))
            return on_epoch(result, weights)

        def resume(at: Position) -> None:
            log.info("resuming from %s: %s", config.resume, self.place(at))
            on_resume(at)

        log, config, self._on_resume = logger("train"), self.plan.config, resume
        if self._ranks.rank == 0:
            where = self.plan.title, config.schedule.name, self.data.name, self.data.n_train
            log.info("%s, %s, %s: %d samples, seed %d", *where, config.seed)
        with self.recorder:
            history = train(
                *(self.plan, self.data, self._ranks, step, epoch),
                gather_weights=self._gathers,
                observer=both(observer, self._observer),
                checkpoints=self.checkpoints,
            )
        if self._observer is not None:
            observers = self._ranks.gather(self._observer)
            if (
                self._trace is not None
                and self._ranks.rank == 0
                and self.checkpoints.ended_at is None
            ):
                self._trace.write(self._chain("a trace"), self.data.n_train, observers)
        if self.checkpoints.ended_at is not None:
            raise StoppedRun(self, self.checkpoints.ended_at)
        return history

    def place(self, at: Position) -> str:
        """Return what is done of the run at a checkpoint."""
        config = self.plan.config
        if at.step == 0:
            return f"{at.epoch} of {plural(config.epochs, 'epoch')} done"
        steps = -(-self.data.n_train // config.batch)
        return (
            f"epoch {at.epoch + 1} of {config.epochs}, {at.step:,} of {plural(steps, 'mini-batch')}"
            " done"
        )


class StoppedRun(Exception):
    """A signal has ended a run at a checkpoint; `str` is a line about that, `status` the exit
    status.
    """

    def __init__(self, training: Training, ended: Ended) -> None:
        file = training.plan.config.checkpoint
        super().__init__(
            f"stopped by {ended.signal.name}: {training.place(ended.at)}; {file} has all of it"
        )
        self.status = ended.status


def prepared_on_all(ranks: Ranks, prepare: Callable[[], T]) -> T:
    """Call `prepare` on every rank and return its result; if it fails on any rank, raise on all."""
    made: T
    own: Exception | None = None
    try:
        made = prepare()
    except Exception as error:
        own = error
    failures = [
        failure
        for failure in ranks.share(None if own is None else (str(own), _status_of(own)))
        if failure
    ]
    if not failures:
        return made
    ranks.free()
    raise own or _failure(*failures[0])


def check_alike(ranks: Ranks, data: Dataset) -> None:
    """Check on all ranks that each has read the same samples, in the same order.

    Raises:
        InputError: on all ranks; they have not, as of a stream that draws at random.
    """
    if ranks.size == 1:
        return
    own = 0
    for array in (data.train_labels, data.train_images, data.test_labels, data.test_images):
        if isinstance(array, np.ndarray):  # others are read when they are taken
            own = zlib.crc32(np.ascontiguousarray(array).data, own)
    sums = ranks.share((data.n_train, data.n_test, own))
    other = next((rank for rank, its in enumerate(sums) if its != sums[0]), None)
    if other is not None:
        ranks.free()
        raise InputError(
            f"`data`: rank {other} has other samples than rank 0; a stream should bring the same, in"
            " the same order, on all ranks: seed what it draws, and divide nothing among them"
        )


@contextlib.contextmanager
def ending_together(ranks: Ranks) -> Iterator[None]:
    """End the run on all ranks, which are inside, where it fails on one of them; raise on all of
    them.

    Raises:
        InputError: as another rank does.
        RuntimeError: another rank has failed otherwise.
    """
    try:
        yield
    except Exception as error:
        raised: Exception = error
        if isinstance(error, RankFailed | Stopped):
            line = str(error) if isinstance(error, RankFailed) else error.line
            raised = _failure(line, error.status)
        if not isinstance(error, Stopped):
            _stop_others(ranks, error)
        ranks.abandon()
        if raised is error:
            raise
        raise raised from None


def _stop_others(ranks: Ranks, error: Exception) -> None:
    """Stop the other ranks, so that none waits for the rank that has failed: this one, or that of a
    `RankFailed`.
    """
    status = error.status if isinstance(error, RankFailed) else _status_of(error)
    if ranks.rank == 0:
        ranks.stop_others(status, str(error))
        return
    with contextlib.suppress(Stopped):
        ranks.report_failure(str(error), status)


def _status_of(error: Exception) -> int:
    return INPUT_STATUS if isinstance(error, InputError) else BUG_STATUS


def _failure(line: str, status: int) -> Exception:
    """Return the exception for a failure of another rank."""
    return (
        InputError(line) if status == INPUT_STATUS else RuntimeError(f"another rank failed: {line}")
    )
