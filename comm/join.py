"""Joining the ranks of a run."""

from __future__ import annotations

import os

from .mpi import launcher_rank, world
from .ranks import Alone, MpiRanks, Ranks

_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


class LaunchError(Exception):
    """The launcher and the MPI library of this environment do not go together; `str` is a line for the user."""


def join() -> Ranks:
    """All ranks that the launcher started; without a launcher, this process alone, and MPI is not touched.

    Raises:
        LaunchError: mpi4py is missing, or the launcher is another MPI's.
    """
    rank = launcher_rank()
    if rank is None:
        return Alone()
    try:
        ranks = MpiRanks(world())
    except ImportError as error:
        raise LaunchError(
            f"started by an MPI launcher, but mpi4py does not load ({error}); install `emuchain[mpi-mpich]`"
            " or `emuchain[mpi-openmpi]`"
        ) from None
    expected = max((int(os.environ[name]) for name in _SIZE_VARIABLES if os.environ.get(name, "").isdigit()), default=1)
    if expected > 1 and ranks.size == 1:
        raise LaunchError(
            f"the launcher started {expected} ranks, but each finds itself alone: mpiexec and mpi4py's MPI library are"
            " not of one kind; use the mpiexec in this environment's bin folder"
        )
    return ranks
