"""`emuchain sweep`: a network's rate over ranges of any keys, most of all over the number of
boards.
"""

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ... import view
from ...common import IMAGENET_IMAGES, InputError, NamedFiles, parse_values, plural
from ...config import roles
from ..frame.command import (
    CHANGES,
    SET,
    Answer,
    FileCommand,
    Restart,
    json_option,
    plot_option,
    set_option,
    with_changes,
)
from ..frame.flags import range_option, write_groups, write_others
from ..frame.kernels import starting
from ..frame.named import PICTURE, Named, Rate, ValueList, count_option, switch, word_option
from ..frame.output import tell

if TYPE_CHECKING:
    from ....launch import Ranks
    from ...studies.sweep import SweepResult
    from ..frame.session import Session


_INTERRUPTED_STATUS = 130
_MOST_ROWS = 24
_MANY_POINTS = 2_000
_MOST_BOARDS = 3
_HELP = {"devices": "emulated FPGAs of a chain; default: 1, or a pair's own"}


class SweepCommand(FileCommand):
    """A command with a flag for each key that can be swept; its function gets those given as
    `swept`.
    """

    takes_ranks = True

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the argument and the flags of keys, and then all others."""
        first, *others = super().get_params(ctx)
        return [first, *self._keys.values(), *others]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags of keys group by group, then the command's own."""
        records = {
            key: record for key, flag in self._keys.items() if (record := flag.get_help_record(ctx))
        }
        write_groups(formatter, records)
        keyed = [*self._keys.values()]
        write_others(
            formatter, ctx, [param for param in self.get_params(ctx) if param not in keyed], records
        )

    def key_names(self) -> list[str]:
        """Return the keys that have a flag."""
        from ...studies.sweep import sweepable_keys

        return sweepable_keys()

    @functools.cached_property
    def _keys(self) -> dict[str, click.Option]:
        from ...config import Config, role_of

        keys = {}
        for key in self.key_names():
            field = Config.model_fields.get(key)
            if key == "network":
                continue
            keys[key] = click.Option(
                [f"--{key.replace('_', '-') if field else key}", _parameter(key)],
                type=ValueList(parse_values, role_of(key)),
                metavar="VALUES",
                help=_HELP.get(key, (field.description or "").replace("`", "")) if field else None,
                hidden=field is None,
            )
        return keys

    def prepare(self, ctx: click.Context) -> None:
        """See `FileCommand`; the function gets the keys that are given, and others of `--set`, the
        same at all points.

        Raises:
            InputError: a key of `--set` is unknown, or has a flag with other values.
        """
        from ...config import in_place

        given = {key: ctx.params.pop(_parameter(key)) for key in self._keys}
        swept = {key: values for key, values in given.items() if values is not None}
        ctx.params["swept"], settings = with_changes(
            ctx, ctx.params.pop(CHANGES), self._keys, swept
        )
        if "network" in settings:
            raise InputError(
                f"{SET} network={settings['network']}: NETWORK is the command's argument"
            )
        ctx.params["settings"] = in_place({CHANGES: settings}, SET)
        super().prepare(ctx)

    def restart(self, ctx: click.Context) -> Restart:
        """See `FileCommand`: points that are in the file are not computed again."""
        csv = ctx.params["csv"]
        return Restart(None if csv is None else str(csv), less=("--restart",))

    def check(self, ctx: click.Context, files: NamedFiles) -> None:
        """See `FileCommand`; several values name several files."""
        from ...config import name_files

        name_files(files, ctx.params["swept"])
        super().check(ctx, files)


_SOUGHT = "devices", "replicas", "schedule"
"""Keys of `--set` whose values are then no others."""


def _parameter(key: str) -> str:
    return f"key_{key.replace('.', '__')}"


@click.command(
    cls=SweepCommand, epilog="Keys of boards, links and the like: docs/configuration.md, a cluster."
)
@click.argument("network", type=Named(roles.NETWORKS))
@click.option(
    "--target",
    type=Rate(),
    metavar="RATE",
    help=(
        "Say which point reaches RATE samples/s with the fewest boards, replicas included; without"
        " --devices and --replicas, of 1 to 64 boards in 1 to 8 replicas, by fpdeep and sync."
    ),
)
@word_option(
    "--pareto",
    "LIST",
    "Say which points none is better than in one of these without being worse in another: rate,"
    " boards, memory, joules, price, such as rate,boards.",
)
@count_option(
    "--trials",
    "Most points tried for --pareto, of a space that has more, drawn by NSGA-II.  [needs Optuna]",
)
@count_option("--seed", "Seed of the trials.", default=0, show_default=True, least=0)
@plot_option("Draw the rate, or the front.")
@click.option(
    "--csv",
    type=PICTURE,
    metavar="FILE.csv",
    help="Write all points; an interrupted sweep resumes from this file.",
)
@switch("--restart", "Start the CSV file over.")
@json_option()
@switch("--full", f"Print all points, not only {_MOST_ROWS}.")
@range_option
@set_option
@count_option("--jobs", "Number of processes.  [default: one for each core]")
@count_option(
    "--epoch-images",
    f"Images of an epoch.  [default: ImageNet's {IMAGENET_IMAGES}]",
    default=IMAGENET_IMAGES,
)
@click.pass_obj
def sweep(
    session: Session,
    network: str,
    swept: dict[str, tuple[Any, ...]],
    settings: dict[str, Any],
    pareto: str | None,
    **how: Any,
) -> Answer | int:
    """Find how the rate of NETWORK depends on the number of boards, or on any other keys.

    Keys take lists and ranges: --devices 1-64, 1-64:4 (every fourth), 1,2,4,8; --schedule
    sync,fpdeep. Several keys give all combinations. Keys of the cluster are written as --link.KEY,
    --board.KEY, --resources.KEY and --network.KEY, such as --link.bandwidth_gbps 10,40,100. NETWORK
    may be a list, too.

    Under mpiexec, the ranks but the first compute.
    """
    if not swept and "," not in network and how["target"] is None:
        raise InputError("nothing to sweep: give a range, such as --devices 1-64, or --target 5000")
    from ...studies.sweep import seeking_values

    given = {"network": tuple(network.split(",")), **swept}
    own = {key: value for key, value in settings.items() if key in _SOUGHT}
    values = {
        key: v
        for key, v in seeking_values({**given, **own}, how["target"]).items()
        if key not in own
    }
    names = () if pareto is None else tuple(name.strip() for name in pareto.split(","))
    # A front is of all points.
    seeks = "devices" in values and "devices" not in {**given, **own} and not names
    return run_sweep(values, settings, ranks=session.join(), seeks=seeks, pareto=names, **how)


def run_sweep(
    values: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    *,
    ranks: Ranks | None = None,
    jobs: int | None = None,
    csv: pathlib.Path | None = None,
    full: bool = False,
    epoch_images: int = IMAGENET_IMAGES,
    **how: Any,
) -> Answer | int:
    """Compute a sweep; return what it says and its rows, or the exit status where it is
    interrupted.

    Args:
        values: keys with a value or several each, such as {"network": "vgg16", "devices": range(1,
            9)}.
        settings: further keys of the run, the same at all points.
        ranks: where there are several, the others compute.
        jobs: number of processes; by default one for each core.
        csv: keep the rows in this file, and resume from those that it holds.
        full: print all rows.
        epoch_images: images of an epoch.
        how: see `run_space`.

    Raises:
        InputError: a value is invalid, all points fail, or a file cannot be written.
    """
    with starting():
        from ...studies.sweep import Interrupted, Space, draw_sweep, run_space

    if jobs is not None and ranks is not None and ranks.size > 1:
        raise InputError(f"`jobs` = {jobs}: under mpiexec the ranks compute; leave it out")
    space = Space.of(values, settings)
    if space.points > _MANY_POINTS:
        tell(f"preparing {plural(space.points, 'point')} …")
    announce = functools.partial(view.point_progress, "sweep")
    try:
        result = run_space(
            space, epoch_images, ranks=ranks, jobs=jobs, csv=csv, announce=announce, **how
        )
    except Interrupted as interrupted:
        kept = (
            f"; they are kept in {csv}, from which the same command resumes"
            if csv is not None
            else ""
        )
        message = (
            f"emuchain: interrupted after {interrupted.done} of {interrupted.total} points{kept}"
        )
        print(message, file=sys.stderr, flush=True)
        return _INTERRUPTED_STATUS
    if result.best is None:
        count = len(result.rows)
        message = f"all {count} points fail, the first: " if count > 1 else ""
        raise InputError(f"{message}{result.rows[0]['error']}")
    return Answer(
        lambda: _print(result, full),
        lambda: _as_json(result),
        lambda picture: draw_sweep(result, picture),
    )


def _as_json(result: SweepResult) -> dict[str, Any]:
    from ...studies.sweep import findings

    return {"findings": findings(result), **result.to_dict()}


def _firsts(result: SweepResult, key: str) -> list[dict[str, Any]]:
    return list({row[key]: row for row in result.rows}.values())


def _title(result: SweepResult) -> str:
    row, varied = result.rows[0], result.space.varied
    return " on ".join(
        f"{key}s below" if key in varied else str(row[key]) for key in ("network", "cluster")
    )


def _print(result: SweepResult, full: bool) -> None:
    from ...studies.sweep import chosen_rows, findings, front_table, table_of

    for line in findings(result):
        print(line)
    for text in result.multipliers[:_MOST_BOARDS]:
        view.say(text)
    if (left := len(result.multipliers) - _MOST_BOARDS) > 0:
        view.say(f"multipliers of {plural(left, 'more kind')} of boards: see `emuchain plan`")
    if result.front is not None:
        columns, cells = front_table(result)
        view.table(f"Front: {_title(result)}", columns, cells)
        if not full:
            return
    rows = result.rows if full else chosen_rows(result, _MOST_ROWS)
    if (
        result.target is not None
        and result.target.row is not None
        and result.target.row not in rows
    ):
        rows = [dict(result.target.row), *rows]
    columns, cells = table_of(result, rows)
    view.table(_title(result), columns, cells, left=("limited by",))
    if len(rows) < len(result.rows):
        print(
            f"{len(rows)} of {plural(len(result.rows), 'point')}; `--full` prints all, `--csv FILE`"
            " writes all with all figures"
        )


def is_range(flags: Mapping[str, Any]) -> bool:
    """Return whether `--devices` has several numbers."""
    return isinstance(flags.get("devices"), tuple)


def sweep_devices(
    session: Session,
    config_file: str | None,
    flags: dict[str, Any],
    *,
    full: bool,
    ranged: bool = True,
    epoch_images: int = IMAGENET_IMAGES,
    alone: Mapping[str, object] | None = None,
) -> Answer | int:
    """Sweep a configuration over the numbers of `--devices`, as `emuchain sweep` does.

    `alone` has the values of options that need one number of devices, by their names.

    Raises:
        InputError: the configuration is invalid, one of these options is given, or all points fail.
    """
    for option, value in (alone or {}).items():
        if value:
            raise InputError(
                f"`{option}`: cannot be combined with several numbers of `--devices`; give one"
                " number"
            )
    with starting():
        from ...config import blaming, load_config, read_keys

    devices, others = (
        flags["devices"],
        {key: value for key, value in flags.items() if key != "devices"},
    )
    with blaming(config_file, others):
        config = load_config(config_file, others)
        in_file = {} if config_file is None else read_keys(config_file)
        # As given, not as validated: the points' processes validate them again, and a codec is no
        # plain value.
        settings = {**in_file, **others}
        values = {"network": config.network, "cluster": config.cluster, "devices": devices}
        if config.changes:
            settings[CHANGES] = config.changes
        return run_sweep(
            values,
            {key: value for key, value in settings.items() if key not in values},
            ranks=session.join(),
            full=full,
            ranged=ranged,
            epoch_images=epoch_images,
        )
