"""What lies in a folder of images: its parts, their classes, the images of each, and what is left out, by kind.

Images are those of torchvision's `ImageFolder`, by the endings of their names and through links, but for names that
begin with a dot and links that lead back to a folder above them.
"""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..common import InputError, plural
from .files import shown

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
        told = [f"{count:,} {kind}" for kind, count in kinds[:_KINDS_SHOWN]]
        return ", ".join([*told, plural(rest, "other")] if rest else told)

    @property
    def notes(self) -> list[str]:
        """What to say, if there is anything."""
        return [f"{plural(self._counts.total(), 'file')} left out: {self.kinds}"] if self._counts else []


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
    """A folder's images to train on and to evaluate on, if these are apart; the classes; and what to say of them.

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
        InputError: images stand beside folders of classes, a class is empty, or parts contradict each other.
        OSError: a folder cannot be read.
    """
    folders, left_out = _folders(root), LeftOut()
    named = {name: part for name in folders if (part := part_of(name))}
    parts = {name: part for name, part in named.items() if _folders(root / name)}
    if not parts:
        if folders and len(named) == len(folders):
            raise InputError(
                f"{shown(root / folders[0])}: holds no folder for each class, so the labels of its images are unknown;"
                f" put them into {shown(folders[0])}/CLASS/"
            )
        _refuse_wrapped(root, folders)
        classes = _classes(root, left_out)
        trained, evaluated, where, notes = _part(root, ".", classes, classes, left_out), None, root, list[str]()
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
    """Return which part a folder is by its name, in any case and spelling: train, val or test; None for a class."""
    plain = re.sub(r"[\W_]+", "", name.lower())
    return next((part for part, spelt in _PARTS.items() if spelt.fullmatch(plain)), None)


def _refuse_wrapped(root: Path, folders: Sequence[str]) -> None:
    """Refuse a folder that holds nothing but the folder with the parts, which would be its only class."""
    if len(folders) == 1:
        inner = root / folders[0]
        if any(part_of(name) and _folders(inner / name) for name in _folders(inner)):
            raise InputError(f"{shown(root)}: holds one folder, in which the parts are; give {shown(inner)}")


def _refuse_mixture(root: Path, folders: Sequence[str], named: dict[str, str], parts: dict[str, str]) -> None:
    others = [*(name for name in folders if name not in parts), *_images_in(root)]
    if not others:
        return
    beside = f"{shown(others[0])} is next to {' and '.join(map(shown, parts))}"
    if others[0] in named:
        raise InputError(
            f"{shown(root)}: a mixture: {beside}, but has no folder for each class, so that its labels are unknown;"
            " move it away"
        )
    raise InputError(
        f"{shown(root)}: a mixture: {beside}; give a folder with only `train` and `val` or `test`, or with a folder"
        " for each class"
    )


def _one_each(root: Path, parts: dict[str, str]) -> dict[str, str]:
    """Return the folders by their part; each part may have one."""
    by_part: dict[str, str] = {}
    for name, part in parts.items():
        if part in by_part:
            raise InputError(
                f"{shown(root)}: {shown(by_part[part])} and {shown(name)} are both `{part}` by their names; leave one"
            )
        by_part[part] = name
    if _TRAIN not in by_part:
        name = shown(next(iter(parts)))
        raise InputError(f"{shown(root)}: has `{name}`, but no `train` with a folder for each class next to it")
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
            raise InputError(f"{shown(root / name / strange)}: a class that `{train}` does not have")
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
            f"{shown(folder)}: a mixture of images ({shown(images[0])}) and folders of classes ({shown(classes[0])});"
            " put each image into the folder of its class"
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


def _part(root: Path, part: str, folders: Sequence[str], classes: Sequence[str], left_out: LeftOut) -> Part:
    """Return all images of some classes, at any depth, in the order of their names."""
    listed, numbers = Part([], []), {name: number for number, name in enumerate(classes)}
    for folder in folders:
        beside = LeftOut()
        files = _images_below(str(root), folder if part == "." else f"{part}/{folder}", beside)
        if not files:
            but = f", but {beside.kinds}" if beside.notes else ""
            raise InputError(
                f"{shown(root / part / folder)}: an empty class: no images ({', '.join(SUFFIXES)}) in it{but}; remove"
                " it"
            )
        left_out.join(beside)
        listed.files.extend(sorted(files))
        listed.labels.extend([numbers[folder]] * len(files))
    return listed


def _images_below(root: str, top: str, left_out: LeftOut) -> list[str]:
    """Return the images at any depth below a folder of the root, through links, but none that leads back above it."""
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
            raise InputError(f"{shown(f'{root}/{top}')}: links lead to the same folders again and again; remove some")
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
            f"{shown(path)}: has parts ({names}) within a class; put the folders of classes into those of the parts, as"
            " train/CLASS/ and test/CLASS/"
        )


def _images_in(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if _is_image(entry.name) and not is_folder(entry))


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
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and is_folder(entry))
