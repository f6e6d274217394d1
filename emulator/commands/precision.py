"""`emuchain precision`: one run in several formats of numbers, side by side."""

from __future__ import annotations

import functools
import pathlib
from typing import TYPE_CHECKING, Any

import click

from .. import view
from ..common import InputError, format_time_ps, items_of, plural
from .frame.command import Answer, json_option, plot_option
from .frame.flags import RUNS, TrainingCommand
from .frame.kernels import load, starting
from .frame.named import NumberOfSeeds, word_option
from .frame.output import tell

if TYPE_CHECKING:
    from ..config import Config
    from ..number import Precision
    from ..run import Runs
    from ..studies import FormatOutcome, FormatSearch
    from .frame.session import Session

_FORMATS = "fp32,bf16,mxfp8"
_SEEDS = 3
"""With how many seeds a search judges."""
_LIMIT = 2.0
"""By how many percent a loss may be above the first, where a search is told nothing else."""


class PrecisionCommand(TrainingCommand):
    """The command `precision`: one run in each of some formats."""

    def prepare(self, ctx: click.Context) -> None:
        """See `FileCommand`; the function gets the runs' precisions, each once.

        Raises:
            InputError: a format is unknown, or one is given otherwise than by `--formats`.
        """
        super().prepare(ctx)
        ctx.params["precisions"] = _precisions(
            ctx.params.pop("formats"), ctx.params["flags"].pop("precision", None)
        )

    def runs(self, ctx: click.Context, given: Config) -> Runs:
        """See `TrainingCommand`."""
        from ..run import runs_of, seed_variants

        for key in ("out", "log"):
            if getattr(given, key) is not None:
                raise InputError(
                    f"`{key}`: names one file, and `emuchain precision` trains several times; leave"
                    " it out"
                )
        precisions: list[Precision] = ctx.params["precisions"]
        seeds, limit = ctx.params["seeds"], ctx.params["limit"]
        if limit is None and seeds is not None:
            raise InputError(
                f"`--seeds` = {seeds}: is for `--search`; give each seed by `--seed`, or a limit of"
                " loss"
            )
        if limit is None:
            return runs_of(
                given, {str(one).replace(" ", "-"): {"precision": one} for one in precisions}
            )
        of_seeds = seed_variants(given, seeds or _SEEDS)
        reference = {"precision": precisions[0]}
        return runs_of(given, {name: {**own, **reference} for name, own in of_seeds.items()})


def _precisions(formats: str, table: Any) -> list[Precision]:
    from ..number import joined, precision_of

    if isinstance(table, str):
        raise InputError(
            f"`precision` = {table!r}: give all formats as `--formats`, such as --formats"
            f" fp32,{table}"
        )
    try:
        given = [precision_of(joined(name, table or {})) for name in items_of(formats)]
    except ValueError as error:
        raise InputError(f"`formats` = {formats!r}: {error}") from None
    return list(dict.fromkeys(given))


@click.command(cls=PrecisionCommand)
@word_option(
    "--formats",
    "NAME,NAME,...",
    "Formats to train in; the first is what the others are compared with.",
    default=_FORMATS,
    show_default=True,
)
@click.option(
    "--search",
    "limit",
    type=click.FloatRange(min=0, max=1000),
    is_flag=False,
    flag_value=_LIMIT,
    metavar="[PERCENT]",
    help=(
        "Search formats by layer: the fastest whose loss is at most PERCENT above that of the first"
        f" format, or {_LIMIT:g} % without a number."
    ),
)
@click.option(
    "--seeds",
    type=NumberOfSeeds(min=1),
    metavar="N",
    help=f"Judge each of a search by runs with N seeds from --seed on.  [default: {_SEEDS}]",
)
@plot_option("Draw accuracy over virtual time.")
@json_option()
@click.pass_obj
@click.decorators.pass_meta_key(RUNS)
def precision(
    runs: Runs,
    session: Session,
    config_file: str | None,
    flags: dict[str, Any],
    precisions: list[Precision],
    limit: float | None,
    seeds: int | None,
) -> Answer:
    """Train a network once in each of some formats of numbers, and compare accuracy, time, bytes
    and memory.

    NETWORK comes with emuchain, or is a TOML or ONNX file. Takes the keys of `train`; those of the
    table `precision` are for all formats. Each format has a checkpoint of its own. With `--search`,
    formats by layer are judged by runs with several seeds.
    """
    ranks = session.join_watched()
    with starting():
        from ..config import blaming
        from ..run import StoppedRun
        from ..studies import draw_formats, draw_search, search_formats, train_formats
        from .train import show_stopped

    config = runs.base
    load(lambda _: None)
    again = ["precision", "--formats", ",".join(map(str, precisions))]
    if limit is not None:
        again += ["--search", f"{limit:g}", "--seeds", str(len(runs.configs))]
    search: FormatSearch | None = None
    outcomes: list[FormatOutcome] = []

    def note(line: str) -> None:
        if config.progress != "none":
            tell(line)

    try:
        with blaming(config_file, flags):
            if limit is None:
                outcomes = train_formats(runs, ranks, note)
            else:
                search = search_formats(runs, precisions, limit / 100, ranks, note)
    except StoppedRun as stopped:
        show_stopped(stopped, runs, again)
        session.end(stopped.status)
    title = f"{pathlib.Path(config.network).stem}, {config.batch} samples a mini-batch"
    if search is not None:
        return Answer(
            functools.partial(_print_search, search, config_file, flags),
            search.to_dict,
            functools.partial(draw_search, search, title),
        )
    return Answer(
        lambda: _print(outcomes),
        lambda: {"formats": [outcome.to_dict() for outcome in outcomes]},
        lambda picture: draw_formats(outcomes, title, picture),
    )


def _print(outcomes: list[FormatOutcome]) -> None:
    from ..studies import narrowest

    first, best = outcomes[0], narrowest(outcomes)
    if best is None:
        answer = [
            f"no other format is within a point of {first.precision}: {_percent(first.accuracy)}"
        ]
    else:
        answer = [
            f"{best.precision}: {_percent(best.accuracy)}, {first.precision}"
            f" {_percent(first.accuracy)}"
        ]
        ratios = [
            f"{_ratio(best.images_per_s, first.images_per_s)} of the rate",
            f"{_ratio(best.link_bytes, first.link_bytes)} of the bytes on links",
            f"{_ratio(best.memory_bytes, first.memory_bytes)} of the memory",
        ]
        answer.append(", ".join(ratios))
    answer += [
        f"{outcome.precision}: {outcome.failure}"
        for outcome in outcomes
        if outcome.failure is not None
    ]
    view.print_answer(answer)
    rows = [
        [
            str(outcome.precision),
            _percent(outcome.accuracy),
            f"{100 * (outcome.accuracy - first.accuracy):+.2f}",
            format_time_ps(outcome.times_ps[-1]) if outcome.times_ps else "-",
            f"{outcome.images_per_s:,.0f}",
            f"{outcome.link_bytes / 1e6:.3f}",
            f"{outcome.fullest_bytes / 1e3:.1f}",
            f"{outcome.memory_bytes / 2**20:.2f}",
        ]
        for outcome in outcomes
    ]
    columns = [
        "precision",
        "accuracy",
        "points",
        "time",
        "images/s",
        "MB/sample",
        "fullest kB",
        "memory MiB",
    ]
    view.table("Formats", columns, rows, left=("precision",))


def _print_search(search: FormatSearch, config_file: str | None, flags: dict[str, Any]) -> None:
    best, first = search.cheapest, search.reference
    of_seeds = plural(len(first.outcomes), "seed")
    if best is first:
        answer = [f"none that is faster holds: {first.precision}, loss {first.loss.shown(4)}"]
    else:
        rate = _ratio(best.outcomes[0].images_per_s, first.outcomes[0].images_per_s)
        answer = [
            f"{best.precision}",
            f"loss {best.loss.shown(4)}, {100 * best.above:+.1f} % of that in {first.precision};"
            f" {rate} of the rate",
        ]
    trained = plural(len(search.mappings), "mapping")
    flags = {**flags, "precision": str(best.precision), "out": "run.h5"}
    again = view.next_line(view.command_line("train", config_file, flags))
    view.print_answer([*answer, f"{trained} trained, with {of_seeds} each", again])
    rows = [
        [
            str(mapping.precision),
            "yes" if mapping.holds else "no",
            mapping.loss.shown(4) if mapping.failure is None else "diverged",
            f"{100 * mapping.above:+.1f}" if mapping.failure is None else "-",
            f"{100 * mapping.accuracy.value:.2f} %",
            format_time_ps(int(mapping.time_ps)) if mapping.failure is None else "-",
            "x" if mapping.on_front else "",
        ]
        for mapping in sorted(search.mappings, key=lambda mapping: mapping.time_ps)
    ]
    columns = ["precision", "holds", "loss", "% above", "accuracy", "time", "front"]
    view.table("Mappings, the fastest first", columns, rows, left=("precision",))


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _ratio(value: float, other: float) -> str:
    return f"{value / other:.2f}" if other else "1.00"
