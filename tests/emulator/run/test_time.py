"""Virtual time is a pure function: the same from the simulator, one process, and any number of
ranks.
"""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.mapping import DataPath
from emuchain.emulator.run import read_results

FLAGS = [
    "--network",
    "quick-cifar",
    "--devices",
    "8",
    "--batch",
    "32",
    "--epochs",
    "2",
    "--samples",
    "330",
]


def flags(small_cifar: Path, schedule: str) -> list[str]:
    return [*FLAGS, "--data", str(small_cifar), "--schedule", schedule]


def simulated(arguments: list[str]) -> dict:
    outcome = CliRunner().invoke(commands, ["simulate", *arguments, "--json"], obj=None)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.output)


@pytest.mark.parametrize(
    ("mpiexec", "schedule", "ranks"),
    [
        ("mpich", "sync", 2),
        ("mpich", "fpdeep", 1),
        ("mpich", "fpdeep", 8),
        ("openmpi", "sync", 4),
        ("openmpi", "fpdeep", 2),
    ],
    indirect=["mpiexec"],
)
def test_simulator_and_ranks_agree_to_the_picosecond(
    mpiexec: Any, small_cifar: Path, tmp_path: Path, schedule: str, ranks: int
) -> None:
    out = tmp_path / "run.h5"
    arguments = flags(small_cifar, schedule)
    mpiexec(ranks, ["-m", "emuchain", "train", *arguments, "--out", str(out)], timeout=300)
    expected = simulated(arguments)
    results = read_results(out)
    assert results.history["virtual_time_ps"].tolist() == expected["epoch_ends_ps"]
    for row, device in enumerate(expected["devices"]):
        for phase, share in device["busy"].items():
            assert results.devices[f"{phase.lower()}_busy"][row] == share
    for row, link in enumerate(expected["links"]):
        assert results.links["utilisation"][row] == link["utilisation"]
        for path in DataPath:
            assert results.links[f"path{path.value}_bytes"][row] == link["path_bytes"].get(
                str(path.value), 0
            )


@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_fpdeep_weights_do_not_depend_on_the_ranks(
    mpiexec: Any, small_cifar: Path, tmp_path: Path
) -> None:
    weights = []
    for ranks in (1, 3):
        out = tmp_path / f"run{ranks}.h5"
        mpiexec(
            ranks,
            ["-m", "emuchain", "train", *flags(small_cifar, "fpdeep"), "--out", str(out)],
            timeout=300,
        )
        with h5py.File(out) as file:
            weights.append({name: layer["weight"][()] for name, layer in file["weights"].items()})
    for name, weight in weights[0].items():
        assert np.array_equal(weight.view(np.uint32), weights[1][name].view(np.uint32))
