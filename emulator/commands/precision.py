"""`emuchain precision`: one run in several formats of numbers, side by side."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any

import click

from ..common import InputError
from .frame.flags import RUNS, TrainingCommand
from .frame.kernels import starting
from .frame.named import PICTURE, WORD
from .frame.output import tell

if TYPE_CHECKING:
    from ..config import Config
    from ..number import Precision
    from ..run import Runs
    from ..studies import FormatOutcome
    from .frame.session import Session

_FORMATS = "fp32,bf16,mxfp8"


class PrecisionCommand(TrainingCommand):
    """The command `precision`: one run in each of some formats."""

    def prepare(self, ctx: click.Context) -> None:
        """See `FileCommand`; the function gets the runs' precisions, each once.

        Raises:
            InputError: a format is unknown, or one is given otherwise than by `--formats`.
        """
        super().prepare(ctx)
        ctx.params["precisions"] = _precisions(ctx.params.pop("formats"), ctx.params["flags"].pop("precision", None))

    def runs(self, ctx: click.Context, given: Config) -> Runs:
        """See `TrainingCommand`."""
        from ..run import runs_of

        for key in ("out", "log"):
            if getattr(given, key) is not None:
                raise InputError(
                    f"`{key}`: names one file, and `emuchain precision` trains several times; leave it out"
                )
        precisions: list[Precision] = ctx.params["precisions"]
        return runs_of(given, {str(one).replace(" ", "-"): {"precision": one} for one in precisions})


def _precisions(formats: str, table: Any) -> list[Precision]:
    from ..number import joined, precision_of

    if isinstance(table, str):
        raise InputError(f"`precision` = {table!r}: give all formats as `--formats`, such as --formats fp32,{table}")
    try:
        given = [precision_of(joined(name.strip(), table or {})) for name in formats.split(",")]
    except ValueError as error:
        raise InputError(f"`formats` = {formats!r}: {error}") from None
    return list(dict.fromkeys(given))


@click.command(cls=PrecisionCommand)
@click.option(
    "--formats",
    type=WORD,
    default=_FORMATS,
    show_default=True,
    metavar="NAME,NAME,...",
    help="Formats to train in; the first is what the others are compared with.",
)
@click.option("--plot", type=PICTURE, metavar="FILE.png", help="Draw accuracy over virtual time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
@click.decorators.pass_meta_key(RUNS)
def precision(
    runs: Runs,
    session: Session,
    config_file: str | None,
    flags: dict[str, Any],
    precisions: list[Precision],
    plot: pathlib.Path | None,
    as_json: bool,
) -> None:
    """Train a network once in each of some formats of numbers, and compare accuracy, time, bytes and memory.

    NETWORK comes with emuchain, or is a TOML or ONNX file. Takes the keys of `train`; those of the table `precision`
    are for all formats. Each format has a checkpoint of its own.
    """
    ranks = session.join_watched()
    with starting():
        from ..config import blaming
        from ..run import StoppedRun
        from ..studies import draw_formats, train_formats
        from ..view import picture_file
        from .frame.kernels import load
        from .train import show_stopped

    config = runs.base
    load(lambda _: None)
    with picture_file(plot, "--plot") as picture:
        try:
            with blaming(config_file, flags):
                outcomes = train_formats(runs, ranks, lambda line: None if config.progress == "none" else tell(line))
        except StoppedRun as stopped:
            show_stopped(stopped, runs, ["precision", "--formats", ",".join(map(str, precisions))])
            session.end(stopped.status)
        if picture is not None:
            draw_formats(outcomes, f"{pathlib.Path(config.network).stem}, {config.batch} samples a mini-batch", picture)
    if as_json:
        print(json.dumps({"formats": [outcome.to_dict() for outcome in outcomes]}, indent=2))
    else:
        _print(outcomes)


def _print(outcomes: list[FormatOutcome]) -> None:
    from ..common import format_time_ps
    from ..studies import narrowest
    from ..view import Line, print_answer, table

    first, best = outcomes[0], narrowest(outcomes)
    if best is None:
        answer = [Line(f"no other format is within a point of {first.precision}: {_percent(first.accuracy)}")]
    else:
        answer = [Line(f"{best.precision}: {_percent(best.accuracy)}, {first.precision} {_percent(first.accuracy)}")]
        ratios = [
            f"{_ratio(best.images_per_s, first.images_per_s)} of the rate",
            f"{_ratio(best.link_bytes, first.link_bytes)} of the bytes on links",
            f"{_ratio(best.memory_bytes, first.memory_bytes)} of the memory",
        ]
        answer.append(Line(", ".join(ratios)))
    answer += [Line(f"{outcome.precision}: {outcome.failure}") for outcome in outcomes if outcome.failure is not None]
    print_answer(answer)
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
    columns = ["precision", "accuracy", "points", "time", "images/s", "MB/sample", "fullest kB", "memory MiB"]
    table("Formats", columns, rows, left=("precision",))


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _ratio(value: float, other: float) -> str:
    return f"{value / other:.2f}" if other else "1.00"
