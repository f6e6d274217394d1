"""`tests/attack/names`, `same-files` and `planted`: a part of each, and that they find what may not
happen.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import types

import pytest

from .conftest import ATTACK, Load


@pytest.fixture
def names(load: Load) -> types.ModuleType:
    """The script as a module."""
    return load("names")


@pytest.mark.parametrize(
    ("script", "only"),
    [
        ("names", "a layer"),
        ("same-files", "pipeline"),
        ("same-files", "launch -- train --seeds"),
        ("planted", "show"),
    ],
)
def test_nothing_ends_as_none_may(script: str, only: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("onnx")
    done = subprocess.run(
        [sys.executable, ATTACK / script, "--only", only],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("all: ")


@pytest.mark.parametrize(
    ("name", "plain", "obeyed"),
    [
        ("a.sv", "// a\nmodule b;", '// a\n$system("x");\nmodule b;'),
        ("a.html", "<p>a</p>", "<p>a<script>b</script></p>"),
        ("a.csv", "a,'=1", "a,=1+1"),
        ("a.svg", "<svg/>", "<svg>\x1b</svg>"),
        ("a.json", "{}", "{'}"),
    ],
)
def test_files_in_which_a_name_is_more_than_text(
    names: types.ModuleType,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    plain: str,
    obeyed: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    forms: dict[tuple[int, str], object] = {}
    pathlib.Path(name).write_text(plain)
    assert names._judged(0, 0, "said\n", forms, is_plain=True) == "taken"
    assert names._judged(0, 2, "said\n", forms, is_plain=False) == "refused"
    pathlib.Path(name).write_text(obeyed)
    assert name in names._judged(0, 0, "said\n", forms, is_plain=False)


@pytest.mark.parametrize(
    "said", ["\x1b[31m", "a\rb", "\x9b1m", "emuchain: internal error: x", "Traceback"]
)
def test_what_may_not_be_printed(
    names: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert names._judged(0, 0, said, {}, is_plain=False) not in ("taken", "refused")


def test_what_a_name_has_run(
    names: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("ran").touch()
    assert names._judged(0, 0, "", {}, is_plain=False) == "ran"


@pytest.fixture
def limits(load: Load) -> types.ModuleType:
    """The module of limits."""
    return load("limits.py")


def test_what_takes_too_long_is_ended(
    limits: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CALL_CPU_S", 0.1)
    with (
        pytest.raises(TimeoutError, match="takes more than 0.1 s of processor time"),
        limits.limited(),
    ):
        while True:
            pass


def test_what_takes_too_much_memory_is_ended(limits: types.ModuleType) -> None:
    with pytest.raises(MemoryError), limits.limited():
        bytearray(limits.MOST_BYTES)
