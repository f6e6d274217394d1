"""Inputs and targets in Python: arrays, data sets and loaders of PyTorch, and data sets of Hugging
Face. None of these libraries is imported here: an object is known by what it can do.

Samples are read once, in their own order; the seed of a run alone says in which order it takes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...common import InputError, described, typed
from ..dataset import Dataset
from ..reading import Reading
from .values import INPUTS, TARGETS, TEST_INPUTS, TEST_TARGETS, own_dataset

_AT_ONCE = 1024
TARGET_NAMES = ("targets", "target", "labels", "label", "y", "class", "fine_label")
"""Names of columns that are targets, the first that is there."""

_INPUT_NAMES = ("inputs", "input", "input_ids", "pixel_values", "x", "image", "img", "tokens")
_TAKEN = (
    "(inputs, targets), or a mapping of `inputs` and `targets`, as arrays; a torch Dataset or"
    " DataLoader; a data set of Hugging Face; or a DataFrame of pandas"
)


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
            or DataLoader, whose samples are read once, in their own order; a data set of Hugging
            Face; or a DataFrame of pandas, whose columns are as those of a table.
        test: the same for the test; by default a share of the data.
        name: the data set's.
        classes: names of the classes, by number.
        test_share: share for the test, of each class.
        split_seed: the seed that draws it.

    Raises:
        InputError: it is nothing of the kind, or types or shapes are wrong.
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
    train, own_names = _part(data, "data")
    return own_dataset(
        name,
        train,
        None if test is None else _part(test, "test")[0],
        Reading(test_share=test_share, split_seed=split_seed),
        classes=own_names if classes is None else tuple(map(str, classes)),
        where="`data`",
    )


def _part(data: Any, where: str) -> tuple[tuple[NDArray[Any], NDArray[Any]], tuple[str, ...]]:
    """Return inputs and targets as arrays, and the names of classes where the data has them."""
    if isinstance(data, tuple) and len(data) == 2:
        return (_array(data[0], where, INPUTS), _array(data[1], where, TARGETS)), ()
    if isinstance(data, Mapping) or hasattr(data, "column_names"):
        return _of_columns(data, where)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return _of_frame(data, where), ()
    samples: Iterable[Any]
    if hasattr(data, "dataset") and hasattr(data, "collate_fn"):  # a DataLoader
        samples = _collated(data, where)
    elif _is_sequence(data):
        samples = (_columns([data[i] for i in range(len(data))], where),)
    else:
        raise InputError(f"`{where}`: is {described(data)}; should be {_TAKEN}")
    parts = [_pair(batch, where) for batch in samples]
    if not parts:
        raise InputError(f"`{where}`: has no samples")
    names = getattr(getattr(data, "dataset", data), "classes", None)
    classes = tuple(map(str, names)) if isinstance(names, list | tuple) else ()
    return (_joined([x for x, _ in parts], where), _joined([y for _, y in parts], where)), classes


def _is_sequence(data: Any) -> bool:
    """Return whether samples have numbers; an array alone has no targets."""
    if isinstance(data, str | bytes | np.ndarray | type) or not hasattr(data, "__getitem__"):
        return False
    try:
        return len(data) >= 0
    except Exception:  # of an object of any kind
        return False


def _collated(loader: Any, where: str) -> Iterable[Any]:
    """Yield what a loader makes of the samples of its data set, in their own order."""
    data, collate = loader.dataset, loader.collate_fn
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        yield from loader  # it cannot be asked for the samples one by one
        return
    collate = collate or (lambda samples: _columns(samples, where))
    for begin in range(0, len(data), _AT_ONCE):
        yield collate([data[i] for i in range(begin, min(begin + _AT_ONCE, len(data)))])


def _columns(samples: list[Any], where: str) -> Any:
    """Return samples (input, target), or mappings, as a pair of columns, or a mapping of them."""
    if not samples:
        raise InputError(f"`{where}`: has no samples")
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: [sample[key] for sample in samples] for key in first}
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise InputError(
            f"`{where}`: its first sample is {described(first)}; should be (input, target), or a"
            " mapping"
        )
    return [sample[0] for sample in samples], [sample[1] for sample in samples]


def _pair(batch: Any, where: str) -> tuple[NDArray[Any], NDArray[Any]]:
    if isinstance(batch, Mapping):
        return _of_columns(batch, where)[0]
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputError(
            f"`{where}`: a batch is {described(batch)}; should be (inputs, targets), or a mapping"
        )
    return _array(batch[0], where, INPUTS), _array(batch[1], where, TARGETS)


def _of_columns(data: Any, where: str) -> tuple[tuple[NDArray[Any], NDArray[Any]], tuple[str, ...]]:
    """Return two columns of a mapping, or of a data set of Hugging Face, and names of classes."""
    names = list(getattr(data, "column_names", None) or data)

    def column(known: Sequence[str], other: str) -> str:
        name = next((name for name in known if name in names), None)
        if name is None:
            names_there = ", ".join(map(str, names)) or "nothing"
            raise InputError(
                f"`{where}`: has no column of {other}, but {names_there}; call it `{other}`"
            )
        return name

    target, taken = column(TARGET_NAMES, TARGETS), column(_INPUT_NAMES, INPUTS)
    feature = (getattr(data, "features", None) or {}).get(target)
    classes = getattr(feature, "names", None) or ()
    values = _array(data[taken], where, taken), _array(data[target], where, target)
    return values, tuple(map(str, classes))


def _of_frame(data: Any, where: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the columns of a DataFrame of pandas: the one with a known name, or else the last, is
    the target, as of a table.
    """
    names = list(data.columns)
    if len(names) < 2:
        raise InputError(f"`{where}`: has {len(names)} columns; give inputs, and a target")
    lower = [str(name).lower() for name in names]
    known = next((name for name in TARGET_NAMES if name in lower), lower[-1])
    target = names[lower.index(known)]
    own = data[target].to_numpy()
    if own.dtype.kind == "O" and all(isinstance(value, str) for value in own):
        own = own.astype(str)
    return _array(data.drop(columns=[target]).to_numpy(), where, INPUTS), _array(own, where, target)


def _array(values: Any, where: str, name: str) -> NDArray[Any]:
    """Return values as an array; a list of tensors or pictures, stacked."""
    try:
        if not hasattr(values, "__array__"):
            values = [np.asarray(_detached(value)) for value in values]
        array = np.asarray(_detached(values))
    except Exception as error:  # of whatever they are made of
        reason = " ".join(str(error).split())[:100]
        raise InputError(
            f"`{where}`: `{name}` are no array: {reason}; all samples should have one shape"
        ) from None
    if array.dtype.kind not in "fiubUS":
        raise InputError(f"`{where}`: `{name}` are of {array.dtype}; should be numbers, or names")
    return array


def _detached(value: Any) -> Any:
    detach: Callable[[], Any] | None = getattr(value, "detach", None)
    return value if detach is None else detach().cpu()


def _joined(parts: list[NDArray[Any]], where: str) -> NDArray[Any]:
    if len({part.shape[1:] for part in parts}) > 1:
        raise InputError(
            f"`{where}`: samples have the shapes"
            f" {', '.join(sorted({str(part.shape[1:]) for part in parts}))}; pad them to one"
        )
    return np.concatenate(parts)
