"""Types of arguments and flags (files, ranges, lists); commands that compare what they write with all else first.

`--set KEY=VALUE` is here, too: any key of a run or its cluster, as its own flag or its file would set it.
"""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from ...common import NO_FILE, InputError, NamedFiles, Paths, Reads, Role, Writes, did_you_mean, in_folder
from ...config import roles


class Named(click.ParamType):
    """The type of an argument or flag that names files in a `role`, and is besides of type `kind`."""

    def __init__(self, role: Role, kind: click.ParamType = click.STRING) -> None:
        self.role, self._kind, self.name = role, kind, kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as `kind` has it."""
        return self._kind.convert(value, param, ctx)


class OneOf(click.ParamType):
    """The type of a flag that is one of the names that extensions have, perhaps with keys: imported when needed."""

    def __init__(self, name: str, known: Callable[[], Iterable[str]]) -> None:
        self.name, self._known = name, known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        known = list(self._known())
        if str(value).partition(":")[0] not in known:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, known))}.", param, ctx)
        return str(value)


class NameWithKeys(click.Choice[str]):
    """The type of a flag that is one of some names, perhaps with keys of its own behind it: `NAME:KEY=VALUE`."""

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
NETWORK, CLUSTER, DATA, RUN = (Named(role) for role in (roles.NETWORK, roles.CLUSTER, roles.DATA, roles.RUN))
HOSTS = Named(Reads("a host file"))
PROFILE, SCHEDULE, ORDER = Named(Reads("a profile")), Named(Reads("a schedule")), Named(roles.SCHEDULE)


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
RUNS = Named(Reads("a results file", _results_in), click.Path(path_type=pathlib.Path, exists=True, file_okay=False))


def cluster_option(otherwise: str = "", **how: Any) -> Callable[[Any], Any]:
    """Return the flag for a cluster; its help says in the end which one it is `otherwise`, without the flag."""
    said = f"A cluster that comes with emuchain, or a TOML file.{otherwise and f'  [default: {otherwise}]'}"
    return click.option("--cluster", type=CLUSTER, metavar="WORD", help=said, **how)


def profile_option(metavar: str, what: str) -> Callable[[Any], Any]:
    """Return the flag for a profile of measured layers; its help says `what` it is taken for."""
    return click.option("--profile", type=PROFILE, metavar=metavar, help=what)


SET = "--set"
CHANGES = "changes"
"""The name by which a function gets the changed keys of a cluster."""


def set_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flag `--set` to a command, whose function gets the changed keys of its cluster as `changes`."""
    told = "Set any key of the cluster, such as link.bandwidth_gbps=250, or one that has a flag here; may be repeated."
    return click.option(SET, CHANGES, type=click.UNPROCESSED, multiple=True, metavar="KEY=VALUE", help=told)(command)


def set_parameters(ctx: click.Context, parameters: list[click.Parameter]) -> None:
    """Give the parameters of a command the values that `--set` has for them; leave keys of the cluster.

    Raises:
        InputError: a key is unknown, is none of this command, or its flag has another value.
    """
    from ...config import is_of_run, parse_changes

    by_key = {(parameter.name or "").replace("precision_", "precision."): parameter for parameter in parameters}
    changes = parse_changes(ctx.params[CHANGES])
    for key in [key for key in changes if is_of_run(key)]:
        parameter, value = by_key.get(key), changes.pop(key)
        if parameter is None or parameter.name is None:
            keys = [key for key in by_key if is_of_run(key)]
            raise InputError(
                f"{SET} {key}: `{ctx.command_path}` has no such key of a run; {did_you_mean(key, keys)}it has"
                f" {', '.join(keys)}, and those of the cluster"
            )
        given = ctx.params[parameter.name]
        ctx.params[parameter.name] = set_value(ctx, parameter, value)
        is_given = ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        if is_given and given != ctx.params[parameter.name]:
            raise InputError(f"`{key}` = {given!r}: {SET} has {ctx.params[parameter.name]!r}; give one of them")
    ctx.params[CHANGES] = changes


def set_value(ctx: click.Context, parameter: click.Parameter, value: object) -> Any:
    """Return a value of `--set` as the parameter's own flag has it."""
    from ...common import toml_value

    return parameter.process_value(ctx, value if isinstance(value, str) else toml_value(value))


def set_words(changes: Mapping[str, object]) -> list[str]:
    """Return the words of a command line that set these keys."""
    from ...common import toml_value

    return [word for key, value in changes.items() for word in (SET, f"{key}={toml_value(value)}")]


USUAL_FLAGS = {
    **dict.fromkeys(("--lr", "--learningrate", "--step-size"), "--learning-rate"),
    **dict.fromkeys(("--batch-size", "--minibatch", "--mini-batch", "--bs"), "--batch"),
    **dict.fromkeys(("--micro-batch-size", "--microbatch"), "--micro-batch"),
    **dict.fromkeys(("--gpus", "--boards", "--nodes", "--fpgas", "--num-devices", "--n-devices"), "--devices"),
    **dict.fromkeys(("--wd", "--decay"), "--weight-decay"),
    **dict.fromkeys(("--num-epochs", "--n-epochs"), "--epochs"),
    **dict.fromkeys(("--dataset", "--data-dir", "--data-path"), "--data"),
    **dict.fromkeys(("--dtype", "--format", "--amp"), "--precision"),
    **dict.fromkeys(("--optim", "--opt"), "--optimizer"),
    **dict.fromkeys(("--output", "--save-to"), "--out"),
    **dict.fromkeys(("--board", "--platform"), "--cluster"),
    **dict.fromkeys(("--codec", "--compression"), "--compress"),
    "--random-seed": "--seed",
    "--topology": "--set links.topology=NAME",
    **dict.fromkeys(("--bandwidth", "--link-bandwidth"), "--set link.bandwidth_gbps=RATE"),
    **dict.fromkeys(("--latency", "--link-latency"), "--set link.latency_ns=TIME"),
    **dict.fromkeys(("--clock", "--clock-mhz", "--frequency"), "--set board.clock_mhz=RATE"),
}
"""What flags of other programs, and keys of a cluster, are called where a command has what they say."""


class Restart(NamedTuple):
    """How a command is started again after it has died: once `file` is there, with the words `more`, and goes on.

    Words in `less` are for the first start alone. Without a file it begins again.
    """

    file: str | None = None
    more: tuple[str, ...] = ()
    less: tuple[str, ...] = ()


class FileCommand(click.Command):
    """A command that checks the files of its arguments and flags before its function is called.

    All commands of emuchain are of this class. An argument or flag that is text has the type `Named`, or another one
    with a `role`. `meant` are flags that it does not have, with what to give instead.
    """

    takes_ranks = False
    """Whether several ranks share its work; otherwise it is one process."""

    def __init__(self, *args: Any, meant: Mapping[str, str] = MappingProxyType({}), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._meant = meant

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click; of a flag that the command does not have, say what is meant."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            meant = self._meant.get(error.option_name) or self._usual(ctx, error.option_name)
            if meant is None:
                raise
            message = f"No such option '{error.option_name}'. Did you mean {meant!r}?"
            raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from None

    def _usual(self, ctx: click.Context, flag: str) -> str | None:
        """Return what a flag that other programs have is called here, if the command has it."""
        meant = USUAL_FLAGS.get(flag, "")
        known = {name for param in self.get_params(ctx) for name in param.opts}
        return meant if meant.partition(" ")[0] in known else None

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function.

        Raises:
            InputError: an output is an input, too, or another output.
        """
        self.prepare(ctx)
        self.check(ctx, NamedFiles())
        return super().invoke(ctx)

    def prepare(self, ctx: click.Context) -> None:
        """Turn the arguments and flags into those of the function.

        Raises:
            InputError: one of them is wrong.
        """
        if isinstance(ctx.params.get(CHANGES), tuple):
            set_parameters(ctx, self.get_params(ctx))

    def check(self, ctx: click.Context, files: NamedFiles) -> None:
        """Add all files, and check them.

        Raises:
            InputError: an output is an input, too, or another output.
        """
        for param in self.get_params(ctx):
            files.add(setting_of(param), ctx.params.get(param.name or ""), getattr(param.type, "role", NO_FILE))
        files.check()

    def restart(self, ctx: click.Context) -> Restart | None:
        """Return how `emuchain launch` starts the command again, once it has been checked; None where that may not."""
        return Restart()


def setting_of(param: click.Parameter) -> str:
    """Return the name of an argument or flag in messages."""
    flags = [name for name in param.opts if name.startswith("--")]
    return flags[0].removeprefix("--").replace("-", "_") if flags else param.name or ""


class FileGroup(click.Group):
    """A group of such commands."""

    command_class = FileCommand
    group_class = type


_SEVERAL, _THOUSANDS = re.compile(r"\d+(\s*[,-]\s*\d+)+", re.ASCII), re.compile(r"\d{1,3}(,\d{3})+", re.ASCII)


class NumberOfSeeds(click.IntRange):
    """A number of seeds; what lists them is told how to give them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if not _SEVERAL.fullmatch(str(value)) or _THOUSANDS.fullmatch(str(value)):
            return int(super().convert(value, param, ctx))
        seeds = self._listed(str(value))
        how = f"`--seed {seeds[0]} --seeds {len(seeds)}`" if seeds else "such as `--seed 5 --seeds 3`"
        self.fail(f"{value!r} is no number: --seed sets the first seed, and --seeds says how many: {how}", param, ctx)

    def _listed(self, text: str) -> Sequence[int]:
        """Return seeds that follow one another, which a list or a range names; none where it names others."""
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

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        rate = float(super().convert(value, param, ctx))
        if not math.isfinite(rate):
            self.fail(f"{value!r} is no rate; should be a number above 0", param, ctx)
        return rate


class Counts(click.ParamType):
    """Numbers of `of`, such as "devices": 2,4,8 or 2-8 or 2-64:4, or all mixed; a tuple in ascending order."""

    name = "counts"

    def __init__(self, noun: str = "devices", most: int = _LARGEST) -> None:
        self._noun, self._most = noun, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the numbers in ascending order, each once."""
        if isinstance(value, tuple):
            return value
        from ...common import parse_counts

        try:
            return parse_counts(value, self._noun, self._most)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class CountOrRange(click.ParamType):
    """One number of devices, an int; or a range or list of them, a tuple, which sweeps."""

    name = "count or range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the numbers in ascending order, each once."""
        try:
            return int(value)
        except (TypeError, ValueError):
            counts = Counts().convert(value, param, ctx)
        return counts[0] if len(counts) == 1 else counts


class Values(click.ParamType):
    """Values of any key: numbers and ranges of numbers, or words, which name files in a `role`; a tuple."""

    name = "values"

    def __init__(self, role: Role = NO_FILE) -> None:
        self.role = role

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return numbers in ascending order, words in the order given, each once."""
        if isinstance(value, tuple):
            return value
        from ...common import parse_values

        try:
            return parse_values(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
