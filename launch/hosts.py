"""The file of the hosts on which a launcher starts ranks: a line for each, in the form of its MPI."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from ..kernels import find_program
from .launch import LaunchError, is_installed

_NAME = re.compile(r"(?:[\w.-]+@)?(?P<name>\w[\w.-]*|\[?[0-9A-Fa-f:]+\]?)", re.ASCII)
_SLOTS = re.compile(r"(?:slots|max[-_]slots)=(?P<ranks>.*)")
_SSH_S = 5.0


class Host(NamedTuple):
    """A host of the file: its name, and the number of its line."""

    name: str
    line: int

    @property
    def is_here(self) -> bool:
        """Whether its name says that it is this one."""
        return self.name in ("localhost", "127.0.0.1", socket.gethostname())


def read_hosts(text: str) -> list[Host]:
    """Return the hosts of a host file.

    Raises:
        LaunchError: it names none, or a line is none of a host that can be reached by its name.
    """
    hosts = list(_hosts(text, "slots=" if is_installed("openmpi") else ":"))
    if not hosts:
        raise LaunchError("names no host; should have a line for each, such as `node1:2`")
    for host in {host.name: host for host in reversed(hosts)}.values():
        if not _has_address(host.name):
            raise LaunchError(
                f"line {host.line}: the host {host.name!r} is unknown here; should be a name that `ssh` finds, as"
                f" `ssh {host.name} true` shows"
            )
    return hosts


def _hosts(text: str, counted_by: str) -> Iterator[Host]:
    """Yield the hosts; their numbers of ranks are what follows `:` or `slots=`."""
    for number, line in enumerate(text.splitlines(), 1):
        first, *others = line.partition("#")[0].split() or [""]
        if not first:
            continue
        host, counts = first, [slots["ranks"] for slots in map(_SLOTS.fullmatch, others) if slots]
        if counted_by == ":" and ":" in first:
            host, _, count = first.partition(":")
            counts = [count]
        name = _NAME.fullmatch(host)
        if name is None:
            raise LaunchError(f"line {number}: {first[:60]!r} does not begin with a host's name, such as `node1`")
        for count in counts:
            if not (count.isdecimal() and len(count) < 8 and int(count)):
                raise LaunchError(
                    f"line {number}: {count[:20]!r} is no number of ranks; {host} takes one or more, such as"
                    f" `{host}{':' if counted_by == ':' else ' slots='}2`"
                )
        yield Host(name["name"].strip("[]"), number)


def _has_address(name: str) -> bool:
    """Return whether a host's name has an address, here or by what ssh's configuration makes of it."""
    with contextlib.suppress(OSError, UnicodeError):
        return bool(socket.getaddrinfo(name, None))
    ssh = find_program("ssh")
    if ssh is None:
        return False
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([ssh, "-G", name], capture_output=True, text=True, timeout=_SSH_S, check=True)
        made = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
        if {"proxycommand", "proxyjump"} & made.keys():
            return True  # another host knows it
        return made.get("hostname", name) != name and bool(socket.getaddrinfo(made["hostname"], None))
    return False
