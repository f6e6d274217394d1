"""Extensions: each file in a registry's folder is one, and so is what an installed package offers.

    kernels/codec/*.py, emulator/schedule/*.py, ...   ─┐
    entry points of the group `emuchain`              ─┼─▶ subclasses(), instances() ─▶ codecs(), schedules(), ...
    emuchain.register(thing)                          ─┘

A package offers modules, classes or values, and each registry takes what is of its kind:

    [project.entry-points.emuchain]
    example = "emuchain_example"

Only what is installed is imported: nothing from the current folder, and nothing for its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
import os
import pathlib
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, ParamSpec, Protocol, TypeVar, get_args, get_origin, get_type_hints

GROUP = "emuchain"
_NEXT_KEY = re.compile(",(?=[^,=]*=)")

T = TypeVar("T")
P = ParamSpec("P")


class ExtensionError(ImportError):
    """An installed extension cannot be imported, or takes a name that is taken."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=_Named)

_registered: list[object] = []
_caches: list[Callable[[], None]] = []


def registry(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that looks extensions up once, and again after `register`."""
    cached = functools.cache(function)
    _caches.append(cached.cache_clear)
    return cached  # type: ignore[return-value]  # of the same arguments


def register(thing: object) -> None:
    """Add an extension to this process: a class, a value, or a module with some of them.

    Where its name is taken, the registry raises ExtensionError when it is asked.
    """
    if not any(thing is other for other in _registered):
        _registered.append(thing)
        _look_again()


def withdraw(thing: object) -> None:
    """Undo `register`."""
    _registered[:] = [other for other in _registered if other is not thing]
    _look_again()


def _look_again() -> None:
    for clear in _caches:
        clear()


def modules(package: str) -> list[ModuleType]:
    """Import all modules of a package, in the order of their names."""
    path = importlib.import_module(package).__path__
    return [
        importlib.import_module(f"{package}.{module.name}") for module in pkgutil.iter_modules(path)
    ]


def subclasses(package: str, base: type[T]) -> list[type[T]]:
    """Return the classes below `base` that the modules of a package define, in the order of the
    modules, and others.
    """
    own = [value for module in modules(package) for value in defined_in(module)]
    return [*_below(base, own), *offered_subclasses(base)]


def offered_subclasses(base: type[T]) -> list[type[T]]:
    """Return the classes below `base` that packages offer or a script has registered."""
    return _below(base, offered())


def _below(base: type[T], values: Iterable[object]) -> list[type[T]]:
    return [
        value
        for value in values
        if isinstance(value, type) and issubclass(value, base) and value is not base
        if not value.__name__.startswith("_")
    ]


def instances(package: str, kind: type[T]) -> list[T]:
    """Return the values of a type that the modules of a package define, in the order of the
    modules, and others.
    """
    own = [value for module in modules(package) for value in vars(module).values()]
    results: list[T] = []
    for value in (*own, *offered()):
        if isinstance(value, kind) and value not in results:
            results.append(value)
    return results


def by_name(kinds: Iterable[NamedT]) -> dict[str, NamedT]:
    """Return kinds by their names.

    Raises:
        ExtensionError: two have the same.
    """
    known: dict[str, NamedT] = {}
    for kind in kinds:
        if kind.name in known:
            raise ExtensionError(
                f"{_origin(kind)}: `{kind.name}` is the name of {_origin(known[kind.name])}; rename"
                " one of them"
            )
        known[kind.name] = kind
    return known


def offered() -> list[Any]:
    """Return what installed packages offer, and then what was registered; of a module, the classes
    and values in it.
    """
    things = [*_installed(), *_registered]
    return [
        value
        for thing in things
        for value in (defined_in(thing) if isinstance(thing, ModuleType) else [thing])
    ]


def offered_modules() -> list[ModuleType]:
    """Return the modules that define what is offered, each once."""
    names = [
        thing.__name__ for thing in (*_installed(), *_registered) if isinstance(thing, ModuleType)
    ]
    names += [value.__module__ for value in offered() if isinstance(value, type)]
    return [sys.modules[name] for name in dict.fromkeys(names) if name in sys.modules]


def offered_folders(name: str) -> list[pathlib.Path]:
    """Return the folders of a name beside the modules that are offered: `boards`, `clusters`, `zoo`
    with TOML files.
    """
    # A module has no file where a session at a prompt or in a notebook is one.
    files = [getattr(module, "__file__", None) for module in offered_modules()]
    folders = [pathlib.Path(file).parent / name for file in files if file is not None]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def spelled(
    text: str, kinds: Mapping[str, type[T]], without: Collection[str] = ()
) -> tuple[type[T], dict[str, Any]]:
    """Return the kind that a text names, and its own keys: `ademamix:beta3=0.9999,alpha=5`.

    Keys are fields of the kind, but for those `without`: numbers, texts, and tuples of whole
    numbers such as 4x6 or 10,20.

    Raises:
        ValueError: there is no such kind, or it has no such key or value, or needs one more.
    """
    name, colon, given = text.partition(":")
    if name not in kinds:
        raise ValueError(f"should be one of {', '.join(kinds)}")
    kind = kinds[name]
    fields = [field for field in dataclasses.fields(kind) if field.name not in without]  # type: ignore[arg-type]
    missing = dataclasses.MISSING
    own = {
        field.name: field.default is missing and field.default_factory is missing
        for field in fields
    }
    hints = get_type_hints(kind) if colon else {}
    values: dict[str, Any] = {}
    for word in _NEXT_KEY.split(given) if colon else ():
        key, _, value = word.partition("=")
        if key in hints and key in without:
            raise ValueError(
                f"`{text}`: `{key}` is a key for itself; write `{name}`, and give it apart"
            )
        if key not in own or not value:
            several = (
                f"should be KEY=VALUE, with one of {', '.join(own)}"
                if own
                else f"is too much; write `{name}`"
            )
            raise ValueError(f"{word!r} of `{text}` {several}")
        try:
            values[key] = _read(hints[key], value)
        except ValueError as error:
            raise ValueError(f"`{key}` of `{text}` should be {error}") from None
    for key in (key for key, is_needed in own.items() if is_needed and key not in values):
        raise ValueError(f"`{text}` needs `{key}`: write `{text}{',' if colon else ':'}{key}=...`")
    return kind, values


_READ_AS = {float: "a finite number", int: "a whole number", str: "a text"}


def _read(hint: Any, value: str) -> Any:
    """Return a value of a field. Raise ValueError, which says what it should be, where it is none
    of this type.
    """
    several = next((kind for kind in (hint, *get_args(hint)) if get_origin(kind) is tuple), None)
    if several is not None:
        is_open, count = ... in get_args(several), len(get_args(several))
        sides = value.split("," if is_open and "," in value else "x")
        if all(side.isdecimal() and int(side) for side in sides) and (
            is_open or len(sides) == count
        ):
            return tuple(map(int, sides))
        raise ValueError(f"whole numbers above 0, such as 4x6{' or 10,20' if is_open else ''}")
    kind = next((kind for kind in (hint, *get_args(hint)) if kind in _READ_AS), str)
    try:
        read: Any = kind(value)
        if kind is not float or math.isfinite(read):
            return read
    except ValueError:
        pass
    raise ValueError(_READ_AS[kind])


def defined_in(module: ModuleType) -> list[object]:
    """Return the values in a module, without the classes that it imports from outside of itself."""
    return [
        value
        for value in vars(module).values()
        if not isinstance(value, type) or f"{value.__module__}.".startswith(f"{module.__name__}.")
    ]


def _origin(kind: object) -> str:
    described = kind if isinstance(kind, type) else type(kind)
    return f"{described.__module__}.{described.__qualname__}"


@functools.cache
def _installed() -> tuple[object, ...]:
    """Return what the entry points of installed packages name.

    Raises:
        ExtensionError: one cannot be imported.
    """
    things = []
    for folder in _with_entry_points():
        import importlib.metadata  # here, since it takes a tenth of a command's start

        package = importlib.metadata.PathDistribution(folder)
        for point in package.entry_points:
            if point.group != GROUP:
                continue
            try:
                things.append(point.load())
            except Exception as error:
                raise ExtensionError(
                    f"the extension `{point.name}` of {package.metadata['Name']} {package.version}"
                    f" cannot be imported from `{point.value}`: {type(error).__name__}: {error};"
                    " mend or uninstall it"
                ) from error
    return tuple(things)


def _with_entry_points() -> Iterator[pathlib.Path]:
    """Yield the folders that describe installed packages with entry points of the group, from no
    relative path.

    It reads the files itself: to make a list of all packages takes three times as long.
    """
    for place in filter(os.path.isabs, dict.fromkeys(sys.path)):
        names: list[str] = []
        with contextlib.suppress(OSError):  # it may be an archive, or be gone
            names = sorted(os.listdir(place))
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                with (
                    contextlib.suppress(OSError),
                    open(f"{place}/{name}/entry_points.txt", "rb") as file,
                ):
                    if b"[%s]" % GROUP.encode() in file.read():
                        yield pathlib.Path(place, name)
