"""Inputs and targets in Python: arrays, data sets and loaders of PyTorch, and data sets of Hugging
Face. None of these libraries is imported here: an object is known by what it can do.

Samples are read once, in their own order, also those of a stream, which is held in memory; the seed
of a run alone says in which order it takes them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common import InputError, described, format_bytes, free_room, typed
from ..dataset import Dataset
from ..reading import Reading
from .values import INPUTS, TARGETS, TEST_INPUTS, TEST_TARGETS, own_dataset

_AT_ONCE = 1024
_WITHOUT_NUMPY = ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2")
"""Types of tensors that NumPy lacks."""
TARGET_NAMES = ("targets", "target", "labels", "label", "y", "class", "fine_label")
"""Names of columns that are targets, the first that is there."""

_INPUT_NAMES = ("inputs", "input", "input_ids", "pixel_values", "x", "image", "img", "tokens")
_TAKEN = (
    "(inputs, targets), or a mapping of `inputs` and `targets`, as arrays; a torch Dataset or"
    " DataLoader, or another stream of samples (input, target); a data set of Hugging Face; or a"
    " DataFrame of pandas"
)


class _Read(NamedTuple):
    """Inputs and targets as arrays, the names of classes where the data has them, and a line that
    the user should see.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    classes: tuple[str, ...] = ()
    note: str = ""


@typed
def as_data(
    data: Annotated[Any, _TAKEN],
    test: Annotated[Any, _TAKEN] = None,
    *,
    name: str = "data",
    classes: Annotated[Sequence[str] | None, "checked here"] = None,
    test_share: float = 0.1,
    split_seed: int = 0,
) -> Dataset:
    """Return the data set of inputs and targets in Python, for `train` and `evaluate`.

    Floats are taken as they are, whole numbers (N, steps) are symbols, uint8 are images. Targets
    are classes, of each sample, step or pixel, -1 for none; or numbers.

    Args:
        data: (inputs, targets), or a mapping of `inputs` and `targets`, as arrays; a torch Dataset
            or DataLoader, or another stream, whose samples are read once, in their own order; a
            data set of Hugging Face; or a DataFrame of pandas. Columns of numbers are as those of a
            table.
        test: the same for the test; by default a share of the data.
        name: the data set's.
        classes: names of the classes, by number.
        test_share: share for the test, of each class.
        split_seed: the seed that draws it.

    Raises:
        InputError: it is nothing of the kind, types or shapes are wrong, or a stream has more than
            memory holds.
    """
    if not 0 < test_share < 1 or not 0 <= split_seed < 1 << 63:
        raise InputError(
            f"`test_share` = {test_share:g}, `split_seed` = {split_seed}: should be a share between"
            " 0 and 1, and a number from 0 on"
        )
    if classes is not None and (isinstance(classes, str) or not isinstance(classes, Sequence)):
        raise InputError(f"`classes`: is {described(classes)}; should be a list of names")
    if isinstance(data, Mapping) and not {INPUTS, TARGETS} & data.keys() and "train" in data:
        if test is None:  # as a DatasetDict of Hugging Face
            test = next((data[key] for key in ("test", "validation") if key in data), None)
        data = data["train"]
    elif isinstance(data, Mapping) and test is None and TEST_INPUTS in data:
        test = {INPUTS: data[TEST_INPUTS], TARGETS: data.get(TEST_TARGETS)}
    train = _part(data, "`data`")
    return own_dataset(
        name,
        train[:2],
        None if test is None else _part(test, "`test`")[:2],
        Reading(test_share=test_share, split_seed=split_seed),
        classes=train.classes if classes is None else tuple(map(str, classes)),
        where="`data`",
        note=train.note,
    )


def _part(data: Any, where: str) -> _Read:
    """Return what data of any kind holds."""
    if isinstance(data, tuple) and len(data) == 2 and _is_array(data[1:]):
        data = as_one(data[0], len(data[1])), data[1]
    if isinstance(data, tuple) and _is_array(data[:1]):
        if len(data) != 2:
            raise InputError(f"{where}: has {len(data)} arrays; should be (inputs, targets)")
        return _Read(_array(data[0], where, INPUTS), _array(data[1], where, TARGETS))
    if hasattr(data, "schema") and hasattr(data, "to_pydict"):  # a table of pyarrow
        data = {str(name): data[name].to_pylist() for name in data.column_names}
    has_columns = hasattr(data, "column_names") and hasattr(data, "__len__")
    if isinstance(data, Mapping) or has_columns:
        return of_columns(data, where)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return _of_frame(data, where)
    if hasattr(data, "dataset") and hasattr(data, "collate_fn"):  # a DataLoader
        batches = _collated(data, where)
    elif _is_sequence(data):
        batches = iter((_columns([data[i] for i in range(len(data))], where),))
    elif _is_stream(data):
        batches = (_columns(samples, where) for samples in _blocks(data))
    else:
        raise InputError(f"{where}: is {described(data)}; should be {_TAKEN}")
    parts = _held((_pair(batch, where) for batch in batches), where)
    if not parts:
        raise InputError(f"{where}: has no samples")
    source, notes = getattr(data, "dataset", data), {part.note: None for part in parts}
    names = getattr(source, "classes", None) or _class_names(source)
    return _Read(
        _joined([part.inputs for part in parts], where),
        _joined([part.targets for part in parts], where),
        tuple(map(str, names)) if isinstance(names, list | tuple) else (),
        next(iter(notes)),
    )


def _is_array(data: Sequence[Any]) -> bool:
    """Return whether values, such as the first of a tuple, are arrays, or lists of samples."""
    return all(hasattr(value, "__array__") or isinstance(value, list) for value in data)


def _is_stream(data: Any) -> bool:
    """Return whether samples come one after another: of an object that iterates, but no text,
    array, type or set.
    """
    plain = str | bytes | np.ndarray | type | list | tuple | set | frozenset
    return hasattr(data, "__iter__") and not isinstance(data, plain)


def _blocks(samples: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the samples of a stream, some at a time."""
    stream = iter(samples)
    while block := list(itertools.islice(stream, _AT_ONCE)):
        yield block


def _held(parts: Iterable[_Read], where: str) -> list[_Read]:
    """Return all parts of a data set, as long as there is memory for them, and to join them.

    Raises:
        InputError: there is none for more.
    """
    held, size_bytes, samples = [], 0, 0
    for part in parts:
        held.append(part)
        size_bytes += part.inputs.nbytes + part.targets.nbytes
        samples += len(part.inputs)
        room = free_room()
        if size_bytes > room.free_bytes:
            raise InputError(
                f"{where}: its first {samples:,} samples take {format_bytes(size_bytes)}, and"
                f" {room.limit} {format_bytes(room.free_bytes)}; samples are held in memory: give"
                " fewer, as `itertools.islice(data, N)` or `data.take(N)` do, or write them into an"
                " HDF5 file"
            )
    return held


def _is_sequence(data: Any) -> bool:
    """Return whether samples have numbers; an array alone has no targets."""
    if isinstance(data, str | bytes | np.ndarray | type) or not hasattr(data, "__getitem__"):
        return False
    try:
        return len(data) >= 0
    except Exception:  # of an object of any kind
        return False


def _collated(loader: Any, where: str) -> Iterator[Any]:
    """Yield what a loader makes of the samples of its data set, in their own order.

    They are read in this process: of a stream, each of several workers may bring all samples.
    """
    data, collate = loader.dataset, loader.collate_fn
    collate = collate or (lambda samples: _columns(samples, where))
    numbered = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    samples = (data[i] for i in range(len(data))) if numbered else data
    if getattr(loader, "batch_size", 1) is None and getattr(loader, "batch_sampler", None) is None:
        batches = map(collate, samples)  # the items of its data set are batches
    else:
        batches = map(collate, _blocks(samples))
    for batch in batches:
        is_pair = (
            isinstance(batch, tuple | list) and len(batch) == 2 and hasattr(batch[1], "__len__")
        )
        yield (as_one(batch[0], len(batch[1])), batch[1]) if is_pair else batch


def _columns(samples: list[Any], where: str) -> Any:
    """Return samples (input, target), or mappings, as a pair of columns, or a mapping of them."""
    if not samples:
        raise InputError(f"{where}: has no samples")
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: [sample[key] for sample in samples] for key in first}
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise InputError(
            f"{where}: its first sample is {described(first)}; should be (input, target), or a"
            " mapping"
        )
    return [as_one(sample[0]) for sample in samples], [sample[1] for sample in samples]


def _pair(batch: Any, where: str) -> _Read:
    if isinstance(batch, Mapping):
        return of_columns(batch, where)
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputError(
            f"{where}: a batch is {described(batch)}; should be (inputs, targets), or a mapping"
        )
    return _Read(_array(batch[0], where, INPUTS), _array(batch[1], where, TARGETS))


def of_columns(data: Any, where: str, targets: Sequence[str] = ()) -> _Read:
    """Return two columns of a mapping, or of a data set of Hugging Face, by their names, or by the
    given name of the targets; without a column that is known as inputs, all others of numbers, as
    of a table.

    Raises:
        InputError: there are no such columns, or they hold neither numbers nor names.
    """
    names = [str(name) for name in getattr(data, "column_names", None) or data]
    target = next((name for name in targets or TARGET_NAMES if name in names), None)
    if target is None:
        there, given = ", ".join(names[:12]) or "nothing", ", ".join(targets)
        remedy = "" if given else f"; call it `{TARGETS}`"
        raise InputError(f"{where}: has no column of {given or TARGETS}, but {there}{remedy}")
    taken = next((name for name in _INPUT_NAMES if name in names and name != target), None)
    if taken is None:
        inputs = [name for name in names if name != target]
        if not inputs:
            raise InputError(
                f"{where}: has no column of {INPUTS}, but {target}; call one `{INPUTS}`"
            )
        values = np.stack([_numbers(data[name], where, name, inputs) for name in inputs], axis=1)
        taken_names = inputs
    else:
        values, taken_names = _array(data[taken], where, taken), [taken]
    known = *taken_names, target, TEST_INPUTS, TEST_TARGETS
    left_out = [name for name in names if name not in known]
    return _Read(
        values,
        _array(data[target], where, target),
        tuple(map(str, _class_names(data))),
        f"columns left out: {', '.join(left_out)}" if left_out else "",
    )


def _class_names(data: Any) -> Sequence[Any]:
    """Return the names of classes of a data set of Hugging Face, or nothing."""
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping):
        return ()
    target = next((name for name in TARGET_NAMES if name in features), None)
    return getattr(features.get(target), "names", None) or ()


def _numbers(values: Any, where: str, name: str, names: Sequence[str]) -> NDArray[np.float32]:
    """Return a column of a table, which holds a number for each sample.

    Raises:
        InputError: it holds something else.
    """
    column = _array(values, where, name)
    if column.ndim != 1 or column.dtype.kind not in "fiub":
        words = "; text becomes symbols by a tokenizer" if column.dtype.kind in "US" else ""
        raise InputError(
            f"{where}: has no column of {INPUTS}, but {', '.join(names[:12])}, and {name!r} is of"
            f" {column.dtype}{list(column.shape[1:]) or ''}; call one `{INPUTS}`, or leave only"
            f" columns of numbers{words}"
        )
    return column.astype(np.float32)


def _of_frame(data: Any, where: str) -> _Read:
    """Return the columns of a DataFrame of pandas: the one with a known name, or else the last, is
    the target, as of a table.
    """
    names = list(data.columns)
    if len(names) < 2:
        raise InputError(f"{where}: has {len(names)} columns; give inputs, and a target")
    lower = [str(name).lower() for name in names]
    known = next((name for name in TARGET_NAMES if name in lower), lower[-1])
    target = names[lower.index(known)]
    own = data[target].to_numpy()
    if own.dtype.kind == "O" and all(isinstance(value, str) for value in own):
        own = own.astype(str)
    values = data.drop(columns=[target])
    inputs = values.to_numpy()
    if inputs.dtype.kind == "O":
        with contextlib.suppress(TypeError, ValueError):
            inputs = values.to_numpy(np.float64, na_value=np.nan)  # of numbers that may be missing
    return _Read(_array(inputs, where, INPUTS), _array(own, where, target))


def _array(values: Any, where: str, name: str) -> NDArray[Any]:
    """Return values as an array; a list of tensors or pictures, stacked."""
    try:
        if not hasattr(values, "__array__"):
            values = [np.asarray(_detached(value)) for value in values]
        array = np.asarray(_detached(values))
    except Exception as error:  # of whatever they are made of
        reason = " ".join(str(error).split())[:100]
        raise InputError(
            f"{where}: `{name}` are no array: {reason}; all samples should have one shape"
        ) from None
    if array.dtype.kind not in "fiubUS":
        raise InputError(f"{where}: `{name}` are of {array.dtype}; should be numbers, or names")
    return array


def _detached(value: Any) -> Any:
    detach: Callable[[], Any] | None = getattr(value, "detach", None)
    if detach is None:
        return value
    tensor = detach().cpu()
    return tensor.float() if str(tensor.dtype) in _WITHOUT_NUMPY else tensor


def as_one(sides: Any, count: int | None = None) -> Any:
    """Return symbols of several sides, such as a source and a target, as one array with the steps of
    all: (steps,) each, or (N, steps) of `count` samples; anything else as it is.
    """
    if not isinstance(sides, tuple | list) or len(sides) < 2 or not _is_array(sides):
        return sides
    if any(isinstance(side, list) for side in sides):
        return sides
    arrays = [np.asarray(_detached(side)) for side in sides]
    shapes = [own.shape for own in arrays]
    are_samples = count == len(sides) and len({*shapes}) == 1
    outer = () if count is None else (count,)
    fits = all(len(shape) == len(outer) + 1 and shape[:-1] == outer for shape in shapes)
    of_symbols = all(own.dtype.kind in "iu" and own.dtype != np.uint8 for own in arrays)
    return np.concatenate(arrays, -1) if fits and of_symbols and not are_samples else sides


def _joined(parts: list[NDArray[Any]], where: str) -> NDArray[Any]:
    if len({part.shape[1:] for part in parts}) > 1:
        raise InputError(
            f"{where}: samples have the shapes"
            f" {', '.join(sorted({str(part.shape[1:]) for part in parts}))}; pad them to one"
        )
    return np.concatenate(parts)
