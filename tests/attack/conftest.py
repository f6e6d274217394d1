"""The tools of this folder, as modules."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ATTACK = Path(__file__).resolve().parent

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a tool as a module, anew for each test; what it imports lies beside it."""

    def of(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(ATTACK))
        loader = importlib.machinery.SourceFileLoader(f"attack_{name}", str(ATTACK / name))
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(
            sys.modules, loader.name, module
        )  # where dataclasses look for their module
        loader.exec_module(module)
        return module

    return of
