"""Unpacking an archive of known content; anything else is refused."""

import gzip
import os
import shutil
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, cast

from ..common import InputError, format_bytes, open_file

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


def unpack(archive: Path, folder: Path, members: Collection[str], most_bytes: int = _MOST_BYTES) -> None:
    """Unpack the tar archive `archive`, which must hold `members` as plain files in one folder, as `folder`.

    No path, mode or link of the archive is followed: the files are written under the names in `members`, into a new
    folder. `folder` appears only once it is complete. Raises InputError when the archive is damaged, lacks a member,
    holds anything else, or more than `most_bytes` in all.
    """
    import tarfile

    part = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.partial")
    part.mkdir()
    try:
        with open_file(archive) as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
            with tarfile.open(fileobj=cast(BinaryIO, _Bounded(stream, most_bytes)), mode="r|") as tar:
                for entry in tar:
                    parent, _, name = entry.name.removeprefix("./").rpartition("/")
                    if entry.isdir() and entry.name.removeprefix("./").rstrip("/") == folder.name:
                        continue
                    content = tar.extractfile(entry) if entry.isfile() else None
                    if content is None or parent != folder.name or name not in (*members, *_OPTIONAL):
                        raise InputError(f"{archive}: refused: it holds {entry.name!a}, which does not belong there")
                    with content, (part / name).open("wb") as into:
                        shutil.copyfileobj(content, into)
        missing = [member for member in members if not (part / member).exists()]
        if missing:
            raise InputError(f"{archive}: {missing[0]} is not in it; remove it and fetch again")
        part.replace(folder)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = " ".join(str(error).split())  # one line for each form of compression that was tried
        raise InputError(f"{archive}: not a whole archive ({reason}); remove it and fetch again") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
