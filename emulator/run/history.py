"""The history of a run: finished epochs in arrays that grow by doubling, so that a long run keeps little of each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, MutableSequence, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..device import Tally
from .epoch_result import EpochResult
from .replicas import Exchanged
from .sizes import EpochSizes
from .steps import StepTable

_FIRST = 64
_TALLY = np.dtype(
    [("samples", np.int64), ("loss", np.float64), ("correct", np.int64), ("steps", np.int64), ("step_loss", np.float64)]
)
ROW = np.dtype(
    [
        *(("epoch", np.int64), ("learning_rate", np.float64), ("train", _TALLY), ("test", _TALLY)),
        *(("virtual_time_ps", np.int64), ("host_time_s", np.float64), ("steps_end", np.int64)),
    ]
)
"""What is kept of every epoch; `steps_end` is how many mini-batches there were up to its end."""
STEP = np.dtype([("loss", np.float64), ("learning_rate", np.float64), ("virtual_time_ps", np.int64)])
_NO_SIZES: EpochSizes = {}


class Grown:
    """An array at whose end values are added, in a time that does not grow with it."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._room = np.empty(_FIRST, dtype)
        self._count = 0

    @property
    def values(self) -> NDArray[Any]:
        """What has been added; a view."""
        return self._room[: self._count]

    def add(self, values: NDArray[Any]) -> None:
        """Add values at the end."""
        end = self._count + len(values)
        if end > len(self._room):
            self._room = np.concatenate([self.values, np.empty(max(end, 2 * self._count) - self._count, values.dtype)])
        self._room[self._count : end] = values
        self._count = end

    def cut(self, count: int) -> None:
        """Keep the first `count` values."""
        self._count = count


class History(MutableSequence[EpochResult]):
    """Finished epochs in order. All but the last are without the usage up to their ends (`EpochResult.row`)."""

    def __init__(self, epochs: Iterable[EpochResult] = ()) -> None:
        self._rows, self._steps = Grown(ROW), Grown(STEP)
        self.exchanged: list[Exchanged] = []
        self.sizes: list[EpochSizes] = []
        self._last: EpochResult | None = None
        self.extend(epochs)

    @classmethod
    def of(cls, epochs: Sequence[EpochResult]) -> History:
        """Return a history of epochs, or the one that they are."""
        return epochs if isinstance(epochs, History) else cls(epochs)

    @property
    def rows(self) -> NDArray[Any]:
        """A `ROW` for each epoch; a view."""
        return self._rows.values

    @property
    def steps(self) -> NDArray[Any]:
        """A `STEP` for each mini-batch of all epochs; a view."""
        return self._steps.values

    def __len__(self) -> int:
        """Return the number of epochs."""
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> EpochResult: ...
    @overload
    def __getitem__(self, place: slice) -> list[EpochResult]: ...
    def __getitem__(self, place: int | slice) -> EpochResult | list[EpochResult]:
        """Return an epoch, or some."""
        places = range(len(self))[place]
        return self._epoch(places) if isinstance(places, int) else [self._epoch(each) for each in places]

    def _epoch(self, place: int) -> EpochResult:
        assert self._last is not None
        if place == len(self) - 1:
            return self._last
        row = self.rows[place]
        of_epoch = self.steps[self.rows["steps_end"][place - 1] if place else 0 : row["steps_end"]]
        return dataclasses.replace(
            self._last.row(),
            epoch=int(row["epoch"]),
            learning_rate=float(row["learning_rate"]),
            train=Tally(*row["train"].item()),
            test=Tally(*row["test"].item()),
            virtual_time_ps=int(row["virtual_time_ps"]),
            host_time_s=float(row["host_time_s"]),
            exchanged=self.exchanged[place],
            sizes=self.sizes[place],
            steps=StepTable(**{name: of_epoch[name] for name in STEP.fields or ()}),
        )

    @overload
    def __setitem__(self, place: int, epochs: EpochResult) -> None: ...
    @overload
    def __setitem__(self, place: slice, epochs: Iterable[EpochResult]) -> None: ...
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
        if places[-1] != len(self) - 1 or places.step != 1:
            raise ValueError("only the last epochs of a history change")
        self._last = self._epoch(places[0] - 1) if places[0] else None
        self._rows.cut(places[0])
        self._steps.cut(int(self.rows["steps_end"][-1]) if len(self) else 0)
        del self.exchanged[places[0] :], self.sizes[places[0] :]

    def insert(self, place: int, epoch: EpochResult) -> None:
        """Add an epoch, at the end."""
        if place < len(self):
            raise ValueError("epochs are added at the end of a history")
        of = epoch.steps
        steps = np.empty(len(of), STEP)
        for name in STEP.fields or ():
            steps[name] = getattr(of, name)
        self._steps.add(steps)
        tallies = dataclasses.astuple(epoch.train), dataclasses.astuple(epoch.test)
        times = epoch.virtual_time_ps, epoch.host_time_s
        self._rows.add(np.array([(epoch.epoch, epoch.learning_rate, *tallies, *times, len(self.steps))], ROW))
        self.exchanged.append(epoch.row().exchanged)
        self.sizes.append(epoch.sizes or _NO_SIZES)
        self._last = epoch

    def __eq__(self, other: object) -> bool:
        """Return whether the epochs are the same."""
        return [*self] == [*other] if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of anything that changes


def mean_loss(tallies: NDArray[Any]) -> NDArray[np.float64]:
    """Return `Tally.mean_loss` of each."""
    return _ratio(tallies["loss"], tallies["samples"])


def accuracy(tallies: NDArray[Any]) -> NDArray[np.float64]:
    """Return `Tally.accuracy` of each."""
    return _ratio(tallies["correct"], np.where(tallies["steps"], tallies["steps"], tallies["samples"]))


def bits_per_step(tallies: NDArray[Any]) -> NDArray[np.float64]:
    """Return `Tally.bits_per_step` of each."""
    return _ratio(tallies["step_loss"], tallies["steps"]) / math.log(2)


def _ratio(of: NDArray[Any], to: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(of, to, out=np.full(len(of), np.nan), where=to != 0)
