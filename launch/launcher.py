"""The command that starts ranks: the `mpiexec` that belongs to this Python; and the file of the hosts that it takes.

Such a file has a line for each host, in the form of its MPI.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..kernels import find_program, python_command, safe_environment
from .end_request import ENDING, IGNORED
from .launch import RANK_VARIABLES, LaunchError, is_installed

_OPEN_MPI = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
_ONE_CORE = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def find_mpiexec() -> str:
    """Return the path of the `mpiexec` in this Python's environment, else the first one of the search path.

    Raises:
        LaunchError: there is none.
    """
    beside = pathlib.Path(sys.executable).parent / "mpiexec"
    path = str(beside) if beside.exists() else find_program("mpiexec")
    if path is None:
        raise LaunchError(
            "there is no `mpiexec`, neither next to this Python nor on the PATH; install `emuchain[mpi-mpich]`"
            " or `emuchain[mpi-openmpi]`"
        )
    return path


def launch_command(ranks: int, arguments: Sequence[str], hosts: str | None = None) -> list[str]:
    """Return the command that runs `emuchain ARGUMENTS` on these ranks, on the hosts of a file if there is one.

    Raises:
        LaunchError: there is no `mpiexec`.
    """
    on = [] if hosts is None else _on_hosts(hosts)
    return [find_mpiexec(), "-n", str(ranks), *on, *python_command(__name__.partition(".")[0], *arguments)]


def _on_hosts(file: str) -> list[str]:
    """Return the launcher's flags for a host file.

    Open MPI's passes only the variables on that it is told. It fills each host's slots only `by slot`: where more ranks
    than cores are allowed, it leaves all on the first host.
    """
    if is_installed("openmpi"):
        return ["--hostfile", file, "--map-by", "slot", *(word for name in _ONE_CORE for word in ("-x", name))]
    return ["-f", file]


def launch_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for it: one core a rank, and under Open MPI more ranks than cores, also for root."""
    variables = {**_ONE_CORE, **_OPEN_MPI, **safe_environment(environment)}
    return {**variables, **_AS_ROOT} if os.geteuid() == 0 and is_installed("openmpi") else variables


def passed_on(number: int) -> signal.Signals:
    """Return the signal by which the launcher makes its ranks end as this one would end a single process.

    On SIGTERM and SIGINT, Open MPI's kills them within a second, whatever they do. It passes SIGUSR1 and SIGUSR2 on and
    lives on; MPICH's passes SIGINT and SIGUSR1 on.
    """
    if number == signal.SIGINT and is_installed("openmpi"):
        return signal.SIGUSR2
    return signal.SIGUSR1 if number in (signal.SIGTERM, signal.SIGHUP) else signal.Signals(number)


def listening_below(launcher: int) -> int:
    """Return how many ranks of emuchain among the descendants of a process take signals already, on this host."""
    parents, listening = dict[int, int](), list[int]()
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            status = _fields(f"/proc/{int(name)}/status")
            parents[int(name)] = int(status["PPid"])
            if int(status["SigCgt"], 16) & _TAKEN == _TAKEN:
                listening.append(int(name))
    return sum(_is_below(launcher, pid, parents) and _is_rank(pid) for pid in listening)


def end_below(launcher: int) -> None:
    """Kill a process and all its descendants, which it may be starting."""
    stopped = set[int]()
    while len(stopped) < len(stopped := stopped | {launcher, *_below(launcher)}):
        for pid in stopped:  # from then on, one starts no others
            _signal(pid, signal.SIGSTOP)
    for pid in stopped:
        _signal(pid, signal.SIGKILL)


def _below(ancestor: int) -> list[int]:
    parents = dict[int, int]()
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            parents[int(name)] = int(_fields(f"/proc/{int(name)}/status")["PPid"])
    return [pid for pid in parents if _is_below(ancestor, pid, parents)]


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


_TAKEN = sum(1 << (number - 1) for number in ENDING if number not in IGNORED)
"""As bits of a process's status."""


def _fields(path: str) -> dict[str, str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return {key: value.strip() for key, _, value in (line.partition(":") for line in file)}


def _is_below(ancestor: int, pid: int, parents: Mapping[int, int]) -> bool:
    while pid > 1 and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor


def _is_rank(pid: int) -> bool:
    """Return whether a launcher has told a process its rank."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        names = {entry.partition(b"=")[0].decode(errors="replace") for entry in file.read().split(b"\0")}
        return not names.isdisjoint(RANK_VARIABLES)
    return False


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
            before, colon, count = first.partition(":")
            if colon and _NAME.fullmatch(before) and count.isdecimal():
                raise LaunchError(f"line {number}: {first[:60]!r}: Open MPI takes `{before} slots={count}`")
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
