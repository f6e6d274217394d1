"""Estimates of work and memory: what would take days or more memory than there is, is said before
it starts.
"""

from __future__ import annotations

from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError, Room
from emuchain.emulator.config import load_config
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import check_memory, long_plan, long_work, make_plan, work

SMALL = load_network("quick-cifar")


def test_a_batch_that_no_memory_holds(one_line: Any) -> None:
    config = load_config(None, {"batch": 10**9})
    with pytest.raises(InputError) as error:
        make_plan(config, 1)
    line = one_line(error)
    assert line.startswith("`batch` = 1000000000: planning takes about") and "iB of memory" in line
    assert "give at most" in line
    check_memory(load_config(None, {"batch": 4096}), SMALL)


def test_rows_that_no_memory_holds(tmp_path: Any, one_line: Any) -> None:
    path = tmp_path / "rows.toml"
    path.write_text(
        'name = "rows"\ninput = [3, 1000000000, 1]\nlayers = [{ type = "conv", channels = 1, kernel'
        ' = 1 }, { type = "fc", features = 2 }, { type = "softmax" }]\n'
    )
    with pytest.raises(InputError) as error:
        make_plan(load_config(None, {"network": str(path)}), 1)
    assert "2,000,000,001 rows a sample" in one_line(error)


@pytest.mark.parametrize(
    ("numbers", "samples", "epochs", "said"),
    [
        (False, 10_000, 1, None),
        (False, 10**9, 1, "simulating 1,000,000,000 samples takes about"),
        (False, 64, 10**9, "in 1,000,000,000 epochs"),
        (True, 50_000, 10, None),
        (True, 64, 10**9, "training on 64,000,000,000 samples in 1,000,000,000 epochs takes about"),
    ],
)
def test_runs_that_take_long(numbers: bool, samples: int, epochs: int, said: str | None) -> None:
    line = long_work(load_config(None, {"epochs": epochs}), SMALL, samples, numbers=numbers)
    assert line is None if said is None else line is not None and said in line


def test_memory_of_a_board_that_no_board_has(one_line: Any) -> None:
    with pytest.raises(InputError) as error:
        make_plan(load_config(None, {}), 1, {"board.on_chip_memory_kbit": 2**63 - 1})
    assert "on_chip_memory_kbit" in one_line(error)


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"replicas": 10**7}, "replicas"),
        ({"schedule": "data-parallel-ring", "devices": 10**7}, "devices"),
    ],
)
def test_devices_that_find_no_memory(
    monkeypatch: pytest.MonkeyPatch, one_line: Any, flags: dict[str, Any], key: str
) -> None:
    """With room for the clocks of the mini-batch; what this machine has left must not matter."""
    monkeypatch.setattr(work, "free_room", lambda: Room(2**36, "this machine has"))
    with pytest.raises(InputError) as error:
        make_plan(
            load_config(None, {**flags, "batch": 10**7, "network": "lenet-mnist"}),
            1,
            timing_only=True,
        )
    assert f"`{key}` = 10000000: simulating 10,000,000 devices takes about" in one_line(error)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"network": "vgg16"}, None),
        ({"replicas": 1000}, None),
        ({"replicas": 100_000}, "and exchanges between its replicas, takes about 100 minutes"),
        (
            {"replicas": 100_000, "groups": 100},
            "and exchanges between its replicas, takes about 60 seconds",
        ),
        ({"replicas": 100_000, "exchange": "aggregator"}, None),
    ],
)
def test_plans_that_take_long(flags: dict[str, Any], said: str | None) -> None:
    config = load_config(None, {"batch": 100_000, **flags})
    line = long_plan(config, load_network(config.network))
    assert line is None if said is None else line is not None and said in line


@pytest.mark.parametrize(
    ("flags", "changes", "idle"),
    [
        (
            {"devices": 2},
            {"network.bandwidth_gbps": 5},
            ["`network.bandwidth_gbps` = 5: has no effect without replicas"],
        ),
        (
            {"devices": 1},
            {"link.latency_ns": 7},
            ["`link.latency_ns` = 7: has no effect on one device"],
        ),
        ({"devices": 1, "replicas": 2}, {"network.bandwidth_gbps": 5}, []),
        ({"devices": 2}, {"link.latency_ns": 7, "board.clock_mhz": 150}, []),
    ],
)
def test_keys_of_a_cluster_without_effect(
    flags: dict[str, int], changes: dict[str, float], idle: list[str]
) -> None:
    message = work.idle_settings(emuchain.plan("quick-cifar", **flags, changes=changes))
    assert len(message) == len(idle) and all(map(str.startswith, message, idle))
