"""The history of a run: finished epochs in spools, files without a name, so that memory does not
grow with them.

A file that holds a long history is written at a `Pace` that takes a small share of the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...common import scratch_error
from ...device import Tally
from .steps import NOTHING, UNUSED, EpochRecord, EpochSizes, Exchanged, StepTable

_KEPT_BYTES = 1 << 16
"""In memory; a spool that holds no more has no file."""
_READ_BYTES = 1 << 18


class Spool:
    """Records of one type in the order in which they were added. The file ends with the process,
    and has no name.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._kept = np.empty(max(1, _KEPT_BYTES // self.dtype.itemsize), self.dtype)
        self._filed = self._held = 0
        self._file: Any = None

    def __len__(self) -> int:
        """Return the number of records."""
        return self._filed + self._held

    @property
    def nbytes(self) -> int:
        """Size of all records."""
        return len(self) * self.dtype.itemsize

    def add(self, values: NDArray[Any]) -> None:
        """Add records at the end.

        Raises:
            InputError: there is no room for temporary files.
        """
        if self._held + len(values) > len(self._kept):
            self._write(self._kept[: self._held])
            self._held = 0
        if len(values) > len(self._kept):
            self._write(np.ascontiguousarray(values, self.dtype))
        else:
            self._kept[self._held : self._held + len(values)] = values
            self._held += len(values)

    def read(self, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """Return a copy of the records `first` to `last` - 1, by default all."""
        first, last, _ = slice(first, last).indices(len(self))
        values = np.empty(max(0, last - first), self.dtype)
        filed = max(0, min(last, self._filed) - first)
        if filed:
            self._fill(values[:filed], first)
        values[filed:] = self._kept[max(0, first - self._filed) : max(0, last - self._filed)]
        return values

    def pieces(self) -> Iterator[NDArray[Any]]:
        """Yield all records in order, some at a time."""
        size = max(1, _READ_BYTES // self.dtype.itemsize)
        for first in range(0, len(self), size):
            yield self.read(first, first + size)

    def cut(self, count: int) -> None:
        """Keep the first `count` records."""
        self._held = max(0, count - self._filed)
        self._filed = min(count, self._filed)

    def _write(self, values: NDArray[Any]) -> None:
        if not len(values):
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as the spool
            self._file.seek(self._filed * self.dtype.itemsize)
            left = values.view(np.uint8).data.cast("B")
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise scratch_error(error) from None
        self._filed += len(values)

    def _fill(self, values: NDArray[Any], first: int) -> None:
        """Read records from the file."""
        left, place = values.view(np.uint8).data.cast("B"), first * self.dtype.itemsize
        while left:
            count = os.preadv(self._file.fileno(), [left], place)
            left, place = left[count:], place + count


LONG_BYTES = 1 << 20
"""Of a history: one that is shorter takes some milliseconds, and is written each time."""
_APART = 19
"""Times as long as writing takes, from the end of one to the begin of the next."""


class Pace:
    """When a file is due that holds a history; `clock` is in s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next_s = clock, 0.0

    def due(self, history_bytes: int) -> bool:
        """Return whether to write it now: always while the history is short, then for a twentieth
        of the time.
        """
        return history_bytes < LONG_BYTES or self._clock() >= self._next_s

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Take the time that writing takes."""
        begin_s = self._clock()
        yield
        end_s = self._clock()
        self._next_s = end_s + _APART * (end_s - begin_s)


_PIECE_EPOCHS, _PIECE_STEPS, _PIECE_BYTES = 4096, 16384, 1 << 18
_TALLY = np.dtype(
    [
        ("samples", np.int64),
        ("loss", np.float64),
        ("correct", np.int64),
        ("steps", np.int64),
        ("step_loss", np.float64),
    ]
)
ROW = np.dtype(
    [
        *(("epoch", np.int64), ("learning_rate", np.float64), ("train", _TALLY), ("test", _TALLY)),
        *(("virtual_time_ps", np.int64), ("host_time_s", np.float64), ("steps_end", np.int64)),
    ]
)
"""What is kept of every epoch; `steps_end` is how many mini-batches there were up to its end."""
MOST_COUNT = 1 << 62
"""Of what files hold: ps, bytes, rows; sums of two fit into 64 bits."""
STEP = np.dtype(
    [("loss", np.float64), ("learning_rate", np.float64), ("virtual_time_ps", np.int64)]
)
_Others = tuple[Exchanged, EpochSizes, Mapping[str, int]]
_NO_OTHERS: _Others = (NOTHING, {}, {})


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some epochs in memory: a `ROW` each, a `STEP` for each of their mini-batches, what they
    exchanged, and sizes.
    """

    rows: NDArray[Any]
    steps: NDArray[Any]
    exchanged: Sequence[Exchanged]
    sizes: Sequence[EpochSizes]
    rounded: Sequence[Mapping[str, int]] = ()

    @functools.cached_property
    def counts(self) -> NDArray[np.int64]:
        """Mini-batches of each epoch."""
        before = self.rows["steps_end"][-1:] - len(self.steps)
        return np.diff(self.rows["steps_end"], prepend=before)

    def epoch(self, place: int) -> EpochRecord:
        """Return one of the epochs, without the usage up to its end."""
        epoch, rate, train, test, virtual_time_ps, host_time_s, _ = self.rows[place].item()
        end = len(self.steps) + int(self.rows["steps_end"][place] - self.rows["steps_end"][-1])
        steps = self.steps[end - int(self.counts[place]) : end]
        return EpochRecord(
            *(
                epoch,
                rate,
                Tally(*train),
                Tally(*test),
                virtual_time_ps,
                host_time_s,
                UNUSED,
                self.exchanged[place],
            ),
            sizes=self.sizes[place],
            steps=StepTable(**{name: steps[name] for name in STEP.names or ()}),
            rounded=self.rounded[place],
        )


class History(MutableSequence[EpochRecord]):
    """Finished epochs in order. All but the last are without the usage up to their ends
    (`EpochRecord.row`).
    """

    def __init__(self, epochs: Iterable[EpochRecord] = ()) -> None:
        self.rows, self.steps = Spool(ROW), Spool(STEP)
        self._others, self._others_end = (
            Spool(np.uint8),
            Spool(np.int64),
        )  # pickles, and where that of an epoch ends
        self._last: EpochRecord | None = None
        self.statistics: dict[str, None] | None = None
        """Names of what codecs count, if anything was exchanged."""
        self.is_rounded = False
        """Whether anything was rounded to narrow formats."""
        self.extend(epochs)

    @classmethod
    def of(cls, epochs: Sequence[EpochRecord]) -> History:
        """Return a history of epochs, or the one that they are."""
        return epochs if isinstance(epochs, History) else cls(epochs)

    @property
    def nbytes(self) -> int:
        """Size of all that is kept of epochs."""
        return self.rows.nbytes + self.steps.nbytes + self._others.nbytes

    def __len__(self) -> int:
        """Return the number of epochs."""
        return len(self.rows)

    def pieces(self) -> Iterator[Piece]:
        """Yield all epochs in order, some at a time."""
        first = 0
        while first < len(self):
            of_steps = self.rows.read(first, first + _PIECE_EPOCHS)[
                "steps_end"
            ] - self._steps_before(first)
            of_others = self._others_end.read(first, first + _PIECE_EPOCHS) - self._others_before(
                first
            )
            fits = (of_steps <= _PIECE_STEPS) & (of_others <= _PIECE_BYTES)
            last = first + max(1, int(fits.sum()))
            yield self._piece(first, last)
            first = last

    def _piece(self, first: int, last: int) -> Piece:
        rows, others = self.rows.read(first, last), self._others_of(first, last)
        steps = self.steps.read(self._steps_before(first), int(rows["steps_end"][-1]))
        exchanged, sizes, rounded = zip(*others, strict=True)
        return Piece(rows, steps, exchanged, sizes, rounded)

    def _steps_before(self, place: int) -> int:
        return int(self.rows.read(place - 1, place)["steps_end"][0]) if place else 0

    def _others_before(self, place: int) -> int:
        return int(self._others_end.read(place - 1, place)[0]) if place else 0

    def _others_of(self, first: int, last: int) -> list[_Others]:
        begin, ends = self._others_before(first), self._others_end.read(first, last).tolist()
        if begin == ends[-1]:
            return [_NO_OTHERS] * (last - first)
        content = self._others.read(begin, ends[-1])
        bounds = itertools.pairwise(end - begin for end in [begin, *ends])
        return [pickle.loads(content[a:b].data) if b > a else _NO_OTHERS for a, b in bounds]

    @overload
    def __getitem__(self, place: int) -> EpochRecord: ...
    @overload
    def __getitem__(self, place: slice) -> list[EpochRecord]: ...
    def __getitem__(self, place: int | slice) -> EpochRecord | list[EpochRecord]:
        """Return an epoch, or some."""
        places = range(len(self))[place]
        return (
            self._epoch(places)
            if isinstance(places, int)
            else [self._epoch(number) for number in places]
        )

    def _epoch(self, place: int) -> EpochRecord:
        if place == len(self) - 1:
            assert self._last is not None
            return self._last
        return self._piece(place, place + 1).epoch(0)

    @overload
    def __setitem__(self, place: int, epochs: EpochRecord) -> None: ...
    @overload
    def __setitem__(self, place: slice, epochs: Iterable[EpochRecord]) -> None: ...
    def __setitem__(self, place: int | slice, epochs: Any) -> None:
        """Replace the last epochs: `history[n:] = epochs`."""
        after = list(epochs) if isinstance(place, slice) else [epochs]
        del self[place]
        self.extend(after)

    def __delitem__(self, place: int | slice) -> None:
        """Remove the last epochs: `del history[n:]`."""
        places = range(len(self))[place if isinstance(place, slice) else slice(place, None)]
        if len(places) == 0:
            return
        first = places[0]
        if places[-1] != len(self) - 1 or places.step != 1:
            raise ValueError("only the last epochs of a history change")
        self._last = self._epoch(first - 1) if first else None
        self.steps.cut(self._steps_before(first))
        self._others.cut(self._others_before(first))
        self.rows.cut(first)
        self._others_end.cut(first)
        self.statistics, self.is_rounded = None, False
        for piece in self.pieces():
            self._note(piece.exchanged)
            self.is_rounded |= any(map(bool, piece.rounded))

    def insert(self, place: int, epoch: EpochRecord) -> None:
        """Add an epoch, at the end."""
        if place < len(self):
            raise ValueError("epochs are added at the end of a history")
        table, exchanged = epoch.steps, epoch.row().exchanged
        steps = np.empty(len(table), STEP)
        for name in STEP.names or ():
            steps[name] = getattr(table, name)
        self.steps.add(steps)
        if exchanged.traffic.value_bytes or epoch.sizes or epoch.rounded:
            others: _Others = exchanged, epoch.sizes, epoch.rounded
            self._others.add(np.frombuffer(pickle.dumps(others, pickle.HIGHEST_PROTOCOL), np.uint8))
        self._others_end.add(np.array([len(self._others)]))
        tallies = dataclasses.astuple(epoch.train), dataclasses.astuple(epoch.test)
        times = epoch.virtual_time_ps, epoch.host_time_s
        self.rows.add(
            np.array([(epoch.epoch, epoch.learning_rate, *tallies, *times, len(self.steps))], ROW)
        )
        self._note([exchanged])
        self.is_rounded |= bool(epoch.rounded)
        self._last = epoch

    def _note(self, exchanged: Iterable[Exchanged]) -> None:
        for exchange in exchanged:
            if exchange.traffic.value_bytes:
                self.statistics = {
                    **(self.statistics or {}),
                    **dict.fromkeys(exchange.traffic.statistics),
                }

    def __eq__(self, other: object) -> bool:
        """Return whether the epochs are the same."""
        return [*self] == [*other] if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of anything that changes


def mean_loss(tallies: NDArray[Any]) -> NDArray[np.float64]:
    """Return `Tally.mean_loss` of each."""
    return _ratio(tallies["loss"], tallies["samples"])


def accuracy(tallies: NDArray[Any]) -> NDArray[np.float64]:
    """Return `Tally.accuracy` of each."""
    predictions = np.where(tallies["steps"], tallies["steps"], tallies["samples"])
    return _ratio(tallies["correct"], np.where(tallies["correct"] < 0, 0, predictions))


def bits_per_step(tallies: NDArray[Any]) -> NDArray[np.float64]:
    """Return `Tally.bits_per_step` of each."""
    return _ratio(tallies["step_loss"], tallies["steps"]) / math.log(2)


def _ratio(numerators: NDArray[Any], denominators: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(
        numerators, denominators, out=np.full(len(numerators), np.nan), where=denominators != 0
    )
