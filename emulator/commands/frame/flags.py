"""A command's first argument, and the configuration's keys as flags, made on demand: their model is
slow to import.
"""

from __future__ import annotations

import functools
import os
import pathlib
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...common import InputError, NamedFiles, did_you_mean, kind_named, listed
from ...config import GROUPS, roles
from .command import CHANGES, SET, FileCommand, Restart, with_changes
from .kernels import starting
from .named import OUTPUT, WORD, CountOrRange, Named, NameOrFile, NameWithKeys

if TYPE_CHECKING:
    from ...config import Config
    from ...run import Runs

_OF_NETWORKS = {"layers"}
"""Keys that a network's description has, and that no configuration has."""


_SHOWS_ALL = "emuchain.help-all"
"""Where a command's context says that its help has every flag."""


class Subject(NamedTuple):
    """A network, or the file of a configuration; the other one is None, and so are both without a
    word.
    """

    network: str | None = None
    config_file: str | None = None


def _schedules() -> Iterable[str]:
    from ...schedule import schedules

    return schedules()


def subject_of(word: str | None) -> Subject:
    """Return what `word` names: a network that comes with emuchain, an ONNX file, or a TOML file,
    by its keys.

    Raises:
        InputError: it names none of these, or is a file that cannot be read.
    """
    from ...common import read_toml
    from ...network import code_of, zoo

    if word is None:
        return Subject()
    if word in zoo() or word.lower().endswith(".onnx") or code_of(word):
        return Subject(network=word)
    path = pathlib.Path(word)
    if not (word.lower().endswith(".toml") or os.path.isfile(word)):
        kind = "schedule" if word in _schedules() else kind_named(word)
        if kind:
            raise InputError(
                f"{word!r}: is a {kind}, no network; give the network first, and `--{kind} {word}`"
                " behind it"
            )
        raise InputError(
            f"{word!r}: neither a `network` that comes with emuchain nor a TOML or ONNX file; "
            f"{did_you_mean(word, zoo())}known networks: {listed('network', word, zoo())}"
        )
    if _OF_NETWORKS & read_toml(path).keys():
        return Subject(network=word)
    return Subject(config_file=word)


USUAL = {
    *(
        "network",
        "data",
        "samples",
        "epochs",
        "batch",
        "optimizer",
        "learning_rate",
        "devices",
        "schedule",
        "replicas",
    ),
    *("compress", "cluster", "changes", "out", "checkpoint", "resume"),
}
"""The keys whose flags `--help` shows; `--help-all` shows all."""

PRECISION_KEYS = {
    "activations": "format of images, and of what layers hand on",
    "weights": "format of the weights that FP and EB read",
    "errors": "format of errors of outputs and inputs",
    "gradients": "format of a mini-batch's mean gradient",
    "master": "format of the weights that updates change",
    "states": "format of what updates remember",
    "accumulate": "format of sums: fp32, bf16, fp16, int32",
    "rounding": "even, away, zero or stochastic",
    "scale": "scales of blocks: up, or OCP's floor",
    "hadamard": "pixels that PG transforms before it rounds them: 0, 4 or 16",
    "scaling": "scales of maps and weights: none or delayed",
    "block": "blocks of weights, both for FP and EB: none, 8x8, 16x16 or 32x32",
    "loss_scale": "power of two by which errors are scaled up, or dynamic",
    "layer": "formats of single layers: head=bf16,conv1:conv3.errors=fp16",
    "epoch": "formats from an epoch on: 3=bf16,5.errors=fp16",
}
"""The keys of the table `precision`."""

RANGE_METAVAR = "N|RANGE"
RANGE_HELP = "a range such as 1-64 or 1,2,4,8 is swept"

range_option = click.option(
    "--range",
    "ranged",
    type=click.Choice(["90", "none"]),
    default="90",
    callback=lambda ctx, option, value: value != "none",
    help="Show between what values answers lie in 90 % of cases; none: do not.  [default: 90]",
)
full_option = click.option(
    "--full", is_flag=True, help="Show all devices and links, not only the most loaded ones."
)


def write_groups(formatter: click.HelpFormatter, records: Mapping[str, tuple[str, str]]) -> None:
    """Write the flags of keys, each with its help, group by group, as the tables of a file are
    called.
    """
    for group, keys in GROUPS.items():
        shown = [records[key] for key in keys if key in records]
        if shown:
            with formatter.section(f"[{group}]"):
                formatter.write_dl(shown)


def write_others(
    formatter: click.HelpFormatter,
    ctx: click.Context,
    others: Iterable[click.Parameter],
    records: Mapping[str, tuple[str, str]],
) -> None:
    """Write a command's own flags, behind those of keys if it has any."""
    with formatter.section("This command" if records else "Options"):
        formatter.write_dl([record for param in others if (record := param.get_help_record(ctx))])


class ConfiguredCommand(FileCommand):
    """A command that takes a network or a configuration file, and a flag for each key.

    Its function gets `config_file`, and the dictionary `flags` of the flags that are set; a network
    is one of them.
    """

    sweeps = False
    """Whether `--devices` may be a range, which the function then gets as a tuple."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all arguments and flags, those of the keys first."""
        own = [self._subject, *self._flags.values(), *self._precision_flags, self._help_all]
        return [*own, *super().get_params(ctx)]

    @functools.cached_property
    def _subject(self) -> click.Argument:
        return click.Argument(
            ["subject"], metavar="[NETWORK|CONFIG.toml]", required=False, type=WORD
        )

    @functools.cached_property
    def _flags(self) -> dict[str, click.Option]:
        options = {key: _flag(key) for key in self.config_keys()}
        options["devices"].type = CountOrRange()
        if self.sweeps:
            options["devices"].metavar = RANGE_METAVAR
            options["devices"].help = f"{options['devices'].help}; {RANGE_HELP}"
        return options

    @functools.cached_property
    def _precision_flags(self) -> list[click.Option]:
        """Flags for the keys of the table `precision`."""
        return [_precision_flag(name) for name in PRECISION_KEYS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags of keys group by group, the usual ones or all, then the command's own."""
        shows_all = bool(ctx.meta.get(_SHOWS_ALL))
        records = {
            key: record
            for key, flag in self._flags.items()
            if (record := flag.get_help_record(ctx))
        }
        write_groups(
            formatter,
            records if shows_all else {key: records[key] for key in records if key in USUAL},
        )
        tabled = [record for flag in self._precision_flags if (record := flag.get_help_record(ctx))]
        if shows_all and tabled:
            with formatter.section("Formats of numbers"):
                formatter.write_dl(tabled)
        keyed = [*self._flags.values(), *self._precision_flags]
        write_others(
            formatter, ctx, [param for param in self.get_params(ctx) if param not in keyed], records
        )

    @functools.cached_property
    def _help_all(self) -> click.Option:
        """The flag that shows all flags and exits, as `--help` shows the usual ones."""

        def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
            if value and not ctx.resilient_parsing:
                ctx.meta[_SHOWS_ALL] = True
                click.echo(ctx.get_help(), color=ctx.color)
                ctx.exit()

        return click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=show,
            help="Show every option.",
        )

    def config_keys(self) -> list[str]:
        """Return the keys that have a flag."""
        from ...config import Config

        return list(Config.model_fields)

    def prepare(self, ctx: click.Context) -> None:
        """See `FileCommand`; the function gets the flags that are set as `flags`.

        Raises:
            InputError: the first argument names neither a network nor a file that can be read, or
                `--set` has an unknown key, or one that has a flag with another value.
        """
        from ...config import in_place

        values = {key: ctx.params.pop(key) for key in self._flags}
        table = {
            f"precision_{name}": ctx.params.pop(f"precision_{name}") for name in PRECISION_KEYS
        }
        if isinstance(values["devices"], tuple) and not self.sweeps:
            raise click.UsageError(
                f"--devices: {self.name} takes one number; `emuchain sweep NETWORK --devices 1-64`"
                " takes ranges",
                ctx,
            )
        flags = {key: value for key, value in values.items() if value not in (None, ())}
        tabled = _with_table({**flags, **table})
        # Words are read as those of their flags; other values are TOML, as in a file.
        placed, changes = with_changes(
            ctx, tabled.pop(CHANGES, ()), self._flags, tabled, words=True
        )
        flags = in_place({**placed, CHANGES: changes}, SET)
        network, ctx.params["config_file"] = subject_of(ctx.params.pop("subject"))
        if network is not None and flags.setdefault("network", network) != network:
            raise click.UsageError(
                f"{network} and --network {flags['network']}: give one network", ctx
            )
        ctx.params["flags"] = flags
        super().prepare(ctx)

    def check(self, ctx: click.Context, files: NamedFiles) -> None:
        """See `FileCommand`; the configuration with its flags names files, too."""
        from ...config import blaming, load_config, name_files

        file, flags = ctx.params["config_file"], ctx.params["flags"]
        files.add("CONFIG.toml", file, roles.CONFIGURATION)
        with blaming(file, flags):
            of_one = {
                key: value
                for key, value in flags.items()
                if not isinstance(value, tuple) or key != "devices"
            }
            for config in self.configs(ctx, load_config(file, of_one)):
                name_files(files, dict(config))
            super().check(ctx, files)

    def configs(self, ctx: click.Context, given: Config) -> Iterable[Config]:
        """Return all configurations that the command runs, from the given one.

        Raises:
            InputError: one of them would be wrong.
        """
        return [given]


def _precision_flag(name: str) -> click.Option:
    """Return the flag of a key of the table `precision`."""
    return click.Option(
        [f"--precision.{name.replace('_', '-')}", f"precision_{name}"],
        type=WORD,
        metavar="N|dynamic" if name == "loss_scale" else "WORD",
        help=f"{PRECISION_KEYS[name]}.",
    )


def _with_table(flags: dict[str, Any]) -> dict[str, Any]:
    """Return flags with those of the table `precision` as that key."""
    table = {name: flags.pop(f"precision_{name}", None) for name in PRECISION_KEYS}
    given = {name: value for name, value in table.items() if value is not None}
    if given and flags.get("precision") is not None:
        given = {"format": flags["precision"], **given}
    return {**flags, "precision": given} if given else flags


def with_precision(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of formats to a command, whose function gets them as `precision`, a name, a
    table or None.
    """

    @functools.wraps(command)
    def tabled(*arguments: Any, **flags: Any) -> Any:
        return command(*arguments, **_with_table(flags))

    options = getattr(tabled, "__click_params__", [])
    usual = click.Option(
        ["--precision"], type=WORD, metavar="NAME", help="Format of numbers.  [default: fp32]"
    )
    tabled.__click_params__ = [*map(_precision_flag, reversed(PRECISION_KEYS)), usual, *options]  # type: ignore[attr-defined]  # as click does
    return tabled


RUNS = "emuchain.runs"
"""Where the context of a command that trains keeps its `Runs`."""


class TrainingCommand(ConfiguredCommand):
    """A `ConfiguredCommand` that trains, perhaps in several variants, which are then in its
    context.
    """

    def configs(self, ctx: click.Context, given: Config) -> Iterable[Config]:
        """See `ConfiguredCommand`."""
        ctx.meta[RUNS] = runs = self.runs(ctx, given)
        return runs.all_configs

    def check(self, ctx: click.Context, files: NamedFiles) -> None:
        """See `FileCommand`; runs that go on name the files that their checkpoint says."""
        from ...config import blaming, name_files

        super().check(ctx, files)
        runs: Runs = ctx.meta[RUNS]
        if runs.base.resume is None:
            return
        with starting(), blaming(ctx.params["config_file"], ctx.params["flags"]):
            ctx.meta[RUNS] = runs = runs.going_on()
            for config in runs.all_configs:
                name_files(files, dict(config))
            files.check()

    def runs(self, ctx: click.Context, given: Config) -> Runs:
        """Return the runs of a configuration.

        Raises:
            InputError: they cannot be made of it.
        """
        raise NotImplementedError

    def restart(self, ctx: click.Context) -> Restart:
        """See `FileCommand`: with `--resume`, which names the checkpoint as `--checkpoint` does."""
        runs: Runs = ctx.meta[RUNS]
        named = runs.base.checkpoint
        return Restart(runs.configs[0].checkpoint, () if named is None else ("--resume", named))


class PlanningCommand(ConfiguredCommand):
    """A `ConfiguredCommand` without the keys that matter only for training.

    One that `sweeps` takes a range of devices, too.
    """

    def __init__(self, *args: Any, sweeps: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sweeps = sweeps

    def config_keys(self) -> list[str]:
        """Return the keys that have a flag."""
        from ...config import RUN_ONLY_KEYS

        return [key for key in super().config_keys() if key not in RUN_ONLY_KEYS]


def traced(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of a trace to a command, whose function gets them as `trace`, `trace_level` and
    `trace_samples`.
    """
    options = [
        click.option(
            "--trace",
            type=OUTPUT,
            metavar="FILE.json",
            help="Write a timeline for https://ui.perfetto.dev.",
        ),
        click.option(
            "--trace-level",
            type=click.Choice(["sample", "row"]),
            help="One slice per sample, or one per row of a sample.  [default: sample]",
        ),
        click.option(
            "--trace-samples",
            type=WORD,
            metavar="FIRST-LAST",
            help="Samples in the trace, counted from 0.  [default: 0-63]",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _flag(key: str) -> click.Option:
    from ...config import Config, role_of

    field = Config.model_fields[key]
    if key == CHANGES:
        description = (field.description or "").replace("`", "")
        return click.Option(
            [SET, "--changes", key], type=WORD, multiple=True, metavar="KEY=VALUE", help=description
        )
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "choices" in extra:
        names = typing.cast(list[str], extra["choices"])
        kind: Any = NameOrFile(names, role_of(key)) if key == "schedule" else NameWithKeys(names)
    else:
        kind = _flag_type(_hints()[key])
    default = "" if field.default in (None, ()) else f"  [default: {field.default}]"
    return click.Option(
        [f"--{key.replace('_', '-')}", key],
        type=Named(role_of(key)) if kind in (str, list) else kind,
        is_flag=True if kind is bool else None,
        default=None,
        metavar="NAME|FILE" if key == "schedule" else _metavar(kind),
        help=f"{(field.description or '').replace('`', '')}{default}",
        callback=_listed if kind is list else None,
    )


@functools.cache
def _hints() -> dict[str, Any]:
    """Return the type of each key; working them out takes as long as a small plan."""
    from ...config import Config

    return typing.get_type_hints(Config, include_extras=False)


def _flag_type(hint: Any) -> Any:
    choices = [arg for arg in typing.get_args(hint) if isinstance(arg, str)]
    if choices:
        return click.Choice(choices)
    if hint is bool:
        return bool
    if typing.get_origin(hint) is tuple:
        return list
    kinds = {hint, *typing.get_args(hint)}
    return int if int in kinds else float if float in kinds else str


def _metavar(kind: Any) -> str | None:
    return (
        None
        if kind is bool or isinstance(kind, click.Choice)
        else {int: "N", float: "X", list: "A,B"}.get(kind, "WORD")
    )


def _listed(_: Any, __: Any, value: str | None) -> object:
    """Parse a list such as 0.5,0.4 or crop,flip."""
    from ...config import listed

    return None if value is None else listed(value)
