"""The current folder: modules, programs and settings in it that nobody asked for are not obeyed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import emuchain
from emuchain.kernels import away_from, find_program, python_command, safe_environment, warm
from emuchain.kernels.current_folder import _BOOT, SEARCH_PATHS, clean_environment
from emuchain.kernels.jit import compiled

MODULES = (
    *(
        "numpy",
        "emuchain",
        "sitecustomize",
        "usercustomize",
        "runpy",
        "mpi4py/__init__",
        "h5py",
        "numba",
        "llvmlite",
    ),
    *("conftest", "concurrent", "multiprocessing/__init__", "mpl_toolkits", "PIL/__init__"),
    *(
        "pydantic/__init__",
        "click",
        "rich/__init__",
        "lazy_loader",
        "matplotlib/__init__",
        "yaml",
        "json",
        "platform",
    ),
)
PROGRAMS = (
    "mpiexec",
    "python",
    "python3",
    "git",
    "cc",
    "uname",
    "verilator",
    "verilator_bin",
    "g++",
    "ar",
    "as",
    "ld",
    "yosys",
    "fc-list",
    "sh",
)

NETWORK = """
name = "small"
input = [3, 32, 32]
layers = [{type = "conv", channels = 2, kernel = 3, stride = 4}, {type = "fc", features = 10}, {type = "softmax"}]
"""
SHORT = [
    "train",
    "n.toml",
    "--samples",
    "32",
    "--test-samples",
    "4",
    "--batch",
    "16",
    "--progress",
    "none",
]


class Planted:
    """A folder of programs, modules and settings that leave a mark where they are obeyed."""

    def __init__(self, folder: Path, mark: Path) -> None:
        self.folder, self._mark = folder, mark
        for name in MODULES:
            module = folder / f"{name}.py"
            module.parent.mkdir(exist_ok=True, parents=True)
            module.write_text(f"open({str(mark)!r}, 'a').write('module {name}\\n')\n")
        for name in PROGRAMS:
            (folder / name).write_text(f"#!/bin/sh\necho program {name} >> {mark}\nexit 77\n")
            (folder / name).chmod(0o755)
        (folder / "n.toml").write_text(NETWORK)
        (folder / ".numba_config.yaml").write_text("- not a mapping, with which Numba fails\n")
        (folder / "ucx.conf").write_text(f"UCX_MODULE_DIR={folder}\n")

    @property
    def obeyed(self) -> str:
        """What has left a mark."""
        return self._mark.read_text() if self._mark.exists() else ""

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command there, with the current folder on the path of programs."""
        path = os.pathsep.join([".", "", os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, **variables}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    (tmp_path / "there").mkdir()
    return Planted(tmp_path / "there", tmp_path / "mark")


def test_the_plants_work(planted: Planted) -> None:
    """A guard against a test that shows nothing."""
    planted.run(sys.executable, "-c", "import numpy")
    planted.run("uname")
    assert planted.obeyed == "module numpy\nprogram uname\n"


def test_ranks_that_a_command_starts(planted: Planted, mpiexec) -> None:  # type: ignore[no-untyped-def]  # a fixture
    program = str(mpiexec.python.parent / "emuchain")
    if not Path(program).exists():
        pytest.skip("emuchain is not installed in this environment")
    done = planted.run(program, "launch", "-n", "2", "--", *SHORT, "--out", "run.h5")
    assert done.returncode == 0, done.stderr
    assert (planted.folder / "run.h5").exists()
    assert planted.obeyed == ""


@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "n.toml", "--devices", "1-4", "--jobs", "2", "--csv", "s.csv", "--plot", "s.png"],
        ["simulate", "n.toml", "--samples", "4", "--trace", "t.json", "--plot", "s.svg"],
        ["rtl", "n.toml", "--out", "rtl"],
    ],
)
@pytest.mark.parametrize(
    "folders", [("",), ("", "{kept}"), (".", "{kept}"), ("../there", "{kept}", "")]
)
@pytest.mark.parametrize("program", ["module", "script"])
def test_commands_and_their_workers(
    planted: Planted, program: str, folders: tuple[str, ...], words: list[str]
) -> None:
    """In workers, at pictures, where Python asks the system what it is, and where tools are looked
    for.

    An empty entry of PYTHONPATH is the current folder: `PYTHONPATH=$PYTHONPATH:/mine` makes one.
    What Python itself imports from there, ahead of emuchain, is not ours to leave out.
    """
    for name in ("runpy.py", "emuchain.py", "sitecustomize.py", "usercustomize.py"):
        (planted.folder / name).unlink()
    (kept := planted.folder.parent / "kept").mkdir()
    path = os.pathsep.join([*folders, *python_path()]).format(kept=kept)
    script = Path(sysconfig.get_path("scripts"), "emuchain")
    if program == "script" and not script.exists():
        pytest.skip("emuchain is not installed in this environment")
    begin = [sys.executable, "-m", "emuchain"] if program == "module" else [str(script)]
    done = planted.run(*begin, *words, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert planted.obeyed == ""


def test_the_warming_of_kernels(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.compile_all()
    monkeypatch.chdir(planted.folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "there", *python_path()]))
    assert warm._start(1, 2).wait(300) == 0
    assert planted.obeyed == ""


def test_python_with_the_current_folder_in_its_way(planted: Planted) -> None:
    """`python -m emuchain` finds `runpy` and `emuchain` there first, which are Python's; then
    nothing more.
    """
    for name in ("runpy.py", "emuchain.py"):
        (planted.folder / name).unlink()
    done = planted.run(
        sys.executable, "-m", "emuchain", *SHORT, PYTHONPATH=os.pathsep.join(python_path())
    )
    assert done.returncode == 0, done.stderr
    assert planted.obeyed == ""


@pytest.mark.parametrize("words", [["-P", "-m"], ["-c", _BOOT]])
def test_a_module_is_run_with_its_arguments(planted: Planted, words: list[str]) -> None:
    """Under each Python: the first needs 3.11, the second serves 3.10."""
    if words[0] == "-P" and sys.version_info < (3, 11):
        pytest.skip("needs Python 3.11")
    found = planted.run(sys.executable, *words, "emuchain", "network", "n.toml", "--toml")
    assert (found.returncode, found.stdout) == (0, NETWORK), found.stderr
    assert planted.obeyed == ""


def test_the_command_of_a_module() -> None:
    command = python_command("emuchain", "train", "x")
    assert (command[0], command[-3:]) == (sys.executable, ["emuchain", "train", "x"])
    assert command[1] == ("-P" if sys.version_info >= (3, 11) else "-c")


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("/usr/bin:/bin", "/usr/bin:/bin"),
        (":/usr/bin", "/usr/bin"),
        ("/usr/bin:", "/usr/bin"),
        (".:/usr/bin::bin:../bin:~/bin:/bin", "/usr/bin:/bin"),
    ],
)
def test_search_paths_keep_absolute_folders(given: str, safe: str) -> None:
    for name in SEARCH_PATHS:
        assert safe_environment({name: given, "HOME": "."}) == {name: safe, "HOME": "."}


def test_an_empty_search_path_is_none_at_all() -> None:
    """To the system, an empty one of libraries may be the current folder; an empty PATH is that of
    no programs.
    """
    empty = dict.fromkeys(SEARCH_PATHS, ".:")
    assert safe_environment(empty) == {"PATH": ""}


def test_programs_are_found_in_absolute_folders(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planted.folder)
    monkeypatch.setenv("PATH", f".::there:{os.defpath}:")
    assert find_program("sh") == shutil.which("sh", path=os.defpath)
    assert find_program("fc-list-of-nobody") is None
    monkeypatch.setenv("PATH", ".:")
    assert find_program("sh") is None
    assert find_program("./sh") == str(planted.folder / "sh")


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """Leave environment and path of modules as they are now."""
    environment, path = dict(os.environ), [*sys.path]
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path


def test_a_command_cleans_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with as_before():
        os.environ.update(
            PATH=f":{os.defpath}", PYTHONPATH=f":sub:{os.sep}kept", LD_LIBRARY_PATH=":", HOME="home"
        )
        clean_environment()
        assert (os.environ["PATH"], os.environ["PYTHONPATH"]) == (os.defpath, f"{os.sep}kept")
        assert ("LD_LIBRARY_PATH" in os.environ, os.environ["HOME"]) == (False, "home")


@pytest.mark.parametrize(
    ("started", "named", "left"),
    [
        ("-m", "", []),
        ("-m", ":{there}/kept", ["{there}/kept"]),
        ("-m", "sub:.", []),
        ("-m", "sub:{there}/sub", ["{there}/sub", "{there}/sub"]),
        ("/usr/bin/emuchain", ":{there}/kept", ["/usr/bin", "{there}/kept"]),
        ("/home/me/study.py", ":{there}/kept", ["/home/me", "{there}", "{there}/kept"]),
    ],
)
def test_where_modules_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: str, named: str, left: list[str]
) -> None:
    """Not where relative entries of PYTHONPATH say, unless it names the folder by its whole path,
    too.
    """
    monkeypatch.chdir(tmp_path)
    named, own = (
        named.format(there=tmp_path),
        [str(tmp_path) if started == "-m" else os.path.dirname(started)],
    )
    monkeypatch.setattr(sys, "argv", [started])
    with as_before():
        os.environ["PYTHONPATH"] = named
        folders = [os.path.abspath(folder) for folder in named.split(os.pathsep)] if named else []
        python = [folder for folder in sys.path if folder.startswith(sys.prefix)]
        sys.path[:] = [*own, *folders, *python]
        spec = importlib.util.spec_from_file_location("emuchain_again", emuchain.__file__)
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        assert sys.path == [*(folder.format(there=tmp_path) for folder in left), *python]


def test_files_of_settings_are_left_behind(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planted.folder)
    with away_from("ucx.conf"):
        assert not Path("ucx.conf").exists()
    with away_from("another.conf"):
        assert Path("ucx.conf").exists()
    with pytest.raises(ZeroDivisionError), away_from("ucx.conf"):
        _ = 1 / 0
    assert Path.cwd() == planted.folder


@pytest.mark.parametrize(
    "settings", ["- a list, with which Numba fails\n", "opt: 0\ncpu_name: nonsense\n"]
)
def test_kernels_are_compiled_without_settings_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    from numba.core import config

    monkeypatch.chdir(tmp_path)
    (tmp_path / ".numba_config.yaml").write_text(settings)
    before = config.OPT, config.CPU_NAME
    assert compiled(_sum)._compile((np.arange(4),)).result == "int64"
    assert before == (config.OPT, config.CPU_NAME)


def _sum(values: np.ndarray) -> int:  # a kernel
    total = 0
    for value in values:
        total += value
    return total


def python_path() -> list[str]:
    """The folders that the user put on Python's path, of which none is the planted one."""
    return [
        folder
        for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if os.path.isabs(folder)
    ]


def test_the_scripts_folder_holds_no_module() -> None:
    """The console script's own folder is what Python searches first for it: of an absolute program,
    not of a person.
    """
    scripts = Path(sysconfig.get_path("scripts"))
    assert not [path for path in scripts.glob("*.py") if path.stem in MODULES]


def test_what_a_child_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of a helper takes the cleaned environment, and the command without the current
    folder.
    """
    taken: list[tuple[list[str], dict[str, str]]] = []

    def note(command: list[str], **how: Callable[..., object]) -> None:
        taken.append((command, how["env"]))  # type: ignore[arg-type]

    monkeypatch.setattr(subprocess, "Popen", note)
    monkeypatch.setenv("PATH", f".:{os.defpath}")
    warm._start(1, 2)
    [(command, environment)] = taken
    assert command == python_command("emuchain.kernels.warm", "1", "2")
    assert environment["PATH"] == os.defpath


COMPILE = """
import os, sys
import numpy as np
os.rmdir(os.getcwd())
from emuchain.kernels.fifo import serve
print(serve(np.ones((2, 2), np.int64), 1, 0))
"""


def test_kernels_are_compiled_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    """For its messages, Numba asks for the folder's name."""
    folder = tmp_path / "gone"
    folder.mkdir()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cold")}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_folder_that_is_gone_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with away_from("ucx.conf"):
        assert os.getcwd() == "/"
    with pytest.raises(FileNotFoundError):
        os.getcwd()
