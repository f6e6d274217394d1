"""The history of a run on rank 0, its log, and its results file, which is rewritten as epochs end.

A log of mini-batches is written during the run: a CSV file, or a folder for TensorBoard.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ....comm.exchange import step_sizes
from ...common import InputError, LineFile, WholeFile
from ...config import log_place
from ...data import Dataset, ngram_bits
from ...plan import Plan
from .history import History, Pace
from .results import Results, fixed_results, results_of, versions
from .results_file import fill_results
from .schema import growing_of
from .steps import EpochRecord, StepResult, StepRow, StepShares, Weights, diverged

if TYPE_CHECKING:
    from typing_extensions import Self


class StepLog:
    """Takes mini-batches in order, and epochs at their ends. As a context manager it closes itself.
    This one is none.

    Each has a `number` since the start of training.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def step(self, row: StepRow, number: int) -> None:
        """Log a mini-batch."""

    def epoch(self, result: EpochRecord, number: int) -> None:
        """Log an epoch, of which mini-batch `number` is the last."""

    def close(self) -> None:
        """End the log."""


class CsvLog(StepLog):
    """A CSV file with a line for each mini-batch, which this process alone writes.

    Raises:
        InputError: the file cannot be written; so do all methods.
    """

    def __init__(self, path: str) -> None:
        self._file = LineFile(path, "log", "log.csv", value=f"csv:{path}")
        self._file.begin(",".join(StepRow._fields) + "\n")

    def step(self, row: StepRow, number: int) -> None:
        """See `StepLog`."""
        self._file.add(",".join(map(repr, row)) + "\n")

    def close(self) -> None:
        """See `StepLog`."""
        self._file.close()


class TensorboardLog(StepLog):
    """A file of events in a folder for TensorBoard, which may hold those of other runs.

    Events are written where they arise, not by the thread of `tensorboardX.SummaryWriter`, whose
    failures would be lost.

    Raises:
        InputError: the library of the events' form is not installed, or the file cannot be written;
            so do all methods.
    """

    def __init__(self, folder: str) -> None:
        try:
            from tensorboardX import record_writer
            from tensorboardX.proto import event_pb2, summary_pb2
        except ImportError:
            raise InputError(
                "`log` = 'tensorboard': tensorboardX writes it, which is not installed; `pip"
                " install 'emuchain[tensorboard]'`, or use `csv`"
            ) from None
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._checksum = record_writer.masked_crc32c
        self._folder = folder
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{os.urandom(4).hex()}"
        with self._blaming():
            os.makedirs(folder, exist_ok=True)
            self._file = open(os.path.join(folder, name), "xb", buffering=0)  # noqa: SIM115  # closed by `close`
        self._add(file_version="brain.Event:2")

    def step(self, row: StepRow, number: int) -> None:
        """See `StepLog`."""
        losses = {"train/loss": row.loss, "train/learning_rate": row.learning_rate}
        self._add_values({**losses, "time/virtual_s": row.virtual_time_ps * 1e-12}, number)

    def epoch(self, result: EpochRecord, number: int) -> None:
        """See `StepLog`."""
        if result.test.samples:
            accuracy = result.test.known_accuracy
            tested = {} if accuracy is None else {"test/accuracy": accuracy}
            self._add_values({"test/loss": result.test.mean_loss, **tested}, number)

    def close(self) -> None:
        """See `StepLog`."""
        with self._blaming():
            self._file.close()

    def _add_values(self, values: Mapping[str, float], number: int) -> None:
        of_tags = [
            self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()
        ]
        self._add(step=number, summary=self._summary(value=of_tags))

    def _add(self, **fields: Any) -> None:
        """Write an event as a record of a TFRecord file; where there is no room for all of it, none
        stays.
        """
        event = self._event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(event))
        left = memoryview(b"".join([length, self._checked(length), event, self._checked(event)]))
        begin = self._file.tell()
        with self._blaming():
            try:
                while left:
                    left = left[self._file.write(left) :]
            except OSError:
                self._file.truncate(begin)
                raise

    def _checked(self, content: bytes) -> bytes:
        return struct.pack("<I", self._checksum(content))

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # the latter: no file's name
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"`log` = {f'tensorboard:{self._folder}'!r}: cannot be written: {reason}; give"
                " another folder, or free some room"
            ) from None


def open_log(said: str | None) -> StepLog:
    """Return the log that the key `log` says: `csv`, `csv:FILE`, `tensorboard`,
    `tensorboard:FOLDER`, or none.

    Raises:
        InputError: it cannot be written.
    """
    if said is None:
        return StepLog()
    kind, where = log_place(said)
    return CsvLog(where) if kind == "csv" else TensorboardLog(where)


class Recorder:
    """Keeps the results of epochs, and the usage up to the last one. As a context manager it writes
    them at the end.

    `mpi` is the MPI library's version, `out` the results file, if one is wanted.

    `ngrams` are the bits per character of the simplest models, where the network predicts each
    character of a text. Mini-batches go to `log`.
    """

    def __init__(
        self,
        plan: Plan,
        data: Dataset,
        mpi: str,
        out: WholeFile | None,
        log: StepLog | None = None,
    ) -> None:
        self.history = History()
        self.ngrams = ngram_bits(data) if data.is_text and plan.network.result_steps > 1 else None
        self._plan, self._samples, self._mpi, self._out = plan, data.n_train, mpi, out
        self._log, self._sizes = log or StepLog(), step_sizes(data.n_train, plan.config.batch)
        self._shares, self._pace = StepShares(self._sizes), Pace()
        self._unwritten: Weights | None = None

    def begin(self, history: Sequence[EpochRecord], steps: Sequence[StepResult]) -> None:
        """Take what a run has done that goes on: finished epochs, and mini-batches of the one that
        is not.
        """
        self.history[:] = []
        self.history.extend(history)
        for result in history:
            self._log_epoch(result)
        for step in steps:
            self.step(step)

    def step(self, share: StepResult) -> list[tuple[StepRow, int]]:
        """Log what a replica's share of a mini-batch completes; return that, with numbers since the
        start of training.
        """
        done = []
        for whole in self._shares.add(share):
            row = StepRow(whole.epoch + 1, whole.step + 1, *whole.columns)
            done.append((row, self._number(whole.epoch, row.step)))
            self._log.step(*done[-1])
        return done

    def record(self, result: EpochRecord, weights: Weights) -> None:
        """Add an epoch, or replace the last one, log its last mini-batches, and write the results
        file if it is due.

        It is due after the last epoch, and before as `Pace` says.

        Raises:
            InputError: a file cannot be written, or the last update made weights whose test is not
                finite, where no bits flip; the file of the results holds the epochs before.
        """
        loss, config = result.test.mean_loss, self._plan.config
        flips = any(fault.rate for fault in self._plan.faults.flips)
        if result.test.samples and not math.isfinite(loss) and not flips:
            what = f"the test loss is {loss} after epoch {result.epoch + 1}"
            raise diverged(config.weight_decay, result.learning_rate, what)
        if self.history and self.history[-1].epoch == result.epoch:
            self.history[-1] = result
        else:
            self.history.append(result)
            self._log_epoch(result)
        self._unwritten = weights
        if result.epoch + 1 >= config.epochs or self._pace.due(self.history.nbytes):
            self.flush()

    def flush(self) -> None:
        """Write the results file, unless it has all epochs.

        Raises:
            InputError: it cannot be written; it holds what it held before.
        """
        weights, self._unwritten = self._unwritten, None
        if self._out is None or weights is None:
            return
        run = self._plan, self._samples, self.history
        with self._pace.writing(), self._out.building() as file:
            fill_results(
                file, fixed_results(*run, weights, self._versions), growing_of(*run, self.ngrams)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is not written yet, whatever has ended the run."""
        with contextlib.nullcontext() if kind is None else contextlib.suppress(InputError):
            self.flush()

    def _log_epoch(self, result: EpochRecord) -> None:
        """Log an epoch, and those of its mini-batches that are not logged yet."""
        table = result.steps
        for step in range(self._shares.end_epoch(result.epoch), len(table)):
            row = StepRow(result.epoch + 1, step + 1, *table[step])
            self._log.step(row, self._number(result.epoch, row.step))
        self._log.epoch(result, self._number(result.epoch, len(table)))

    def _number(self, epoch: int, step: int) -> int:
        """Return the number of a mini-batch since the start of training, from 1, as `step` is in
        its epoch.
        """
        return epoch * len(self._sizes) + step

    def results(self, weights: Weights) -> Results:
        """Return the results of all epochs so far, with these weights."""
        return results_of(
            self._plan, self._samples, self.history, weights, self._versions, self.ngrams
        )

    @functools.cached_property
    def _versions(self) -> dict[str, str]:
        return versions(self._mpi)
