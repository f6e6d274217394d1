"""The files that settings name: one that is written is none that is read, and no other that is
written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError, NamedFiles, Reads, Writes, in_folder

READ, WRITTEN = Reads("a file of the data"), Writes()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file `in.h5`, links to it, and a link to itself."""
    monkeypatch.chdir(tmp_path)
    Path("in.h5").write_text("images")
    Path("symbolic").symlink_to("in.h5")
    Path("hard").hardlink_to("in.h5")
    Path("here").symlink_to(".")
    return tmp_path


def files(*settings: tuple[str, object, Reads | Writes]) -> NamedFiles:
    found = NamedFiles()
    for setting in settings:
        found.add(*setting)
    return found


def refused(one_line: Any, *settings: tuple[str, object, Reads | Writes]) -> str:
    with pytest.raises(InputError) as error:
        files(*settings).check()
    line: str = one_line(error)
    return line


@pytest.mark.parametrize("read", ["in.h5", "symbolic", "hard"])
@pytest.mark.parametrize(
    "written", ["in.h5", "./in.h5", "symbolic", "hard", "here/in.h5", "here/here/hard"]
)
def test_every_way_to_a_file(one_line: Any, read: str, written: str) -> None:
    line = refused(one_line, ("data", read, READ), ("out", Path(written), WRITTEN))
    assert line.startswith(f"`out` = '{Path(written)}'")
    assert f": is a file of the data, which `data` = '{read}' names; give another path" in line


def test_an_open_file_has_ways_to_it(one_line: Any) -> None:
    with open("in.h5") as file:
        assert "`data`" in refused(
            one_line, ("data", f"/proc/self/fd/{file.fileno()}", READ), ("out", "in.h5", WRITTEN)
        )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("new.h5", "./new.h5"),
        ("here/new.h5", "new.h5"),
        ("dangling", "none"),
        ("no/new.h5", "here/no/new.h5"),
    ],
)
def test_two_outputs_that_are_not_there_yet(one_line: Any, one: str, other: str) -> None:
    Path("dangling").symlink_to("none")
    line = refused(one_line, ("out", one, WRITTEN), ("trace", other, WRITTEN))
    assert (
        line
        == f"`trace` = '{other}': this run writes another file there, that of `out` = '{one}'; give"
        " each file a name of its own"
    )


def test_two_outputs_that_are_there(one_line: Any) -> None:
    assert "`log` = 'hard'" in refused(
        one_line, ("out", "in.h5", WRITTEN), ("log", "hard", WRITTEN)
    )


def test_what_differs(folder: Path) -> None:
    Path("other.h5").write_text("images")
    Path("no").mkdir()
    files(
        *(("data", each, READ) for each in ("in.h5", "none", "", "a\0b", "x" * 5000, ".")),
        *(("out", each, WRITTEN) for each in ("other.h5",)),
        *((f"to{each}", each, WRITTEN) for each in ("new.h5", "no/new.h5", "y" * 5000, "in.h5/x")),
        ("folder", ".", Writes(lambda value: (value,))),
    ).check()


def test_no_output_has_a_character_0(one_line: Any) -> None:
    assert "holds a character 0" in refused(one_line, ("out", "a\0c", WRITTEN))


def test_what_is_no_text_and_no_path_names_nothing() -> None:
    files(
        ("data", None, READ),
        ("data", {"in.h5": 1}, READ),
        ("out", "in.h5", WRITTEN),
        ("out", 3, WRITTEN),
    ).check()


def test_several_values(one_line: Any) -> None:
    assert "`network` = 'hard' names" in refused(
        one_line, ("network", ("none", ["x", "hard"]), READ), ("csv", "in.h5", WRITTEN)
    )


def test_a_file_may_take_the_place_of_what_it_goes_on_from(one_line: Any) -> None:
    next_one = Writes(goes_on="resume")
    files(("resume", "in.h5", READ), ("checkpoint", "hard", next_one)).check()
    assert "`data`" in refused(
        one_line,
        ("resume", "in.h5", READ),
        ("data", "in.h5", READ),
        ("checkpoint", "hard", next_one),
    )


@pytest.mark.parametrize("name", [".run.h5.lock", ".run.h5.0123abcd.partial"])
def test_files_beside_an_output_are_touched_with_it(one_line: Any, name: str) -> None:
    """A lock, and what a killed writer left, which goes when the next one starts."""
    Path(name).write_text("mine")
    line = refused(one_line, ("init", name, READ), ("out", "run.h5", WRITTEN))
    assert line.startswith(f"`out` = 'run.h5' ({os.path.realpath(name)}): is a file of the data")


def test_a_folder_is_written_by_the_files_in_it(one_line: Any) -> None:
    Path("rtl").mkdir()
    Path("rtl/tile.sv").symlink_to("../in.h5")
    Path("rtl/notes.txt").hardlink_to("in.h5")
    line = refused(one_line, ("network", "in.h5", READ), ("out", "rtl", Writes(in_folder("*.sv"))))
    assert line.startswith("`out` = 'rtl' (rtl/tile.sv): is ")
    Path("rtl/tile.sv").unlink()
    files(("network", "in.h5", READ), ("out", "rtl", Writes(in_folder("*.sv")))).check()


def test_what_cannot_be_known_is_left_to_who_reads_it() -> None:
    def damaged(_: str) -> Any:
        raise InputError("damaged")

    files(
        ("network", "in.h5", Reads("a network's file", damaged)), ("out", "in.h5", WRITTEN)
    ).check()
