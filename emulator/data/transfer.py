"""A transfer from a server that is not trusted: its size is known, and it ends in a time that is known, too."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

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

    In all are `start_s`, and as long as the file takes at `least_bytes_per_s`. `tries` are those after the connection
    broke off; each goes on where the last one ended.
    """

    silent_s: float = 30.0
    start_s: float = 60.0
    least_bytes_per_s: float = 20_000.0
    tries: int = 5


def download(url: str, name: str, size_bytes: int, file: BinaryIO, progress: Progress | None, limits: Limits) -> None:
    """Fill an empty file with the `size_bytes` bytes at an address.

    Raises:
        TransferError: they do not come, or not in time, or others do.
    """
    until_s = time.monotonic() + limits.start_s + size_bytes / limits.least_bytes_per_s
    for tries_left in reversed(range(limits.tries)):
        try:
            _receive(_Transfer(url, file.tell(), size_bytes), name, size_bytes, file, progress, limits, until_s)
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
    threading.Thread(target=transfer.run, name="emuchain-fetching", daemon=True).start()
    try:
        begin = transfer.next(limits.silent_s, until_s)
        assert isinstance(begin, int)
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
    """Receives in a thread of its own, which may wait for ever: for a name, for a header, for a piece."""

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
                self._queue.put(item, timeout=1)
                return True
            except queue.Full:
                continue
        return False

    def _items(self) -> Iterator[int | bytes]:
        import requests

        headers = {"Accept-Encoding": "identity"}  # the bytes of the file itself, which the checksum is of
        if self._have:
            headers["Range"] = f"bytes={self._have}-"
        # requests follows redirections to http and https alone.
        with requests.get(self._url, headers=headers, stream=True, timeout=60) as response:
            if not response.ok:
                raise TransferError(f"the server answers {response.status_code} {response.reason}")
            begin = self._have if response.status_code == 206 else 0
            if response.status_code == 206 and not response.headers.get("Content-Range", "").startswith(
                f"bytes {begin}-"
            ):
                raise TransferError("the server sent a part of the file that was not asked for")
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and begin + int(length) != self._size_bytes:
                raise TransferError(f"{begin + int(length):,} bytes are offered, {self._size_bytes:,} expected")
            yield begin
            yield from response.iter_content(_PIECE)
