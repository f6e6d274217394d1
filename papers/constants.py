"""The constants and choices that a paper's measures rest on, and other values of them, in force for
a while.

Measures take their clusters from here, and what they calculate once is kept for the values in force
(`kept`). So they can be asked what they would be with other values, without knowing of it; and what
a measure has not read (`reading`) cannot change it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import ClassVar, Generic, ParamSpec, TypeVar

from ..emulator.cluster import Cluster, is_settable, load_cluster
from ..emulator.common import Note

Parameters = ParamSpec("Parameters")
Kept = TypeVar("Kept")

Changes = tuple[tuple[str, object], ...]
_IN_FORCE: ContextVar[Changes] = ContextVar("changes", default=())
_READ: ContextVar[set[str]] = ContextVar("read")
_OF_CLUSTERS = "a cluster's"  # stands for all keys that clusters have

COUNTED: Mapping[str, object] = {
    "board.multipliers": "one-per-dsp",
    **dict.fromkeys(("board.dsp_share", "board.lut_share", "board.efficiency"), 1),
    **dict.fromkeys(
        ("board.shell_dsp", "board.shell_lut", "board.shell_ff", "board.shell_bram"), 0
    ),
}
"""Changes of a cluster by which its FPGAs count as papers do: each DSP multiplies and adds in each
cycle, in single precision, too, and nothing is taken by a shell. What a paper says of its clock and
of the DSPs that it uses goes before."""


class _Keyed:
    """What has a key."""

    __pydantic_config__: ClassVar = {"strict": False, "extra": "forbid"}  # of tables in a file
    key: str

    @property
    def name(self) -> str:
        """The key without its table."""
        return self.key.rpartition(".")[2]


@dataclasses.dataclass(frozen=True)
class Constant(_Keyed):
    """A key of a cluster's file, and values of it that are plausible, with the reason.

    `default` is the paper's, and that of the cluster's file unless boards count otherwise there
    (`COUNTED`). `fitted_to` says by which rows it was set; empty
    if by none.
    """

    key: str
    default: int | float
    values: tuple[int | float, ...]
    why: str
    fitted_to: str = ""

    @property
    def span(self) -> str:
        """The plausible values as text: `25 to 280`."""
        return f"{min(self.values):g} to {max(self.values):g}"

    def text(self, value: object) -> str:
        """Return a value as text."""
        return f"{value:g}" if isinstance(value, (int, float)) else str(value)


@dataclasses.dataclass(frozen=True)
class Choice(_Keyed):
    """What a paper leaves open and is no number: plausible alternatives by name, the default first,
    with the reason.

    `alternatives` gives what is in force for a name. `fitted_to` says knowing which rows the
    default was chosen; empty if knowing none.
    """

    key: str
    alternatives: Mapping[str, object]
    why: str
    fitted_to: str = ""

    @property
    def values(self) -> tuple[object, ...]:
        """What is in force for each alternative, in their order."""
        return tuple(self.alternatives.values())

    @property
    def default(self) -> object:
        """What is in force in all other commands."""
        return self.values[0]

    @property
    def span(self) -> str:
        """The names of the alternatives as text: `in-turn or at-once`."""
        return " or ".join(self.alternatives)

    def text(self, value: object) -> str:
        """Return the name of what is in force."""
        return next(name for name, other in self.alternatives.items() if other == value)


Freedom = Constant | Choice
"""A degree of freedom that a paper's text leaves."""


@contextlib.contextmanager
def in_force(changes: Mapping[str, object]) -> Iterator[None]:
    """Let measures use other values of a cluster's keys."""
    # In one order, as the changes are part of the keys by which `kept` finds results.
    token = _IN_FORCE.set(tuple(sorted(changes.items())))
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


def beside(changes: Mapping[str, object]) -> contextlib.AbstractContextManager[None]:
    """Let measures use other values of some keys, beside those in force."""
    return in_force({**dict(_IN_FORCE.get()), **changes})


@contextlib.contextmanager
def reading() -> Iterator[Callable[[Freedom], bool]]:
    """Yield what says whether a constant or a choice has been read in the body."""
    with _noting() as read:
        yield (
            lambda freedom: (
                freedom.key in read or (is_settable(freedom.key) and _OF_CLUSTERS in read)
            )
        )


@contextlib.contextmanager
def _noting() -> Iterator[set[str]]:
    """Yield the keys that have been read in the body."""
    read = set[str]()
    token = _READ.set(read)
    try:
        yield read
    finally:
        _READ.reset(token)
        # Who reads around this body has read the same keys.
        _note(read)


def _note(keys: Iterable[str]) -> None:
    """Take note that keys are read."""
    if (read := _READ.get(None)) is not None:
        read.update(keys)


def in_use(constant: Constant) -> float:
    """Return a constant's value: its default, unless another one is in force."""
    value = _value(constant)
    assert isinstance(value, (int, float))
    return value


def chosen(choice: Choice) -> str:
    """Return the name of a choice's alternative: the default's, unless another one is in force."""
    return choice.text(_value(choice))


def _value(freedom: Freedom) -> object:
    _note([freedom.key])
    return dict(_IN_FORCE.get()).get(freedom.key, freedom.default)


def cluster_changes(**more: object) -> dict[str, object]:
    """Return those changes in force that clusters have, and `more`, whose names have `__` in place
    of the dot.
    """
    _note([_OF_CLUSTERS])
    changes = {key: value for key, value in _IN_FORCE.get() if is_settable(key)}
    return changes | {key.replace("__", "."): value for key, value in more.items()}


def cluster_of(name: str, counted: Mapping[str, object] | None = None, **more: object) -> Cluster:
    """Return a cluster that comes with emuchain, `counted` as a paper does, with those changes in
    force that clusters have, and `more`.

    Rows suppose what no hardware has, such as links that take no time; that is no note to whom they
    are shown.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        return load_cluster(name, {**(counted or {}), **cluster_changes(**more)})


class kept(Generic[Parameters, Kept]):  # a decorator
    """A function whose results are kept by its arguments and the changes in force, and what was
    read for them.
    """

    def __init__(self, function: Callable[Parameters, Kept]) -> None:
        self._function = function
        self._results: dict[object, tuple[Kept, set[str]]] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Parameters.args, **keys: Parameters.kwargs) -> Kept:
        place = _IN_FORCE.get(), args, tuple(sorted(keys.items()))
        if place not in self._results:
            with _noting() as read:
                self._results[place] = self._function(*args, **keys), read
        result, read = self._results[place]
        # Also for a result that was kept: sensitivities ask which constants a measure has read.
        _note(read)
        return result

    def forget(self) -> None:
        """Calculate anew from now on."""
        self._results.clear()
