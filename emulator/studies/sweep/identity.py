"""The identity of a point: a digest of all that its figures depend on, so that a sweep goes on with its own points.

That is the network and the cluster as read from their files, all keys, and emuchain: its version and its sources.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

from .space import Point

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_ROOMS = ("kernels", "comm", "emulator")
_DIGITS = 16


def identities(points: list[Point], epoch_images: int) -> list[str]:
    """Return the identity of each point, in their order."""
    known: dict[int, str] = {}  # of networks and clusters, which many points share

    def digest_of(value: object) -> str:
        if id(value) not in known:
            known[id(value)] = _digest(_canonical(value))
        return known[id(value)]

    return [
        _digest(
            (_emuchain(), epoch_images, digest_of(point.network), digest_of(point.cluster), _canonical(point.settings))
        )
        for point in points
    ]


@functools.cache
def _emuchain() -> str:
    """Return a digest of emuchain's sources; the first names its version."""
    digest = hashlib.sha256()
    for path in (_ROOT / "__init__.py", *sorted(path for room in _ROOMS for path in (_ROOT / room).rglob("*"))):
        if path.suffix in (".py", ".toml"):
            digest.update(f"{path.relative_to(_ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:_DIGITS]


def _canonical(value: Any) -> Any:
    """Return a value as nested tuples, the same for equal values in any process.

    A function has its place in memory here: a schedule that exists in one process alone is never taken up again.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, _canonical(getattr(value, field.name))) for field in dataclasses.fields(value))
        return type(value).__qualname__, *fields
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _canonical(of)) for key, of in value.items()))
    if isinstance(value, (tuple, list)):
        return tuple(map(_canonical, value))
    if isinstance(value, (set, frozenset)):
        return tuple(sorted(repr(_canonical(each)) for each in value))
    return repr(value)
