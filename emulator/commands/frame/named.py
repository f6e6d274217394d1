"""Types of arguments and flags: files in their roles, numbers, ranges, lists."""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from ...common import NO_FILE, Paths, Reads, Role, Writes, in_folder, parse_counts
from ...config import roles


class Named(click.ParamType):
    """The type of an argument or flag that names files in a `role`, and is besides of type
    `kind`.
    """

    def __init__(self, role: Role, kind: click.ParamType = click.STRING) -> None:
        self.role, self._kind, self.name = role, kind, kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as `kind` has it."""
        return self._kind.convert(value, param, ctx)


class OneOf(click.ParamType):
    """The type of a flag that is one of the names that extensions have, perhaps with keys: imported
    when needed.
    """

    def __init__(self, name: str, known: Callable[[], Iterable[str]]) -> None:
        self.name, self._known = name, known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        known = list(self._known())
        if str(value).partition(":")[0] not in known:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, known))}.", param, ctx)
        return str(value)


class NameWithKeys(click.Choice[str]):
    """The type of a flag that is one of some names, perhaps with keys of its own behind it:
    `NAME:KEY=VALUE`.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, whose keys the configuration checks."""
        super().convert(value.partition(":")[0], param, ctx)
        return value


class NameOrFile(click.Choice[str]):
    """The type of a flag that is one of some names, or a file in a `role`, with a schedule."""

    def __init__(self, names: Iterable[str], role: Role) -> None:
        super().__init__([*names])
        self.role = role

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name, or the path."""
        from ...schedule import is_schedule_file

        if value not in self.choices and is_schedule_file(value):
            return value
        return super().convert(value, param, ctx)


def _optimizers() -> Iterable[str]:
    from ....kernels.optimizers import optimizers

    return optimizers()


OPTIMIZER = OneOf("optimizer", _optimizers)

WORD = Named(NO_FILE)
"""The type of an argument or flag that is text, and names no file."""

PATH = click.Path(path_type=pathlib.Path)
OUTPUT, PICTURE = Named(roles.OUTPUT), Named(roles.OUTPUT, PATH)
NETWORK, CLUSTER, DATA, RUN = (
    Named(role) for role in (roles.NETWORK, roles.CLUSTER, roles.DATA, roles.RUN)
)
HOSTS = Named(Reads("a host file"))
PROFILE, SCHEDULE, ORDER = (
    Named(Reads("a profile")),
    Named(Reads("a schedule")),
    Named(roles.SCHEDULE),
)


def _what_if(text: str) -> Paths:
    from ...config import role_of

    key, _, value = text.partition("=")
    return role_of(key.strip()).files(value.strip())


def _waves(value: str) -> Paths:
    from ...rtl import waves_files

    return waves_files(value)


def _results_in(folder: str) -> Paths:
    return pathlib.Path(folder).rglob("*.h5")


WHAT_IF = Named(Reads("a file to compare with", _what_if))
WAVES = Named(Writes(_waves))
RTL, FIGURES = Named(Writes(in_folder("*.sv"))), Named(Writes(in_folder("*.png")), PATH)
PRINTED = Named(roles.PRINTED, PATH)
FETCHED = Named(Writes(in_folder("*.part")), PATH)
RUNS = Named(
    Reads("a results file", _results_in),
    click.Path(path_type=pathlib.Path, exists=True, file_okay=False),
)


def switch(flag: str, what: str, name: str | None = None) -> Callable[[Any], Any]:
    """Return a flag without a value; its help says `what` it does, and a function gets it by
    `name`, if not its own.
    """
    return click.option(flag, *([] if name is None else [name]), is_flag=True, help=what)


def count_option(
    flag: str, what: str, *, least: int = 1, most: int | None = None, metavar: str = "N", **how: Any
) -> Callable[[Any], Any]:
    """Return a flag that takes a whole number from `least` to `most`."""
    return click.option(flag, type=click.IntRange(least, most), metavar=metavar, help=what, **how)


def word_option(flag: str, metavar: str, what: str, **how: Any) -> Callable[[Any], Any]:
    """Return a flag with text that names no file."""
    return click.option(flag, type=WORD, metavar=metavar, help=what, **how)


def cluster_option(otherwise: str = "", **how: Any) -> Callable[[Any], Any]:
    """Return the flag for a cluster; its help says in the end which one it is `otherwise`, without
    the flag.
    """
    said = (
        "A cluster that comes with emuchain, or a TOML"
        f" file.{otherwise and f'  [default: {otherwise}]'}"
    )
    return click.option("--cluster", type=CLUSTER, metavar="WORD", help=said, **how)


def profile_option(metavar: str, what: str) -> Callable[[Any], Any]:
    """Return the flag for a profile of measured layers; its help says `what` it is taken for."""
    return click.option("--profile", type=PROFILE, metavar=metavar, help=what)


_SEVERAL, _THOUSANDS = (
    re.compile(r"\d+(\s*[,-]\s*\d+)+", re.ASCII),
    re.compile(r"\d{1,3}(,\d{3})+", re.ASCII),
)


class NumberOfSeeds(click.IntRange):
    """A number of seeds; what lists them is shown how to give them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if not _SEVERAL.fullmatch(str(value)) or _THOUSANDS.fullmatch(str(value)):
            return int(super().convert(value, param, ctx))
        seeds = self._listed(str(value))
        how = (
            f"`--seed {seeds[0]} --seeds {len(seeds)}`" if seeds else "such as `--seed 5 --seeds 3`"
        )
        self.fail(
            f"{value!r} is no number: --seed sets the first seed, and --seeds says how many: {how}",
            param,
            ctx,
        )

    def _listed(self, text: str) -> Sequence[int]:
        """Return seeds that follow one another, which a list or a range names; none where it names
        others.
        """
        parts = [part.strip() for part in text.replace("-", ",").split(",")]
        if not all(part.isdecimal() for part in parts):
            return ()
        seeds = range(int(parts[0]), int(parts[-1]) + 1)
        return seeds if "-" in text or list(map(int, parts)) == [*seeds[: len(parts)]] else ()


_LARGEST = 999_999


class Rate(click.FloatRange):
    """A number above zero that is finite."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        rate = float(super().convert(value, param, ctx))
        if not math.isfinite(rate):
            self.fail(f"{value!r} is no rate; should be a number above 0", param, ctx)
        return rate


class ValueList(click.ParamType):
    """Values that `parse` reads from a text; a tuple. Words among them name files in a `role`."""

    name = "values"

    def __init__(self, parse: Callable[[str], tuple[Any, ...]], role: Role = NO_FILE) -> None:
        self._parse, self.role = parse, role

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the values, each once: numbers in ascending order, words in the order given."""
        if isinstance(value, tuple):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def counts(noun: str = "devices", most: int = _LARGEST) -> ValueList:
    """Return the type of numbers of what the noun says: 2,4,8 or 2-8 or 2-64:4, or all mixed."""
    return ValueList(lambda text: parse_counts(text, noun, most))


class CountOrRange(click.ParamType):
    """One number of devices, an int; or a range or list of them, a tuple, which sweeps."""

    name = "count or range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the numbers in ascending order, each once."""
        try:
            return int(value)
        except (TypeError, ValueError):
            several = counts().convert(value, param, ctx)
        return several[0] if len(several) == 1 else several
