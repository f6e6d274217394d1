"""Finding a data set: `shapes` or `text`, a directory in one of the known layouts, or the file of a text."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..common import InputError
from . import cifar, mnist, shapes, text
from .dataset import Dataset

STEPS = 64
"""Characters of a window of text, where nothing says another number."""

Description = tuple[int, int, tuple[int, int, int], int]  # n_train, n_test, (c, h, w), n_classes


class _Layout(NamedTuple):
    title: str
    folder: str  # below the given directory, where the files may be instead
    recognise: Callable[[Path], bool]
    load: Callable[[Path], Dataset]
    describe: Callable[[Path], Description] | None  # None if the data set must be loaded for it


_LAYOUTS = (
    _Layout("CIFAR-10", "cifar-10-batches-bin", cifar.is_binary, cifar.load_binary, cifar.describe_binary),
    _Layout("CIFAR-10", "cifar-10-batches-py", cifar.is_pickled, cifar.load_pickled, None),
    _Layout("MNIST", "mnist", mnist.is_mnist, mnist.load_mnist, mnist.describe_mnist),
)
_UNDERSTOOD = (
    "CIFAR-10 binary (data_batch_1.bin ... or cifar-10-batches-bin/), CIFAR-10 pickled (data_batch_1 ... or"
    " cifar-10-batches-py/), or MNIST (train-images-idx3-ubyte[.gz] ... or mnist/)"
)


def load_data(where: str, steps: int = STEPS, *, lines: bool = False) -> Dataset:
    """Return the data set `shapes` or `text`, or that in the directory or file `where` (`./shapes` is a directory).

    A file is a text, and its name ends in .txt. Its samples, and those of `text`, are windows of `steps` characters, or
    `lines`.

    Raises InputError when there is no such directory, when it holds no known layout, and when a file in it is missing,
    cut off or otherwise damaged.
    """
    if where == "shapes":
        return shapes.draw()
    if text.is_text(where):
        return text.load_text(where, steps, lines=lines)
    folder, layout = _find(where)
    return layout.load(folder)


def describe_data(where: str, steps: int = STEPS, *, lines: bool = False) -> Description:
    """Return (n_train, n_test, (c, h, w), n_classes) of `load_data(…)`, if possible from sizes and headers alone.

    Raises InputError as `load_data` does, for the files that it reads.
    """
    if where == "shapes":
        return shapes.N_TRAIN, shapes.N_TEST, shapes.SHAPE, len(shapes.CLASSES)
    if not text.is_text(where):
        folder, layout = _find(where)
        if layout.describe is not None:
            return layout.describe(folder)
    data = load_data(where, steps, lines=lines)
    return data.n_train, data.n_test, data.shape, data.n_classes


def _find(where: str) -> tuple[Path, _Layout]:
    """Return the folder that holds a data set, `where` itself or one below it, and its layout."""
    try:
        return _look_in(Path(where))
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror}); give a readable directory") from None


def _look_in(root: Path) -> tuple[Path, _Layout]:
    if not os.path.exists(root):
        raise InputError(f"{root}: no such directory; give `shapes`, `text`, or a directory with a data set")
    if not root.is_dir():
        raise InputError(f"{root}: is a file; give the directory it is in, or a text, whose name ends in .txt")
    here = [(root, layout) for layout in _LAYOUTS if layout.recognise(root)]
    below = [(root / layout.folder, layout) for layout in _LAYOUTS if layout.recognise(root / layout.folder)]
    found = here or below
    if not found:
        state = "holds no data set known here" if any(root.iterdir()) else "is empty"
        raise InputError(f"{root}: {state}; understood are {_UNDERSTOOD}")
    if len({layout.title for _, layout in found}) > 1:
        names = " and ".join(f"{layout.title} ({folder})" for folder, layout in found)
        raise InputError(f"{root}: holds {names}; give the directory of one of them")
    return found[0]
