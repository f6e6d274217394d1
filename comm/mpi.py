"""MPI as a transport: streams between neighbouring ranks, non-blocking, with receives posted ahead.

Everything goes through a communicator that is a clone of the one handed in.
"""

from __future__ import annotations

import collections
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels.arena import Arena
from .host import Mailbox

_POSTED_AHEAD = 2


class Form(Protocol):
    """How messages of one kind lie in a buffer."""

    def bytes_of(self, most: int, /) -> int:
        """The size of the largest one."""

    def pack(self, message: Any, arena: Arena, /) -> NDArray[np.uint8]:
        """A message in a buffer from the arena."""

    def unpack(self, buffer: NDArray[np.uint8], /) -> Any:
        """The message at the beginning of a buffer."""


class Sender:
    """Packs messages and sends them to another rank; keeps each buffer until MPI has done with it."""

    def __init__(self, comm: Any, rank: int, tag: int, form: Form, arena: Arena) -> None:
        self._comm, self._rank, self._tag, self._form, self._arena = comm, rank, tag, form, arena
        self._pending: collections.deque[tuple[Any, NDArray[np.uint8]]] = collections.deque()

    def put(self, message: Any) -> None:
        """Send a message without waiting."""
        buffer = self._form.pack(message, self._arena)
        self._pending.append((self._comm.Isend(buffer, self._rank, self._tag), buffer))

    def poll(self) -> bool:
        """Forget what has been sent."""
        moved = False
        while self._pending and self._pending[0][0].Test():
            self._pending.popleft()
            moved = True
        return moved


class Receiver:
    """Keeps receives posted for a stream and puts what arrives into a mailbox."""

    def __init__(self, comm: Any, rank: int, tag: int, form: Form, most: int, mailbox: Mailbox, arena: Arena) -> None:
        self._comm, self._rank, self._tag, self._form, self._arena = comm, rank, tag, form, arena
        self._bytes = form.bytes_of(most)
        self._mailbox = mailbox
        self._posted: collections.deque[tuple[Any, NDArray[np.uint8]]] = collections.deque()
        for _ in range(_POSTED_AHEAD):
            self._post()

    def _post(self) -> None:
        buffer = self._arena.take((self._bytes,), np.uint8)
        self._posted.append((self._comm.Irecv(buffer, self._rank, self._tag), buffer))

    def poll(self) -> bool:
        """Hand over what has arrived, in order, and post anew."""
        moved = False
        while self._posted[0][0].Test():
            _, buffer = self._posted.popleft()
            self._mailbox.put(self._form.unpack(buffer))
            self._post()
            moved = True
        return moved

    def close(self) -> None:
        """Withdraw the receives that nothing will answer."""
        for request, _ in self._posted:
            request.Cancel()
            request.Wait()
        self._posted.clear()
