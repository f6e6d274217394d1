"""The commands of README.md and docs/ run, and print what is shown; so does the Python of
docs/python.md.
"""

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from .pages import PAGES, Block, blocks_of, extended_package, extensions_of

COMMAND_TIMEOUT_S = 240
WITH_CODE = [page for page in PAGES if any(block.skipped is None for block in blocks_of(page))]


def run_shell(
    commands: str, folder: Path, binaries: Path, packages: Path
) -> subprocess.CompletedProcess[str]:
    """Run commands as a person would, the environment's programs first; nothing of them outlives
    the call.

    `packages` may have a copy of emuchain with extensions.
    """
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    if any(packages.iterdir()):
        environment["PYTHONPATH"] = str(packages)
    environment |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    out, err = folder / ".stdout", folder / ".stderr"
    with out.open("w") as out_file, err.open("w") as err_file:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            start_new_session=True,
        )
        try:
            status = process.wait(COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            below = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGKILL)
            for child in below:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            status = process.wait()
    return subprocess.CompletedProcess(commands, status, out.read_text(), err.read_text())


def check_shell(block: Block, folder: Path, binaries: Path, packages: Path) -> str:
    """Run a block of commands; return what it printed."""
    finished = run_shell(block.code, folder, binaries, packages)
    report = (
        f"{block.page}:{block.line}\n{block.code}--- printed\n{finished.stdout}---"
        f" and\n{finished.stderr}"
    )
    assert finished.returncode == 0, f"status {finished.returncode}: {report}"
    assert "Traceback" not in finished.stdout + finished.stderr, report
    return finished.stdout


def check_python(block: Block, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a block of Python after those before it, which have left these names; return what it
    printed.
    """
    exec(compile("\n" * (block.line - 1) + block.code, block.page, "exec"), names)
    return capsys.readouterr().out


ALWAYS = ("README.md", "CONTRIBUTING.md")
SAMPLED = pytest.mark.sampled(4)
"""Of the other pages one in four is run; scripts/test --all runs every one."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
@pytest.mark.parametrize(
    "page", [page if page in ALWAYS else pytest.param(page, marks=SAMPLED) for page in WITH_CODE]
)
def test_code_runs_as_shown(
    mpiexec: Any,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    page: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    packages = tmp_path_factory.mktemp("packages")
    extensions = extensions_of(page)
    if extensions:
        extended_package(packages, extensions)
    names: dict[str, Any] = {}
    for block in blocks_of(page):
        for name in block.files.keys() - extensions.keys():
            (tmp_path / name).write_text(block.files[name])
        if block.skipped is not None:
            continue
        if block.needs is not None:
            pytest.importorskip(block.needs)
        if block.language == "python":
            printed = check_python(block, names, capsys)
        else:
            printed = check_shell(block, tmp_path, mpiexec.launcher.parent, packages)
        for line in block.lines:
            assert line in printed.splitlines(), (
                f"{page}:{block.line}: {line!r} is not printed:\n{printed}"
            )


def test_pages_with_code() -> None:
    """All of these have some; a page that loses its code to a changed fence would go unnoticed."""
    assert set(WITH_CODE) >= {
        "README.md",
        "CONTRIBUTING.md",
        "docs/tour.md",
        "docs/python.md",
        "docs/configuration.md",
    }
