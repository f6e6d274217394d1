"""Logs of mini-batches, written during the run: a CSV file, or a folder for TensorBoard."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..common import InputError, LineFile
from ..config import log_place

if TYPE_CHECKING:
    from typing_extensions import Self

    from .steps import EpochResult

COLUMNS = ("epoch", "step", "loss", "learning_rate", "virtual_time_ps")
"""Of a CSV log; epochs and steps are counted from 1, as in the results file."""


class StepLog:
    """Takes mini-batches in order, and epochs at their ends. As a context manager it closes itself. This one is none.

    `epoch` and `step` are counted from 0, `number` since the start of training.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def step(
        self, epoch: int, step: int, number: int, *, loss: float, learning_rate: float, virtual_time_ps: int
    ) -> None:
        """Log a mini-batch."""

    def epoch(self, result: EpochResult, number: int) -> None:
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
        self._file.begin(",".join(COLUMNS) + "\n")

    def step(
        self, epoch: int, step: int, number: int, *, loss: float, learning_rate: float, virtual_time_ps: int
    ) -> None:
        """See `StepLog`."""
        self._file.add(f"{epoch + 1},{step + 1},{loss!r},{learning_rate!r},{virtual_time_ps}\n")

    def close(self) -> None:
        """See `StepLog`."""
        self._file.close()


class TensorboardLog(StepLog):
    """A file of events in a folder for TensorBoard, which may hold those of other runs.

    Events are written where they arise, not by the thread of `tensorboardX.SummaryWriter`, whose failures would be
    lost.

    Raises:
        InputError: the library of the events' form is not installed, or the file cannot be written; so do all methods.
    """

    def __init__(self, folder: str) -> None:
        try:
            from tensorboardX import record_writer
            from tensorboardX.proto import event_pb2, summary_pb2
        except ImportError:
            raise InputError(
                "`log` = 'tensorboard': tensorboardX writes it, which is not installed; `pip install"
                " 'emuchain[tensorboard]'`, or use `csv`"
            ) from None
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._checksum = record_writer.masked_crc32c
        self._folder = folder
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{os.urandom(4).hex()}"
        with self._blaming():
            os.makedirs(folder, exist_ok=True)
            self._file = open(os.path.join(folder, name), "xb", buffering=0)  # noqa: SIM115  # closed by `close`
        self._add(file_version="brain.Event:2")

    def step(
        self, epoch: int, step: int, number: int, *, loss: float, learning_rate: float, virtual_time_ps: int
    ) -> None:
        """See `StepLog`."""
        values = {"train/loss": loss, "train/learning_rate": learning_rate, "time/virtual_s": virtual_time_ps * 1e-12}
        self._add_values(values, number)

    def epoch(self, result: EpochResult, number: int) -> None:
        """See `StepLog`."""
        if result.test.samples:
            self._add_values({"test/loss": result.test.mean_loss, "test/accuracy": result.test.accuracy}, number)

    def close(self) -> None:
        """See `StepLog`."""
        with self._blaming():
            self._file.close()

    def _add_values(self, values: Mapping[str, float], number: int) -> None:
        of_tags = [self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._add(step=number, summary=self._summary(value=of_tags))

    def _add(self, **fields: Any) -> None:
        """Write an event as a record of a TFRecord file; where there is no room for all of it, none stays."""
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
                f"`log` = {f'tensorboard:{self._folder}'!r}: cannot be written: {reason}; give another folder, or free"
                " some room"
            ) from None


def open_log(said: str | None) -> StepLog:
    """Return the log that the key `log` says: `csv`, `csv:FILE`, `tensorboard`, `tensorboard:FOLDER`, or none.

    Raises:
        InputError: it cannot be written.
    """
    if said is None:
        return StepLog()
    kind, where = log_place(said)
    return CsvLog(where) if kind == "csv" else TensorboardLog(where)
