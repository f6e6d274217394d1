"""The frame of a command: it checks all files first, and tells what its function has computed.

    flags -> `prepare` -> `check` -> picture's file -> the function -> picture -> JSON or text
             `--set`      no output   refused before   returns a      drawn      printed last: it may
                          is an input anything runs    `Answer`                  not be read to its end

`--set KEY=VALUE` sets any key of a run or its cluster, as its own flag or its file would set it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from ...common import NO_FILE, InputError, NamedFiles, did_you_mean, kind_named
from ...config import ELSEWHERE, OTHER_NAMES, roles
from .kernels import starting
from .named import Named

if TYPE_CHECKING:
    from ...common import WholeFile

_JSON, _PLOT = "printed_as_json", "drawn_in"
"""The names of flags that the frame takes, and no function gets."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a command has computed: `show` prints it, `as_json` returns it for JSON, `draw` draws
    it, and `status` is that of the process, where it found a fault.
    """

    show: Callable[[], object]
    as_json: Callable[[], object] | None = None
    draw: Callable[[WholeFile], object] | None = None
    status: int = 0


def attributes(thing: object, *names: str) -> dict[str, Any]:
    """Return attributes of a thing by their names, as JSON has them."""
    return {name: getattr(thing, name) for name in names}


def json_option(what: str = "Print one JSON object.") -> Callable[[Any], Any]:
    """Return the flag by which a command prints its result as JSON."""
    return click.option("--json", _JSON, is_flag=True, help=what)


def is_json() -> bool:
    """Return whether the command that runs prints JSON: other words go to standard error then."""
    return bool(_of_frame(_JSON))


def drawn_in() -> str | None:
    """Return the picture that the command that runs draws its result in: what has none is refused
    before any other file is written.
    """
    picture: str | None = _of_frame(_PLOT)
    return picture


def _of_frame(name: str) -> Any:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(name)


def plot_option(what: str, metavar: str = "FILE.png") -> Callable[[Any], Any]:
    """Return the flag by which a command draws its result."""
    return click.option("--plot", _PLOT, type=Named(roles.OUTPUT), metavar=metavar, help=what)


SET = "--set"
CHANGES = "changes"
"""The name by which a function gets the changed keys of a cluster."""


def set_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flag `--set` to a command, whose function gets the changed keys of its cluster as
    `changes`.
    """
    description = (
        "Set any key of the cluster, such as link.bandwidth_gbps=250, or one that has a flag here;"
        " may be repeated."
    )
    return click.option(
        SET, CHANGES, type=click.UNPROCESSED, multiple=True, metavar="KEY=VALUE", help=description
    )(command)


def set_parameters(ctx: click.Context, parameters: list[click.Parameter]) -> None:
    """Give the parameters of a command the values that `--set` has for them; leave keys of the
    cluster.

    Raises:
        InputError: a key is unknown, is none of this command, or its flag has another value.
    """
    from ...config import is_of_run

    named = {
        (parameter.name or "").replace("precision_", "precision."): parameter
        for parameter in parameters
    }
    names = {key: parameter.name or "" for key, parameter in named.items() if is_of_run(key)}
    given = {
        key: ctx.params[name]
        for key, name in names.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    placed, changes = with_changes(
        ctx, ctx.params[CHANGES], {key: named[key] for key in names}, given
    )
    for key in filter(is_of_run, changes):
        raise InputError(
            f"{SET} {key}: `{ctx.command_path}` has no such key of a run;"
            f" {did_you_mean(key, names)}it has {', '.join(names)}, and those of the cluster"
        )
    ctx.params |= {CHANGES: changes, **{names[key]: value for key, value in placed.items()}}


def with_changes(
    ctx: click.Context,
    texts: Iterable[str],
    parameters: Mapping[str, click.Parameter],
    given: Mapping[str, Any],
    *,
    words: bool = False,
) -> tuple[dict[str, Any], dict[str, object]]:
    """Return what flags have `given`, by key, together with what `--set` has for them; and its
    other keys.

    Args:
        ctx: the command's context.
        texts: those of `--set`.
        parameters: the flags that read values of `--set`, by key; with `words`, no other values
            than words.
        given: values of these flags.
        words: see `parameters`.

    Raises:
        InputError: a key is unknown, or its flag has another value.
    """
    from ...config import parse_changes

    placed, others = dict(given), dict[str, object]()
    for key, said in parse_changes(texts).items():
        if key not in parameters or (words and not isinstance(said, str)):
            others[key] = said
            continue
        value = _as_flag(ctx, parameters[key], said)
        if placed.setdefault(key, value) != value:
            raise InputError(f"`{key}` = {placed[key]!r}: {SET} has {value!r}; give one of them")
    return placed, others


def _as_flag(ctx: click.Context, parameter: click.Parameter, value: object) -> Any:
    """Return a value of `--set` as the parameter's own flag has it."""
    from ...common import toml_value

    return parameter.process_value(ctx, value if isinstance(value, str) else toml_value(value))


def set_words(changes: Mapping[str, object]) -> list[str]:
    """Return the words of a command line that set these keys."""
    from ...common import toml_value

    return [word for key, value in changes.items() for word in (SET, f"{key}={toml_value(value)}")]


def _named(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _key(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _of_other(name: str) -> str:
    """Return the key of a run that a name says, as its flag has it."""
    return OTHER_NAMES.get(name, name).replace("_", "-")


_OF_RUNS = "--devices"
"""A flag that commands have which take the keys of a run."""
_DATA = ("shapes", "text")

USUAL_FLAGS = {
    **{_named(name): _named(key) for name, key in OTHER_NAMES.items()},
    **dict.fromkeys(("--lr-step", "--lr-decay"), "--lr-schedule step:every=1000,factor=0.1"),
    **dict.fromkeys(
        ("--learning-rate-steps", "--learning-rate-factor"),
        "--lr-schedule steps:at=10,20,factor=0.1",
    ),
    "--topology": "--set links.topology=NAME",
    **dict.fromkeys(("--bandwidth", "--link-bandwidth"), "--set link.bandwidth_gbps=RATE"),
    **dict.fromkeys(("--latency", "--link-latency"), "--set link.latency_ns=TIME"),
    **dict.fromkeys(("--clock", "--clock-mhz", "--frequency"), "--set board.clock_mhz=RATE"),
}
"""What flags of other programs, and keys of a cluster, are called where a command has what they
say.
"""


class Restart(NamedTuple):
    """How a command is started again after it has died: once `file` is there, with the words
    `more`, and goes on.

    Words in `less` are for the first start alone. Without a file it begins again.
    """

    file: str | None = None
    more: tuple[str, ...] = ()
    less: tuple[str, ...] = ()


class FileCommand(click.Command):
    """A command that checks the files of its arguments and flags before its function is called.

    All commands of emuchain are of this class. An argument or flag that is text has the type
    `Named`, or another one with a `role`. `meant` are flags that it does not have, with what to
    give instead.
    """

    allow_extra_args = True  # `parse_args` refuses them, and says what is meant
    takes_ranks = False
    """Whether several ranks share its work; otherwise it is one process."""

    def __init__(
        self, *args: Any, meant: Mapping[str, str] = MappingProxyType({}), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._meant = meant

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click; of a flag or word that the command does not have, say what is meant."""
        try:
            others = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            flag = error.option_name
            meant = self._meant.get(flag) or self._usual(ctx, flag)
            if meant is not None:
                message = f"No such option '{flag}'. Did you mean {meant!r}?"
            elif _key(flag) in ELSEWHERE and _OF_RUNS in self._known(ctx):
                message = f"No such option '{flag}': {ELSEWHERE[_key(flag)]}."
            else:
                raise
            raise click.NoSuchOption(flag, message, ctx=error.ctx) from None
        if others and not ctx.resilient_parsing:
            noun = "arguments" if len(others) > 1 else "argument"
            said = self._said(ctx, others[0])
            ctx.fail(f"Got unexpected extra {noun} ({' '.join(others)}){said}")
        return others

    def _said(self, ctx: click.Context, word: str) -> str:
        """Return what a word behind a command's arguments may say, for the end of a message."""
        known = self._known(ctx)
        first = next(
            (
                ctx.params.get(param.name or "")
                for param in self.get_params(ctx)
                if isinstance(param, click.Argument)
            ),
            None,
        )
        meant = ""
        changes = ctx.params.get(CHANGES) or ()
        if isinstance(changes, tuple) and any("=" not in change for change in changes):
            meant = f"{SET} {changes[-1]}={word}"
        elif "--cluster" in known and kind_named(word) == "cluster":
            meant = f"--cluster {word}"
        elif "--cluster" in known and kind_named(word) and kind_named(str(first)) == "cluster":
            return (
                f"; network and cluster have changed places: `{ctx.command_path} {word} --cluster"
                f" {first}`"
            )
        elif kind_named(word) and kind_named(str(first)) and self._takes_several(ctx):
            meant = f"{first},{word}"
        elif (flag := f"--{_of_other(word.partition('=')[0])}") in known and "=" in word:
            meant = f"{flag} {word.partition('=')[2]}"
        elif _OF_RUNS in known and re.fullmatch(r"\d[\d,:-]*", word):
            meant = f"{_OF_RUNS} {word}"
        elif "--data" in known and (word in _DATA or os.path.exists(word)):
            meant = f"--data {word}"
        return f". Did you mean '{meant}'?" if meant else ""

    def _takes_several(self, ctx: click.Context) -> bool:
        roles_of = [getattr(param.type, "role", NO_FILE) for param in self.get_params(ctx)]
        return roles.NETWORKS in roles_of

    def _known(self, ctx: click.Context) -> set[str]:
        return {name for param in self.get_params(ctx) for name in param.opts}

    def _usual(self, ctx: click.Context, flag: str) -> str | None:
        """Return what a flag that other programs have is called here, if the command has it."""
        known = self._known(ctx)
        # Keys of a cluster are flags of some commands, such as `sweep`, and what `--set` has of others.
        table, dot, _ = flag.partition(".")
        is_key = dot and not any(name.startswith(f"{table}.") for name in known)
        meant = USUAL_FLAGS.get(flag, f"{SET} {flag[2:]}=VALUE" if is_key else "")
        return meant if meant.partition(" ")[0] in known else None

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function, and tell its `Answer`, if it returns one; return the exit status.

        Raises:
            InputError: an output is an input, too, or another output, or the picture's file cannot
                be written.
        """
        self.prepare(ctx)
        self.check(ctx, NamedFiles())
        ctx.meta.update({name: ctx.params.pop(name, None) for name in (_JSON, _PLOT)})
        with _picture_file(drawn_in()) as picture:
            result = super().invoke(ctx)
            if picture is not None and isinstance(result, Answer) and result.draw is not None:
                result.draw(picture)
        if not isinstance(result, Answer):
            return result
        if is_json() and result.as_json is not None:
            print(json.dumps(result.as_json(), indent=2))
        else:
            result.show()
        return result.status

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
            files.add(
                setting_of(param),
                ctx.params.get(param.name or ""),
                getattr(param.type, "role", NO_FILE),
            )
        files.check()

    def restart(self, ctx: click.Context) -> Restart | None:
        """Return how `emuchain launch` starts the command again, once it has been checked; None
        where that may not.
        """
        return Restart()


def setting_of(param: click.Parameter) -> str:
    """Return the name of an argument or flag in messages."""
    flags = [name for name in param.opts if name.startswith("--")]
    return flags[0].removeprefix("--").replace("-", "_") if flags else param.name or ""


class FileGroup(click.Group):
    """A group of such commands."""

    command_class = FileCommand
    group_class = type


def _picture_file(plot: str | None) -> contextlib.AbstractContextManager[WholeFile | None]:
    if plot is None:
        return contextlib.nullcontext()
    with starting():
        from ...view import picture_file

    return picture_file(plot, "--plot")
