"""Reading files; every failure becomes an InputError that names the file."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ..common import IMAGES, NPZ, InputError, kind_of, open_file, unlike

_CHUNK = 1 << 22


def shown(name: object) -> str:
    """Return a path or another text from outside as one printable piece of a line."""
    return str(name) if str(name).isprintable() else ascii(str(name))


def check_regular(path: Path) -> None:
    """Check that a path is that of a regular file, or a link to one.

    Raises:
        InputError: it is not, and so reading it might take for ever.
    """
    if not path.is_file():
        raise InputError(f"{shown(path)}: not a file that can be read as a data set")


def other_data(path: Path, denial: str) -> InputError:
    """Return the error for a file that is not what its name says, by what it is; see
    `common.unlike`.

    Raises:
        OSError: it cannot be read.
    """
    kind = kind_of(path)
    ending = {IMAGES: ".h5", NPZ: ".npz"}.get(kind)
    if ending is not None:
        kind = kind._replace(remedy=f"give it a name that ends in {ending}")
    return unlike(kind, path, shown(path), denial)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for reading, decompressed if its name ends in .gz; failures within the block
    become InputError.
    """
    try:
        with open_file(path) as file:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
    except FileNotFoundError:
        raise InputError(f"{path}: missing; the data set is not complete without it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: not a whole gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def read_at_most(stream: BinaryIO, size: int) -> bytes:
    """Read up to `size` bytes; memory grows as bytes arrive, so a size from a damaged header does
    no harm.
    """
    chunks = []
    while size > 0 and (chunk := stream.read(min(size, _CHUNK))):
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def read_file(path: Path) -> bytes:
    """Return all bytes of `path`."""
    with opened(path) as stream:
        return stream.read()


def file_size(path: Path) -> int:
    """Return the size of `path` in bytes."""
    with opened(path) as stream:
        return stream.seek(0, 2)
