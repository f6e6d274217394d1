"""What all tests share: starting ranks under each MPI found."""

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import numpy as np
import psutil
import pytest

from .choice import SHARE, Choice

ROOT = Path(__file__).resolve().parent.parent

# Each MPI: the variable that names its environment, and the environment that scripts/test makes for
# it.
FLAVOURS = {
    "mpich": ("EMUCHAIN_TEST_MPICH", ".venv"),
    "openmpi": ("EMUCHAIN_TEST_OPENMPI", ".venv-openmpi"),
}

# Shells start what runs in the background without interrupts, `nohup` without hang-ups, and
# processes pass that on:
# tests send some.
for ignored, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, usual)

# Nothing here may depend on how long something takes; and what one machine finds, every machine
# finds in CI.
hypothesis.settings.register_profile(
    "emuchain",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    print_blob=True,
)
hypothesis.settings.load_profile("emuchain")


@dataclass(frozen=True)
class Mpiexec:
    """Starts ranks under one MPI: `mpiexec(4, ["-c", "print(1)"])` runs `python -c "print(1)"` on
    four ranks.
    """

    name: str
    version: str
    launcher: Path
    python: Path

    def __call__(
        self,
        n: int,
        args: Sequence[str | os.PathLike[str]],
        timeout: float = 120,
        *,
        status: int | None = 0,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        launcher_args: Sequence[str] = (),
        stdout: int | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `python ARGS` on `n` ranks and return how they ended, with what they printed.

        The test fails when the launcher ends with another status than `status` (None: any) or not
        within `timeout` seconds; no rank outlives the call. `env` is added to the environment.
        `stdout` is a descriptor that takes the standard output, which is then not returned.
        """
        command = [
            str(self.launcher),
            *launcher_args,
            "-n",
            str(n),
            str(self.python),
            *map(os.fspath, args),
        ]
        # Files, not pipes: a rank that outlives its launcher would keep a pipe open, and reading it
        # would never end.
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out if stdout is None else stdout,
                stderr=err,
                cwd=cwd,
                env={**os.environ, **_rank_environment(), **(env or {})},
                start_new_session=True,
            )
            late = False
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                _end(process)
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read())
        finished = subprocess.CompletedProcess(command, process.returncode, *texts)
        if late:
            pytest.fail(
                f"{self.name}: not done after {timeout:g} s{_output_of(finished)}", pytrace=False
            )
        if status is not None and finished.returncode != status:
            pytest.fail(
                f"{self.name}: status {finished.returncode}, not {status}{_output_of(finished)}",
                pytrace=False,
            )
        return finished


def _rank_environment() -> dict[str, str]:
    settings = {
        # Each rank is one emulated FPGA on one core.
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
        # Open MPI: more ranks than cores, and none of them pinned to a core.
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    if os.geteuid() == 0:
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return settings


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a launcher and everything below it, if it still runs."""
    if process.poll() is not None:
        return
    # Open MPI's ranks have process groups of their own, so the launcher's group alone would leave
    # them behind.
    try:
        below = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    process.terminate()  # launchers take their ranks with them, if they can
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    for child in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(below, timeout=10)
    process.wait()


def _output_of(finished: "subprocess.CompletedProcess[str]") -> str:
    text = "\n" + " ".join(finished.args)
    for title, content in (
        ("standard output", finished.stdout),
        ("standard error", finished.stderr),
    ):
        if content.strip():
            text += f"\n--- {title}\n{content.rstrip()}"
    return text


def parse_version(text: str) -> tuple[str, str] | None:
    """Which MPI, and its version, from what its `mpiexec --version` prints."""
    if match := re.search(r"\(Open MPI\) (\S+)", text):
        return "openmpi", match[1]
    if "HYDRA" in text and (match := re.search(r"Version:\s+(\S+)", text)):
        return "mpich", match[1]
    return None


def _find(name: str) -> Mpiexec | None:
    variable, directory = FLAVOURS[name]
    named = os.environ.get(variable)
    for environment in [Path(named)] if named else [Path(sys.prefix), ROOT / directory]:
        launcher, python = environment / "bin" / "mpiexec", environment / "bin" / "python"
        if not (launcher.exists() and python.exists()):
            continue
        answer = subprocess.run(
            [launcher, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, **_rank_environment()},
        )
        found = parse_version(answer.stdout)
        if found and found[0] == name:
            return Mpiexec(name, found[1], launcher, python)
    return None


_found = {name: _find(name) for name in FLAVOURS}


_NEEDED = ("torch", "onnx", "pyslang")
"""Packages without which some tests are skipped, unless EMUCHAIN_REQUIRE_ and the package's name
is 1.
"""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _find_chromium() -> Path | None:
    """Chromium, if it is there with Playwright, which drives it."""
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    return Path(found) if found and _version("playwright") else None


# Tests that run inside ranks are in files of this name.
INSIDE_RANKS = "test_inside_ranks.py"


def _inside_ranks(config: pytest.Config) -> bool:
    return bool(config.getoption("--with-mpi") or config.getoption("--only-mpi"))


def pytest_configure(config: pytest.Config) -> None:
    """Where a package or program must be there, no test is skipped that needs it. Tests inside
    ranks need none.
    """
    if _inside_ranks(config):
        return
    if os.environ.get("EMUCHAIN_REQUIRE_CHROMIUM") == "1" and _find_chromium() is None:
        raise pytest.UsageError(
            "EMUCHAIN_REQUIRE_CHROMIUM=1, but Chromium and playwright are not both installed"
        )
    for package in _NEEDED:
        variable = f"EMUCHAIN_REQUIRE_{package.upper()}"
        if os.environ.get(variable) == "1" and _version(package) is None:
            raise pytest.UsageError(f"{variable}=1, but {package} is not installed")


def pytest_report_header() -> list[str]:
    """The lines of pytest's header that name the MPIs and the packages that some tests need."""
    launchers = ", ".join(
        f"{name} not found" if found is None else f"{name} {found.version} ({found.launcher})"
        for name, found in _found.items()
    )
    packages = [f"{package}: {_version(package) or 'not installed'}" for package in _NEEDED]
    return [
        f"mpi: {launchers}",
        *packages,
        f"chromium: {_find_chromium() or 'not found, or without playwright'}",
    ]


@pytest.fixture(autouse=True, scope="session")
def extensions_of_papers() -> None:
    """Codecs of the papers take part; what keys of a run say of codecs is settled before."""
    import emuchain.emulator.config.config  # noqa: F401
    from emuchain.kernels import register
    from emuchain.papers.inceptionn.truncation import Truncation

    register(Truncation)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The path of Chromium, which tests drive by Playwright."""
    found = _find_chromium()
    if found is None:
        pytest.skip("no chromium, or no playwright")
    return found


@pytest.fixture(scope="module", params=FLAVOURS)
def mpiexec(request: pytest.FixtureRequest) -> Mpiexec:
    """Starts ranks, see `Mpiexec`; a test that takes it runs once under MPICH and once under Open
    MPI.
    """
    name = request.param
    found = _found[name]
    if found is None:
        variable, directory = FLAVOURS[name]
        reason = f"no {name}: neither {variable} nor {directory} leads to its mpiexec"
        if os.environ.get("EMUCHAIN_REQUIRE_MPI") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Inside ranks, leave out the files that have no tests for them: every rank would import them
    all.
    """
    other = collection_path.suffix == ".py" and collection_path.name != INSIDE_RANKS
    return True if other and _inside_ranks(config) else None


def _drawn(name: str, of: int) -> int:
    """Return a number below `of` that a name has on every machine."""
    return zlib.crc32(name.encode()) % of


def _is_drawn(item: pytest.Item) -> bool:
    """Return whether a test runs of those of which one in N does: `sampled(N)`, drawn by its
    name.
    """
    sampled = item.get_closest_marker("sampled")
    return (
        sampled is None
        or _drawn(f"{item.path.relative_to(ROOT)}::{item.name}", sampled.args[0]) == 0
    )


def _runs_under(item: pytest.Item) -> bool:
    """Return whether a test that starts ranks runs under this MPI: by its own choice, for its
    subject, or as drawn.
    """
    mpi = item.callspec.params["mpiexec"]  # type: ignore[attr-defined]  # of tests that are functions
    chosen = any("mpiexec" in str(mark.args[0]) for mark in item.iter_markers("parametrize"))
    subject = (
        item.get_closest_marker("each_mpi") or (ROOT / "tests" / "launch") in item.path.parents
    )
    if chosen or subject or None in _found.values():
        return True
    name = f"{item.path.relative_to(ROOT)}::{item.originalname}"  # type: ignore[attr-defined]
    return bool(mpi == list(FLAVOURS)[_drawn(name, len(FLAVOURS))])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that start ranks, so that `-m "not launches"` leaves them out; inside ranks,
    run no others.

    Where both MPIs are found, a test that starts ranks runs under one of them, drawn by its name;
    under the other it is marked `exhaustive`. Where the MPI is the subject (`each_mpi`, and all of
    tests/launch) it runs under both. A test that is not for ranks would run on each of them, and
    could start launchers within launchers. Of expensive files, those that this commit does not draw
    are exhaustive, too (choice.py). Files that take longest come first, so that workers that run
    files side by side (xdist) end together.
    """
    choice = Choice(ROOT, config.getoption("one_in"))
    for item in items:
        if "mpiexec" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.launches)
            if not _runs_under(item):
                item.add_marker(pytest.mark.exhaustive)
        if not _is_drawn(item) or choice.leaves_out(_file_of(item.nodeid), item.name):
            item.add_marker(pytest.mark.exhaustive)
        if item.get_closest_marker("mpi") and item.path.name != INSIDE_RANKS:
            raise pytest.UsageError(
                f"{item.nodeid} is marked `mpi`: such tests are in files called {INSIDE_RANKS}"
            )
    if _inside_ranks(config):
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("mpi") is None]
        )
        items[:] = [item for item in items if item.get_closest_marker("mpi") is not None]
    items.sort(key=lambda item: -choice.duration_s(_file_of(item.nodeid)))


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags with which `scripts/test` takes a smaller share, or notes what each file's
    tests take.
    """
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json")
    parser.addoption(
        "--one-in", type=int, default=SHARE, help="of expensive files, run one test in as many"
    )


_durations_s: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what the files' tests take."""
    _durations_s[_file_of(report.nodeid)] += report.duration  # type: ignore[assignment]  # seconds


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write durations, if asked to, in the process that has the reports of all workers; files of
    which no test ran now keep theirs.
    """
    if session.config.getoption("--record-durations") and "PYTEST_XDIST_WORKER" not in os.environ:
        path = ROOT / "tests" / "durations.json"
        before = json.loads(path.read_text(encoding="utf-8"))
        taken = {file: before[file] for file in before if (ROOT / file).exists()}
        for file, seconds in _durations_s.items():
            taken[file] = round(seconds, 1)
        kept = {file: taken[file] for file in sorted(taken) if taken[file] >= 1}
        path.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")


OneLine = Callable[["pytest.ExceptionInfo[Exception] | str"], str]


@pytest.fixture(scope="session")
def one_line() -> OneLine:
    """Returns the message of an error, or of a run's standard error, and fails where it is more
    than one line.
    """

    def check(error: "pytest.ExceptionInfo[Exception] | str") -> str:
        if not isinstance(error, str):
            line = str(error.value)
            assert len(line.splitlines()) == 1
            return line
        # Launchers may say more after the line that emuchain prints.
        assert not re.search("Traceback|Warning", error), error
        lines = [line for line in error.splitlines() if line.startswith("emuchain: ")]
        assert len(lines) == 1, error
        return lines[0]

    return check


@pytest.fixture(scope="session")
def small_cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in CIFAR-10's binary layout with 330 training and 40 test images of the built-in
    set.
    """
    from emuchain.emulator.data import shapes

    drawn = shapes.draw(train=330, test=40)
    folder = tmp_path_factory.mktemp("data") / "cifar-10-batches-bin"
    folder.mkdir()

    def records(images: np.ndarray, labels: np.ndarray) -> bytes:
        return np.concatenate(
            [labels[:, None].astype(np.uint8), images.reshape(len(images), -1)], axis=1
        ).tobytes()

    for batch in range(5):
        part = slice(batch * 66, (batch + 1) * 66)
        content = records(drawn.train_images[part], drawn.train_labels[part])
        (folder / f"data_batch_{batch + 1}.bin").write_bytes(content)
    (folder / "test_batch.bin").write_bytes(records(drawn.test_images, drawn.test_labels))
    return folder.parent
