"""The store of compiled kernels: where it keeps code, what its file names depend on, and files that
are damaged.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from emuchain.kernels import form, user_cache
from emuchain.kernels.jit import Kernel, compiled, store
from emuchain.kernels.jit.store import ROOM, Code


def test_where_code_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "SOURCES", Path("/proc/package"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(store.tempfile, "tempdir", str(tmp_path))
    assert store.where() == tmp_path / "cache"
    monkeypatch.delenv(store.SETTING)
    assert store.where() == tmp_path / "home" / "emuchain"
    monkeypatch.setenv(store.SETTING, "/proc/nowhere")
    assert store.where() == tmp_path / "home" / "emuchain"
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/home")
    last = store.where()
    assert store.is_temporary(last)
    assert last.stat().st_mode & 0o777 == 0o700
    last.chmod(0o777)
    with pytest.raises(OSError, match="nowhere to keep compiled code"):
        store.where()


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A copy of all kernels' sources, on which the store's key then depends."""
    copy = tmp_path / "kernels"
    shutil.copytree(store.SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(store, "SOURCES", copy)
    yield copy
    forget()


def forget() -> None:
    """Let the store read sources again, as a process that starts now."""
    for read in (store._key, store._source, store._listing):
        read.cache_clear()


def file_name(kernel: str) -> str:
    """The file of a kernel of ours, as a process that starts now would name it."""
    forget()
    return store._file_name(f"{ROOM}.{kernel}")


KERNELS = sorted(
    ".".join(path.relative_to(store.SOURCES).with_suffix("").parts)
    for path in store.SOURCES.rglob("*.py")
    if re.search(
        r"^@(compiled|over_maps|between_maps)\b", path.read_text(encoding="utf-8"), re.MULTILINE
    )
)
"""The modules that have kernels."""


def test_file_names_depend_on_every_byte_of_what_a_kernel_imports(sources: Path) -> None:
    """And on no other file: a codec more or less leaves all kernels as they are."""
    original = {module: file_name(f"{module}.f") for module in KERNELS}
    made_of = {module: set(store.sources(f"{ROOM}.{module}")) for module in KERNELS}
    for path in sorted(sources.rglob("*.py")):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b" " if content else b" ")
        forget()
        changed = {
            module
            for module in KERNELS
            if store._file_name(f"{ROOM}.{module}.f") != original[module]
        }
        assert changed == {module for module in KERNELS if str(path) in made_of[module]}, path
        path.write_bytes(content)
    assert {module: file_name(f"{module}.f") for module in KERNELS} == original


def test_what_a_kernel_is_made_of(sources: Path) -> None:
    """Its module, those of the kernels that it calls, the compiler's; neither codecs nor layers of
    another kind.
    """
    for module in KERNELS:
        names = {str(Path(path).relative_to(sources)) for path in store.sources(f"{ROOM}.{module}")}
        assert {
            f"{module.replace('.', '/')}.py",
            "jit/compiled.py",
            "jit/emitter.py",
            "form.py",
        } <= names
        others = tuple(
            f"{room}/" for room in ("codec", "optimizers") if not module.startswith(room)
        )
        assert not [name for name in names if name.startswith(others)], module
    steps = {
        str(Path(path).relative_to(sources))
        for path in store.sources(f"{ROOM}.recurrent.gru_steps")
    }
    assert {
        "recurrent/step_parts.py",
        "llvm/emit.py",
        "llvm/lanes.py",
        "conv/microkernel.py",
    } <= steps


@pytest.mark.parametrize("module", KERNELS)
def test_what_a_kernel_calls_is_in_its_key(module: str) -> None:
    """Other kernels, instructions of LLVM, tables."""
    known = set(store.sources(f"{ROOM}.{module}"))
    values = vars(importlib.import_module(f"{ROOM}.{module}"))
    for kernel in [
        value
        for value in values.values()
        if isinstance(value, Kernel) and value._function is not None
    ]:
        function: Any = kernel._function
        called = [function.__globals__.get(name) for name in function.__code__.co_names]
        modules = {
            str(getattr(value, "_module", None) or getattr(value, "__module__", None))
            for value in called
        }
        ours = {importlib.import_module(name).__file__ for name in modules if name.startswith(ROOM)}
        assert ours <= known, kernel


def test_file_names_depend_on_what_moves(sources: Path) -> None:
    """A source that is moved to another sub-folder, or that is gone; one that is new and that no
    kernel imports.
    """
    names = [file_name("conv.layout.f")]
    tile = sources / "conv" / "microkernel.py"
    tile.rename(sources / "layers" / "microkernel.py")
    names.append(file_name("conv.layout.f"))
    (sources / "conv" / "layout.py").write_text("from ..layers.microkernel import TILE\n")
    names.append(file_name("conv.layout.f"))
    assert len(set(names)) == len(names)
    (sources / "codec" / "new.py").write_text("from ..conv import layout\n")
    assert file_name("conv.layout.f") == names[-1]


def test_kernels_of_another_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are kept until their own package changes, or what it imports of ours."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "factor.py").write_text("FACTOR = 3\n")
    (package / "times.py").write_text(
        "from emuchain.kernels.jit import compiled\nfrom mine.factor import FACTOR\n\n\n"
        "@compiled\ndef times(number):\n    return FACTOR * number\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    times = importlib.import_module("mine.times").times
    assert times(7) == 21
    forget()
    assert {Path(path).name for path in store.sources("mine.times")} >= {
        "times.py",
        "factor.py",
        "emitter.py",
    }
    assert store.find("mine.times.times") is not None
    (package / "factor.py").write_text("FACTOR = 4\n")
    forget()
    assert store.find("mine.times.times") is None


def test_a_changed_source_hides_what_was_kept_before(sources: Path) -> None:
    code = Code("run", [], "none", b"image")
    forget()
    store.keep(f"{ROOM}.conv.layout.f", code)
    assert store.find(f"{ROOM}.conv.layout.f") == code
    tile = sources / "conv" / "microkernel.py"
    tile.write_bytes(tile.read_bytes()[:-1] + b" ")
    forget()
    assert store.find(f"{ROOM}.conv.layout.f") is None


NAME = f"{ROOM}.fifo.kept"


def kernel_of(module: str, factor: int) -> Kernel:
    """A kernel `f` of a module of the package, which multiplies."""
    scope: dict[str, Any] = {"__name__": f"{ROOM}.{module}"}
    exec(f"def f(number):\n return {factor} * number", scope)
    return compiled(scope["f"])


def test_kernels_of_equal_names_in_different_rooms_have_their_own_files() -> None:
    """Also where both are found again, as a process that starts now finds them."""
    assert [
        kernel_of(module, factor)(7) for module, factor in (("conv.layout", 2), ("layers.loss", 3))
    ] == [14, 21]
    kept = {path.name: path.read_bytes() for path in store.where().iterdir()}
    names = [f"{ROOM}.conv.layout.f", f"{ROOM}.layers.loss.f"]
    files = [kept[store._file_name(name)] for name in names]
    assert files[0] != files[1]
    for name, content in zip(names, files, strict=True):
        code = store.find(name)
        assert code is not None
        assert content.endswith(code.image)


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-100], lambda data: bytes(len(data))]
)
def test_a_damaged_file_counts_as_none(damage: Callable[[bytes], bytes]) -> None:
    code = Code("run", ["float32 2"], "none", bytes(range(256)))
    store.keep(NAME, code)
    assert store.find(NAME) == code
    (path,) = store.where().glob(f"{NAME}-*.code")
    path.write_bytes(damage(path.read_bytes()))
    assert store.find(NAME) is None
    store.keep(NAME, code)
    assert store.find(NAME) == code


def test_a_kernel_that_cannot_be_kept_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "replace", full)

    @compiled
    def twice(number: int) -> int:
        return 2 * number

    assert twice(21) == 42
    assert list(store.where().iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b'"run"', b'"ran"'),
        lambda data: data.replace(b'"none"', b'"nine"'),
        lambda data: data.replace(b"[", b"[" * 5000, 1),
        lambda data: data.replace(b"float32 2", b"float32 3"),
        lambda data: data[:20] + b"\n" + data[20:],
    ],
)
def test_a_damaged_head_counts_as_none(damage: Callable[[bytes], bytes]) -> None:
    store.keep(NAME, Code("run", ["float32 2"], "none", bytes(range(256))))
    (path,) = store.where().glob(f"{NAME}-*.code")
    path.write_bytes(damage(path.read_bytes()))
    assert store.find(NAME) is None


class Kept(NamedTuple):
    """Code in a store of its own: the file, its folder, and the folder above."""

    file: Path
    folder: Path
    above: Path

    @property
    def is_found(self) -> bool:
        """Whether the code is taken from there."""
        return store.find(NAME) is not None


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kept:
    """Code that is kept, and found."""
    above = tmp_path / "above"
    monkeypatch.setenv(store.SETTING, str(above / "cache"))
    store.keep(NAME, Code("run", [], "none", b"image"))
    (file,) = (above / "cache").iterdir()
    found = Kept(file, above / "cache", above)
    assert found.is_found
    return found


@pytest.mark.parametrize("part", ["file", "folder", "above"])
def test_what_others_could_have_written_counts_as_none(kept: Kept, part: str) -> None:
    path: Path = getattr(kept, part)
    mode = path.stat().st_mode & 0o777
    for wider in (mode | 0o020, mode | 0o002):
        path.chmod(wider)
        assert not kept.is_found
    path.chmod(mode)
    assert kept.is_found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("part", ["file", "folder", "above"])
def test_what_belongs_to_another_user_counts_as_none(kept: Kept, part: str) -> None:
    """Also for root, who may read everything."""
    path: Path = getattr(kept, part)
    os.chown(path, 12345, 12345)
    assert not kept.is_found
    if part != "file":
        assert store.where() != kept.folder  # nothing is kept there, either
    os.chown(path, 0, 0)
    assert kept.is_found


def test_a_sticky_folder_above_is_good_enough(kept: Kept) -> None:
    kept.above.chmod(0o1777)  # as /tmp
    assert kept.is_found
    kept.folder.chmod(0o1777)
    assert not kept.is_found


def test_links_and_pipes_for_files(kept: Kept, tmp_path: Path) -> None:
    moved = kept.file.rename(tmp_path / "moved")
    kept.file.symlink_to(moved)
    assert not kept.is_found
    kept.file.unlink()
    os.mkfifo(kept.file)
    assert not kept.is_found


def test_a_folder_for_the_cache_is_made_for_its_user_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(store.SETTING, str(tmp_path / "new" / "cache"))
    before = os.umask(0o002)
    try:
        assert store.where() == tmp_path / "new" / "cache"
    finally:
        os.umask(before)
    assert [
        folder.stat().st_mode & 0o777 for folder in (tmp_path / "new", tmp_path / "new" / "cache")
    ] == [0o755] * 2


def test_a_file_in_place_of_a_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Code would be compiled at every start, and never be kept."""
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(store, "SOURCES", tmp_path / "package")
    for named, in_the_way in (
        (file, file),
        (file / "below", file),
        (tmp_path / "new" / "folder", None),
    ):
        monkeypatch.setenv(store.SETTING, str(named))
        assert store.file_in_the_way() == in_the_way
        assert store.where() == (tmp_path / "package" / "__pycache__" if in_the_way else named)


def test_no_home_is_no_folder_named_after_a_tilde(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where HOME is unset, and the system knows no such user, as in containers."""

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr(store, "SOURCES", Path("/proc/package"))
    monkeypatch.setattr(store.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(store.SETTING)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    for relative in (None, "cache"):
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        if relative:
            monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert user_cache() is None
        assert store.is_temporary(store.where())
        assert [path.name for path in tmp_path.iterdir()] == [store.where().name]
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_cache() == str(tmp_path / "home" / ".cache" / "emuchain")


def test_threads_that_call_a_kernel_first_link_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM refuses a second library of a name."""
    linked = []

    def entry(name: str, _: Code) -> Callable[[], int]:
        linked.append(name)
        time.sleep(0.05)  # others come meanwhile
        return lambda: 7

    monkeypatch.setitem(Kernel._ready.__globals__, "entry", entry)
    monkeypatch.setattr(store, "find", lambda _: Code("", [], "none", b""))
    kernel, together = Kernel("room", "kernel"), threading.Barrier(4)

    def call(_: int) -> int:
        together.wait()
        return int(kernel())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(4))) == [7] * 4
    assert linked == ["room.kernel"]


@pytest.mark.parametrize(
    ("given", "expected"), [({}, ""), ({"NUMBA_CPU_FEATURES": "+avx"}, "+avx")]
)
def test_a_generic_processor_has_the_features_that_numba_compiles_for(
    given: dict[str, str], expected: str
) -> None:
    """Others would be asked for what it lacks, and LLVM ends the process then."""
    program = (
        "from numba.core import config; from emuchain.kernels import form;"
        " print(repr((config.CPU_FEATURES, form.cpu_features(), form.FORM.name)))"
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NUMBA_CPU", form.SETTING))
    }
    environment |= {"NUMBA_CPU_NAME": "generic", **given}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == repr((expected, expected, "portable"))
