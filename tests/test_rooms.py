"""The rooms: who imports whom, read from the sources. One direction, no circles, and nothing deeper
than a face.
"""

import ast
import graphlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ["kernels", "comm", "launch", "emulator", "benchmarks", "papers"]
"""From the lowest up."""

ORDER = [
    *("kernels", "comm", "launch", "emulator.common", "emulator.number"),
    *("emulator.faults", "emulator.cluster", "emulator.network", "emulator.data"),
    *("emulator.mapping", "emulator.schedule", "emulator.timing"),
    *("emulator.profile", "emulator.explore"),
    *("emulator.config", "emulator.plan", "emulator.device", "emulator.rtl", "emulator.run"),
    *("emulator.view", "emulator.calibrate", "emulator.studies"),
    *("emulator", "emulator.commands", "benchmarks", "papers"),
]
"""Rooms, each of which imports only from those before it. `emulator` itself is the functions of
`import emuchain`.
"""

EXTENSION_FOLDERS = {"kernels.layers", "kernels.optimizers", "emulator.network.operations"}
"""Each file is one layer, optimiser or operation, and is imported as such: there is no list to add
it to.
"""

ENTRANCES = {
    "kernels.form": "imports LLVM, which most runs do without",
    "kernels.warm": "imports all kernels",
    "kernels.jit.store": "where compiled code is kept, before any is loaded",
    "kernels.inceptionn.hardware": "the engines in plain Python, which only `validate` asks for",
    "emulator.run.epochs": "what ranks import that follow rank 0",
}
"""Modules that faces leave out, for the reason given; others may import them where they are used.
"""


def modules() -> dict[str, Path]:
    """Return all modules of the package, by their names below `emuchain`."""
    found = {}
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


def exported_by(package: str) -> set[str]:
    """Return the names in a package's `__all__`, of its face or the stub beside it."""
    names = set()
    for path in (MODULES[package], MODULES[package].with_suffix(".pyi")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names |= set(ast.literal_eval(node.value))
    return names


EXPORTED = {package: exported_by(package) for package in PACKAGES}


def imports_of(name: str, path: Path) -> set[str]:
    """Return what a module imports of emuchain, anywhere: packages, where their faces export it,
    otherwise modules.
    """
    package = name if name in PACKAGES else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue  # within emuchain, imports are relative: test_imports_are_relative
        parts = package.split(".")
        base = parts[: len(parts) - node.level + 1]
        target = ".".join([*base, *([node.module] if node.module else [])])
        for alias in node.names:
            inner = f"{target}.{alias.name}"
            found.add(
                inner if inner in MODULES and alias.name not in EXPORTED.get(target, ()) else target
            )
    return found & MODULES.keys()


def room_of(name: str) -> str:
    """Return the room of ORDER that a module is in."""
    return max((room for room in ORDER if f"{name}.".startswith(f"{room}.")), key=len)


def folder_of(name: str) -> str:
    """Return the package that a module is in, or is."""
    return name if name in PACKAGES else name.rpartition(".")[0]


IMPORTS = {name: imports_of(name, path) for name, path in MODULES.items()}


def test_the_sources_are_read() -> None:
    """A guard against a parser that finds nothing."""
    assert len(MODULES) > 200
    assert "comm" in IMPORTS["emulator.run.simulate"]
    assert {room_of(name) for name in MODULES} == set(ORDER)


@pytest.mark.parametrize("room", ORDER)
def test_rooms_import_only_from_those_before_them(room: str) -> None:
    allowed = set(ORDER[: ORDER.index(room) + 1])
    upwards = {
        f"{name} -> {target}"
        for name, targets in IMPORTS.items()
        if room_of(name) == room
        for target in targets
        if room_of(target) not in allowed
    }
    assert not upwards


def test_no_circles() -> None:
    """Between rooms, folders, and the modules of a room, whatever they import when."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, targets in IMPORTS.items():
        rooms[room_of(name)] |= {room_of(target) for target in targets} - {room_of(name)}
    assert set(graphlib.TopologicalSorter(rooms).static_order()) >= set(rooms)
    graphlib.TopologicalSorter(
        {name: targets - {name} for name, targets in IMPORTS.items()}
    ).prepare()
    folders: dict[str, set[str]] = defaultdict(set)
    for name, targets in IMPORTS.items():
        own = folder_of(name)
        others = {folder_of(target) for target in targets}
        folders[own] |= {other for other in others if not f"{own}.".startswith(f"{other}.")}
    graphlib.TopologicalSorter(folders).prepare()


def test_faces_alone_are_imported_from_outside() -> None:
    """What a room exports stands in its face, and what a room within it exports in its own face."""
    deeper = {
        f"{name} -> {target}"
        for name, targets in IMPORTS.items()
        for target in targets
        if target not in PACKAGES and room_of(target) != room_of(name)
        if target not in ENTRANCES and target.rpartition(".")[0] not in EXTENSION_FOLDERS
    }
    assert deeper == set()


def test_entrances_are_used() -> None:
    """An exception that no import needs any more goes."""
    imported = set().union(*IMPORTS.values())
    assert imported >= ENTRANCES.keys()
    assert {target.rpartition(".")[0] for target in imported} >= EXTENSION_FOLDERS


def test_every_room_says_what_it_is_for() -> None:
    for name in PACKAGES:
        docstring = ast.get_docstring(ast.parse(MODULES[name].read_text(encoding="utf-8")))
        assert docstring, name


def test_imports_are_relative() -> None:
    absolute = {
        name
        for name, path in MODULES.items()
        if re.search(r"^ *(from|import) emuchain", path.read_text("utf-8"), re.M)
    }
    assert absolute == set()


def test_only_launch_imports_mpi4py() -> None:
    importers = {
        name for name, path in MODULES.items() if "from mpi4py" in path.read_text(encoding="utf-8")
    }
    assert importers and {room_of(name) for name in importers} == {"launch"}
