"""`emuchain validate PAPER`: a paper's published figures compared with ours. The command line finds
this file.
"""

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ..emulator.commands import FIGURES, RUNS, WORD, Answer, FileCommand, json_option, starting

if TYPE_CHECKING:
    from . import Claim, Result

_WIDEST = 48
_MOST_NAMED = 3


@click.command(cls=FileCommand)
@click.argument("paper", type=WORD)
@click.option(
    "--only",
    type=WORD,
    default="",
    metavar="PREFIX",
    help="Only claims whose ids begin with PREFIX: fpdeep-t6, or t6.",
)
@json_option("Print a JSON list of all claims.")
@click.option(
    "--markdown", is_flag=True, help="Print the tables in Markdown, as in docs/validation*.md."
)
@click.option("--pictures", type=FIGURES, metavar="DIR", help="Draw the paper's figures there.")
@click.option(
    "--runs",
    type=RUNS,
    metavar="DIR",
    help="Results files (RUN.h5) for fpdeep's picture of convergence.",
)
@click.option(
    "--sensitivity",
    is_flag=True,
    help=(
        "Which verdicts change within the plausible ranges of constants and choices; takes minutes."
    ),
)
@click.option(
    "--set",
    "settings",
    type=WORD,
    multiple=True,
    metavar="CONSTANT=VALUE",
    help="With another value of a constant or choice that --sensitivity varies; may be repeated.",
)
def validate(
    paper: str,
    only: str,
    markdown: bool,
    pictures: pathlib.Path | None,
    runs: pathlib.Path | None,
    sensitivity: bool,
    settings: tuple[str, ...],
) -> Answer:
    """Run a paper's claims: published, ours, deviation, verdict.

    PAPER is fpdeep, inceptionn, bapipe, farnn or zero_bubble; or hardware: boards and GPUs that no
    paper of these measures; or deepbench: recurrent layers on GPUs; or accl: collectives and links
    of FPGAs, in part by measurements in the folder that EMUCHAIN_WITNESSES names.

    The exit status is 0 whatever the verdicts.
    """
    with starting():
        from . import draw_pictures, parse_changes, select, tables

    if settings and (sensitivity or pictures is not None):
        raise click.UsageError(
            f"--set and --{'sensitivity' if sensitivity else 'pictures'}: give one of them"
        )
    claims = select(paper, only)
    if settings:
        return _changed(paper, claims, parse_changes(paper, settings), markdown)
    if pictures is not None:
        for path in draw_pictures(paper, pictures, runs):
            print(f"drawn: {path}", file=sys.stderr)
    if sensitivity:
        return _sensitivity(paper, claims, markdown)
    results = _run(paper, claims)
    return Answer(
        _lines(tables.markdown_tables(results))
        if markdown
        else lambda: _print_tables(paper, results),
        lambda: [tables.as_json(result) for result in results],
    )


def _lines(lines: Sequence[str]) -> Callable[[], None]:
    """Return what prints lines."""
    return lambda: print("\n".join(lines))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _run(paper: str, claims: Sequence[Claim]) -> list[Result]:
    from . import validate as run

    def named(claim: Claim | None) -> str:
        return claim.id if claim else ""

    with click.progressbar(
        claims,
        label="measuring",
        file=sys.stderr,
        item_show_func=named,
        hidden=not sys.stderr.isatty(),
    ) as shown:
        return list(run(paper, shown))


def _sensitivity(paper: str, claims: Sequence[Claim], markdown: bool) -> Answer:
    """Return which verdicts change within the ranges of constants and choices."""
    from ..emulator.view import next_line, point_progress, print_answer, table
    from . import blind_predictions, sensitivities
    from . import sensitivity as tables

    rows = sensitivities(paper, claims, functools.partial(point_progress, "measuring"))
    blind = blind_predictions(paper)
    by_id = {claim.id: claim for claim in claims}

    def show() -> None:
        turning = tables.turning_rows(rows, by_id)
        most = max(rows, key=lambda row: len(row.hanging)).constant.name
        print_answer(
            [
                tables.headline(rows),
                f"most claims depend on {most}",
                *([tables.blind_headline(blind)] if blind else []),
                next_line(f"emuchain validate {paper}"),
            ]
        )
        named, *_ = tables.CONSTANT_COLUMNS
        shown = tables.constant_rows(rows)
        table(
            "constants and choices",
            tables.CONSTANT_COLUMNS,
            shown,
            left=("fitted to",),
            names=[named],
        )
        if turning:
            claim, *words = tables.TURNING_COLUMNS
            heads = tables.TURNING_COLUMNS
            table("verdicts that change", heads, turning, left=words, names=[claim])
        if blind:
            words = ["fitted to", "predicted"]
            predicted = tables.blind_rows(blind)
            table("blind predictions", tables.BLIND_COLUMNS, predicted, names=words)

    return Answer(
        _lines(tables.sensitivity_markdown(rows, by_id, blind)) if markdown else show,
        lambda: tables.sensitivity_as_json(rows, blind),
    )


def _changed(
    paper: str, claims: Sequence[Claim], changes: Mapping[str, object], markdown: bool
) -> Answer:
    """Return the claims with other values of constants and choices."""
    from ..emulator.view import next_line, point_progress, print_answer, table
    from . import changed_results, freedoms_of, tables
    from . import sensitivity as changed_tables

    freedoms = freedoms_of(paper)
    changed = changed_results(
        paper, claims, changes, functools.partial(point_progress, "measuring")
    )

    def show() -> None:
        lines = [
            *changed_tables.changed_answer(changed, freedoms),
            tables.headline(changed.after),
            tables.others(changed.after),
        ]
        print_answer([*lines, next_line(f"emuchain validate {paper} --sensitivity")])
        columns = changed_tables.CHANGE_COLUMNS
        rows = changed_tables.change_rows(changed, freedoms)
        table("changed constants", columns, rows, names=("constant",))
        if changed.turning:
            claim, *words = changed_tables.TURNED_COLUMNS
            heads, rows = changed_tables.TURNED_COLUMNS, changed_tables.turned_rows(changed)
            table("verdicts that change", heads, rows, left=words, names=[claim])
        shown = f", with {changed_tables.changes_text(changes, freedoms)}"
        _print_claims(paper, changed.after, shown)

    return Answer(
        _lines(changed_tables.changed_markdown(changed, freedoms)) if markdown else show,
        lambda: changed_tables.changed_as_json(changed, freedoms),
    )


def _print_tables(paper: str, results: Sequence[Result]) -> None:
    from ..emulator.view import next_line, print_answer
    from . import Class, tables

    ran = [result for result in results if result.is_run]
    unconfirmed = [result.claim for result in ran if not result.is_confirmed and result.is_counted]
    differing = [
        claim.id
        for claim in sorted(unconfirmed, key=lambda claim: claim.row_class is not Class.PREDICTION)
    ]
    shown = ", ".join(differing[:_MOST_NAMED]) + (" …" if len(differing) > _MOST_NAMED else "")
    missed = tables.missed_line(results)
    print_answer(
        [
            tables.headline(results),
            tables.others(results),
            *([missed] if missed else []),
            f"not confirmed: {shown}" if differing else "all claims that were run are confirmed",
            next_line(
                f"emuchain validate {paper} --only {differing[0]}"
                if differing
                else f"emuchain validate {paper} --json"
            ),
        ]
    )
    _print_claims(paper, results)


def _print_claims(paper: str, results: Sequence[Result], changed: str = "") -> None:
    """Print all claims by class, explanations and reasons; titles say what is `changed`."""
    from ..emulator.view import say, table
    from . import Class, tables

    ran = [result for result in results if result.is_run]
    if ran:
        table(
            f"verdicts by class{changed}",
            tables.CLASS_COLUMNS,
            tables.class_rows(results),
            names=("class",),
        )
    *columns, _ = tables.COLUMNS
    for row_class in Class:
        of_class = [
            tables.cells(result)[:-1] for result in ran if result.claim.row_class is row_class
        ]
        if of_class:
            rows = [[claim, *map(_cut, others)] for claim, *others in of_class]
            words = ("published", "ours", "verdict")
            table(
                f"{paper}, {row_class.value}: published and measured{changed}",
                columns,
                rows,
                left=words,
                names=("claim",),
            )
    print()
    for why, alike in tables.by_explanation(results, confirmed=False).items():
        measured = [
            f"{result.claim.id}{f' ({result.how})' if result.how else ''}" for result in alike
        ]
        say(f"{'; '.join(measured)}: {why}")
    for reason, left_out in tables.by_reason(results).items():
        more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        say(f"not run: {left_out[0].claim.id}{more}: {reason}")
