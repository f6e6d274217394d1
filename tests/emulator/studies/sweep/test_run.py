"""A sweep and its CSV file: the same rows whoever computes them, and none twice."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.schedule import ScheduleKind, schedules
from emuchain.emulator.studies.sweep import (
    Interrupted,
    Measured,
    Point,
    Space,
    SweepResult,
    run_space,
)

RUN = sys.modules[run_space.__module__]
TINY = (
    'name = "tiny"\ninput = [3, 8, 8]\nlayers = [{type = "conv", channels = 8, kernel = 8}, {type ='
    ' "softmax"}]\n'
)


class Counted:
    """Computes points, and keeps which; interrupts before point number `last`. By a `bug`, those
    that fail fail so.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.points: list[Point] = []
        self.last = sys.maxsize
        self.bug: str | None = None
        self._measure = RUN.measure
        monkeypatch.setattr(RUN, "measure", self)

    def __call__(self, task: tuple[Point, int]) -> Measured:
        if len(self.points) == self.last:
            raise KeyboardInterrupt
        self.points.append(task[0])
        measured = self._measure(task)
        return (
            measured
            if measured.error is None or self.bug is None
            else dataclasses.replace(measured, error=self.bug)
        )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Points are computed in this process and counted."""
    return Counted(monkeypatch)


def sweep(
    path: Path | None = None, images: int = 1000, restart: bool = False, jobs: int = 1, **keys: Any
) -> SweepResult:
    """Sweep quick-cifar over these keys."""
    space = Space.of({"network": "quick-cifar", "devices": range(1, 7), **keys})
    return run_space(space, images, csv=path, restart=restart, jobs=jobs)


def test_one_job_or_two(tmp_path: Path) -> None:
    keys = {"link.bandwidth_gbps": [1, 10], "devices": [1, 3, 400]}
    one = sweep(tmp_path / "one.csv", **keys)
    two = sweep(tmp_path / "two.csv", jobs=2, **keys)
    assert one.rows == two.rows
    assert [row["error"] is None for row in one.rows] == [True, True, False] * 2
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def test_the_file_has_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = sweep(path, devices=[1, 2, 400], cluster=["vc709", "u280"]).rows
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len({row.pop("point") for row in found}) == 6
    assert all(row.pop("roofs").startswith("[") == (row["error"] == "") for row in found)
    assert found == [
        {key: "" if value is None else str(value) for key, value in row.items()} for row in rows
    ]
    assert not [*tmp_path.glob("x.csv.*")]


def test_a_finished_sweep_is_not_computed_again(counted: Counted, tmp_path: Path) -> None:
    first = sweep(tmp_path / "x.csv", devices=[1, 2, 400])
    content = (tmp_path / "x.csv").read_bytes()
    again = sweep(tmp_path / "x.csv", devices=[1, 2, 400])
    assert len(counted.points) == 3
    assert again.rows == first.rows
    assert (tmp_path / "x.csv").read_bytes() == content


def test_an_interrupted_sweep_goes_on(counted: Counted, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    counted.last = 4
    with pytest.raises(Interrupted) as interrupted:
        sweep(path)
    assert (interrupted.value.done, interrupted.value.total) == (4, 6)
    assert len(path.read_text().splitlines()) == 1 + 4
    counted.last = sys.maxsize
    rows = sweep(path).rows
    assert [point.keys["devices"] for point in counted.points] == [1, 2, 3, 4, 5, 6]
    assert rows == sweep().rows


def test_a_row_that_was_cut_is_computed_again(counted: Counted, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    sweep(path)
    whole = path.read_bytes()
    for end in (len(whole) - 1, len(whole) - 20, whole.index(b"\n") + 5, whole.index(b"\n") - 3, 0):
        path.write_bytes(whole[:end])
        counted.points.clear()
        sweep(path)
        assert len(counted.points) == 6 - max(0, whole[:end].count(b"\n") - 1)
        assert path.read_bytes() == whole


def test_a_sweep_grows(counted: Counted, tmp_path: Path) -> None:
    sweep(tmp_path / "x.csv", devices=[1, 4])
    rows = sweep(tmp_path / "x.csv", devices=[1, 2, 4]).rows
    assert [point.keys["devices"] for point in counted.points] == [1, 4, 2]
    assert [row["devices"] for row in rows] == [1, 2, 4]


def test_points_that_failed_by_a_bug_are_computed_again(counted: Counted, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    counted.bug = "internal error: ValueError: 400"
    sweep(path, devices=[1, 400])
    assert counted.bug in path.read_text()
    counted.points.clear()
    counted.bug = None
    sweep(path, devices=[1, 400])
    assert [point.keys["devices"] for point in counted.points] == [400]
    assert "`devices` = 400" in path.read_text()


@pytest.mark.parametrize(
    "other",
    [
        {"devices": range(1, 6)},
        {"schedule": "sync"},
        {"link.latency_ns": 1},
        {"cluster": "u280"},
        {"network": "vgg11-cifar"},
        {"images": 999},
    ],
)
def test_the_file_of_another_sweep_is_left_alone(
    tmp_path: Path, other: dict[str, Any], one_line: Any
) -> None:
    path = tmp_path / "x.csv"
    sweep(path)
    content = path.read_bytes()
    with pytest.raises(InputError) as error:
        sweep(path, **other)
    line = one_line(error)
    assert f"`csv` = {path}" in line
    assert "`restart` starts it over" in line
    assert path.read_bytes() == content
    sweep(path, restart=True, **other)
    assert path.read_bytes() != content


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"notes", b"\xff\xfe", b"network,cluster\n"])
def test_any_other_file_is_left_alone(tmp_path: Path, content: bytes, one_line: Any) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        sweep(path)
    assert f"`csv` = {path}" in one_line(error)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("True", "Maybe"),
        ("True", "False"),
        ("quick-cifar", "quick-cifaR"),
        (",,,", ",,"),
        ("\n", "\r"),
        ("quick", '"quick'),
        ("-", "\0"),
    ],
)
def test_a_damaged_file(tmp_path: Path, old: str, new: str, one_line: Any) -> None:
    path = tmp_path / "x.csv"
    sweep(path, devices=[1, 400])
    head, rows = path.read_text().split("\n", 1)
    assert old in rows
    path.write_bytes(f"{head}\n{rows.replace(old, new, 1)}".encode())
    with pytest.raises(InputError) as error:
        sweep(path, devices=[1, 400])
    assert "is damaged, or was changed by hand" in one_line(error)


def test_each_flipped_bit_of_a_row_is_seen(tmp_path: Path, counted: Counted) -> None:
    """Whichever it is; in the 32 bits of a row's checksum, a row whose bit is flipped has another
    one.
    """
    path, chance = tmp_path / "x.csv", random.Random(7)
    sweep(path, devices=[1, 400])
    whole = path.read_bytes()
    for _ in range(200):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with contextlib.suppress(InputError):
            counted.points.clear()
            sweep(path, devices=[1, 400])
            assert path.read_bytes() == whole, (
                "at most a row without its end was left out, and computed again"
            )


@pytest.mark.parametrize("place", [".", "no/x.csv"])
def test_a_file_that_cannot_be_written(tmp_path: Path, place: str, counted: Counted) -> None:
    with pytest.raises(InputError, match="`csv` = "):
        sweep(tmp_path / place)
    assert not counted.points


# What points depend on


def test_contents_of_files_count(tmp_path: Path) -> None:
    file, path = tmp_path / "tiny.toml", tmp_path / "x.csv"
    file.write_text(TINY)
    sweep(path, network=str(file))
    file.write_text(TINY.replace("channels = 8", "channels = 9"))
    with pytest.raises(InputError, match="other content of the files"):
        sweep(path, network=str(file))


def test_contents_of_a_board_of_a_cluster_count(tmp_path: Path) -> None:
    board = 'name = "b"\nclock_mhz = 100\ndsp = {}\non_chip_memory_kbit = 90000\n'
    (tmp_path / "b.toml").write_text(board.format(900))
    links = "[links]\nbandwidth_gbps = 10\nlatency_ns = 1\n"
    (tmp_path / "c.toml").write_text(
        f'name = "c"\n[[boards]]\ntype = "{tmp_path / "b.toml"}"\n{links}'
    )
    sweep(tmp_path / "x.csv", cluster=str(tmp_path / "c.toml"))
    (tmp_path / "b.toml").write_text(board.format(901))
    with pytest.raises(InputError, match="not of this sweep"):
        sweep(tmp_path / "x.csv", cluster=str(tmp_path / "c.toml"))


def test_the_version_of_emuchain_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(tmp_path / "x.csv")
    monkeypatch.setattr(RUN, "_emuchain", functools.cache(lambda: "another one"))
    with pytest.raises(InputError, match="another version of emuchain"):
        sweep(tmp_path / "x.csv")


def test_a_schedule_of_ones_own_is_never_taken_up_again(tmp_path: Path) -> None:
    def kind() -> ScheduleKind:
        """The same name, another function."""
        return dataclasses.replace(
            schedules()["sync"],
            name="mine",
            generate=lambda epoch: schedules()["sync"].generate(epoch),
        )

    one, other = kind(), kind()
    sweep(tmp_path / "x.csv", schedule=one)
    with pytest.raises(InputError, match="not of this sweep"):
        sweep(tmp_path / "x.csv", schedule=other)


def test_objects_and_names_are_the_same(counted: Counted, tmp_path: Path) -> None:
    sweep(tmp_path / "x.csv", devices=[1, 2], schedule="sync")
    counted.points.clear()
    sweep(
        tmp_path / "x.csv",
        devices=[1, 2],
        schedule=schedules()["sync"],
        network=load_network("quick-cifar"),
    )
    assert not counted.points
