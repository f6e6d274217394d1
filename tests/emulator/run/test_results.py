"""Results files: what is written is read again, and a damaged file gives one line or readable
results.
"""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.emulator.common import InputError, WholeFile
from emuchain.emulator.config import Config, load_config
from emuchain.emulator.device import Tally
from emuchain.emulator.mapping import DataPath
from emuchain.emulator.plan import make_plan
from emuchain.emulator.run import (
    DeviceUsage,
    EpochRecord,
    LinkUsage,
    MemoryUsage,
    Results,
    Usage,
    history_table,
    read_results,
    results_of,
    versions,
    write_results,
)
from emuchain.emulator.run.results.schema import device_table, link_table

USAGE = Usage(
    12_345,
    (
        DeviceUsage(
            0,
            "left",
            ("conv1[0:2] OCP", "conv2[0:1] ICP"),
            {"FP": 0.25, "PG": 0.5},
            22,
            MemoryUsage(1, 2, 3, 4),
        ),
        DeviceUsage(
            1,
            "right",
            ("conv2[1:2] ICP",),
            {"FP": 0.1, "EB": 0.2, "PG": 0.3},
            30,
            MemoryUsage(5, 6, 7, 8),
        ),
    ),
    (
        LinkUsage(0, 1, {DataPath.ACTIVATIONS: 72, DataPath.PARTIAL_ACTIVATIONS: 96}, 0.125),
        LinkUsage(1, 0, {DataPath.OUTPUT_ERRORS: 96, DataPath.INPUT_ERRORS: 72}, 0.0625),
    ),
)


def history(epochs: int) -> list[EpochRecord]:
    """Some epochs."""
    return [
        EpochRecord(
            epoch, 0.1, Tally(4, 2.0 + epoch, 3), Tally(2, 1.0, 1), 100 * epoch, 0.5 * epoch, USAGE
        )
        for epoch in range(epochs)
    ]


def results(epochs: int = 2) -> Results:
    """All that a run leaves."""
    random = np.random.default_rng(1)
    return Results(
        {**Config(out=None).model_dump(), "some_list": (3, 5), "devices": 2, "samples": 100},
        {"network": 'name = "é"\n', "mapping": ""},
        versions("none"),
        history_table(history(epochs)),
        device_table(USAGE if epochs else None),
        link_table(USAGE if epochs else None),
        (
            {
                "conv1": {
                    "weight": random.random((2, 1, 3, 3), np.float32),
                    "bias": np.zeros(2, np.float32),
                },
                "fc 2.b": {"weight": random.random((4, 2, 1, 1), np.float32)},
            }
            if epochs
            else {}
        ),
        messages={
            **{name: np.array([-1, -1]) for name in ("replica", "device", "block")},
            "value_bytes": np.array([8, 16]),
            "compressed_bytes": random.integers(
                1, 9, size=(2 * epochs, 2), dtype=np.uint32
            ),  # 100 samples by 64
        },
    )


def unseal(file: h5py.File) -> None:
    """Make a file one of an earlier version, without a digest; so its changes are not seen as
    such.
    """
    file.attrs["format"] = np.int64(1)
    del file.attrs["digest"]


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
    written = results(epochs)
    write_results(path, written)
    found = read_results(path)
    config = dict(written.config)
    for name, value in config.items():
        if value is None:
            config[name] = ""  # HDF5 has no attribute without a value
    assert_same(found.config, config)
    assert found.descriptions == written.descriptions
    assert found.versions == written.versions
    for name in ("history", "devices", "links", "messages", "weights"):
        assert_same(getattr(found, name), getattr(written, name))


def test_a_column_of_earlier_versions(tmp_path: Path) -> None:
    """`compressed_bytes` was called `made_bytes`."""
    path = tmp_path / "run.h5"
    names = ("epoch", "value_bytes", "device_ps", "width_0", "width_8", "width_16", "width_32")
    exchange = {
        "compressed_bytes": np.array([7], np.int64),
        **{name: np.array([1], np.int64) for name in names},
    }
    write_results(path, dataclasses.replace(results(1), exchange=exchange))
    with h5py.File(path, "a") as file:
        file.move("exchange/compressed_bytes", "exchange/made_bytes")
        unseal(file)
    assert read_results(path).exchange["compressed_bytes"].tolist() == [7]


def test_usage_is_read_from_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results(0))
    assert read_results(path).usage is None
    write_results(path, results(2))
    assert read_results(path).usage == dataclasses.replace(USAGE, virtual_time_ps=100)


def test_columns() -> None:
    table = history_table(history(2))
    assert table["epoch"].tolist() == [1, 2]  # counted from one, for people
    assert table["train_loss"].tolist() == [0.5, 0.75]
    assert table["train_accuracy"].tolist() == [0.75, 0.75]
    assert table["test_accuracy"].tolist() == [0.5, 0.5]
    assert table["virtual_time_ps"].tolist() == [0, 100]
    devices = device_table(USAGE)
    assert devices["board"].tolist() == ["left", "right"]
    assert devices["slices"].tolist() == ["conv1[0:2] OCP, conv2[0:1] ICP", "conv2[1:2] ICP"]
    assert np.isnan(devices["eb_busy"][0])  # the first layer needs no EB
    assert devices["eb_busy"][1] == 0.2
    assert devices["fp_idle"].tolist() == [0.75, 0.9]
    assert [devices[f"{name}_bytes"].tolist() for name in ("lpram", "lgb", "act_ram")] == [
        [1, 5],
        [2, 6],
        [3, 7],
    ]
    links = link_table(USAGE)
    assert links["sender"].tolist() == [0, 1]
    assert [links[f"path{number}_bytes"].tolist() for number in range(1, 7)] == [
        [72, 0], [96, 0], [0, 96], [0, 72], [0, 0], [0, 0],
    ]  # fmt: skip


def test_what_the_configuration_left_open_is_filled_in(plan_of: Any) -> None:
    plan = plan_of(network="quick-cifar", schedule="sync", compress="truncate:16")
    assert plan.config.devices is None
    found = results_of(plan, 100, history(2), {}, versions("none"))
    assert (found.config["devices"], found.config["samples"]) == (1, 100)
    assert (found.config["schedule"], found.config["compress"]) == ("sync", "truncate:16")
    assert found.descriptions["network.toml"] == plan.network.text
    assert (found.epochs, found.virtual_time_ps) == (2, 100)
    replicated = make_plan(
        load_config(None, {"schedule": "data-parallel-ring"}), 4
    )  # one device on each of four ranks
    assert results_of(replicated, 100, history(1), {}, versions("none")).config["devices"] == 4


def test_an_epoch_replaces_the_one_before_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    for epochs in (0, 1, 2):
        write_results(path, results(epochs))
        assert read_results(path).history["epoch"].tolist() == list(range(1, epochs + 1))
        assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]


def test_what_a_killed_run_left_disturbs_no_other_run(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results(1))
    for entry in list(tmp_path.iterdir()):
        (tmp_path / f".{entry.name}.partial").write_bytes(b"half a file")
    assert read_results(path).history["epoch"].tolist() == [1]
    write_results(path, results(2))
    assert read_results(path).history["epoch"].tolist() == [1, 2]


def test_a_folder_that_is_gone(tmp_path: Path, one_line: Any) -> None:
    with pytest.raises(InputError) as error:
        write_results(tmp_path / "gone" / "run.h5", results())
    assert f"{tmp_path / 'gone'} does not exist" in one_line(error)


Refused = Callable[[Path], str]
Unwritable = Callable[[str], str]


@pytest.fixture
def refused(one_line: Any) -> Refused:
    """Returns the line with which reading is refused."""

    def read(path: Path) -> str:
        with pytest.raises(InputError) as error:
            read_results(path)
        line = one_line(error)
        assert line.startswith(f"{path}: ")
        return line

    return read


def test_no_file_and_folders_and_other_files(tmp_path: Path, refused: Refused) -> None:
    assert "no such file" in refused(tmp_path / "none.h5")
    assert "is a folder" in refused(tmp_path)
    contents = {
        b"": "an empty file",
        b"hello": "a text file",
        bytes(5000): "a file of a kind that emuchain does not know",
    }
    for content, kind in contents.items():
        (tmp_path / "other").write_bytes(content)
        assert f"not a results file of emuchain, but {kind};" in refused(tmp_path / "other")
    (tmp_path / "other").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert "not a readable results file" in refused(tmp_path / "other")


@pytest.mark.parametrize("mark", [None, 0, 3, "one", 1.5])
def test_another_programs_hdf5(tmp_path: Path, refused: Refused, mark: object) -> None:
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        if mark is not None:
            file.attrs["format"] = mark
    assert "not a results file of emuchain" in refused(path)


def test_a_file_that_is_being_written(tmp_path: Path, refused: Refused) -> None:
    """By a program that has it open; a file whose writer died bears a mark of that."""
    path = tmp_path / "run.h5"
    write_results(path, results())
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert (
            "another program has it open for writing, and HDF5 has locked it; close it there"
            in refused(path)
        )
    script = (
        f"import h5py, os; f = h5py.File({str(path)!r}, 'r+', libver='latest'); f.swmr_mode = True;"
        " os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert f"`h5clear --status {path}` unlocks it" in refused(path)


@pytest.mark.parametrize("mark", [0, 3, "one", "a\nb", 1.5])
def test_results_of_another_version(tmp_path: Path, refused: Refused, mark: object) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results())
    with h5py.File(path, "r+") as file:
        file.attrs["format"] = mark
    assert (
        f"of another version of emuchain (format {mark!r}, not 2); read it with that version"
        in refused(path)
    )


@pytest.mark.parametrize(
    "group", ["config", "descriptions", "versions", "history", "devices", "links", "weights"]
)
def test_a_group_that_is_missing(tmp_path: Path, refused: Refused, group: str) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results())
    with h5py.File(path, "r+") as file:
        del file[group]
        unseal(file)
    assert "not a readable results file" in refused(path)


@pytest.mark.parametrize("place", ["history", "weights", "descriptions", "weights/conv1"])
def test_a_table_for_a_group(tmp_path: Path, refused: Refused, place: str) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results())
    with h5py.File(path, "r+") as file:
        del file[place]
        file[place] = np.arange(3)
        unseal(file)
    assert "not a readable results file" in refused(path)


@pytest.mark.parametrize("place", ["history/epoch", "weights/conv1/weight", "descriptions/network"])
def test_a_group_for_a_table(tmp_path: Path, refused: Refused, place: str) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results())
    with h5py.File(path, "r+") as file:
        del file[place]
        file.create_group(place)
        unseal(file)
    refused(path)


@pytest.mark.parametrize(
    "part", [0, 1, 7, 8, 9, 50, 96, 511, 512, 2048, 10**4, -(10**4), -4096, -100, -8, -1]
)
def test_a_file_that_was_cut_off(tmp_path: Path, refused: Refused, part: int) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results())
    content = path.read_bytes()
    assert len(content) > 10**4
    path.write_bytes(content[:part])
    refused(path)


NODES = {"objects": b"OHDR", "continued": b"OCHK", "heap": b"FHDB", "tree": b"BTLF"}


@pytest.mark.parametrize("node", NODES)
def test_damaged_nodes(tmp_path: Path, node: str) -> None:
    """Each kind of node is overwritten at some places, one after the other: what was written, or
    one line.

    Not at random places: where a string's reference or the heap of strings is hit, the HDF5 library
    may never return.
    """
    good, bad = tmp_path / "good.h5", tmp_path / "bad.h5"
    write_results(good, results(1))
    content, whole = good.read_bytes(), read_results(good)
    begins = [match.start() for match in re.finditer(NODES[node], content)][:8]
    assert len(begins) > 5
    outcomes = set()
    places = [(0, 4), (4, 2), (6, 2), (8, 8), (16, 8), (24, 8), (32, 8), (0, 40)]
    for begin, (offset, length) in itertools.product(begins, places):
        damaged = bytearray(content)
        damaged[begin + offset : begin + offset + length] = b"\xff" * length
        bad.write_bytes(damaged)
        try:
            found = read_results(bad)
        except InputError as error:
            assert len(str(error).splitlines()) == 1
            outcomes.add("refused")
        else:
            assert_same(dataclasses.asdict(found), dataclasses.asdict(whole))
    assert "refused" in outcomes


@pytest.fixture
def unwritable(one_line: Any) -> Unwritable:
    """Returns the line with which a path is refused."""

    def check(out: str) -> str:
        with pytest.raises(InputError) as error:
            WholeFile(out)
        line = one_line(error)
        assert line.startswith(f"`out` = {out!r}: "[:60])  # of a long one, its ends are quoted
        return line

    return check


def test_a_path_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with WholeFile(str(tmp_path / "run.h5")) as file:
        assert file.path == tmp_path / "run.h5"
    assert not list(tmp_path.iterdir())  # trying leaves nothing
    (tmp_path / "run.h5").write_text("old")
    with WholeFile(str(tmp_path / "run.h5")):
        pass
    assert (tmp_path / "run.h5").read_text() == "old"
    monkeypatch.chdir(tmp_path)
    with WholeFile("other.h5") as file:
        assert file.path == Path("other.h5")


def test_a_folder_and_a_missing_folder(tmp_path: Path, unwritable: Unwritable) -> None:
    assert "is a folder" in unwritable(str(tmp_path))
    assert f"{tmp_path / 'none'} does not exist" in unwritable(str(tmp_path / "none" / "run.h5"))
    (tmp_path / "file").touch()
    assert "does not exist" in unwritable(str(tmp_path / "file" / "run.h5"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only(tmp_path: Path, unwritable: Unwritable) -> None:
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
def test_names_that_no_file_can_have(tmp_path: Path, unwritable: Unwritable, name: str) -> None:
    unwritable(str(tmp_path / name))
