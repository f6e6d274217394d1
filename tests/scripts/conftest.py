"""The Python scripts, as modules and as programs."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"

Load = Callable[[str], ModuleType]
RunScript = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def load() -> Load:
    """Loads a script as a module, anew for each test."""

    def of(name: str) -> ModuleType:
        loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(SCRIPTS / name))
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[loader.name] = module  # where dataclasses look for their module
        loader.exec_module(module)
        return module

    return of


@pytest.fixture
def run_script() -> RunScript:
    """Runs a script with arguments in a folder; the test fails if it does not end with this
    status.
    """

    def run(
        name: str, *words: object, cwd: Path, text: str = "", status: int = 0
    ) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(SCRIPTS / name), *map(str, words)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=cwd, input=text, timeout=300
        )
        assert done.returncode == status, (
            f"{name}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    return run
