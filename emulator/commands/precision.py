"""`emuchain precision`: one run in several formats of numbers, side by side."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import click

from .. import view
from ..common import InputError, format_time_ps
from .frame.command import Answer, json_option, plot_option
from .frame.flags import RUNS, TrainingCommand
from .frame.kernels import load, starting
from .frame.named import word_option
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
        ctx.params["precisions"] = _precisions(
            ctx.params.pop("formats"), ctx.params["flags"].pop("precision", None)
        )

    def runs(self, ctx: click.Context, given: Config) -> Runs:
        """See `TrainingCommand`."""
        from ..run import runs_of

        for key in ("out", "log"):
            if getattr(given, key) is not None:
                raise InputError(
                    f"`{key}`: names one file, and `emuchain precision` trains several times; leave"
                    " it out"
                )
        precisions: list[Precision] = ctx.params["precisions"]
        return runs_of(
            given, {str(one).replace(" ", "-"): {"precision": one} for one in precisions}
        )


def _precisions(formats: str, table: Any) -> list[Precision]:
    from ..number import joined, precision_of

    if isinstance(table, str):
        raise InputError(
            f"`precision` = {table!r}: give all formats as `--formats`, such as --formats"
            f" fp32,{table}"
        )
    try:
        given = [precision_of(joined(name.strip(), table or {})) for name in formats.split(",")]
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
) -> Answer:
    """Train a network once in each of some formats of numbers, and compare accuracy, time, bytes
    and memory.

    NETWORK comes with emuchain, or is a TOML or ONNX file. Takes the keys of `train`; those of the
    table `precision` are for all formats. Each format has a checkpoint of its own.
    """
    ranks = session.join_watched()
    with starting():
        from ..config import blaming
        from ..run import StoppedRun
        from ..studies import draw_formats, train_formats
        from .train import show_stopped

    config = runs.base
    load(lambda _: None)
    try:
        with blaming(config_file, flags):
            outcomes = train_formats(
                runs, ranks, lambda line: None if config.progress == "none" else tell(line)
            )
    except StoppedRun as stopped:
        show_stopped(stopped, runs, ["precision", "--formats", ",".join(map(str, precisions))])
        session.end(stopped.status)
    title = f"{pathlib.Path(config.network).stem}, {config.batch} samples a mini-batch"
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


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _ratio(value: float, other: float) -> str:
    return f"{value / other:.2f}" if other else "1.00"
