"""Each recipe of CONTRIBUTING.md, followed to the letter in a copy: it names all that it needs,
documents included.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .pages import (
    ROOT,
    apply_differences,
    blocks_in,
    extended_package,
    extensions_in,
    extensions_of,
    recipes,
)
from .test_commands import check_python, check_shell

COPIED = (
    "docs",
    "tests/docs",
    "tests/conftest.py",
    "tests/choice.py",
    "tests/durations.json",
    "tests/full_run",
)
COPIED += ("pyproject.toml", "setup.cfg", "mkdocs.yml", *(path.name for path in ROOT.glob("*.md")))
SECTIONS = "tests/docs/test_schedules.py::test_each_schedule_has_a_section_and_a_picture"
COMPARED = ("tests/docs/test_keys.py", SECTIONS)
"""The tests that compare pages with the code."""
WITHOUT_FILES = {"A kind of board", "A data set"}


def copied(folder: Path) -> Path:
    """Return a copy of the checkout with all recipes' files, documents and pictures."""
    extended_package(folder, extensions_of("CONTRIBUTING.md"))
    copy = folder / "emuchain"
    (copy / "tests").mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, copy / name)
    changed = {name for recipe in recipes().values() for name in apply_differences(recipe, copy)}
    for name in changed:
        known = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for line in (copy / name).read_text(encoding="utf-8").splitlines():
            if "--plot" in line and line not in known:
                run([sys.executable, "-m", *line.split()], copy)
    return copy


def run(command: list[str], copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy.parent), "MPLBACKEND": "Agg"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"


def test_each_extension_has_a_recipe() -> None:
    assert list(recipes()) == [
        *(
            "A schedule",
            "An operation",
            "A codec",
            "An optimiser",
            "A number format",
            "A topology",
            "A board",
        ),
        *("A cluster and a network", "A kind of board", "A command", "A paper", "A data set"),
    ]
    for name, recipe in recipes().items():
        assert (name in WITHOUT_FILES) == (
            not extensions_in(blocks_in(recipe, "CONTRIBUTING.md"))
        ), name


@pytest.mark.slow
def test_recipes_name_every_document(tmp_path: Path) -> None:
    run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *COMPARED],
        copied(tmp_path),
    )


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
@pytest.mark.parametrize("name", recipes())
def test_a_recipe_needs_no_other(
    mpiexec: Any,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each is run on its own; `test_commands.py` runs all of them together."""
    packages, folder = tmp_path / "packages", tmp_path / "folder"
    packages.mkdir()
    folder.mkdir()
    monkeypatch.chdir(folder)
    blocks = blocks_in(recipes()[name], f"CONTRIBUTING.md, {name}")
    extensions = extensions_in(blocks)
    if extensions:
        extended_package(packages, extensions)
    for block in blocks:
        for file in block.files.keys() - extensions.keys():
            (folder / file).write_text(block.files[file])
        if block.language == "python":
            check_python(block, {}, capsys)
        else:
            check_shell(block, folder, mpiexec.launcher.parent, packages)
