"""The published data sets, with their addresses, sizes and checksums, and how they are fetched.

A server is not trusted. The size of a transfer is known, and it ends in a time that is known, too.
Archives have a known content; anything else is refused. Files are checked before they are used, and
nothing is left of what fails.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import queue
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ..common import InputError, WholeFile, format_bytes, open_file
from . import cifar

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, total bytes

_PIECE = 1 << 12
_PIECES_WAITING = 64


class TransferError(Exception):
    """A mirror did not deliver; the message says why."""


class _BrokeOff(TransferError):
    """The connection ended early, and what came is right so far."""


@dataclass(frozen=True)
class Limits:
    """How long a transfer may take: until something comes (a piece of 4 KiB), and in all.

    In all are `start_s`, and as long as the file takes at `least_bytes_per_s`. `tries` are those
    after the connection broke off; each goes on where the last one ended.
    """

    silent_s: float = 30.0
    start_s: float = 60.0
    least_bytes_per_s: float = 20_000.0
    tries: int = 5


def download(
    url: str, name: str, size_bytes: int, file: BinaryIO, progress: Progress | None, limits: Limits
) -> None:
    """Fill an empty file with the `size_bytes` bytes at an address.

    Raises:
        TransferError: they do not come, or not in time, or others do.
    """
    until_s = time.monotonic() + limits.start_s + size_bytes / limits.least_bytes_per_s
    for tries_left in reversed(range(limits.tries)):
        try:
            _receive(
                _Transfer(url, file.tell(), size_bytes),
                name,
                size_bytes,
                file,
                progress,
                limits,
                until_s,
            )
            return
        except _BrokeOff:
            if not tries_left:
                raise


def _receive(
    transfer: _Transfer,
    name: str,
    size_bytes: int,
    file: BinaryIO,
    progress: Progress | None,
    limits: Limits,
    until_s: float,
) -> None:
    """Write what comes, from the place on at which the server begins."""
    # A daemon: it may wait for ever in a library, and must not keep the process from ending.
    threading.Thread(target=transfer.run, name="emuchain-fetching", daemon=True).start()
    try:
        begin = transfer.next(limits.silent_s, until_s)
        assert isinstance(begin, int)
        # A server without ranges begins at 0 again; what came before is cut off.
        file.seek(begin)
        file.truncate()
        while (piece := transfer.next(limits.silent_s, until_s)) is not None:
            assert isinstance(piece, bytes)
            if file.tell() + len(piece) > size_bytes:
                raise TransferError(f"more than the {size_bytes:,} bytes of {name} came")
            file.write(piece)
            if progress is not None:
                progress(name, file.tell(), size_bytes)
    finally:
        transfer.stopped.set()
    if file.tell() < size_bytes:
        raise _BrokeOff(f"broke off at {file.tell()} of {size_bytes} bytes")


class _Transfer:
    """Receives in a thread of its own, which may wait for ever: for a name, for a header, for a
    piece.
    """

    def __init__(self, url: str, have: int, size_bytes: int) -> None:
        self._url, self._have, self._size_bytes = url, have, size_bytes
        self._queue: queue.Queue[int | bytes | TransferError | None] = queue.Queue(_PIECES_WAITING)
        self.stopped = threading.Event()

    def next(self, silent_s: float, until_s: float) -> int | bytes | None:
        """Return where the file begins to come, then its pieces, then None."""
        try:
            got = self._queue.get(timeout=max(0.0, min(silent_s, until_s - time.monotonic())))
        except queue.Empty:
            raise TransferError("no answer in time, or too slow a one") from None
        if isinstance(got, TransferError):
            raise got
        return got

    def run(self) -> None:
        """Put everything into the queue, for `next`, until that has stopped."""
        import requests

        try:
            for item in self._items():
                if not self._put(item):
                    return
            self._put(None)
        except TransferError as error:
            self._put(error)
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            self._put(_BrokeOff("no connection, or it broke off"))
        except requests.Timeout:
            self._put(TransferError("no answer in time"))
        except ValueError:
            self._put(TransferError("not an address that can be fetched from"))
        except requests.RequestException as error:
            self._put(TransferError(f"no transfer ({type(error).__name__})"))
        except Exception as error:  # the main thread waits for an answer
            self._put(TransferError(f"no transfer ({type(error).__name__})"))

    def _put(self, item: int | bytes | TransferError | None) -> bool:
        while not self.stopped.is_set():
            try:
                # With a timeout: when the reader has stopped, nothing leaves the queue.
                self._queue.put(item, timeout=1)
                return True
            except queue.Full:
                continue
        return False

    def _items(self) -> Iterator[int | bytes]:
        import requests

        headers = {
            "Accept-Encoding": "identity"
        }  # the bytes of the file itself, which the checksum is of
        if self._have:
            headers["Range"] = f"bytes={self._have}-"
        # requests follows redirections to http and https alone.
        with requests.get(self._url, headers=headers, stream=True, timeout=60) as response:
            if not response.ok:
                raise TransferError(f"the server answers {response.status_code} {response.reason}")
            begin = self._have if response.status_code == 206 else 0
            if response.status_code == 206 and not response.headers.get(
                "Content-Range", ""
            ).startswith(f"bytes {begin}-"):
                raise TransferError("the server sent a part of the file that was not asked for")
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and begin + int(length) != self._size_bytes:
                raise TransferError(
                    f"{begin + int(length):,} bytes are offered, {self._size_bytes:,} expected"
                )
            yield begin
            yield from response.iter_content(_PIECE)


_OPTIONAL = ("readme.html",)
_MOST_BYTES = 1 << 30
_GZIP = b"\x1f\x8b"


class _Bounded:
    """A stream that ends with an error where it is longer than any data set here."""

    def __init__(self, stream: BinaryIO, most_bytes: int) -> None:
        self._stream, self._left, self._most_bytes = stream, most_bytes, most_bytes

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes."""
        content = self._stream.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise EOFError(f"it unpacks to more than {format_bytes(self._most_bytes)}")
        return content


def unpack(
    archive: Path, folder: Path, members: Sequence[str], most_bytes: int = _MOST_BYTES
) -> None:
    """Unpack the tar archive `archive`, which must hold `members` as plain files in one folder, as
    `folder`.

    No path, mode or link of the archive is followed: the files are written under the names in
    `members`, into a new folder. `folder` appears only once it is complete. Raises InputError when
    the archive is damaged, lacks a member, holds anything else, or more than `most_bytes` in all.
    """
    import tarfile

    part = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.partial")
    part.mkdir()
    try:
        with open_file(archive) as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
            # "r|" reads on without seeking, so that `_Bounded` counts each byte that is unpacked.
            with tarfile.open(
                fileobj=cast(BinaryIO, _Bounded(stream, most_bytes)), mode="r|"
            ) as tar:
                for entry in tar:
                    parent, _, name = entry.name.removeprefix("./").rpartition("/")
                    if entry.isdir() and entry.name.removeprefix("./").rstrip("/") == folder.name:
                        continue
                    content = tar.extractfile(entry) if entry.isfile() else None
                    if (
                        content is None
                        or parent != folder.name
                        or name not in (*members, *_OPTIONAL)
                    ):
                        raise InputError(
                            f"{archive}: refused: it holds {entry.name!a}, which does not belong"
                            " there"
                        )
                    with content, (part / name).open("wb") as into:
                        shutil.copyfileobj(content, into)
        missing = [member for member in members if not (part / member).exists()]
        if missing:
            raise InputError(f"{archive}: {missing[0]} is not in it; remove it and fetch again")
        part.replace(folder)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = " ".join(
            str(error).split()
        )  # one line for each form of compression that was tried
        raise InputError(
            f"{archive}: not a whole archive ({reason}); remove it and fetch again"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


@dataclass(frozen=True)
class Source:
    """One file to fetch: its name below a mirror's address, its SHA-256 checksum in hexadecimal,
    and its size.
    """

    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Collection:
    """A data set: its files, the mirrors to try in turn, and the folder to put it in.

    With `members`, the only file is a tar archive, and these are the files of `folder` that it must
    hold.
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
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170_052_171,
        ),
    ),
    folder="cifar-10-batches-bin",
    members=(*(f"{name}.bin" for name in (*cifar.TRAIN, cifar.TEST)), "batches.meta.txt"),
)
MNIST = Collection(
    name="mnist",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    files=(
        Source(
            "train-images-idx3-ubyte.gz",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            9_912_422,
        ),
        Source(
            "train-labels-idx1-ubyte.gz",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            28_881,
        ),
        Source(
            "t10k-images-idx3-ubyte.gz",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            1_648_877,
        ),
        Source(
            "t10k-labels-idx1-ubyte.gz",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            4_542,
        ),
    ),
    folder="mnist",
)
COLLECTIONS = (CIFAR10, MNIST)


_CHUNK = 1 << 16


def fetch_data(
    name: str, to: Path, *, mirrors: Sequence[str] | None = None, progress: Progress | None = None
) -> Path:
    """Fetch the data set `name` (cifar10 or mnist) into a folder below `to`, and return that
    folder.

    `mirrors` are base addresses tried in turn instead of the official ones. Files already complete
    are not fetched again. Raises InputError, saying what to do, when `name` is unknown, no mirror
    delivers, or a file is wrong.
    """
    for collection in COLLECTIONS:
        if collection.name == name:
            return fetch_collection(collection, to, mirrors=mirrors, progress=progress)
    raise InputError(
        f"{name}: not a data set that can be fetched; choose from"
        f" {', '.join(c.name for c in COLLECTIONS)}"
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
                _fetch_file(
                    source,
                    place,
                    tuple(mirrors or collection.mirrors),
                    progress,
                    limits or Limits(),
                )
            if collection.members:
                unpack(place / collection.files[0].name, folder, collection.members)
    except OSError as error:
        raise InputError(
            f"{error.filename or place}: cannot be written ({error.strerror or error})"
        ) from None
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


def _fetch_file(
    source: Source, place: Path, mirrors: Sequence[str], progress: Progress | None, limits: Limits
) -> None:
    """Fetch `source` into `place` from the first mirror that delivers it, unless it is there
    already.
    """
    final = place / source.name
    if final.exists():
        with open_file(final) as file:
            if _is_whole(file, source):
                return
        raise InputError(
            f"{final}: exists, but its SHA-256 checksum is not {source.sha256}; remove it and fetch"
            " again"
        )
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
                        raise TransferError(
                            f"its checksum is not {source.sha256}, so it was deleted"
                        )
                return
            except TransferError as failure:
                failures.append(f"{url}: {failure}")
    raise InputError(
        f"{'; '.join(failures)}; run the command again, or put {source.name} into {place} by hand"
        " and run it again"
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
