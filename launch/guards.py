"""Connections between the guards of several hosts: from each to that of rank 0's host.

Ranks make them, because they find one another by MPI, and hand them over. A guard that gets none tells what it knows.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .watch import Watch

_TRY_S, _NAP_S = 1.0, 1e-3
_GET_ADDRESS = 0x8915  # SIOCGIFADDR


class Meeting(NamedTuple):
    """Where rank 0 listens, under each name that its host may have, and the word by which ranks are known there."""

    hosts: list[str]
    port: int
    word: bytes


def connect_guards(comm: Any, guards: Sequence[str], watch: Watch) -> None:
    """Connect all guards with that of rank 0, for all ranks together; `guards` are those of the ranks, "" for none."""
    rank = comm.Get_rank()
    if rank == 0:
        with socket.create_server(("", 0), backlog=len(guards)) as server:
            server.settimeout(_NAP_S)
            port, word = server.getsockname()[1], secrets.token_bytes(16)
            comm.bcast(Meeting([socket.gethostname(), *addresses()], port, word))
            all_tried = comm.Ibarrier()
            while not all_tried.Test():
                with contextlib.suppress(OSError), accepted(server, word) as line:
                    watch.connect(line)
        return
    meeting = comm.bcast(None)
    if guards[rank] and guards.index(guards[rank]) == rank:  # of the ranks of a guard the first
        with contextlib.suppress(OSError), _connected(meeting) as line:
            watch.connect(line)
    all_tried = comm.Ibarrier()
    while not all_tried.Test():
        time.sleep(_NAP_S)


def addresses() -> Iterator[str]:
    """Yield the IPv4 addresses of this host by which others may reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as of_any:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                interface = fcntl.ioctl(of_any, _GET_ADDRESS, struct.pack("256s", name.encode()))
                yield socket.inet_ntoa(interface[20:24])


def accepted(server: socket.socket, word: bytes) -> socket.socket:
    """Return the next connection.

    Raises:
        OSError: there is none yet, or none that knows the word.
    """
    line, _ = server.accept()
    line.settimeout(_TRY_S)
    try:
        if line.recv(len(word)) != word:
            raise ConnectionRefusedError
        line.sendall(word)
        line.setblocking(True)
    except OSError:
        line.close()
        raise
    return line


def _connected(meeting: Meeting) -> socket.socket:
    """Return a connection to rank 0.

    Raises:
        OSError: it cannot be reached.
    """
    for host in meeting.hosts:
        with contextlib.suppress(OSError):
            line = socket.create_connection((host, meeting.port), _TRY_S)
            with contextlib.suppress(OSError):
                line.sendall(meeting.word)
                if line.recv(len(meeting.word)) == meeting.word:
                    line.setblocking(True)
                    return line
            line.close()
    raise ConnectionRefusedError
