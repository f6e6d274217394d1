"""The points of a sweep: all combinations, in order, and what is refused before any is computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.cluster import changeable_keys, load_cluster
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.schedule import schedules
from emuchain.emulator.studies.sweep import Point, Space, points_of, sweepable_keys

from ...counted import counted


def points(**values: Any) -> list[Point]:
    """The points of these keys; `_` in place of a full stop."""
    changes = values.pop("changes", {})
    return points_of(Space.of({"network": "quick-cifar", **values, **changes}))


def test_all_combinations_with_devices_fastest() -> None:
    found = points(
        devices=[1, 2, 4], changes={"link.bandwidth_gbps": (10, 40)}, schedule=["sync", "fpdeep"]
    )
    assert [
        (p.keys["schedule"], p.keys["link.bandwidth_gbps"], p.keys["devices"]) for p in found
    ] == [
        (schedule, gbps, devices)
        for schedule in ("sync", "fpdeep")
        for gbps in (10, 40)
        for devices in (1, 2, 4)
    ]
    assert [*found[0].keys] == ["network", "cluster", "devices", "schedule", "link.bandwidth_gbps"]


def test_points_have_what_their_keys_say() -> None:
    [slow, fast] = points(devices=3, changes={"link.bandwidth_gbps": [10, 40]}, batch=32)
    assert slow.cluster is not None and fast.cluster is not None
    assert (slow.cluster.link.bandwidth_gbps, fast.cluster.link.bandwidth_gbps) == (10, 40)
    assert slow.settings == {
        "devices": 3,
        "batch": 32,
        "network": "quick-cifar",
        "cluster": "vc709",
    }
    assert slow.network == load_network("quick-cifar")


def test_without_devices_a_schedule_has_the_fewest_that_it_takes() -> None:
    found = points(
        network="char-lstm", cluster="farnn-9p", schedule=["farnn", "gpu-standard", "sync"]
    )
    assert [p.keys["devices"] for p in found] == [p.settings["devices"] for p in found] == [2, 1, 1]
    assert points(network="char-lstm", schedule="farnn", devices=3)[0].keys["devices"] == 3


@pytest.mark.parametrize(
    ("values", "along", "varied"),
    [
        ({"devices": [1, 2], "batch": [8, 16]}, "devices", ("devices", "batch")),
        ({"batch": [8, 16], "replicas": [1, 2]}, "batch", ("batch", "replicas")),
        (
            {"schedule": ["sync", "fpdeep"], "replicas": [1, 2]},
            "replicas",
            ("schedule", "replicas"),
        ),
        (
            {"schedule": ["sync", "fpdeep"], "network.blocking": [True, False]},
            None,
            ("schedule", "network.blocking"),
        ),
        ({"devices": 4}, None, ()),
    ],
)
def test_the_horizontal_axis(
    values: dict[str, Any], along: str | None, varied: tuple[str, ...]
) -> None:
    space = Space.of(values)
    assert (space.along, space.varied) == (along, varied)


def test_values_of_any_kind() -> None:
    network, cluster = load_network("quick-cifar"), load_cluster("u280")
    space = Space.of(
        {
            "network": [network, "vgg11-cifar"],
            "cluster": [cluster, "vc709"],
            "devices": np.arange(1, 3),
            "schedule": [schedules()["sync"], "fpdeep"],
        }
    )
    found = points_of(space)
    assert len(found) == 16
    assert {p.keys["network"] for p in found} == {"quick-cifar", "vgg11-cifar"}
    assert {p.keys["cluster"] for p in found} == {"u280", "vc709"}
    assert {p.keys["schedule"] for p in found} == {"sync", "fpdeep"}
    assert {type(p.settings["devices"]) for p in found} == {int}


def test_all_keys_of_clusters_and_those_of_runs_that_change_times() -> None:
    keys = sweepable_keys()
    assert {*changeable_keys()} < {*keys}
    assert {"network", "devices", "batch", "schedule", "cluster", "replicas", "balancing"} <= {
        *keys
    }
    assert not {"seed", "out", "learning_rate", "data", "micro_batch"} & {*keys}


def test_what_does_not_fit_together_is_a_point_that_fails() -> None:
    found = points(changes={"resources.alpha": [1.0, 0.5], "board.lut": 400_000}, cluster=counted())
    assert [point.error for point in found] == [None, None]
    assert [point.cluster is None for point in found] == [False, False]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"bandwith": 3}, ["`bandwith` cannot be swept", "keys: network"]),
        ({"link.bandwith_gbps": 3}, ["did you mean `link.bandwidth_gbps`?"]),
        ({"seed": [1, 2]}, ["`seed` cannot be swept"]),
        ({"devices": []}, ["`devices` has no values"]),
        ({"batch": [4, 4]}, ["`batch` has a value twice"]),
    ],
)
def test_bad_keys(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
    values: dict[str, Any],
    words: list[str],
) -> None:
    with pytest.raises(InputError) as error:
        Space.of(values)
    line = one_line(error)
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"network": "vgg61"}, ["vgg61", "known: "]),
        ({"cluster": ["vc709", "none"]}, ["`cluster` = 'none'"]),
        ({"devices": [1, 0]}, ["`devices` = 0", "greater than or equal to 1"]),
        ({"devices": [1, "x"]}, ["`devices` = 'x'", "integer"]),
        ({"schedule": ["sync", "snyc"]}, ["`schedule` = 'snyc'", "known: "]),
        ({"link.bandwidth_gbps": [10, 0]}, ["bandwidth_gbps` = 0", "0.001"]),
        ({"link.bandwidth_gbps": "abc"}, ["bandwidth_gbps` = 'abc'", "number"]),
    ],
)
def test_values_that_are_never_right(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
    values: dict[str, Any],
    words: list[str],
) -> None:
    with pytest.raises(InputError) as error:
        points_of(Space.of(values))
    line = one_line(error)
    assert all(word in line for word in words), line


def test_a_loaded_cluster_cannot_be_changed() -> None:
    with pytest.raises(
        InputError, match="`link.latency_ns`: cannot be changed in a loaded cluster"
    ):
        points(cluster=load_cluster("vc709"), changes={"link.latency_ns": [1, 2]})


def test_clusters_that_some_changes_do_not_fit(tmp_path: Path) -> None:
    """Engines of LUTs need a number of LUTs: the cluster with them is right, the other one
    fails.
    """
    message = (
        'name = "{}"\n[[boards]]\nname = "b"\nclock_mhz = 100\ndsp = 900\non_chip_memory_kbit ='
        " 9000\n{}\n"
    )
    links = "[links]\nbandwidth_gbps = 10\nlatency_ns = 1\n"
    paths = {name: tmp_path / f"{name}.toml" for name in ("with", "without")}
    for name, path in paths.items():
        path.write_text(message.format(name, "lut = 100000" if name == "with" else "") + links)
    found = points(
        cluster=[str(path) for path in paths.values()], changes={"resources.alpha": [0.5, 1]}
    )
    failing = [point for point in found if point.error is not None]
    assert len(found) == 4
    [only] = failing
    assert only.error is not None and "lut` is missing" in only.error
    assert (only.cluster, only.keys["resources.alpha"]) == (None, 0.5)


def test_a_network_takes_the_images_of_the_settings(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", images=np.zeros((4, 9, 8), np.uint8), labels=np.arange(4) // 2)
    settings = {"data": str(tmp_path / "own.npz"), "crop": (6, 5)}
    [point] = points_of(Space.of({"network": "lstm-rows"}, settings))
    assert point.network.input == (1, 6, 5)
