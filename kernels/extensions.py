"""Folders in which each file is one extension: a codec, a layer, a schedule. To add one, add its file."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def modules(package: str) -> list[ModuleType]:
    """Import all modules of a package, in the order of their names."""
    path = importlib.import_module(package).__path__
    return [importlib.import_module(f"{package}.{module.name}") for module in pkgutil.iter_modules(path)]


def subclasses(package: str, base: type[T]) -> list[type[T]]:
    """Return the classes below `base` that the modules of a package define, in the order of the modules."""
    return [
        value
        for module in modules(package)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value is not base
        if value.__module__ == module.__name__ and not value.__name__.startswith("_")
    ]


def instances(package: str, kind: type[T]) -> list[T]:
    """Return the values of a type that the modules of a package define, in the order of the modules."""
    results: list[T] = []
    for module in modules(package):
        results += [value for value in vars(module).values() if isinstance(value, kind) and value not in results]
    return results
