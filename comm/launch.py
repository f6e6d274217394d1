"""Joining the ranks of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..kernels import away_from
from .ranks import MpiRanks, Ranks
from .single_process import SingleProcess

if TYPE_CHECKING:  # most commands have no ranks to watch
    from .watch import Watch

_LAUNCHER_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_ABORT_DELAY = "OMPI_MCA_opal_abort_delay"
_NOT_OF_ONE_KIND = (
    "mpiexec and mpi4py's library belong to different MPIs; use the mpiexec in this environment's bin folder"
)


class LaunchError(Exception):
    """The launcher and the MPI library of this environment do not match; `str` is a line for the user."""


def launcher_rank() -> int | None:
    """Return this process's rank as mpiexec or srun set it; None if it was started without a launcher."""
    for name in _LAUNCHER_VARIABLES:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


def join(watch: Watch | None = None) -> Ranks:
    """Return all ranks that the launcher started; without a launcher, this process alone, without touching MPI.

    `watch` is this process's, if it has made itself known to the guard of its host.

    Raises:
        LaunchError: mpi4py is missing, or the launcher is another MPI's.
    """
    if launcher_rank() is None:
        tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
        if tasks != "1":
            raise LaunchError(
                f"srun started {tasks} tasks without MPI, so each would run on its own: try `srun --mpi=pmi2`"
            )
        return SingleProcess()
    _check_kind()
    try:
        ranks = MpiRanks(_world(), watch)
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
    """Return a clone of the world's communicator; importing MPI initialises it."""
    os.environ.update(library_settings(os.environ))
    with away_from("ucx.conf"):  # UCX would load plug-ins from a folder that it names
        from mpi4py import MPI

    return MPI.COMM_WORLD.Clone()


def library_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what to set for the MPI library.

    On several hosts Open MPI's ends a rank at once when it loses the connection to one that has died. Two seconds later
    guards and launcher know of that one, and the rank is no first death of its own.
    """
    here, in_all = (environment.get(f"OMPI_COMM_WORLD_{size}") for size in ("LOCAL_SIZE", "SIZE"))
    return {} if here == in_all else {_ABORT_DELAY: environment.get(_ABORT_DELAY, "2")}


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
