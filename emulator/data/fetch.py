"""Fetching the published data sets: interrupted transfers are resumed, and files are checked before they are used."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..common import InputError
from .sources import COLLECTIONS, Collection, Source
from .unpack import unpack

if TYPE_CHECKING:
    import requests

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, total bytes if known

_CHUNK = 1 << 16
_TIMEOUT = (10, 30)  # seconds to connect, and between two pieces of data


class _TransferError(Exception):
    """A mirror did not deliver; the message says why."""


def fetch_data(name: str, to: Path, *, mirrors: Sequence[str] | None = None, progress: Progress | None = None) -> Path:
    """Fetch the data set `name` (cifar10 or mnist) into a folder below `to`, and return that folder.

    `mirrors` are base addresses tried in turn instead of the official ones. Files already complete are not fetched
    again. Raises InputError, saying what to do, when `name` is unknown, no mirror delivers, or a file is wrong.
    """
    for collection in COLLECTIONS:
        if collection.name == name:
            return fetch_collection(collection, to, mirrors=mirrors, progress=progress)
    raise InputError(f"{name}: no data set to fetch; there are {', '.join(c.name for c in COLLECTIONS)}")


def fetch_collection(
    collection: Collection, to: Path, *, mirrors: Sequence[str] | None = None, progress: Progress | None = None
) -> Path:
    """Fetch `collection` as `fetch_data` does one by name."""
    folder = to / collection.folder
    place = to if collection.members else folder
    if collection.members and folder.exists():
        missing = [member for member in collection.members if not (folder / member).exists()]
        if not missing:
            return folder
        raise InputError(f"{folder}: is there, but without {missing[0]}; remove it and fetch again")
    try:
        place.mkdir(parents=True, exist_ok=True)
        for source in collection.files:
            _fetch_file(source, place, tuple(mirrors or collection.mirrors), progress)
        if collection.members:
            unpack(place / collection.files[0].name, folder, collection.members)
    except OSError as error:
        raise InputError(f"{error.filename or place}: cannot be written ({error.strerror or error})") from None
    return folder


def _fetch_file(source: Source, place: Path, mirrors: Sequence[str], progress: Progress | None) -> None:
    """Fetch `source` into `place` from the first mirror that delivers it, unless it is there already."""
    final, part = place / source.name, place / f"{source.name}.part"
    if final.exists():
        if _sha256(final) == source.sha256:
            return
        raise InputError(
            f"{final}: is there, but its SHA-256 checksum is not {source.sha256}; remove it and fetch again"
        )
    failures = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{source.name}"
        try:
            _download(url, part, progress)
            found = _sha256(part)
            if found != source.sha256:
                part.unlink()
                raise _TransferError(f"checksum {found} found, {source.sha256} expected; the file was deleted")
            part.replace(final)
            return
        except _TransferError as failure:
            failures.append(f"{url}: {failure}")
    raise InputError(
        f"{'; '.join(failures)}; run the command again (a partial file is resumed), or put {source.name} into {place}"
        " by hand and run it again"
    )


def _download(url: str, part: Path, progress: Progress | None) -> None:
    """Complete `part` from `url`, starting at its present end if the server can."""
    import requests

    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}  # the bytes of the file itself, which the checksum is of
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if have and response.status_code == 416:  # nothing is left; the checksum shows if it is complete
                return
            if not response.ok:
                raise _TransferError(f"the server answers {response.status_code} {response.reason}")
            resumed = response.status_code == 206 and response.headers.get("Content-Range", "").startswith(
                f"bytes {have}-"
            )
            if response.status_code == 206 and not resumed:
                raise _TransferError("the server sent a part of the file that was not asked for")
            _receive(response, part, have if resumed else 0, progress)
    except ValueError:
        raise _TransferError("not an address that can be fetched from") from None
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
        raise _TransferError("no connection, or it broke off") from None
    except requests.Timeout:
        raise _TransferError("no answer in time") from None
    except requests.RequestException as error:
        raise _TransferError(f"no transfer ({type(error).__name__})") from None


def _receive(response: "requests.Response", part: Path, have: int, progress: Progress | None) -> None:
    """Write the body of `response` to `part` after its first `have` bytes."""
    length = response.headers.get("Content-Length", "")
    total = have + int(length) if length.isdigit() else None
    name = part.name.removesuffix(".part")
    with part.open("ab" if have else "wb") as file:
        for chunk in response.iter_content(_CHUNK):
            file.write(chunk)
            have += len(chunk)
            if progress is not None:
                progress(name, have, total)
    if total is not None and have < total:
        raise _TransferError(f"broke off at {have} of {total} bytes")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
