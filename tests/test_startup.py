"""Start-up: what each rank imports, reads and compiles; a cold cache, no cache, and wrong
settings.
"""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.data import shapes
from emuchain.emulator.run.epochs import SharedData
from emuchain.kernels import warm
from emuchain.kernels.jit import store

ROOT = Path(__file__).resolve().parent.parent
ONE_MPI = pytest.mark.parametrize(
    "mpiexec", ["mpich"], indirect=True
)  # to compile takes long, under any MPI
COMPILING = "compiling kernels, once for this machine"
SHORT = ["train", "--samples", "16", "--test-samples", "4", "--batch", "16"]


def python(
    *arguments: str, status: int | None = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with some environment variables set, and this package in reach."""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done


# What is imported

MODULES = """
import sys
from emuchain.emulator.commands.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    print("imported:", *sorted(sys.modules))
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["data", "--help"], ["bench", "--help"]]
)
def test_help_is_quick(arguments: list[str]) -> None:
    _, _, imported = python("-c", MODULES, *arguments).stdout.partition("imported: ")
    assert "click" in imported.split()
    assert not {"numba", "llvmlite", "numpy", "pydantic", "mpi4py", "h5py", "psutil"} & set(
        imported.split()
    )


# Each rank writes what it did to a file in the directory that the first argument names.
REPORTING = """
import atexit, json, os, sys, time
from pathlib import Path
from emuchain.launch.launch import launcher_rank
from emuchain.emulator.data import shapes
from numba.core import event
seen = {"loads": 0}
draw = shapes.draw
def counting(*arguments):
    seen["loads"] += 1
    return draw(*arguments)
shapes.draw = counting
compiled = event.RecordingListener()
event.register("numba:compile", compiled)
def report():
    seen["modules"], seen["compiled"] = sorted(sys.modules), len(compiled.buffer)
    Path(sys.argv[0], f"{launcher_rank()}.json").write_text(json.dumps(seen))
atexit.register(report)
sys.argv = sys.argv[1:]
from emuchain.emulator.commands.cli import main
main(sys.argv[1:])
"""


def reported(folder: Path) -> list[dict]:
    """What each rank has written."""
    return [
        json.loads((folder / f"{rank}.json").read_text())
        for rank in range(len(list(folder.glob("*.json"))))
    ]


def test_other_ranks_import_and_read_no_more_than_they_need(mpiexec, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # a fixture
    mpiexec(3, ["-c", REPORTING, tmp_path, *SHORT, "--out", tmp_path / "run.h5"])
    first, *others = reported(tmp_path)
    assert first["loads"] == 1
    assert {"h5py", "click"} <= set(first["modules"])
    assert len(others) == 2
    for rank in others:
        assert rank["loads"] == 0
        assert not {"h5py", "rich", "click", "requests", "psutil"} & set(rank["modules"])


LISTING = """
import atexit, sys
from pathlib import Path
from emuchain.launch.launch import launcher_rank
atexit.register(lambda: Path(sys.argv[0], f"{launcher_rank()}.txt").write_text(" ".join(sys.modules)))
sys.argv = sys.argv[1:]
from emuchain.emulator.commands.cli import main
main(sys.argv[1:])
"""


def test_a_warm_start_does_without_numba_and_other_ranks_without_pydantic(
    mpiexec, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]  # a fixture
    warm.compile_all()
    mpiexec(3, ["-c", LISTING, tmp_path, *SHORT])
    first, *others = (set((tmp_path / f"{rank}.txt").read_text().split()) for rank in range(3))
    assert "pydantic" in first
    assert "numba" not in first
    for modules in others:
        assert "numpy" in modules
        assert not {"numba", "pydantic"} & modules


def test_shared_data_is_small_and_makes_a_data_set() -> None:
    data = shapes.draw(train=200, test=30).first(150)
    sent = SharedData.of(data, 1)
    assert len(pickle.dumps(sent)) < 8 * (150 + 30) + 1000
    again = sent.dataset()
    assert (again.name, again.classes, again.shape) == (data.name, data.classes, data.shape)
    assert (again.n_train, again.n_test) == (150, 30)
    assert np.array_equal(again.train_labels, data.train_labels)
    assert np.array_equal(again.test_labels, data.test_labels)
    assert not any(again.train_images.strides)
    shared = SharedData.of(
        data, 2
    ).dataset()  # of two replicas, the other one's images are read elsewhere
    assert np.array_equal(shared.train_images, data.train_images)
    assert not any(shared.test_images.strides)


# Wrong settings

NEEDS_KERNELS = [["train"], ["simulate"], ["schedule"], ["show", "run.h5"], ["network"]]


@pytest.mark.parametrize("arguments", NEEDS_KERNELS)
def test_an_unknown_form(arguments: list[str], one_line: Callable[..., str]) -> None:
    done = python("-m", "emuchain", *arguments, status=2, EMUCHAIN_KERNEL_FORM="avx3")
    line = one_line(done.stderr)
    for word in ("EMUCHAIN_KERNEL_FORM", "avx3", "avx2", "portable"):
        assert word in line
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["data", "info"]])
def test_where_no_kernel_is_needed_forms_do_not_matter(arguments: list[str]) -> None:
    assert python("-m", "emuchain", *arguments, EMUCHAIN_KERNEL_FORM="avx3").stderr == ""


def test_an_unknown_form_on_ranks(mpiexec, one_line: Callable[..., str]) -> None:  # type: ignore[no-untyped-def]  # a fixture
    finished = mpiexec(
        4, ["-m", "emuchain", "train"], status=2, env={"EMUCHAIN_KERNEL_FORM": "avx3"}
    )
    assert "EMUCHAIN_KERNEL_FORM = 'avx3'" in one_line(finished.stderr)
    assert finished.stdout == ""


# Ranks that fail before the run

FAILING = """
import sys
from emuchain.launch.launch import launcher_rank
import emuchain.emulator.commands.frame.kernels as kernels
def load(say):
    raise ValueError("so it goes")
if launcher_rank() == int(sys.argv[1]):
    kernels.load = load
from emuchain.emulator.commands.cli import main
main(sys.argv[2:])
"""


@pytest.mark.each_mpi
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_fails_on_its_way_ends_all(
    mpiexec, victim: int, one_line: Callable[..., str]
) -> None:  # type: ignore[no-untyped-def]  # a fixture
    finished = mpiexec(3, ["-c", FAILING, str(victim), *SHORT], status=1)
    assert "internal error: ValueError: so it goes" in one_line(finished.stderr)


def test_help_on_ranks(mpiexec) -> None:  # type: ignore[no-untyped-def]  # a fixture
    finished = mpiexec(3, ["-m", "emuchain", "train", "--help"])
    assert finished.stdout.count("Usage: ") == 1
    assert finished.stderr == ""


# Compiled code

SERVE = """
import sys
import numpy as np
from numba.core import event
from emuchain.kernels.fifo import serve
with event.install_recorder("numba:compile") as recorder:
    done = serve(np.array([[0, 5], [7, 30]]), 10, 3)
print(done.ravel().tolist(), len(recorder.buffer) > 0)
"""


def test_processes_that_start_together_with_an_empty_cache(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SERVE]
    started = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    ended = [process.communicate(timeout=300) for process in started]
    assert all(out.startswith("[13, 23, 33, 43] ") and not err for out, err in ended), ended
    assert any(out.endswith("True\n") for out, _ in ended), "the cache was not empty"
    assert python("-c", SERVE, NUMBA_CACHE_DIR=str(tmp_path)).stdout == "[13, 23, 33, 43] False\n"


@pytest.mark.slow
@ONE_MPI
def test_a_cache_is_filled_once_and_people_are_informed(mpiexec, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # a fixture
    leave_out_few(tmp_path / "cache")
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for run, compiles in (("cold", True), ("warm", False)):
        folder = tmp_path / run
        folder.mkdir()
        finished = mpiexec(4, ["-c", REPORTING, folder, *SHORT], timeout=400, env=cache)
        first, *others = reported(folder)
        assert finished.stdout.count(COMPILING) == compiles
        assert (first["compiled"] > 0) == compiles
        assert [rank["compiled"] for rank in others] == [0] * 3


# A package that cannot be written to. For root, permissions mean nothing as long as it may override
# them.
WITHOUT_POWERS = """
import os, sys
powers = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
arguments = [*powers, sys.executable, *sys.argv[1:]]
os.execvp(arguments[0], arguments)
"""


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mapping[str, str]:
    """The environment for a copy of the package, and a home, that cannot be written to; and its own
    `tmp`.
    """
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root, and no setpriv to give up its power over files")
    package, home, temporary = tmp_path / "place" / "emuchain", tmp_path / "home", tmp_path / "tmp"
    for part in ("benchmarks", "comm", "emulator", "kernels", "launch", "papers"):
        shutil.copytree(ROOT / part, package / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.glob("__*__.py*"):
        shutil.copy(file, package)
    home.mkdir()
    temporary.mkdir()
    for folder in (home, package, *(path for path in package.rglob("*") if path.is_dir())):
        folder.chmod(0o555)
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return {"PYTHONPATH": str(package.parent), "HOME": str(home), "TMPDIR": str(temporary)}


SIMULATE = ["-m", "emuchain", "simulate", "--samples", "64", "--json"]


def test_a_package_that_cannot_be_written_to(read_only: Mapping[str, str], tmp_path: Path) -> None:
    """Compiled code goes into the user's cache."""
    (tmp_path / "home").chmod(0o755)
    done = python("-c", WITHOUT_POWERS, *SIMULATE, **read_only)
    assert json.loads(done.stdout)["virtual_time_ps"] > 0
    assert done.stderr == ""
    assert any((tmp_path / "home" / ".cache").rglob("*serve*"))
    assert not any((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("named", [None, "/proc/nowhere"])
def test_where_nothing_can_be_written_to(
    read_only: Mapping[str, str], tmp_path: Path, named: str | None, one_line: Callable[..., str]
) -> None:
    """Compiled code goes among the temporary files, in a place that is the user's alone."""
    variables = {**read_only, **({"NUMBA_CACHE_DIR": named} if named else {})}
    done = python("-c", WITHOUT_POWERS, *SIMULATE, **variables)
    assert json.loads(done.stdout)["virtual_time_ps"] > 0
    [place] = (tmp_path / "tmp").iterdir()
    assert str(place) in one_line(done.stderr)
    assert place.stat().st_mode & 0o777 == 0o700
    assert any(place.rglob("*serve*"))


def test_where_temporary_files_are_not_safe(
    read_only: Mapping[str, str], tmp_path: Path, one_line: Callable[..., str]
) -> None:
    """A directory that others can write to might hold their code."""
    place = tmp_path / "tmp" / f"emuchain-{os.getuid()}"
    place.mkdir()
    place.chmod(0o777)
    done = python("-c", WITHOUT_POWERS, *SIMULATE, status=2, **read_only)
    assert str(place) in one_line(done.stderr)
    assert done.stdout == ""
    assert not any(place.iterdir())


def leave_out_few(folder: Path) -> None:
    """Put all compiled code but that of a few kernels into a folder, so that ranks have little to
    compile.
    """
    warm.compile_all()
    shutil.copytree(
        store.where(), folder, ignore=shutil.ignore_patterns("*.layers.activations.*", "*.fifo.*")
    )
    folder.chmod(0o700)


# With an empty cache, ranks do what they do with one that lacks a few kernels, for a hundred
# processor seconds: three wait for the one that compiles all.
@pytest.mark.slow
@pytest.mark.parametrize("empty", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@ONE_MPI
def test_ranks_share_temporary_files(  # type: ignore[no-untyped-def]  # a fixture
    mpiexec, read_only: Mapping[str, str], tmp_path: Path, one_line: Callable[..., str], empty: bool
) -> None:
    place = tmp_path / "tmp" / f"emuchain-{os.getuid()}"
    if not empty:
        leave_out_few(place)
    finished = mpiexec(
        4, ["-c", WITHOUT_POWERS, "-m", "emuchain", *SHORT], timeout=400, env=read_only
    )
    assert finished.stdout.count(COMPILING) == 1
    assert [place] == [*(tmp_path / "tmp").glob("emuchain-*")]
    assert str(place) in one_line(finished.stderr)
    assert any(place.rglob("*layers.activations*"))
    assert any(place.rglob("*contract*"))


def test_compiling_is_announced_with_a_time_and_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from emuchain.emulator.commands.frame import kernels

    now_s, said = iter([0.0, 0.0, 2.0, 6.0, 7.0, 30.0]), list[str]()
    monkeypatch.setattr(kernels.time, "monotonic", lambda: next(now_s))
    monkeypatch.setattr(warm, "usable_cores", lambda: 2)
    monkeypatch.setattr(
        warm,
        "compile_together",
        lambda say: [say(left_s) for left_s in (40.0, 36.0, 30.0, 16.0, 0.0)],
    )
    kernels.load(said.append)
    assert said == [
        f"{COMPILING}: about 40 s of processor time, on 2 cores ...",
        "compiling kernels: 25 % done, about 18 s left",
        "compiling kernels: 100 % done",
    ]
