"""`--throttle wall`: a run that its links hold back takes bytes / bandwidth."""

from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.mapping import DataPath
from emuchain.emulator.run import read_results

pytestmark = pytest.mark.alone

CLUSTER = """
name = "slow"
[[boards]]
name = "any"
clock_mhz = 0.003  # so slow that the cut heeds engines rather than the link, which then carries much
dsp = 3600
on_chip_memory_kbit = 52920
[links]
bandwidth_gbps = 0.004
latency_ns = 1000
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_transfer_bound_run_takes_bytes_over_bandwidth(
    mpiexec: Any, small_cifar: Path, tmp_path: Path, ranks: int
) -> None:
    cluster, out = tmp_path / "slow.toml", tmp_path / "run.h5"
    cluster.write_text(CLUSTER)
    arguments = [
        "--network",
        "lenet-cifar.toml",
        "--devices",
        "2",
        "--data",
        str(small_cifar),
        "--samples",
        "96",
    ]
    arguments += [
        "--batch",
        "96",
        "--micro-batch",
        "2",
        "--cluster",
        str(cluster),
        "--throttle",
        "wall",
    ]
    (tmp_path / "lenet-cifar.toml").write_text(
        'name = "small"\ninput = [3, 32, 32]\nlayers = [{ type = "conv", channels = 16, kernel = 5,'
        ' stride = 2 }, { type = "relu" }, { type = "fc", features = 10 }, { type = "softmax" }]\n'
    )
    mpiexec(
        ranks, ["-m", "emuchain", "train", *arguments, "--out", str(out)], timeout=120, cwd=tmp_path
    )
    results = read_results(out)
    bits = [
        8 * sum(results.links[f"path{path.value}_bytes"][row] for path in DataPath)
        for row in range(2)
    ]
    # The test images cross the link to the right once more.
    test_bits = bits[0] * 40 // 96
    expected_s = (max(bits) + test_bits) / 0.004e9
    assert expected_s > 4
    assert results.history["host_time_s"][-1] == pytest.approx(expected_s, rel=0.1)


@pytest.mark.parametrize("ranks", [1, 2])
def test_exchange_bound_run_takes_bytes_over_bandwidth(
    mpiexec: Any, small_cifar: Path, tmp_path: Path, ranks: int
) -> None:
    """Two replicas in a ring: in each of two steps both send half of the gradients, at the same
    time.
    """
    cluster, out = tmp_path / "slow.toml", tmp_path / "run.h5"
    cluster.write_text(CLUSTER)
    arguments = [
        "--network",
        "resnet8-cifar",
        "--devices",
        "2",
        "--data",
        str(small_cifar),
        "--samples",
        "48",
    ]
    arguments += [
        "--batch",
        "8",
        "--cluster",
        str(cluster),
        "--throttle",
        "wall",
        "--test-samples",
        "2",
    ]
    arguments += ["--schedule", "data-parallel-ring"]
    mpiexec(
        ranks, ["-m", "emuchain", "train", *arguments, "--out", str(out)], timeout=120, cwd=tmp_path
    )
    results = read_results(out)
    expected_s = 8 * results.exchange["value_bytes"][0] / 2 / 0.004e9
    assert expected_s > 3
    assert results.history["host_time_s"][-1] == pytest.approx(expected_s, rel=0.25)
