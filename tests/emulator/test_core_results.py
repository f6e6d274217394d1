"""Results files: what is written is read again, and a damaged file gives one line or a readable record."""

from __future__ import annotations

import itertools
import os
import re
import stat
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.emulator.common.errors import InputError
from emuchain.emulator.config.config import Config
from emuchain.emulator.device.ends import Tally
from emuchain.emulator.mapping.traffic import DataPath
from emuchain.emulator.run.results import (
    Record,
    check_writable,
    config_attributes,
    device_table,
    history_table,
    link_table,
    read,
    versions,
    write,
)
from emuchain.emulator.run.train import EpochResult
from emuchain.emulator.run.usage import DeviceFigures, Figures, LinkFigures, Memory

FIGURES = Figures(
    12_345,
    (
        DeviceFigures(0, "left", ("conv1[0:2] OCP", "conv2[0:1] ICP"), {"FP": 0.25, "PG": 0.5}, 22, Memory(1, 2, 3, 4)),
        DeviceFigures(1, "right", ("conv2[1:2] ICP",), {"FP": 0.1, "EB": 0.2, "PG": 0.3}, 30, Memory(5, 6, 7, 8)),
    ),
    (
        LinkFigures(0, 1, {DataPath.ACTIVATIONS: 72, DataPath.PARTIAL_ACTIVATIONS: 96}, 0.125),
        LinkFigures(1, 0, {DataPath.OUTPUT_ERRORS: 96, DataPath.INPUT_ERRORS: 72}, 0.0625),
    ),
)


def history(epochs: int) -> list[EpochResult]:
    """Some epochs."""
    return [
        EpochResult(epoch, 0.1, Tally(4, 2.0 + epoch, 3), Tally(2, 1.0, 1), 100 * epoch, 0.5 * epoch, FIGURES)
        for epoch in range(epochs)
    ]


def record(epochs: int = 2) -> Record:
    """All that a run leaves."""
    random = np.random.default_rng(1)
    return Record(
        config_attributes(Config(learning_rate_steps=(3, 5), out=None), 2, 100),
        {"network": 'name = "é"\n', "mapping": ""},
        versions("none"),
        history_table(history(epochs)),
        device_table(FIGURES if epochs else None),
        link_table(FIGURES if epochs else None),
        {
            "conv1": {"weight": random.random((2, 1, 3, 3), np.float32), "bias": np.zeros(2, np.float32)},
            "fc 2.b": {"weight": random.random((4, 2, 1, 1), np.float32)},
        }
        if epochs
        else {},
    )


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same names and arrays, bit for bit."""
    assert set(found) == set(expected)
    for name, values in expected.items():
        if isinstance(values, dict):
            assert_same(found[name], values)
        else:
            assert np.asarray(found[name]).dtype.kind == np.asarray(values).dtype.kind
            assert np.asarray(found[name]).tobytes() == np.asarray(values).tobytes()


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_round_trip(tmp_path: Path, epochs: int) -> None:
    path = tmp_path / "run.h5"
    written = record(epochs)
    write(path, written)
    found = read(path)
    config = dict(written.config)
    for name, value in config.items():
        if value is None:
            config[name] = ""  # HDF5 has no attribute without a value
    assert_same(found.config, config)
    assert found.descriptions == written.descriptions
    assert found.versions == written.versions
    for name in ("history", "devices", "links", "weights"):
        assert_same(getattr(found, name), getattr(written, name))


def test_columns() -> None:
    table = history_table(history(2))
    assert table["epoch"].tolist() == [1, 2]  # counted from one, for people
    assert table["train_loss"].tolist() == [0.5, 0.75]
    assert table["train_accuracy"].tolist() == [0.75, 0.75]
    assert table["test_accuracy"].tolist() == [0.5, 0.5]
    assert table["virtual_time_ps"].tolist() == [0, 100]
    devices = device_table(FIGURES)
    assert devices["board"].tolist() == ["left", "right"]
    assert devices["slices"].tolist() == ["conv1[0:2] OCP, conv2[0:1] ICP", "conv2[1:2] ICP"]
    assert np.isnan(devices["eb_busy"][0])  # the first layer needs no EB
    assert devices["eb_busy"][1] == 0.2
    assert devices["fp_idle"].tolist() == [0.75, 0.9]
    assert [devices[f"{name}_bytes"].tolist() for name in ("lpram", "lgb", "act_ram")] == [[1, 5], [2, 6], [3, 7]]
    links = link_table(FIGURES)
    assert links["sender"].tolist() == [0, 1]
    assert [links[f"path{number}_bytes"].tolist() for number in range(1, 7)] == [
        [72, 0], [96, 0], [0, 96], [0, 72], [0, 0], [0, 0],
    ]  # fmt: skip


def test_an_epoch_replaces_the_one_before_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    for epochs in (0, 1, 2):
        write(path, record(epochs))
        assert read(path).history["epoch"].tolist() == list(range(1, epochs + 1))
        assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]


def test_what_was_left_by_a_run_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    write(path, record(1))
    for entry in list(tmp_path.iterdir()):
        (tmp_path / f".{entry.name}.partial").write_bytes(b"half a file")
    assert read(path).history["epoch"].tolist() == [1]
    write(path, record(2))
    assert read(path).history["epoch"].tolist() == [1, 2]


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written") as error:
        write(tmp_path / "gone" / "run.h5", record())
    assert len(str(error.value).splitlines()) == 1


def refused(path: Path) -> str:
    """The line with which reading is refused."""
    with pytest.raises(InputError) as error:
        read(path)
    line = str(error.value)
    assert len(line.splitlines()) == 1
    assert line.startswith(f"{path}: ")
    return line


def test_no_file_and_folders_and_other_files(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none.h5")
    assert "no such file" in refused(tmp_path)
    for content in (b"", b"hello", b"\x89HDF\r\n\x1a\n", bytes(5000)):
        (tmp_path / "other").write_bytes(content)
        assert "not a readable results file" in refused(tmp_path / "other")


@pytest.mark.parametrize("mark", [None, 0, 2, "one", 1.5])
def test_another_programs_hdf5(tmp_path: Path, mark: object) -> None:
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        if mark is not None:
            file.attrs["format"] = mark
    assert "not a results file of emuchain" in refused(path)


@pytest.mark.parametrize("group", ["config", "descriptions", "versions", "history", "devices", "links", "weights"])
def test_a_group_that_is_missing(tmp_path: Path, group: str) -> None:
    path = tmp_path / "run.h5"
    write(path, record())
    with h5py.File(path, "r+") as file:
        del file[group]
    assert "not a readable results file" in refused(path)


@pytest.mark.parametrize("place", ["history", "weights", "descriptions", "weights/conv1"])
def test_a_table_for_a_group(tmp_path: Path, place: str) -> None:
    path = tmp_path / "run.h5"
    write(path, record())
    with h5py.File(path, "r+") as file:
        del file[place]
        file[place] = np.arange(3)
    assert "not a readable results file" in refused(path)


@pytest.mark.parametrize("place", ["history/epoch", "weights/conv1/weight", "descriptions/network"])
def test_a_group_for_a_table(tmp_path: Path, place: str) -> None:
    path = tmp_path / "run.h5"
    write(path, record())
    with h5py.File(path, "r+") as file:
        del file[place]
        file.create_group(place)
    refused(path)


@pytest.mark.parametrize("part", [0, 1, 7, 8, 9, 50, 96, 511, 512, 2048, 10**4, -(10**4), -4096, -100, -8, -1])
def test_a_file_that_was_cut_off(tmp_path: Path, part: int) -> None:
    path = tmp_path / "run.h5"
    write(path, record())
    content = path.read_bytes()
    assert len(content) > 2 * 10**4
    path.write_bytes(content[:part])
    refused(path)


NODES = {"tree": b"TREE", "names": b"HEAP", "symbols": b"SNOD"}


@pytest.mark.parametrize("node", NODES)
def test_damaged_nodes(tmp_path: Path, node: str) -> None:
    """Each node of the tree of groups is overwritten at some places, one after the other: a record or one line.

    Not at random places: where a string's reference or the heap of strings is hit, the HDF5 library may never return.
    """
    good, bad = tmp_path / "good.h5", tmp_path / "bad.h5"
    write(good, record(1))
    content = good.read_bytes()
    begins = [match.start() for match in re.finditer(NODES[node], content)]
    assert len(begins) > 5
    outcomes = set()
    places = [(0, 4), (4, 2), (6, 2), (8, 8), (16, 8), (24, 8), (32, 8), (0, 40)]
    for begin, (offset, length) in itertools.product(begins, places):
        damaged = bytearray(content)
        damaged[begin + offset : begin + offset + length] = b"\xff" * length
        bad.write_bytes(damaged)
        try:
            found = read(bad)
        except InputError as error:
            assert len(str(error).splitlines()) == 1
            outcomes.add("refused")
        else:
            assert isinstance(found, Record)
            outcomes.add("read")
    assert "refused" in outcomes


def unwritable(out: str) -> str:
    """The line with which a path is refused."""
    with pytest.raises(InputError) as error:
        check_writable(out)
    line = str(error.value)
    assert len(line.splitlines()) == 1
    assert line.startswith(f"`out` = {out!r}: ")
    return line


def test_a_path_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_writable(str(tmp_path / "run.h5")) == tmp_path / "run.h5"
    assert not list(tmp_path.iterdir())  # trying leaves nothing
    (tmp_path / "run.h5").write_text("old")
    assert check_writable(str(tmp_path / "run.h5")) == tmp_path / "run.h5"
    assert (tmp_path / "run.h5").read_text() == "old"
    monkeypatch.chdir(tmp_path)
    assert check_writable("other.h5") == Path("other.h5")


def test_a_folder_and_a_missing_folder(tmp_path: Path) -> None:
    assert "is a folder" in unwritable(str(tmp_path))
    assert f"{tmp_path / 'none'} does not exist" in unwritable(str(tmp_path / "none" / "run.h5"))
    (tmp_path / "file").touch()
    assert "does not exist" in unwritable(str(tmp_path / "file" / "run.h5"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    path.touch()
    path.chmod(stat.S_IRUSR)
    assert "cannot be written" in unwritable(str(path))
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert "cannot be written" in unwritable(str(tmp_path / "new.h5"))
    finally:
        tmp_path.chmod(stat.S_IRWXU)


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    unwritable(str(tmp_path / name))
