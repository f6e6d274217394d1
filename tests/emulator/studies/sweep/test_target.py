"""`sweep --target`: the point found reaches the rate, and none with fewer boards does."""

from __future__ import annotations

import json
from typing import Any

import click.testing
import pytest

import emuchain
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.design.sweep import with_numbers_of_boards
from emuchain.emulator.commands.frame.session import Session
from emuchain.emulator.run import steady_state
from emuchain.emulator.studies.sweep import DEVICES, REPLICAS, SweepResult, reaches

from ...counted import counted

DEVICES_SWEPT, REPLICAS_SWEPT = (1, 2, 3, 4), (1, 2, 4)


def swept(target: float, **keys: Any) -> SweepResult:
    values: dict[str, Any] = {
        "devices": DEVICES_SWEPT,
        "replicas": REPLICAS_SWEPT,
        "schedule": "sync",
        **keys,
    }
    return emuchain.sweep("quick-cifar", counted(), target=target, jobs=1, ranged=False, **values)


@pytest.mark.parametrize("target", [1, 20_000, 70_000])
def test_no_fewer_boards_reach_it(target: float) -> None:
    result = swept(target)
    assert result.target is not None
    row = result.target.row
    assert row is not None and row["images_per_s"] >= target and row["fits"]
    assert row["boards"] == row["devices"] * row["replicas"]
    fewer = [
        (devices, replicas)
        for devices in DEVICES_SWEPT
        for replicas in REPLICAS_SWEPT
        if devices * replicas < row["boards"]
    ]
    for devices, replicas in fewer:  # by plans of their own
        plan = emuchain.plan(
            "quick-cifar", counted(), devices=devices, replicas=replicas, schedule="sync"
        )
        assert steady_state(plan).images_per_s < target


def test_none_reaches_it() -> None:
    result = swept(1e9)
    assert result.target is not None and result.target.row is None
    assert not any(reaches(row, 1e9) for row in result.rows)


def test_the_narrowest_links_of_as_few_boards() -> None:
    result = swept(20_000, replicas=1, changes={"link.bandwidth_gbps": [0.2, 10, 40]})
    assert result.target is not None and result.target.row is not None
    row = result.target.row
    equal = [
        other
        for other in result.rows
        if other["boards"] == row["boards"] and reaches(other, 20_000)
    ]
    assert row["link.bandwidth_gbps"] == min(other["link.bandwidth_gbps"] for other in equal)
    assert result.target.link_gbps == row["link.bandwidth_gbps"]
    assert (
        result.target.demand_gbps is not None
        and 0 < result.target.demand_gbps <= result.target.link_gbps
    )


def test_what_does_not_fit_does_not_count() -> None:
    result = emuchain.sweep(
        "vgg16-cifar",
        devices=(1, 2, 4),
        target=1,
        jobs=1,
        changes={"board.off_chip_memory_gbytes": 1e-4, "board.off_chip_gbytes_per_s": 1},
    )
    assert not any(row["fits"] for row in result.rows)
    assert result.target is not None and result.target.row is None


def printed(*words: str) -> str:
    run = click.testing.CliRunner().invoke(
        commands, ["sweep", "quick-cifar", "--jobs", "1", *words], obj=Session()
    )
    assert run.exit_code == 0, run.output
    return run.stdout


def test_the_answer_comes_first() -> None:
    words = ("--target", "2000", "--devices", "1-3", "--replicas", "1,2", "--schedule", "sync")
    line = printed(*words).splitlines()[0]
    assert line.startswith("target 2,000 images/s: 2 boards: ")
    assert "Gb/s" in line and "limits" in line
    message = json.loads(printed(*words, "--json"))["target"]
    assert message["reached"] and message["row"]["boards"] == 2
    none = printed(*words[2:], "--target", "1e9").splitlines()
    assert none[0] == "target 1,000,000,000 images/s: no point of the sweep reaches it"
    assert none[1].startswith("best: ") and "limit" in none[1]


def test_boards_and_replicas_by_default() -> None:
    assert with_numbers_of_boards({"network": "any"}, 5.0) == {
        **{"network": "any", "devices": DEVICES, "replicas": REPLICAS},
    }
    for given in ({"devices": (1, 2)}, {"replicas": (1,)}):
        assert with_numbers_of_boards(given, 5.0) == given
    assert with_numbers_of_boards({"network": "any"}, None) == {"network": "any"}
