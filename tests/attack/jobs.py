"""Runs of emuchain under a launcher, whose ranks are attacked; only what was started here gets
signals.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil
from limits import limit_process

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = {
    "mpich": ("EMUCHAIN_TEST_MPICH", ".venv"),
    "openmpi": ("EMUCHAIN_TEST_OPENMPI", ".venv-openmpi"),
}
MARK = "EMUCHAIN_ATTACK_MARK"
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
SHARED = re.compile(r"/dev/shm/(?:mpich_shm_|ucx_shm_posix_|sm_segment|vader_segment)\S+")
TIDY_S = 15.0


def environment_of(mpi: str) -> Path:
    """Return the environment with this MPI, which must be there."""
    variable, folder = ENVIRONMENTS[mpi]
    environment = Path(os.environ.get(variable, ROOT / folder))
    if not (environment / "bin" / "mpiexec").exists():
        sys.exit(f"{mpi}: no {environment}/bin/mpiexec; name an environment by {variable}")
    return environment


class Job:
    """A launcher with its ranks; all that it starts has a mark in its environment.

    The process is mpiexec (`launcher`), `emuchain launch` (`run`), or the command in one process
    (`alone`).
    """

    def __init__(
        self,
        environment: Path,
        ranks: int,
        arguments: Sequence[str],
        said: IO[str],
        process: str = "launcher",
    ) -> None:
        binaries, self._ranks, self._mark = environment / "bin", ranks, uuid.uuid4().hex
        command = [str(binaries / "python"), "-m", "emuchain"]
        before = {
            "launcher": [str(binaries / "mpiexec"), "-n", str(ranks), *command],
            "run": [*command, "launch", "-n", str(ranks), "--"],
            "alone": command,
        }
        self.process = subprocess.Popen(
            [*before[process], *arguments],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, **SETTINGS, MARK: self._mark},
            start_new_session=True,
            preexec_fn=limit_process,
        )

    def ranks(self) -> dict[int, psutil.Process]:
        """Wait until all ranks are there; return them, fewer where the launcher ends before."""
        processes: dict[int, psutil.Process] = {}
        while len(processes) < self._ranks and self.process.poll() is None:
            processes = ranks_below(self.process.pid)
            time.sleep(0.01)
        return processes

    def rank(self, number: int) -> psutil.Process | None:
        """Wait until a rank is there, and return it; None where the launcher ends before."""
        while self.process.poll() is None:
            if (process := ranks_below(self.process.pid).get(number)) is not None:
                return process
            time.sleep(0.01)
        return None

    def left(self) -> list[psutil.Process]:
        """Return the processes of this run that are still there."""
        processes = []
        for process in psutil.process_iter():
            try:
                if (
                    process.environ().get(MARK) == self._mark
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    processes.append(process)
            except psutil.Error:
                continue
        return processes

    def guarded(self) -> bool:
        """Return whether a guard watches the ranks."""
        return any(
            "guard.py" in " ".join(process.cmdline())
            for process in self.left()
            if process.is_running()
        )

    def end(self, most_s: float, shared: set[str]) -> list[str]:
        """Wait for the end, then end what is left; return what is wrong. `shared` must be gone by
        then.
        """
        wrong = []
        try:
            self.process.wait(most_s)
        except subprocess.TimeoutExpired:
            wrong.append(f"not done after {most_s:g} s")
        until_s = time.monotonic() + TIDY_S
        while not wrong and self.left() and time.monotonic() < until_s:
            time.sleep(0.1)
        for process in self.left():
            wrong.append(f"process {process.pid} is left")
            process.kill()
        self.process.wait()
        return wrong + [f"{path} is left" for path in sorted(shared) if Path(path).exists()]


def ranks_below(launcher: int) -> dict[int, psutil.Process]:
    """Return the ranks of emuchain among the descendants of a process."""
    ranks = {}
    try:
        below = psutil.Process(launcher).children(recursive=True)
    except psutil.Error:
        return {}
    for process in below:
        try:
            environment, arguments = process.environ(), process.cmdline()
        except psutil.Error:
            continue
        rank = environment.get("PMI_RANK", environment.get("PMIX_RANK", ""))
        if rank.isdigit() and "emuchain" in arguments:
            ranks.setdefault(
                int(rank), process
            )  # what it forks looks the same, until it is another program
    return ranks


def shared_by(processes: Sequence[psutil.Process]) -> set[str]:
    """Return MPI's files in shared memory that processes map."""
    files: set[str] = set()
    for process in processes:
        try:
            files |= set(SHARED.findall(Path(f"/proc/{process.pid}/maps").read_text()))
        except OSError:
            continue
    return files
