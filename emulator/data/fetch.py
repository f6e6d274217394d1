"""The published data sets, with their addresses, sizes and checksums, and how they are fetched.

Files are checked before they are used, and nothing is left of what fails.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..common import InputError, WholeFile, open_file
from . import cifar
from .transfer import Limits, Progress, TransferError, download, unpack


@dataclass(frozen=True)
class Source:
    """One file to fetch: its name below a mirror's address, its SHA-256 checksum in hexadecimal, and its size."""

    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Collection:
    """A data set: its files, the mirrors to try in turn, and the folder to put it in.

    With `members`, the only file is a tar archive, and these are the files of `folder` that it must hold.
    """

    name: str
    mirrors: tuple[str, ...]
    files: tuple[Source, ...]
    folder: str
    members: tuple[str, ...] = ()


CIFAR10 = Collection(
    name="cifar10",
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    files=(
        Source(
            "cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170_052_171
        ),
    ),
    folder="cifar-10-batches-bin",
    members=(*(f"{name}.bin" for name in (*cifar.TRAIN, cifar.TEST)), "batches.meta.txt"),
)
MNIST = Collection(
    name="mnist",
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    files=(
        Source(
            "train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422
        ),
        Source(
            "train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881
        ),
        Source(
            "t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877
        ),
        Source("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
    ),
    folder="mnist",
)
COLLECTIONS = (CIFAR10, MNIST)


_CHUNK = 1 << 16


def fetch_data(name: str, to: Path, *, mirrors: Sequence[str] | None = None, progress: Progress | None = None) -> Path:
    """Fetch the data set `name` (cifar10 or mnist) into a folder below `to`, and return that folder.

    `mirrors` are base addresses tried in turn instead of the official ones. Files already complete are not fetched
    again. Raises InputError, saying what to do, when `name` is unknown, no mirror delivers, or a file is wrong.
    """
    for collection in COLLECTIONS:
        if collection.name == name:
            return fetch_collection(collection, to, mirrors=mirrors, progress=progress)
    raise InputError(
        f"{name}: not a data set that can be fetched; choose from {', '.join(c.name for c in COLLECTIONS)}"
    )


def fetch_collection(
    collection: Collection,
    to: Path,
    *,
    mirrors: Sequence[str] | None = None,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> Path:
    """Fetch `collection` as `fetch_data` does one by name; `limits` are those of time."""
    folder = to / collection.folder
    place = to if collection.members else folder
    if collection.members and folder.exists():
        missing = [member for member in collection.members if not (folder / member).exists()]
        if not missing:
            return folder
        raise InputError(f"{folder}: exists, but lacks {missing[0]}; remove it and fetch again")
    try:
        with _made(place):
            for source in collection.files:
                _fetch_file(source, place, tuple(mirrors or collection.mirrors), progress, limits or Limits())
            if collection.members:
                unpack(place / collection.files[0].name, folder, collection.members)
    except OSError as error:
        raise InputError(f"{error.filename or place}: cannot be written ({error.strerror or error})") from None
    return folder


@contextlib.contextmanager
def _made(place: Path) -> Iterator[None]:
    """Make a folder, and those above it; what is empty of them after a failure is removed again."""
    new = [folder for folder in (place, *place.parents) if not folder.exists()]
    place.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for folder in new:
                folder.rmdir()
        raise


def _fetch_file(source: Source, place: Path, mirrors: Sequence[str], progress: Progress | None, limits: Limits) -> None:
    """Fetch `source` into `place` from the first mirror that delivers it, unless it is there already."""
    final = place / source.name
    if final.exists():
        with open_file(final) as file:
            if _is_whole(file, source):
                return
        raise InputError(f"{final}: exists, but its SHA-256 checksum is not {source.sha256}; remove it and fetch again")
    if final.is_symlink():
        raise InputError(f"{final}: is a link to nowhere; remove it and fetch again")
    failures = []
    with WholeFile(final, "to", source.name) as whole:
        for mirror in mirrors:
            url = f"{mirror.rstrip('/')}/{source.name}"
            try:
                with whole.building() as file:
                    download(url, source.name, source.size_bytes, file, progress, limits)
                    if not _is_whole(file, source):
                        raise TransferError(f"its checksum is not {source.sha256}, so it was deleted")
                return
            except TransferError as failure:
                failures.append(f"{url}: {failure}")
    raise InputError(
        f"{'; '.join(failures)}; run the command again, or put {source.name} into {place} by hand and run it again"
    )


def _is_whole(file: BinaryIO, source: Source) -> bool:
    """Return whether an open file has the size and the checksum of a source."""
    if file.seek(0, 2) != source.size_bytes:
        return False
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest() == source.sha256
