"""A folder of images by class: a folder for each class, in `train` and `val` or `test`, or all
together.

    ROOT/train/cat/1.png        ROOT/cat/1.png
         train/dog/2.jpg   or        dog/2.jpg
         val/cat/3.png

Images are those of torchvision's `ImageFolder`, by the endings of their names and through links,
but for names that begin with a dot and links that lead back to a folder above them. What is left
out is counted by kind.
"""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Mapping, Sequence
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
from .pillow import BrokenError, Header, header_of, pixels_of
from .reading import Preparation, Reading, Size, shuffled, split

_KINDS_SHOWN = 6


class LeftOut:
    """Counts files by the endings of their names, or by what else keeps them from being read."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def add(self, entry: os.DirEntry[str]) -> None:
        """Count a file."""
        ending = os.path.splitext(entry.name)[1].lower()
        if entry.name.startswith("."):
            self.add_kind("hidden")
        elif entry.is_symlink() and not os.path.exists(entry.path):
            self.add_kind("links to nowhere")
        else:
            self.add_kind(shown(ending) if ending else "without an ending")

    def add_kind(self, kind: str, count: int = 1) -> None:
        """Count files of a kind."""
        self._counts[kind] += count

    def join(self, other: LeftOut) -> None:
        """Add what another one has counted."""
        self._counts += other._counts

    @property
    def kinds(self) -> str:
        """The kinds with their counts, the most frequent first."""
        kinds = sorted(self._counts.items(), key=lambda kind: (-kind[1], kind[0]))
        rest = sum(count for _, count in kinds[_KINDS_SHOWN:])
        counts = [f"{count:,} {kind}" for kind, count in kinds[:_KINDS_SHOWN]]
        return ", ".join([*counts, plural(rest, "other")] if rest else counts)

    @property
    def notes(self) -> list[str]:
        """What to say, if there is anything."""
        return (
            [f"{plural(self._counts.total(), 'file')} left out: {self.kinds}"]
            if self._counts
            else []
        )


SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
_TRAIN, _VAL, _TEST = "train", "val", "test"
_PARTS = {
    part: re.compile(rf"{word}(set|data|images|split|20\d\d)?")
    for part, word in ((_TRAIN, "train(ing)?"), (_VAL, "val(id(ation)?)?"), (_TEST, "test(ing)?"))
}
_MOST_FOLDERS = 1 << 20  # of a class, where links lead to the same ones again and again


class Part(NamedTuple):
    """The images of `train`, `val`, `test`, or of all: their files below the root, and labels."""

    files: list[str]
    labels: list[int]


class Listing(NamedTuple):
    """A folder's images to train on and to evaluate on, if these are apart; the classes; and what
    to say of them.

    `train_folder` is where the images to train on are.
    """

    trained: Part
    evaluated: Part | None
    classes: tuple[str, ...]
    train_folder: Path
    notes: list[str]


def list_folder(root: Path) -> Listing:
    """Return the images of a folder.

    Raises:
        InputError: images stand beside folders of classes, a class is empty, or parts contradict
            each other.
        OSError: a folder cannot be read.
    """
    folders, left_out = _folders(root), LeftOut()
    named = {name: part for name in folders if (part := part_of(name))}
    parts = {name: part for name, part in named.items() if _folders(root / name)}
    if not parts:
        if folders and len(named) == len(folders):
            raise InputError(
                f"{shown(root / folders[0])}: holds no folder for each class, so the labels of its"
                f" images are unknown; put them into {shown(folders[0])}/CLASS/"
            )
        _refuse_wrapped(root, folders)
        classes = _classes(root, left_out)
        trained, evaluated, where, notes = (
            _part(root, ".", classes, classes, left_out),
            None,
            root,
            list[str](),
        )
    else:
        _refuse_mixture(root, folders, named, parts)
        by_part = _one_each(root, parts)
        where = root / by_part[_TRAIN]
        _count_strays(root, left_out)
        classes = _classes(where, left_out)
        trained, notes = _part(root, by_part[_TRAIN], classes, classes, left_out), []
        evaluated = _evaluated(root, by_part, classes, left_out, notes)
    return Listing(trained, evaluated, tuple(map(shown, classes)), where, [*notes, *left_out.notes])


def part_of(name: str) -> str | None:
    """Return which part a folder is by its name, in any case and spelling: train, val or test; None
    for a class.
    """
    plain = re.sub(r"[\W_]+", "", name.lower())
    return next((part for part, spelt in _PARTS.items() if spelt.fullmatch(plain)), None)


def _refuse_wrapped(root: Path, folders: Sequence[str]) -> None:
    """Refuse a folder that holds nothing but the folder with the parts, which would be its only
    class.
    """
    if len(folders) == 1:
        inner = root / folders[0]
        if any(part_of(name) and _folders(inner / name) for name in _folders(inner)):
            raise InputError(
                f"{shown(root)}: holds one folder, in which the parts are; give {shown(inner)}"
            )


def _refuse_mixture(
    root: Path, folders: Sequence[str], named: dict[str, str], parts: dict[str, str]
) -> None:
    others = [*(name for name in folders if name not in parts), *_images_in(root)]
    if not others:
        return
    beside = f"{shown(others[0])} is next to {' and '.join(map(shown, parts))}"
    if others[0] in named:
        raise InputError(
            f"{shown(root)}: a mixture: {beside}, but has no folder for each class, so that its"
            " labels are unknown; move it away"
        )
    raise InputError(
        f"{shown(root)}: a mixture: {beside}; give a folder with only `train` and `val` or `test`,"
        " or with a folder for each class"
    )


def _one_each(root: Path, parts: dict[str, str]) -> dict[str, str]:
    """Return the folders by their part; each part may have one."""
    by_part: dict[str, str] = {}
    for name, part in parts.items():
        if part in by_part:
            raise InputError(
                f"{shown(root)}: {shown(by_part[part])} and {shown(name)} are both `{part}` by"
                " their names; leave one"
            )
        by_part[part] = name
    if _TRAIN not in by_part:
        name = shown(next(iter(parts)))
        raise InputError(
            f"{shown(root)}: has `{name}`, but no `train` with a folder for each class next to it"
        )
    return by_part


def _evaluated(
    root: Path, by_part: dict[str, str], classes: Sequence[str], left_out: LeftOut, notes: list[str]
) -> Part | None:
    """Return the images of `val`, or else of `test`, if any; what is not used is counted."""
    evaluated, known = None, set(classes)
    for name in (by_part[part] for part in (_VAL, _TEST) if part in by_part):
        own = _classes(root / name, left_out)
        strange = next((label for label in own if label not in known), None)
        if strange is not None:
            train = shown(by_part[_TRAIN])
            raise InputError(
                f"{shown(root / name / strange)}: a class that `{train}` does not have"
            )
        part = _part(root, name, own, classes, left_out)
        if evaluated is None:
            evaluated, first = part, shown(name)
        else:
            count = plural(len(part.files), "image")
            notes.append(f"`{first}` is evaluated, and `{shown(name)}`, of {count}, is not used")
    return evaluated


def _classes(folder: Path, left_out: LeftOut) -> list[str]:
    """Return the names of the folders in a folder, in order, beside which no images may be."""
    classes, images = _folders(folder), _images_in(folder)
    if classes and images:
        raise InputError(
            f"{shown(folder)}: a mixture of images ({shown(images[0])}) and folders of classes"
            f" ({shown(classes[0])}); put each image into the folder of its class"
        )
    if not classes:
        raise InputError(f"{shown(folder)}: has no folders; each class is a folder with its images")
    _count_strays(folder, left_out)
    return classes


def _count_strays(folder: Path, left_out: LeftOut) -> None:
    """Count what lies beside folders: files, and images in hidden folders."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_folder(entry):
                left_out.add(entry)
            elif entry.name.startswith("."):
                hidden = len(_images_below(str(folder), entry.name, LeftOut()))
                if hidden:
                    left_out.add_kind("in hidden folders", hidden)


def _part(
    root: Path, part: str, folders: Sequence[str], classes: Sequence[str], left_out: LeftOut
) -> Part:
    """Return all images of some classes, at any depth, in the order of their names."""
    listed, numbers = Part([], []), {name: number for number, name in enumerate(classes)}
    for folder in folders:
        beside = LeftOut()
        files = _images_below(str(root), folder if part == "." else f"{part}/{folder}", beside)
        if not files:
            but = f", but {beside.kinds}" if beside.notes else ""
            raise InputError(
                f"{shown(root / part / folder)}: an empty class: no images ({', '.join(SUFFIXES)})"
                f" in it{but}; remove it"
            )
        left_out.join(beside)
        listed.files.extend(sorted(files))
        listed.labels.extend([numbers[folder]] * len(files))
    return listed


def _images_below(root: str, top: str, left_out: LeftOut) -> list[str]:
    """Return the images at any depth below a folder of the root, through links, but none that leads
    back above it.
    """
    ways = (f"{root}/{folder}" for folder in (".", *map(str, Path(top).parents)))
    images, waiting, visited = list[str](), [(top, frozenset(map(_identity, ways)))], 0
    while waiting:
        folder, above = waiting.pop()
        path, visited = f"{root}/{folder}", visited + 1
        here = _identity(path)
        if here in above:
            left_out.add_kind("links back to a folder above")
            continue
        if visited > _MOST_FOLDERS:
            raise InputError(
                f"{shown(f'{root}/{top}')}: links lead to the same folders again and again; remove"
                " some"
            )
        with os.scandir(path) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}"
                if is_folder(entry):
                    waiting.append((name, above | {here}))
                elif _is_image(entry.name):
                    images.append(name)
                else:
                    left_out.add(entry)
        if folder == top:
            _refuse_parts_within(path, [name for name, _ in waiting])
    return images


def _identity(folder: str) -> tuple[int, int]:
    """Return what is the same for all paths of a folder."""
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _refuse_parts_within(path: str, folders: Sequence[str]) -> None:
    """Refuse parts within a class, whose images would all be trained on."""
    parts = {part: name for name in folders if (part := part_of(os.path.basename(name)))}
    if _TRAIN in parts and len(parts) > 1:
        names = " and ".join(shown(os.path.basename(name)) for name in parts.values())
        raise InputError(
            f"{shown(path)}: has parts ({names}) within a class; put the folders of classes into"
            " those of the parts, as train/CLASS/ and test/CLASS/"
        )


def _images_in(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(
            entry.name for entry in entries if _is_image(entry.name) and not is_folder(entry)
        )


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _folders(root: Path) -> list[str]:
    """Return the names of the folders in a folder, in order."""
    with os.scandir(root) as entries:
        return sorted(
            entry.name for entry in entries if not entry.name.startswith(".") and is_folder(entry)
        )


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
                f"{shown(path)}: has changed since the start: it is"
                f" {'x'.join(map(str, pixels.shape[:2]))}"
            )
        return pixels


def load_folder(root: Path, reading: Reading) -> Dataset:
    """Return the images below a folder; they are read when they are needed.

    Raises:
        InputError: images stand beside folders of classes, a class is empty, an image is broken,
            sizes differ.
    """
    trained, evaluated, classes, train_folder, notes = list_folder(root)
    parts = [trained] if evaluated is None else [trained, evaluated]
    checked = [_checked(root, part, reading.skip_broken) for part in parts]
    headers = [header for part in checked for header in part.headers]
    broken = {name: error for part in checked for name, error in part.broken.items()}
    all_images = plural(len(headers) + len(broken), "image")
    for part in checked:
        if not part.kept.files:
            raise _nothing_left(
                root if evaluated is None else root / next(iter(part.broken)).split("/")[0], part
            )
    if broken:
        are = (
            "cannot be read and are"
            if any(error.is_whole for error in broken.values())
            else "are broken and"
        )
        notes.append(
            f"{len(broken):,} of {all_images} {are} left out, such as {shown(next(iter(broken)))}"
        )
    turned = sum(header.orientation > 1 for header in headers)
    if turned:
        notes.append(f"{turned:,} of {all_images} turned as EXIF says")
    files = [name for part in checked for name in part.kept.files]
    sizes: dict[Size, str] = {}
    for name, header in zip(files, headers, strict=True):
        sizes.setdefault(header.size, shown(name))
    pictures = FilePictures(
        root, tuple(files), 1 if all(header.grey for header in headers) else 3, sizes
    )
    labels = np.array([label for part in checked for label in part.kept.labels], np.int64)
    _no_empty_class(train_folder, np.array(checked[0].kept.labels), classes)
    if evaluated is None:
        train, test = split(
            labels, len(classes), reading.test_share, reading.split_seed, shown(root)
        )
        notes.append(
            f"{plural(len(test), 'image')}, a share of {reading.test_share:g} of each"
            f" class, {'is' if len(test) == 1 else 'are'} the test set"
        )
    else:
        train, test = np.split(np.arange(len(files)), [len(checked[0].kept.files)])
    preparation = Preparation(reading.resize, reading.crop_size)
    size = preparation.size(sizes, shown(root))
    train, test = shuffled(train, reading.split_seed), shuffled(test, reading.split_seed)
    images, test_images = (
        LazyImages(pictures, preparation, size, numbers) for numbers in (train, test)
    )
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
        f"{shown(path)}: {what}: {broken}; {'change' if broken.is_whole else 'repair'} or remove"
        " it, or give --skip-broken, which reads all images once before the start and leaves out"
        " broken ones"
    )


def _nothing_left(folder: Path, part: _Checked) -> InputError:
    """Return the error for a folder of which no image can be read."""
    (name, error), count = next(iter(part.broken.items())), plural(len(part.broken), "image")
    return InputError(
        f"{shown(folder)}: nothing is left: of {count} none can be read, such as {shown(name)}"
        f" ({error}); give others"
    )


def _no_empty_class(folder: Path, labels: NDArray[np.int64], classes: tuple[str, ...]) -> None:
    """Check that training images of each class are left."""
    for number in np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0):
        raise InputError(
            f"{shown(folder / classes[number])}: an empty class: all of its images are broken;"
            " remove it"
        )
