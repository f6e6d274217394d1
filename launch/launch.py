"""Joining the ranks of a run, and the command that starts them: the `mpiexec` that belongs to this
Python; and the file of the hosts that it takes, which has a line for each, in the form of its MPI.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import pathlib
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..kernels import away_from, find_program, python_command, safe_environment
from .end_request import ENDING, IGNORED, EndRequest
from .processes import family, send
from .ranks import MpiRanks, Ranks, SingleProcess

if TYPE_CHECKING:  # most commands have no ranks to watch
    from .watch import Watch

if TYPE_CHECKING:
    from psutil import Process

_PMI = "PMI_RANK"
RANK_VARIABLES = _PMI, "PMIX_RANK", "OMPI_COMM_WORLD_RANK"
"""In which MPICH's launcher and srun, PMIx, and Open MPI's launcher tell a process its rank."""
_PMI_PORTS = "PMI_PORT", "PMI_CONTROL_PORT"
_PMIX_SERVER = "PMIX_SERVER_URI"
_ANSWER_S = 5.0
_DRAIN_S = 1.0
_SHARED_MIB, _SHARED_MIB_OF_A_RANK = 2, 6
"""Measured with MPICH 5.0 on one host: 5.14 MiB a rank. UCX takes what is left, and MPICH crashes
for want of it.
"""
_LARGEST_MIB, _LARGEST_MIB_OF_A_RANK = 5, 2
"""Measured: a file of 4.1 MiB for each rank, and one of 1.01 MiB a rank."""
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_ABORT_DELAY = "OMPI_MCA_opal_abort_delay"
_UCX_SIGNAL = "UCX_DEBUG_SIGNO"
_NOT_OF_ONE_KIND = (
    "mpiexec and mpi4py's library belong to different MPIs; use the mpiexec in this environment's"
    " bin folder"
)


class LaunchError(Exception):
    """The launcher and the MPI library of this environment do not match; `str` is a line for the
    user.
    """


def launcher_rank() -> int | None:
    """Return this process's rank as mpiexec or srun set it; None if no launcher is behind it."""
    for name in _set_variables():
        if _is_pmi_there() if name == _PMI else _is_pmix_there():
            return int(os.environ[name])
    return None


def left_over() -> str | None:
    """Return the setting of a rank that a launcher has left in the environment of a process that it
    did not start.
    """
    for name in _set_variables() if launcher_rank() is None else ():
        return f"{name}={os.environ[name]}"
    return None


def _set_variables() -> Iterator[str]:
    return (name for name in RANK_VARIABLES if os.environ.get(name, "").isdecimal())


def _is_pmi_there() -> bool:
    """Return whether this process has the connection to its launcher that MPICH's gives, and that
    children lack.
    """
    if any(name in os.environ for name in _PMI_PORTS):
        return True
    with contextlib.suppress(OSError, ValueError, OverflowError):
        return stat.S_ISSOCK(os.fstat(int(os.environ.get("PMI_FD", ""))).st_mode)
    return False


def _is_pmix_there() -> bool:
    """Return whether the server answers that Open MPI's launcher has named; what has another
    address is believed.
    """
    servers = [value for name, value in os.environ.items() if name.startswith(_PMIX_SERVER)]
    for server in servers[:1]:
        host, _, port = server.partition(";tcp4://")[2].partition(":")
        if not port.isdecimal():
            return True
        with (
            contextlib.suppress(OSError, OverflowError),
            socket.create_connection((host, int(port)), _ANSWER_S),
        ):
            return True
    return False


def abort_ranks(status: int) -> None:
    """Have MPICH's launcher end all ranks with a status at once; to be called outside MPI, where
    this process ends.

    Open MPI's needs no word: the end of a rank is the end of all. Slurm has a language of its own.
    """
    fd = os.environ.get("PMI_FD", "")
    if fd.isdecimal() and "PMI_JOBID" not in os.environ:
        # Once it ends the run, it passes on nothing that still stands in a pipe.
        for said in (1, 2):
            _drain(said)
        with contextlib.suppress(OSError):
            os.write(int(fd), f"cmd=abort exitcode={status}\n".encode())


def _drain(fd: int) -> None:
    """Wait until a launcher has read what this process has written into a pipe to it."""
    bytes_left, end_s = array.array("i", [0]), time.monotonic() + _DRAIN_S
    with contextlib.suppress(OSError):
        while stat.S_ISFIFO(os.fstat(fd).st_mode) and time.monotonic() < end_s:
            fcntl.ioctl(fd, termios.FIONREAD, bytes_left)
            if not bytes_left[0]:
                return
            time.sleep(0.001)


def check_shared_memory(
    *, is_first: bool, folder: str = "/dev/shm", environment: Mapping[str, str] = os.environ
) -> None:
    """Check that there is room for what MPICH takes of shared memory for the ranks of this host,
    before it takes any.

    It crashes otherwise. Open MPI says itself that it does without. What others take counts for the
    rank that comes first; all compare with the size, so that none begins where that is too small.

    Raises:
        LaunchError: there is too little, or files may not be as large.
    """
    here = environment.get("MPI_LOCALNRANKS", "")
    if _PMI not in environment or not here.isdecimal() or int(here) < 2:
        return
    needed_mib = _SHARED_MIB + int(here) * _SHARED_MIB_OF_A_RANK
    with contextlib.suppress(OSError):
        room = os.statvfs(folder)
        has_mib = (room.f_bavail if is_first else room.f_blocks) * room.f_frsize >> 20
        if has_mib < needed_mib:
            raise LaunchError(
                f"MPICH needs {needed_mib} MiB of shared memory for {here} ranks, and {folder} has"
                f" {has_mib} MiB{' free' * is_first}: give the container more"
                f" (`--shm-size={needed_mib}m`), or start fewer ranks"
            )
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    needed_mib = max(_LARGEST_MIB, int(here) * _LARGEST_MIB_OF_A_RANK)
    if largest != resource.RLIM_INFINITY and largest >> 20 < needed_mib:
        raise LaunchError(
            f"MPICH makes files of {needed_mib} MiB in shared memory for {here} ranks, and the"
            f" limit on the size of files (`ulimit -f`) is {largest >> 10:,} KiB: raise it"
        )


def join(watch: Watch | None = None, end_request: EndRequest | None = None) -> Ranks:
    """Return all ranks that the launcher started; without a launcher, this process alone, without
    touching MPI.

    `watch` is this process's, if it has made itself known to the guard of its host; `end_request`
    says what signals have asked.

    Raises:
        LaunchError: mpi4py is missing, or the launcher is another MPI's.
    """
    if launcher_rank() is None:
        tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
        if tasks != "1":
            raise LaunchError(
                f"srun started {tasks} tasks without MPI, so each would run on its own: try `srun"
                " --mpi=pmi2`"
            )
        return SingleProcess(end_request)
    _check_kind()
    try:
        ranks = MpiRanks(_world(), watch, end_request)
    except (ImportError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise LaunchError(
            f"started by an MPI launcher, but mpi4py does not load ({why}); install"
            " `emuchain[mpi-mpich]` or `emuchain[mpi-openmpi]`"
        ) from None
    expected = max(
        (int(os.environ[name]) for name in _SIZE_VARIABLES if os.environ.get(name, "").isdigit()),
        default=1,
    )
    if expected > 1 and ranks.size == 1:
        raise LaunchError(
            f"the launcher started {expected} ranks, but each sees only itself: {_NOT_OF_ONE_KIND}"
        )
    return ranks


def _world() -> Any:
    """Return a clone of the world's communicator; importing MPI initialises it.

    Signals wait until it is done: an exception within would leave the others there for ever.
    """
    os.environ.update(library_settings(os.environ))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        with away_from("ucx.conf"):  # UCX would load plug-ins from a folder that it names
            from mpi4py import MPI
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return MPI.COMM_WORLD.Clone()


def library_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what to set for the MPI library.

    On several hosts Open MPI's ends a rank at once when it loses the connection to one that has
    died. Two seconds later guards and launcher know of that one, and the rank is no first death of
    its own. UCX would take SIGHUP, to begin debugging.
    """
    here, in_all = (environment.get(f"OMPI_COMM_WORLD_{size}") for size in ("LOCAL_SIZE", "SIZE"))
    settings = {} if here == in_all else {_ABORT_DELAY: environment.get(_ABORT_DELAY, "2")}
    return {**settings, _UCX_SIGNAL: "0"}


def _check_kind() -> None:
    """Reject Open MPI's launcher where MPICH is installed; MPI would abort without a clear
    message.
    """
    if (
        "OMPI_COMM_WORLD_SIZE" in os.environ
        and is_installed("mpich")
        and not is_installed("openmpi")
    ):
        raise LaunchError(
            f"started by Open MPI's mpiexec, but MPICH is installed here: {_NOT_OF_ONE_KIND}"
        )


def is_installed(name: str) -> bool:
    """Return whether this environment has a Python package of this name."""
    import importlib.metadata

    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


_OPEN_MPI = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
_ONE_CORE = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def find_mpiexec() -> str:
    """Return the path of the `mpiexec` in this Python's environment, else the first one of the
    search path.

    Raises:
        LaunchError: there is none.
    """
    beside = pathlib.Path(sys.executable).parent / "mpiexec"
    path = str(beside) if beside.exists() else find_program("mpiexec")
    if path is None:
        raise LaunchError(
            "there is no `mpiexec`, neither next to this Python nor on the PATH; install"
            " `emuchain[mpi-mpich]` or `emuchain[mpi-openmpi]`"
        )
    return path


def launch_command(ranks: int, arguments: Sequence[str], hosts: str | None = None) -> list[str]:
    """Return the command that runs `emuchain ARGUMENTS` on these ranks, on the hosts of a file if
    there is one.

    Raises:
        LaunchError: there is no `mpiexec`.
    """
    on = [] if hosts is None else _on_hosts(hosts)
    return [
        find_mpiexec(),
        "-n",
        str(ranks),
        *on,
        *python_command(__name__.partition(".")[0], *arguments),
    ]


def _on_hosts(file: str) -> list[str]:
    """Return the launcher's flags for a host file.

    Open MPI's passes only the variables on that it is given. It fills each host's slots only `by
    slot`: where more ranks than cores are allowed, it leaves all on the first host.
    """
    if is_installed("openmpi"):
        return [
            "--hostfile",
            file,
            "--map-by",
            "slot",
            *(word for name in _ONE_CORE for word in ("-x", name)),
        ]
    return ["-f", file]


def launch_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for it: one core a rank, and under Open MPI more ranks than cores,
    also for root.
    """
    variables = {**_ONE_CORE, **_OPEN_MPI, **safe_environment(environment)}
    return {**variables, **_AS_ROOT} if os.geteuid() == 0 and is_installed("openmpi") else variables


def passed_on(number: int) -> signal.Signals:
    """Return the signal by which the launcher makes its ranks end as this one would end a single
    process.

    On SIGTERM and SIGINT, Open MPI's kills them within a second, whatever they do. It passes
    SIGUSR1 and SIGUSR2 on and lives on; MPICH's passes SIGINT and SIGUSR1 on.
    """
    if number == signal.SIGINT and is_installed("openmpi"):
        return signal.SIGUSR2
    return signal.SIGUSR1 if number in (signal.SIGTERM, signal.SIGHUP) else signal.Signals(number)


def listening_below(launcher: int) -> int:
    """Return how many ranks of emuchain among the descendants of a process take signals already, on
    this host.
    """
    return sum(_takes_signals(process.pid) and _is_rank(process) for process in family(launcher))


def end_below(launcher: int) -> None:
    """Kill a process and all its descendants, which it may be starting."""
    stopped: set[Process] = set()
    # Until a look finds no new one: those that were not stopped yet may have started others.
    while len(stopped) < len(stopped := stopped | {*family(launcher)}):
        send(signal.SIGSTOP, stopped)  # from then on, one starts no others
    send(signal.SIGKILL, stopped)


_TAKEN = sum(1 << (number - 1) for number in ENDING if number not in IGNORED)
"""As bits of a process's status."""


def _takes_signals(pid: int) -> bool:
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file,
    ):
        caught = re.search(r"^SigCgt:\s+([0-9a-f]+)$", file.read(), re.MULTILINE)
        return caught is not None and int(caught[1], 16) & _TAKEN == _TAKEN
    return False


def _is_rank(process: Process) -> bool:
    """Return whether a launcher has given a process its rank."""
    import psutil  # here, since --help does without it

    with contextlib.suppress(psutil.Error):
        return not process.environ().keys().isdisjoint(RANK_VARIABLES)
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
    # Each name once, at its first line: to look one up may take seconds.
    for host in {host.name: host for host in reversed(hosts)}.values():
        if not _has_address(host.name):
            raise LaunchError(
                f"line {host.line}: the host {host.name!r} is unknown here; should be a name that"
                f" `ssh` finds, as `ssh {host.name} true` shows"
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
                raise LaunchError(
                    f"line {number}: {first[:60]!r}: Open MPI takes `{before} slots={count}`"
                )
            raise LaunchError(
                f"line {number}: {first[:60]!r} does not begin with a host's name, such as `node1`"
            )
        for count in counts:
            if not (count.isdecimal() and len(count) < 8 and int(count)):
                raise LaunchError(
                    f"line {number}: {count[:20]!r} is no number of ranks; {host} takes one or"
                    f" more, such as `{host}{':' if counted_by == ':' else ' slots='}2`"
                )
        # IPv6 addresses are in brackets here, and without them where they are looked up.
        yield Host(name["name"].strip("[]"), number)


def _has_address(name: str) -> bool:
    """Return whether a host's name has an address, here or by what ssh's configuration makes of
    it.
    """
    with contextlib.suppress(OSError, UnicodeError):
        return bool(socket.getaddrinfo(name, None))
    ssh = find_program("ssh")
    if ssh is None:
        return False
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [ssh, "-G", name], capture_output=True, text=True, timeout=_SSH_S, check=True
        )
        made = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
        if {"proxycommand", "proxyjump"} & made.keys():
            return True  # another host knows it
        return made.get("hostname", name) != name and bool(
            socket.getaddrinfo(made["hostname"], None)
        )
    return False
