"""The constants of a paper's cluster that measures rest on, and other values of them, in force for a while.

Measures take their clusters from here, and what they calculate once is kept for the constants in force (`kept`). So
they can be asked what they would be with other constants, without knowing of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Generic, ParamSpec, TypeVar

from ..emulator.cluster import Cluster, load_cluster

Parameters = ParamSpec("Parameters")
Kept = TypeVar("Kept")

Changes = tuple[tuple[str, object], ...]
_IN_FORCE: ContextVar[Changes] = ContextVar("changes", default=())


@dataclasses.dataclass(frozen=True)
class Constant:
    """A key of a cluster's file, and values of it that are plausible, with the reason.

    `default` is the value of all other commands. `fitted_to` says by which rows it was set; empty if by none.
    """

    key: str
    default: float
    values: tuple[float, ...]
    why: str
    fitted_to: str = ""

    @property
    def name(self) -> str:
        """The key without its table."""
        return self.key.rpartition(".")[2]


@contextlib.contextmanager
def in_force(changes: Mapping[str, object]) -> Iterator[None]:
    """Let measures use other values of a cluster's keys."""
    token = _IN_FORCE.set(tuple(sorted(changes.items())))
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


def changed(**more: object) -> dict[str, object]:
    """Return the changes in force, and `more`, whose names have `__` in place of the dot."""
    return {**dict(_IN_FORCE.get()), **{key.replace("__", "."): value for key, value in more.items()}}


def in_use(constant: Constant) -> float:
    """Return a constant's value: its default, unless another one is in force."""
    value = changed().get(constant.key, constant.default)
    assert isinstance(value, (int, float))
    return value


def cluster_of(name: str, **more: object) -> Cluster:
    """Return a cluster that comes with emuchain, with the changes in force and `more`."""
    return load_cluster(name, changed(**more))


class kept(Generic[Parameters, Kept]):  # a decorator
    """A function whose results are kept by its arguments and the changes in force."""

    def __init__(self, function: Callable[Parameters, Kept]) -> None:
        self._function = function
        self._results: dict[object, Kept] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Parameters.args, **keys: Parameters.kwargs) -> Kept:
        place = _IN_FORCE.get(), args, tuple(sorted(keys.items()))
        if place not in self._results:
            self._results[place] = self._function(*args, **keys)
        return self._results[place]

    def forget(self) -> None:
        """Calculate anew from now on."""
        self._results.clear()
