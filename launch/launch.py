"""Joining the ranks of a run."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import stat
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..kernels import away_from
from .end_request import ENDING, EndRequest
from .ranks import MpiRanks, Ranks, SingleProcess

if TYPE_CHECKING:  # most commands have no ranks to watch
    from .watch import Watch

_PMI = "PMI_RANK"
RANK_VARIABLES = _PMI, "PMIX_RANK", "OMPI_COMM_WORLD_RANK"
"""In which MPICH's launcher and srun, PMIx, and Open MPI's launcher tell a process its rank."""
_PMI_PORTS = "PMI_PORT", "PMI_CONTROL_PORT"
_PMIX_SERVER = "PMIX_SERVER_URI"
_ANSWER_S = 5.0
_SHARED_MIB, _SHARED_MIB_OF_A_RANK = 2, 6
"""Measured with MPICH 5.0 on one host: 5.14 MiB a rank. UCX takes what is left, and MPICH crashes for want of it."""
_LARGEST_MIB, _LARGEST_MIB_OF_A_RANK = 5, 2
"""Measured: a file of 4.1 MiB for each rank, and one of 1.01 MiB a rank."""
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_ABORT_DELAY = "OMPI_MCA_opal_abort_delay"
_UCX_SIGNAL = "UCX_DEBUG_SIGNO"
_NOT_OF_ONE_KIND = (
    "mpiexec and mpi4py's library belong to different MPIs; use the mpiexec in this environment's bin folder"
)


class LaunchError(Exception):
    """The launcher and the MPI library of this environment do not match; `str` is a line for the user."""


def launcher_rank() -> int | None:
    """Return this process's rank as mpiexec or srun set it; None if no launcher is behind it."""
    for name in _set_variables():
        if _is_pmi_there() if name == _PMI else _is_pmix_there():
            return int(os.environ[name])
    return None


def left_over() -> str | None:
    """Return the setting of a rank that a launcher has left in the environment of a process that it did not start."""
    for name in _set_variables() if launcher_rank() is None else ():
        return f"{name}={os.environ[name]}"
    return None


def _set_variables() -> Iterator[str]:
    return (name for name in RANK_VARIABLES if os.environ.get(name, "").isdecimal())


def _is_pmi_there() -> bool:
    """Return whether this process has the connection to its launcher that MPICH's gives, and that children lack."""
    if any(name in os.environ for name in _PMI_PORTS):
        return True
    with contextlib.suppress(OSError, ValueError, OverflowError):
        return stat.S_ISSOCK(os.fstat(int(os.environ.get("PMI_FD", ""))).st_mode)
    return False


def _is_pmix_there() -> bool:
    """Return whether the server answers that Open MPI's launcher has named; what has another address is believed."""
    servers = [value for name, value in os.environ.items() if name.startswith(_PMIX_SERVER)]
    for server in servers[:1]:
        host, _, port = server.partition(";tcp4://")[2].partition(":")
        if not port.isdecimal():
            return True
        with contextlib.suppress(OSError, OverflowError), socket.create_connection((host, int(port)), _ANSWER_S):
            return True
    return False


def abort_ranks(status: int) -> None:
    """Have MPICH's launcher end all ranks with a status at once; to be called outside MPI, where this process ends.

    Open MPI's needs no word: the end of a rank is the end of all. Slurm has a language of its own.
    """
    fd = os.environ.get("PMI_FD", "")
    if fd.isdecimal() and "PMI_JOBID" not in os.environ:
        with contextlib.suppress(OSError):
            os.write(int(fd), f"cmd=abort exitcode={status}\n".encode())


def check_shared_memory(
    *, is_first: bool, folder: str = "/dev/shm", environment: Mapping[str, str] = os.environ
) -> None:
    """Check that there is room for what MPICH takes of shared memory for the ranks of this host, before it takes any.

    It crashes otherwise. Open MPI says itself that it does without. What others take counts for the rank that comes
    first; all compare with the size, so that none begins where that is too small.

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
                f" {has_mib} MiB{' free' * is_first}: give the container more (`--shm-size={needed_mib}m`), or start"
                " fewer ranks"
            )
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    needed_mib = max(_LARGEST_MIB, int(here) * _LARGEST_MIB_OF_A_RANK)
    if largest != resource.RLIM_INFINITY and largest >> 20 < needed_mib:
        raise LaunchError(
            f"MPICH makes files of {needed_mib} MiB in shared memory for {here} ranks, and the limit on the size of"
            f" files (`ulimit -f`) is {largest >> 10:,} KiB: raise it"
        )


def join(watch: Watch | None = None, end_request: EndRequest | None = None) -> Ranks:
    """Return all ranks that the launcher started; without a launcher, this process alone, without touching MPI.

    `watch` is this process's, if it has made itself known to the guard of its host; `end_request` says what signals
    have asked.

    Raises:
        LaunchError: mpi4py is missing, or the launcher is another MPI's.
    """
    if launcher_rank() is None:
        tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
        if tasks != "1":
            raise LaunchError(
                f"srun started {tasks} tasks without MPI, so each would run on its own: try `srun --mpi=pmi2`"
            )
        return SingleProcess(end_request)
    _check_kind()
    try:
        ranks = MpiRanks(_world(), watch, end_request)
    except (ImportError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise LaunchError(
            f"started by an MPI launcher, but mpi4py does not load ({why}); install `emuchain[mpi-mpich]`"
            " or `emuchain[mpi-openmpi]`"
        ) from None
    expected = max((int(os.environ[name]) for name in _SIZE_VARIABLES if os.environ.get(name, "").isdigit()), default=1)
    if expected > 1 and ranks.size == 1:
        raise LaunchError(f"the launcher started {expected} ranks, but each sees only itself: {_NOT_OF_ONE_KIND}")
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

    On several hosts Open MPI's ends a rank at once when it loses the connection to one that has died. Two seconds later
    guards and launcher know of that one, and the rank is no first death of its own. UCX would take SIGHUP, to begin
    debugging.
    """
    here, in_all = (environment.get(f"OMPI_COMM_WORLD_{size}") for size in ("LOCAL_SIZE", "SIZE"))
    settings = {} if here == in_all else {_ABORT_DELAY: environment.get(_ABORT_DELAY, "2")}
    return {**settings, _UCX_SIGNAL: "0"}


def _check_kind() -> None:
    """Reject Open MPI's launcher where MPICH is installed; MPI would abort without a clear message."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ and is_installed("mpich") and not is_installed("openmpi"):
        raise LaunchError(f"started by Open MPI's mpiexec, but MPICH is installed here: {_NOT_OF_ONE_KIND}")


def is_installed(name: str) -> bool:
    """Return whether this environment has a Python package of this name."""
    import importlib.metadata

    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
