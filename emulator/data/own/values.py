"""Inputs and targets as arrays: what their types and shapes say, and the data set that they are.

    inputs                                          are
    floats (N, values)                              a row of values
    floats (N, steps, values)                       a sequence of values
    floats (N, channels, rows, columns)             maps, taken as they are
    whole numbers (N, steps)                        symbols, such as tokens
    uint8 (N, rows, columns[, channels])            images

    targets                                         are
    whole numbers (N,)                              a class each
    whole numbers (N, steps), (N, rows, columns)    a class for each step or pixel
    floats (N,), (N, values), ...                   numbers, or labels of yes or no
    names (N,)                                      classes, in the order of their names

A negative class and a number that is NaN are no target; as numbers, whole ones may be negative.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common import InputError, plural
from ..dataset import Dataset
from ..lazy import LazyImages
from ..reading import Preparation, Reading, shuffled, split
from .pictures import ArrayPictures

INPUTS, TARGETS = "inputs", "targets"
TEST_INPUTS, TEST_TARGETS = "test_inputs", "test_targets"
_MOST_SYMBOL = 2**31 - 2
_MOST_CLASSES = 10**7
"""Whole numbers of this size are numbers, and no classes."""
_SHAPES = (
    "(N, values), (N, steps, values) of a sequence, or (N, channels, rows, columns); whole numbers"
    " (N, steps) of symbols; or uint8 (N, rows, columns) of images"
)


@dataclasses.dataclass(frozen=True)
class ValuePictures:
    """Items of an array of numbers, read one by one, as maps (channels, rows, columns)."""

    samples: Any
    shape: tuple[int, int, int]
    channels_first: bool = False

    @property
    def channels(self) -> int:
        """See `Pictures`."""
        return self.shape[0]

    @property
    def sizes(self) -> dict[tuple[int, int], str]:
        """See `Pictures`."""
        return {self.shape[1:]: INPUTS}

    def __len__(self) -> int:
        return int(self.samples.shape[0])

    def picture(self, number: int) -> NDArray[np.float32]:
        """See `Pictures`."""
        samples = np.asarray(self.samples[number], np.float32)[None]
        maps = as_maps(samples, channels_first=self.channels_first)
        maps = as_shape(maps, self.shape, channels_first=self.channels_first)
        return maps[0].transpose(1, 2, 0)


def as_maps(values: NDArray[Any], *, channels_first: bool = False) -> NDArray[Any]:
    """Return samples as maps (N, channels, rows, columns): a sequence's values are channels, and
    stand before its steps where these are `channels_first`.
    """
    if values.ndim == 3 and not channels_first:
        values = values.swapaxes(1, 2)
    return values.reshape(*values.shape, *(1,) * (4 - values.ndim))


def maps_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the (channels, rows, columns) that samples of such an array (N, …) are."""
    channels, rows, columns = as_maps(np.broadcast_to(np.uint8(0), (1, *shape[1:]))).shape[1:]
    return channels, rows, columns


def takes_shape(shape: tuple[int, int, int], wanted: tuple[int, int, int]) -> bool:
    """Return whether maps of a shape are also such maps, as `as_shape` makes them."""
    values, steps, columns = shape
    others = [(steps, values, 1), (1, steps, values)] if columns == 1 else []
    if (steps, columns) == (1, 1) and values == wanted[0] * wanted[1] * wanted[2]:
        others.append(wanted)
    return wanted in (shape, *others)


def as_shape(
    maps: NDArray[Any], shape: tuple[int, int, int], *, channels_first: bool = False
) -> NDArray[Any]:
    """Return maps (N, channels, rows, columns) in a shape that `takes_shape`: of a sequence (steps,
    values), also with channels first, or as an image of one channel; of a row of values in any, one
    step after another unless `channels_first`.
    """
    values, steps, columns = maps.shape[1:]
    if maps.shape[1:] == shape:
        return maps
    if columns == 1 and shape in ((steps, values, 1), (1, steps, values)):
        maps = maps.swapaxes(1, 2)
    elif (steps, columns, shape[2]) == (1, 1, 1) and not channels_first:
        return maps.reshape(len(maps), shape[1], shape[0], 1).swapaxes(1, 2)
    return maps.reshape(len(maps), *shape)


def inputs_of(array: Any, where: str, name: str) -> tuple[Any, int]:
    """Return samples of an array, in memory or lazy, as a `Dataset` holds them, and their number of
    symbols.

    Raises:
        InputError: its type or shape is none of samples, or a number is not finite.
    """
    dtype, shape = np.dtype(array.dtype), tuple(array.shape)
    if not 2 <= len(shape) <= 4 or 0 in shape:
        raise InputError(f"{where}: `{name}` has shape {shape}; should be {_SHAPES}")
    if dtype.kind not in "fiub":
        raise InputError(f"{where}: `{name}` is of {dtype}; should be of numbers")
    if dtype == np.uint8 and len(shape) > 2:
        return _images(array, where, name)
    if dtype.kind in "iu" and len(shape) == 2:
        return _symbols(np.asarray(array), where, name)
    if not isinstance(array, np.ndarray):
        own = maps_shape(shape)
        pictures = ValuePictures(array, own)
        return LazyImages(pictures, Preparation(), own[1:], np.arange(shape[0]), kind=np.float32), 0
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(as_maps(array), np.float32)
    finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if not finite.all():
        place = int(np.argmin(finite))
        raise InputError(
            f"{where}: `{name}`: sample {place} has a value that is not finite in single precision;"
            " fill or leave out what is missing"
        )
    return values, 0


def _images(array: Any, where: str, name: str) -> tuple[Any, int]:
    pictures = ArrayPictures.of(array, name, where)
    preparation = Preparation()
    size = preparation.size(pictures.sizes, where)
    return LazyImages(pictures, preparation, size, np.arange(len(pictures))), 0


def _symbols(array: NDArray[Any], where: str, name: str) -> tuple[NDArray[np.int32], int]:
    if array.min() < 0 or array.max() > _MOST_SYMBOL:
        raise InputError(
            f"{where}: `{name}`: whole numbers (N, steps) are symbols, from 0 on; here they are"
            f" {array.min()} to {array.max()}; give values as floats"
        )
    return np.ascontiguousarray(array[:, None, :, None], np.int32), int(array.max()) + 1


class _Targets(NamedTuple):
    """Targets as a `Dataset` holds them, and the names of their classes if these are given by
    names.
    """

    values: NDArray[Any]
    names: tuple[str, ...] = ()


def targets_of(array: NDArray[Any], count: int, where: str, name: str) -> _Targets:
    """Return the targets of `count` samples.

    Raises:
        InputError: their type or number is wrong.
    """
    if array.ndim == 0 or len(array) != count:
        raise InputError(
            f"{where}: `{name}` has shape {array.shape}; should be ({count}, …), one of each sample"
        )
    if array.ndim > 1 and array.shape[1:] == (1,) * (array.ndim - 1) and array.dtype.kind in "iuUS":
        array = array.reshape(count)
    if array.dtype.kind in "US":
        names, numbers = np.unique(array.astype(str), return_inverse=True)
        return _Targets(numbers.reshape(array.shape).astype(np.int64), tuple(map(str, names)))
    if array.dtype.kind in "iu":
        if not array.size or int(array.max()) < _MOST_CLASSES:
            return _Targets(array.astype(np.int64))
        array = array.astype(np.float64)  # such as times
    if array.dtype.kind not in "fb":
        raise InputError(
            f"{where}: `{name}` is of {array.dtype}; should be whole numbers or names of classes, or"
            " floats"
        )
    values = np.ascontiguousarray(array, np.float32)
    if np.isinf(values).any():
        raise InputError(f"{where}: `{name}` has numbers that are infinite in single precision")
    return _Targets(values)


def own_dataset(
    name: str,
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None,
    reading: Reading,
    *,
    classes: tuple[str, ...] | None = None,
    where: str = "data",
    names: tuple[str, ...] = (INPUTS, TARGETS, TEST_INPUTS, TEST_TARGETS),
    note: str = "",
) -> Dataset:
    """Return the data set of inputs with their targets; without a test part, a share is that.

    Raises:
        InputError: types or shapes are wrong, or parts do not go together.
    """
    reading.refuse_for_values()
    inputs, symbols = inputs_of(train[0], where, names[0])
    targets = targets_of(np.asarray(train[1]), len(inputs), where, names[1])
    if test is None:
        if len(inputs) < 2:
            raise InputError(f"{where}: has one sample, and none for the test; give two or more")
        groups = _groups(targets.values)
        most = int(groups.max()) + 1
        first, last = split(groups, most, reading.test_share, reading.split_seed, where)
        share = f"{plural(len(last), 'sample')}, a share of {reading.test_share:g}"
        note = "; ".join(filter(None, [note, f"{share}, are the test"]))
        places = shuffled(first, reading.split_seed)
        parts = [(_at(inputs, own), targets.values[own]) for own in (places, last)]
    else:
        test_inputs, test_symbols = inputs_of(test[0], where, names[2])
        test_targets = targets_of(np.asarray(test[1]), len(test_inputs), where, names[3])
        symbols = max(symbols, test_symbols)
        _check_parts(where, names, (inputs, targets), (test_inputs, test_targets))
        if targets.names != test_targets.names:
            targets, test_targets = _with_names(targets, test_targets)
        parts = [(inputs, targets.values), (test_inputs, test_targets.values)]
    (images, labels), (test_images, test_labels) = parts
    return Dataset(
        *(name, images, labels, test_images, test_labels),
        _classes(where, names, [labels, test_labels], classes or targets.names),
        note,
        symbols,
        by_targets=True,
        by_steps=len(train[0].shape) == 3 and train[0].dtype != np.uint8,
    )


def _groups(targets: NDArray[Any]) -> NDArray[np.int64]:
    """Return the class of each sample, of which a share is the test; 0 for all where they have no
    class, or each its own, as numbers have.
    """
    if targets.ndim == 1 and targets.dtype.kind == "i":
        values, groups = np.unique(targets, return_inverse=True)
        if 2 * len(values) <= len(targets):
            return groups.astype(np.int64)
    return np.zeros(len(targets), np.int64)


def _at(inputs: Any, places: NDArray[np.int64]) -> Any:
    if isinstance(inputs, LazyImages):
        return dataclasses.replace(inputs, numbers=inputs.numbers[places])
    return inputs[places]


def _check_parts(where: str, names: tuple[str, ...], train: Any, test: Any) -> None:
    (inputs, targets), (test_inputs, test_targets) = train, test
    for one, other, name, test_name in (
        (inputs, test_inputs, names[0], names[2]),
        (targets.values, test_targets.values, names[1], names[3]),
    ):
        if one.shape[1:] != other.shape[1:] or one.dtype != other.dtype:
            raise InputError(
                f"{where}: `{name}` are {one.dtype} {one.shape}, and `{test_name}` {other.dtype}"
                f" {other.shape}; should be of one type, and samples of one shape"
            )


def _with_names(train: _Targets, test: _Targets) -> tuple[_Targets, _Targets]:
    """Return targets with the names of both parts."""
    names = tuple(sorted({*train.names, *test.names}))
    own = (
        np.array([names.index(name) for name in part.names])[part.values] for part in (train, test)
    )
    first, second = own
    return _Targets(first, names), _Targets(second, names)


def _classes(
    where: str, names: tuple[str, ...], parts: list[NDArray[Any]], given: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of classes, or of the numbers of a sample."""
    if parts[0].dtype.kind == "f":
        count = int(np.prod(parts[0].shape[1:], dtype=np.int64))
        return given if len(given) == count else tuple(map(str, range(count)))
    most = max(1, *(int(part.max(initial=0)) + 1 for part in parts))
    if not given:
        return tuple(map(str, range(most)))
    if most > len(given):
        raise InputError(
            f"{where}: `{names[1]}` has class {most - 1}; but `classes` has"
            f" {plural(len(given), 'name')}"
        )
    return given
