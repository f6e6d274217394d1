"""`sweep --target`: the point found reaches the rate, and none with fewer boards does."""

from __future__ import annotations

import json
import re
from typing import Any

import click.testing
import pytest

import emuchain
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.frame.session import Session
from emuchain.emulator.run import steady_state
from emuchain.emulator.studies.sweep import (
    DEVICES,
    REPLICAS,
    SCHEDULES,
    Space,
    SweepResult,
    findings,
    reaches,
    run_space,
    seeking_values,
)

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


@pytest.mark.parametrize("target", [1, 9_000, 30_000, 60_000, 1e6])
def test_what_is_left_out_changes_no_answer(target: float) -> None:
    """Of the points of a whole sweep, the same is chosen."""
    values = {"network": "quick-cifar", "cluster": counted(), "schedule": ("fpdeep", "sync")}
    space = Space.of({**values, "devices": DEVICES_SWEPT, "replicas": REPLICAS_SWEPT})
    how: dict[str, Any] = {"jobs": 1, "ranged": False, "target": target}
    whole, sought = run_space(space, 1000, **how), run_space(space, 1000, seeks=True, **how)
    assert whole.target is not None and sought.target is not None
    assert sought.target.row == whole.target.row
    assert len(sought.rows) < len(whole.rows) == sought.target.points
    assert all(row in whole.rows for row in sought.rows)


def test_a_rate_beyond_all_multipliers_takes_one_point() -> None:
    """By GPT-2 on U280, whose default schedule takes no replicas: its reason is said."""
    values = {"network": "quick-cifar", "cluster": counted(), "replicas": (1, 2)}
    space = Space.of({**values, "devices": (1, 400), "schedule": ("fpdeep", "sync")})
    result = run_space(space, 1000, jobs=1, ranged=False, target=1e9, seeks=True)
    assert {row["devices"] for row in result.rows} == {1, 400}
    assert result.best is not None and result.best["boards"] == 2
    lines = findings(result)
    assert lines[0] == "target 1,000,000,000 images/s: no point of the sweep reaches it"
    assert re.fullmatch(r"computed: \d of 8 points; the others cannot reach it", lines[1])
    assert "fail" in lines[-1] and "must be 1 to" in lines[-1]


def test_python_seeks_as_the_command_does() -> None:
    found = emuchain.sweep("quick-cifar", counted(), target=30_000, jobs=1, ranged=False)
    given = emuchain.sweep("quick-cifar", counted(), target=1, devices=2, jobs=1, ranged=False)
    assert found.target is not None and found.target.row is not None
    assert found.target.points == len(DEVICES) * len(REPLICAS) * len(SCHEDULES)
    assert {row["devices"] for row in given.rows} == {2}


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
    assert seeking_values({"network": "any"}, 5.0) == {
        **{"network": "any", "devices": DEVICES, "replicas": REPLICAS, "schedule": SCHEDULES},
    }
    for given in ({"devices": (1, 2)}, {"replicas": (1,)}):
        assert seeking_values(given, 5.0) == given
    assert seeking_values({"network": "any"}, None) == {"network": "any"}
