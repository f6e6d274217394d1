"""Joining the ranks of a run."""

from __future__ import annotations

import os
from typing import Any

from .ranks import Alone, MpiRanks, Ranks

_LAUNCHER_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_NOT_OF_ONE_KIND = (
    "mpiexec and mpi4py's MPI library are not of one kind; use the mpiexec in this environment's bin folder"
)


class LaunchError(Exception):
    """The launcher and the MPI library of this environment do not go together; `str` is a line for the user."""


def launcher_rank() -> int | None:
    """This process's rank as mpiexec, srun or the like set it; None if it was started without."""
    for name in _LAUNCHER_VARIABLES:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


def join() -> Ranks:
    """All ranks that the launcher started; without a launcher, this process alone, and MPI is not touched.

    Raises:
        LaunchError: mpi4py is missing, or the launcher is another MPI's.
    """
    if launcher_rank() is None:
        tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
        if tasks != "1":
            raise LaunchError(f"srun started {tasks} tasks without MPI, each would run alone: try `srun --mpi=pmi2`")
        return Alone()
    _check_kind()
    try:
        ranks = MpiRanks(_world())
    except ImportError as error:
        raise LaunchError(
            f"started by an MPI launcher, but mpi4py does not load ({error}); install `emuchain[mpi-mpich]`"
            " or `emuchain[mpi-openmpi]`"
        ) from None
    expected = max((int(os.environ[name]) for name in _SIZE_VARIABLES if os.environ.get(name, "").isdigit()), default=1)
    if expected > 1 and ranks.size == 1:
        raise LaunchError(f"the launcher started {expected} ranks, but each finds itself alone: {_NOT_OF_ONE_KIND}")
    return ranks


def _world() -> Any:
    """A clone of the world's communicator; importing MPI starts it."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.Clone()


def _check_kind() -> None:
    """MPICH would abort under Open MPI's launcher before anything could be said."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ and _installed("mpich") and not _installed("openmpi"):
        raise LaunchError(f"started by Open MPI's mpiexec, but MPICH is installed here: {_NOT_OF_ONE_KIND}")


def _installed(name: str) -> bool:
    import importlib.metadata

    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
