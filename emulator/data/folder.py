"""A folder of images by class: a folder for each class, in `train` and `val` or `test`, or all together."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, plural
from .dataset import Dataset
from .files import shown
from .lazy import LazyImages
from .listing import Part, list_folder
from .pillow import BrokenError, Header, header_of, pixels_of
from .prepare import Preparation, Size
from .reading import Reading, shuffled, split

_THREADS = 2


@dataclass(frozen=True, eq=False)
class FilePictures:
    """Pictures in files below a folder."""

    root: Path
    files: tuple[str, ...]
    channels: int
    sizes: Mapping[Size, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.files)

    def picture(self, number: int) -> NDArray[np.uint8]:
        """See `Pictures`."""
        path = self.root / self.files[number]
        try:
            pixels = pixels_of(path, self.channels)
        except BrokenError as broken:
            raise _refusal(path, broken) from None
        if pixels.shape[:2] not in self.sizes:
            raise InputError(
                f"{shown(path)}: has changed since the start: it is {'x'.join(map(str, pixels.shape[:2]))}"
            )
        return pixels


def load_folder(root: Path, reading: Reading) -> Dataset:
    """Return the images below a folder; they are read when they are needed.

    Raises:
        InputError: images stand beside folders of classes, a class is empty, an image is broken, sizes differ.
    """
    trained, evaluated, classes, train_folder, notes = list_folder(root)
    parts = [trained] if evaluated is None else [trained, evaluated]
    checked = [_checked(root, part, reading.skip_broken) for part in parts]
    headers = [header for part in checked for header in part.headers]
    broken = {name: error for part in checked for name, error in part.broken.items()}
    all_images = plural(len(headers) + len(broken), "image")
    for part in checked:
        if not part.kept.files:
            raise _nothing_left(root if evaluated is None else root / next(iter(part.broken)).split("/")[0], part)
    if broken:
        are = "cannot be read and are" if any(error.is_whole for error in broken.values()) else "are broken and"
        notes.append(f"{len(broken):,} of {all_images} {are} left out, such as {shown(next(iter(broken)))}")
    turned = sum(header.orientation > 1 for header in headers)
    if turned:
        notes.append(f"{turned:,} of {all_images} turned as EXIF says")
    files = [name for part in checked for name in part.kept.files]
    sizes: dict[Size, str] = {}
    for name, header in zip(files, headers, strict=True):
        sizes.setdefault(header.size, shown(name))
    pictures = FilePictures(root, tuple(files), 1 if all(header.grey for header in headers) else 3, sizes)
    labels = np.array([label for part in checked for label in part.kept.labels], np.int64)
    _no_empty_class(train_folder, np.array(checked[0].kept.labels), classes)
    if evaluated is None:
        train, test = split(labels, len(classes), reading.test_share, reading.split_seed, shown(root))
        notes.append(
            f"{plural(len(test), 'image')}, a share of {reading.test_share:g} of each"
            f" class, {'is' if len(test) == 1 else 'are'} the test set"
        )
    else:
        train, test = np.split(np.arange(len(files)), [len(checked[0].kept.files)])
    preparation = Preparation(reading.resize, reading.crop_size)
    size = preparation.size(sizes, shown(root))
    train, test = shuffled(train, reading.split_seed), shuffled(test, reading.split_seed)
    images, test_images = (LazyImages(pictures, preparation, size, numbers) for numbers in (train, test))
    name, note = shown(root.resolve().name), "; ".join(notes)
    return Dataset(name, images, labels[train], test_images, labels[test], classes, note)


class _Checked(NamedTuple):
    """The images of a part that can be read, with their headers; and why others cannot."""

    kept: Part
    headers: list[Header]
    broken: dict[str, BrokenError]


def _checked(root: Path, part: Part, skip_broken: bool) -> _Checked:
    """Look at all images of a part; where broken ones are skipped, all pixels are read."""

    def check(name: str) -> Header | BrokenError:
        path = root / name
        try:
            if not path.is_file():
                raise BrokenError("not a file, or a link to nowhere")
            header = header_of(path)
            if skip_broken:
                pixels_of(path, 1 if header.grey else 3)
            return header
        except BrokenError as broken:
            return broken

    with ThreadPoolExecutor(_THREADS) as threads:
        outcomes = list(threads.map(check, part.files) if skip_broken else map(check, part.files))
    checked = _Checked(Part([], []), [], {})
    for name, label, header in zip(part.files, part.labels, outcomes, strict=True):
        if isinstance(header, BrokenError):
            if not skip_broken:
                raise _refusal(root / name, header)
            checked.broken[name] = header
            continue
        checked.kept.files.append(name)
        checked.kept.labels.append(label)
        checked.headers.append(header)
    return checked


def _refusal(path: Path, broken: BrokenError) -> InputError:
    what = "an image of a kind that is not read" if broken.is_whole else "a broken image"
    return InputError(
        f"{shown(path)}: {what}: {broken}; {'change' if broken.is_whole else 'repair'} or remove it, or give"
        " --skip-broken, which reads all images once before the start and leaves out broken ones"
    )


def _nothing_left(folder: Path, part: _Checked) -> InputError:
    """Return the error for a folder of which no image can be read."""
    (name, error), count = next(iter(part.broken.items())), plural(len(part.broken), "image")
    return InputError(
        f"{shown(folder)}: nothing is left: of {count} none can be read, such as {shown(name)} ({error}); give others"
    )


def _no_empty_class(folder: Path, labels: NDArray[np.int64], classes: tuple[str, ...]) -> None:
    """Check that training images of each class are left."""
    for number in np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0):
        raise InputError(f"{shown(folder / classes[number])}: an empty class: all of its images are broken; remove it")
