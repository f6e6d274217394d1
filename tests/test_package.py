"""What a wheel holds: every directory with a module is a package of setup.cfg, every data file
matches a pattern.
"""

import configparser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_INSTALLED = {"tests", "docs", "examples", "scripts", "build", "dist"}
DATA = {".toml", ".json", ".typed", ".pyi", ".html", ".css", ".js", ".txt"}


def installed_files() -> list[Path]:
    """All files of the package, relative to the root of the checkout."""
    found = [path for path in ROOT.glob("__*__.py")]
    for room in ROOT.iterdir():
        if (
            room.is_dir()
            and room.name not in NOT_INSTALLED
            and not room.name.startswith((".", "_"))
        ):
            found += [
                path
                for path in room.rglob("*")
                if path.is_file() and "__pycache__" not in path.parts
            ]
    return [path.relative_to(ROOT) for path in found if not path.parts[-2].endswith(".egg-info")]


def package_of(folder: Path) -> str:
    """The package that a folder of the checkout is."""
    return ".".join(["emuchain", *folder.parts])


@pytest.fixture(scope="module")
def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_folder_with_a_module_is_a_package(settings: configparser.ConfigParser) -> None:
    modules = {package_of(path.parent) for path in installed_files() if path.suffix == ".py"}
    named = settings["options"]["packages"].split()
    assert len(named) == len(set(named))
    assert modules == set(named)


def test_every_package_has_a_docstring(settings: configparser.ConfigParser) -> None:
    for name in settings["options"]["packages"].split():
        text = Path(ROOT, *name.split(".")[1:], "__init__.py").read_text(encoding="utf-8")
        assert text.startswith('"""'), name


def test_every_data_file_is_installed(settings: configparser.ConfigParser) -> None:
    # Recorded results of a paper make its page of documentation, and no command reads them.
    data = {
        path for path in installed_files() if path.suffix in DATA and path.name != "results.json"
    }
    assert data
    installed = set()
    packages = settings["options"]["packages"].split()
    for package, patterns in settings["options.package_data"].items():
        folders = [
            Path(*each.split(".")[1:]) for each in (packages if package == "*" else [package])
        ]
        for pattern in patterns.replace(",", " ").split():
            matching = {
                path.relative_to(ROOT)
                for folder in folders
                for path in (ROOT / folder).glob(pattern)
            }
            assert matching, f"{package}: {pattern} matches nothing"
            installed |= matching
    assert data <= installed
