"""A folder of images by class: a folder for each class, in `train` and `val` or `test`, or all together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .dataset import Dataset
from .files import shown
from .lazy import LazyImages
from .pillow import BrokenError, Header, header_of, pixels_of
from .prepare import Preparation, Size
from .reading import Reading
from .split import shuffled, split

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
_TRAIN, _EVALUATED = "train", ("val", "test")
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


class _Part(NamedTuple):
    """The images of `train`, `val`, `test`, or of all: their files below the root, and labels."""

    files: list[str]
    labels: list[int]


def load_folder(root: Path, reading: Reading) -> Dataset:
    """Return the images below a folder; they are read when they are needed.

    Raises:
        InputError: images stand beside folders of classes, a class is empty, an image is broken, sizes differ.
    """
    trained, evaluated, classes, notes = _parts(root)
    parts = [trained] if evaluated is None else [trained, evaluated]
    checked = [_checked(root, part, reading.skip_broken) for part in parts]
    headers = [header for _, found in checked for header in found]
    broken = [
        name for of, (kept, _) in zip(parts, checked, strict=True) for name in sorted({*of.files} - {*kept.files})
    ]
    if broken:
        notes.append(
            f"{len(broken):,} of {sum(len(part.files) for part in parts):,} images are broken and left out,"
            f" such as {shown(broken[0])}"
        )
    files = [name for kept, _ in checked for name in kept.files]
    sizes: dict[Size, str] = {}
    for name, header in zip(files, headers, strict=True):
        sizes.setdefault(header.size, shown(name))
    pictures = FilePictures(root, tuple(files), 1 if all(header.grey for header in headers) else 3, sizes)
    labels = np.array([label for kept, _ in checked for label in kept.labels], np.int64)
    _no_empty_class(root / _TRAIN if evaluated else root, np.array(checked[0][0].labels), classes)
    if evaluated is None:
        train, test = split(labels, len(classes), reading.test_share, reading.split_seed, shown(root))
        notes.append(f"{len(test):,} images, a share of {reading.test_share:g} of each class, are the test")
    else:
        train, test = np.split(np.arange(len(files)), [len(checked[0][0].files)])
    preparation = Preparation(reading.resize, reading.crop_size)
    size = preparation.size(sizes, shown(root))
    train, test = shuffled(train, reading.split_seed), shuffled(test, reading.split_seed)
    images, test_images = (LazyImages(pictures, preparation, size, numbers) for numbers in (train, test))
    name, note = shown(root.resolve().name), "; ".join(notes)
    return Dataset(name, images, labels[train], test_images, labels[test], classes, note)


def _parts(root: Path) -> tuple[_Part, _Part | None, tuple[str, ...], list[str]]:
    """Return the images to train on and to evaluate on, if these are apart, the classes, and what to say about them."""
    folders, notes = _folders(root), list[str]()
    parts = [name for name in folders if name in (_TRAIN, *_EVALUATED) and _folders(root / name)]
    if not parts:
        classes = _classes(root)
        return _part(root, ".", classes), None, tuple(map(shown, classes)), notes
    others = [*(name for name in folders if name not in parts), *_images_in(root)]
    if others:
        raise InputError(
            f"{shown(root)}: a mixture: {shown(others[0])} stands beside {' and '.join(parts)}; give a folder with"
            " `train` and `val` or `test` alone, or with a folder for each class"
        )
    if _TRAIN not in parts:
        raise InputError(f"{shown(root)}: has `{parts[0]}`, but no `train` with a folder for each class beside it")
    classes = _classes(root / _TRAIN)
    trained, evaluated = _part(root, _TRAIN, classes), None
    for name in (name for name in _EVALUATED if name in parts):
        unknown = [each for each in _classes(root / name) if each not in classes]
        if unknown:
            raise InputError(f"{shown(root / name / unknown[0])}: a class that `train` does not have")
        if evaluated is None:
            evaluated = _part(root, name, [each for each in classes if each in _folders(root / name)], classes)
        else:
            notes.append(f"`val` is evaluated, and `{name}` is not used")
    return trained, evaluated, tuple(map(shown, classes)), notes


def _classes(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, in order, beside which no images may be."""
    classes, images = _folders(folder), _images_in(folder)
    if classes and images:
        raise InputError(
            f"{shown(folder)}: a mixture of images ({shown(images[0])}) and folders of classes ({shown(classes[0])});"
            " put each image into the folder of its class"
        )
    if not classes:
        raise InputError(f"{shown(folder)}: has no folders; each class is a folder with its images")
    return classes


def _images_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if not entry.is_dir() and _is_image(entry.name))


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _part(root: Path, part: str, folders: list[str], classes: list[str] | None = None) -> _Part:
    """Return all images of some classes, at any depth, in the order of their names."""
    found, numbers = _Part([], []), {name: number for number, name in enumerate(classes or folders)}
    for folder in folders:
        files = [
            os.path.relpath(os.path.join(below, name), root)
            for below, _, names in os.walk(root / part / folder, onerror=_raise)
            for name in names
            if _is_image(name)
        ]
        if not files:
            raise InputError(
                f"{shown(root / part / folder)}: an empty class: no images ({', '.join(SUFFIXES)}) in it; remove it"
            )
        found.files.extend(sorted(files))
        found.labels.extend([numbers[folder]] * len(files))
    return found


def _raise(error: OSError) -> None:
    raise error


def _checked(root: Path, part: _Part, skip_broken: bool) -> tuple[_Part, list[Header]]:
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
        found = list(threads.map(check, part.files) if skip_broken else map(check, part.files))
    kept, headers = _Part([], []), []
    for name, label, header in zip(part.files, part.labels, found, strict=True):
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
        f"{shown(path)}: a broken image: {broken}; mend or remove it, or give --skip-broken, which reads all images"
        " once before the start and leaves out broken ones"
    )


def _no_empty_class(folder: Path, labels: NDArray[np.int64], classes: tuple[str, ...]) -> None:
    """Check that training images of each class are left."""
    for number in np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0):
        raise InputError(f"{shown(folder / classes[number])}: an empty class: all of its images are broken; remove it")


def _folders(root: Path) -> list[str]:
    """Return the names of the folders in a folder, in order."""
    return sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
