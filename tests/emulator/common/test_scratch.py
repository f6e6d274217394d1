"""Temporary files: one line says where there is no room for them."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError, scratch_folder


def test_a_folder_is_there_and_then_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder() as folder:
        (folder / "model").mkdir()
        assert [*tmp_path.iterdir()] == [folder]
    assert [*tmp_path.iterdir()] == []


def test_no_room_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_line: Any
) -> None:
    """Such an error names no file: without more, it would be that of standard output."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(InputError) as error, scratch_folder():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    said = (
        f"temporary files in {tmp_path}: cannot be written: No space left on device; free some"
        " room, or name another"
    )
    assert one_line(error) == f"{said} folder by TMPDIR"
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_line: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(InputError) as error, scratch_folder():
        pass
    assert f"temporary files in {tmp_path / 'gone'}: cannot be written: No such file" in one_line(
        error
    )


def test_no_folder_at_all(monkeypatch: pytest.MonkeyPatch, one_line: Any) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(InputError) as error, scratch_folder():
        pass
    assert one_line(error).startswith(
        "temporary files: cannot be written: No usable temporary directory found; "
    )


def test_what_else_fails_is_not_blamed_on_it() -> None:
    with pytest.raises(FileNotFoundError), scratch_folder() as folder:
        (folder / "none").read_bytes()
