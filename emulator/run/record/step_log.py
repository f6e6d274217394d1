"""Logs of mini-batches, written during the run: a CSV file, or a folder for TensorBoard."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...common import InputError, check_writable

if TYPE_CHECKING:
    from typing_extensions import Self

    from .epoch_result import EpochResult

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
    """A CSV file with a line for each mini-batch.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        with self._blaming():
            self._file = open(path, "w", encoding="ascii", buffering=1)  # noqa: SIM115  # closed by `close`
            self._file.write(",".join(COLUMNS) + "\n")

    def step(
        self, epoch: int, step: int, number: int, *, loss: float, learning_rate: float, virtual_time_ps: int
    ) -> None:
        """See `StepLog`."""
        with self._blaming():
            self._file.write(f"{epoch + 1},{step + 1},{loss!r},{learning_rate!r},{virtual_time_ps}\n")

    def close(self) -> None:
        """See `StepLog`."""
        with self._blaming():
            self._file.close()

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"`log` = 'csv:{self._path}': cannot be written: {error.strerror or error}; give another path, or free"
                " some room"
            ) from None


class TensorboardLog(StepLog):
    """A folder of events for TensorBoard.

    Raises:
        InputError: the library that writes them is not installed, or the folder cannot be written to.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise InputError(
                "`log` = 'tensorboard': tensorboardX writes it, which is not installed; `pip install"
                " 'emuchain[tensorboard]'`, or use `csv`"
            ) from None
        try:
            self._writer: Any = SummaryWriter(str(folder))
        except OSError as error:
            raise InputError(
                f"`log` = 'tensorboard:{folder}': cannot be written: {error.strerror or error}; give another folder"
            ) from None

    def step(
        self, epoch: int, step: int, number: int, *, loss: float, learning_rate: float, virtual_time_ps: int
    ) -> None:
        """See `StepLog`."""
        self._writer.add_scalar("train/loss", loss, number)
        self._writer.add_scalar("train/learning_rate", learning_rate, number)
        self._writer.add_scalar("time/virtual_s", virtual_time_ps * 1e-12, number)

    def epoch(self, result: EpochResult, number: int) -> None:
        """See `StepLog`."""
        if result.test.samples:
            self._writer.add_scalar("test/loss", result.test.mean_loss, number)
            self._writer.add_scalar("test/accuracy", result.test.accuracy, number)
        self._writer.flush()

    def close(self) -> None:
        """See `StepLog`."""
        self._writer.close()


def open_log(said: str | None) -> StepLog:
    """Return the log that the key `log` says: `csv`, `csv:FILE`, `tensorboard`, `tensorboard:FOLDER`, or none.

    Raises:
        InputError: it cannot be written.
    """
    if said is None:
        return StepLog()
    kind, _, where = said.partition(":")
    if kind == "csv":
        return CsvLog(check_writable(where or "log.csv", "log", "log.csv"))
    return TensorboardLog(pathlib.Path(where or "runs"))
