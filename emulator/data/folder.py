"""A folder of images by class: a folder for each class, in `train` and `val` or `test`, or all together."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

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
    headers = [header for _, part_headers in checked for header in part_headers]
    broken = [
        name for part, (kept, _) in zip(parts, checked, strict=True) for name in sorted({*part.files} - {*kept.files})
    ]
    if broken:
        notes.append(
            f"{len(broken):,} of {plural(sum(len(part.files) for part in parts), 'image')} are broken and left out,"
            f" such as {shown(broken[0])}"
        )
    files = [name for kept, _ in checked for name in kept.files]
    sizes: dict[Size, str] = {}
    for name, header in zip(files, headers, strict=True):
        sizes.setdefault(header.size, shown(name))
    pictures = FilePictures(root, tuple(files), 1 if all(header.grey for header in headers) else 3, sizes)
    labels = np.array([label for kept, _ in checked for label in kept.labels], np.int64)
    _no_empty_class(train_folder, np.array(checked[0][0].labels), classes)
    if evaluated is None:
        train, test = split(labels, len(classes), reading.test_share, reading.split_seed, shown(root))
        notes.append(
            f"{plural(len(test), 'image')}, a share of {reading.test_share:g} of each"
            f" class, {'is' if len(test) == 1 else 'are'} the test set"
        )
    else:
        train, test = np.split(np.arange(len(files)), [len(checked[0][0].files)])
    preparation = Preparation(reading.resize, reading.crop_size)
    size = preparation.size(sizes, shown(root))
    train, test = shuffled(train, reading.split_seed), shuffled(test, reading.split_seed)
    images, test_images = (LazyImages(pictures, preparation, size, numbers) for numbers in (train, test))
    name, note = shown(root.resolve().name), "; ".join(notes)
    return Dataset(name, images, labels[train], test_images, labels[test], classes, note)


def _checked(root: Path, part: Part, skip_broken: bool) -> tuple[Part, list[Header]]:
    """Return the images that can be read, with their headers; where broken ones are skipped, all pixels are read."""

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
    kept, headers = Part([], []), []
    for name, label, header in zip(part.files, part.labels, outcomes, strict=True):
        if isinstance(header, BrokenError):
            if not skip_broken:
                raise _refusal(root / name, header)
            continue
        kept.files.append(name)
        kept.labels.append(label)
        headers.append(header)
    return kept, headers


def _refusal(path: Path, broken: BrokenError) -> InputError:
    return InputError(
        f"{shown(path)}: a broken image: {broken}; repair or remove it, or give --skip-broken, which reads all images"
        " once before the start and leaves out broken ones"
    )


def _no_empty_class(folder: Path, labels: NDArray[np.int64], classes: tuple[str, ...]) -> None:
    """Check that training images of each class are left."""
    for number in np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0):
        raise InputError(f"{shown(folder / classes[number])}: an empty class: all of its images are broken; remove it")
