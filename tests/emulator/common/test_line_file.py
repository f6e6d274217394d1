"""Files that grow: what was added is there, and what another link leads to is not touched."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError, LineFile


def test_what_is_added_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    with LineFile(path) as file:
        assert not path.exists()
        file.begin("head\n")
        assert path.read_text() == "head\n"
        for number in range(3):
            file.add(f"{number}\n")
            assert path.read_text() == "head\n" + "".join(f"{each}\n" for each in range(number + 1))
        file.write(b"in order\n")
        assert path.read_text() == "in order\n"
    assert [*tmp_path.iterdir()] == [path]


def test_other_links_keep_what_was_there(tmp_path: Path) -> None:
    path, kept, link = tmp_path / "log.csv", tmp_path / "kept.csv", tmp_path / "link.csv"
    path.write_text("old\n")
    kept.hardlink_to(path)
    link.symlink_to("log.csv")
    with LineFile(link) as file:
        file.begin("new\n")
        file.add("more\n")
    assert kept.read_text() == "old\n"
    assert link.is_symlink() and path.read_text() == "new\nmore\n"


def test_it_goes_on_in_its_own_file_when_another_takes_its_place(tmp_path: Path) -> None:
    path, mine = tmp_path / "log.csv", tmp_path / "mine"
    mine.write_text("mine\n")
    with LineFile(path) as file:
        file.begin("head\n")
        path.unlink()
        path.hardlink_to(mine)
        file.add("more\n")
    assert mine.read_text() == "mine\n"


def test_a_disk_that_is_found_full_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_line: Any
) -> None:
    """As file systems of a network do, which take what is written and find room for it later."""

    class Late(io.FileIO):
        def close(self) -> None:
            if not self.closed:
                super().close()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "log.csv"
    monkeypatch.setattr(os, "fdopen", lambda number, *_, **__: Late(number, "wb"))
    with pytest.raises(InputError) as error, LineFile(path, "log", value="csv:log.csv") as file:
        file.begin("head\n")
    monkeypatch.undo()
    assert one_line(error).startswith(
        "`log` = 'csv:log.csv': cannot be written: No space left on device; "
    )
    assert [*tmp_path.iterdir()] == [path], "and its lock is gone"


def test_a_second_writer_is_refused(tmp_path: Path, one_line: Any) -> None:
    path = tmp_path / "log.csv"
    with LineFile(path) as file:
        file.begin("head\n")
        with pytest.raises(InputError) as error:
            LineFile(path, "log", value="csv:log.csv")
        assert one_line(error).startswith(
            "`log` = 'csv:log.csv': this run writes another file there"
        )
        assert path.read_text() == "head\n"
