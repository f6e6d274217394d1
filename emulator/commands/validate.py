"""`emuchain validate PAPER`: a paper's published figures compared with ours."""

from __future__ import annotations

import json
import pathlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .kernels import starting

if TYPE_CHECKING:
    from ..studies.validate import Claim, Result

_WIDEST = 48
_MOST_NAMED = 3


@click.command()
@click.argument("paper")
@click.option("--only", default="", metavar="PREFIX", help="Only claims whose ids begin with it: fpdeep-t6, or t6.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of all claims.")
@click.option("--markdown", is_flag=True, help="Print the tables in Markdown, as in docs/validation*.md.")
@click.option(
    "--pictures", type=click.Path(path_type=pathlib.Path), metavar="DIR", help="Draw the paper's figures there."
)
@click.option(
    "--runs",
    type=click.Path(path_type=pathlib.Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Results files (RUN.h5) for fpdeep's picture of convergence.",
)
def validate(
    paper: str, only: str, as_json: bool, markdown: bool, pictures: pathlib.Path | None, runs: pathlib.Path | None
) -> None:
    """Run a paper's claims: published, ours, deviation, verdict. PAPER is fpdeep or inceptionn.

    The exit status is 0 whatever the verdicts.
    """
    with starting():
        from ..studies.validate import draw_pictures, select

    claims = select(paper, only)
    if pictures is not None:
        for path in draw_pictures(paper, pictures, runs):
            print(f"drawn: {path}", file=sys.stderr)
    results = _run(paper, claims)
    if as_json:
        print(json.dumps([_as_json(result) for result in results], indent=2))
    elif markdown:
        print("\n".join(markdown_tables(results)))
    else:
        _print_tables(paper, results)


def _run(paper: str, claims: Sequence[Claim]) -> list[Result]:
    from ..studies.validate import validate as run

    def named(claim: Claim | None) -> str:
        return claim.id if claim else ""

    with click.progressbar(
        claims, label="measuring", file=sys.stderr, item_show_func=named, hidden=not sys.stderr.isatty()
    ) as shown:
        return list(run(paper, shown))


def _print_tables(paper: str, results: Sequence[Result]) -> None:
    from ..report import next_line, print_answer, say, table

    ran = [result for result in results if result.is_run]
    differing = [result.claim.id for result in ran if not result.verdict.is_good]
    shown = ", ".join(differing[:_MOST_NAMED]) + (" …" if len(differing) > _MOST_NAMED else "")
    print_answer(
        [
            summary(results),
            f"not confirmed: {shown}" if differing else "all that were run are confirmed",
            next_line(
                f"emuchain validate {paper} --only {differing[0]}" if differing else f"emuchain validate {paper} --json"
            ),
        ]
    )
    rows = [[claim, *map(_cut, others)] for claim, *others in map(_cells, ran)]
    if rows:
        table(f"{paper}: published figures, and ours", COLUMNS, rows, left=("published", "ours"), names=("claim",))
    print()
    for why, of in _by_explanation(results, confirmed=False).items():
        measured = [f"{each.claim.id}{f' ({each.how})' if each.how else ''}" for each in of]
        say(f"{'; '.join(measured)}: {why}")
    for reason, left_out in _by_reason(results).items():
        more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        say(f"not run: {left_out[0].claim.id}{more}: {reason}")


def _by_explanation(results: Sequence[Result], *, confirmed: bool) -> dict[str, list[Result]]:
    """Group claims by explanation: those that were not confirmed, or confirmed ones that still have an explanation."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.is_run and result.verdict.is_good is confirmed:
            found.setdefault(result.claim.explanation or "not explained", []).append(result)
    if confirmed:
        found.pop("not explained", None)
    return found


def _by_reason(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Group the claims that were not run by reason."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if not result.is_run:
            found.setdefault(result.how, []).append(result)
    return found


COLUMNS = ("claim", "published", "ours", "deviation", "verdict")


def _cells(result: Result) -> list[str]:
    claim = result.claim
    deviation = "" if result.deviation is None else f"{100 * result.deviation:+.1f} %"
    return [
        claim.id,
        f"{_shown(claim.value)} {claim.unit}".strip(),
        _shown(result.ours),
        deviation,
        result.verdict.value,
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _shown(value: Any) -> str:
    """Format a figure to four significant digits, a list with commas."""
    if isinstance(value, (list, tuple)):
        return ", ".join(f"[{_shown(each)}]" if isinstance(each, list) else _shown(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def summary(results: Sequence[Result]) -> str:
    """Return the number of claims of each verdict, as text."""
    counts = Counter(result.verdict.value for result in results)
    return f"{len(results)} claims: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def markdown_tables(results: Sequence[Result]) -> list[str]:
    """Return lines of Markdown: the claims that were run, explanations, and the reasons for claims not run."""
    lines = [f"| {' | '.join(COLUMNS)} | how |", "|---" * (len(COLUMNS) + 1) + "|"]
    for result in results:
        if result.is_run:
            lines.append("| " + " | ".join(_escaped(cell) for cell in [*_cells(result), result.how]) + " |")
    lines += ["", summary(results)]
    groups = {
        "not confirmed": _by_explanation(results, confirmed=False),
        "confirmed, but": _by_explanation(results, confirmed=True),
        "not run": _by_reason(results),
    }
    for title, found in groups.items():
        if found:
            lines += ["", f"| {title} | |", "|---|---|"]
            lines += [f"| {', '.join(each.claim.id for each in of)} | {_escaped(why)} |" for why, of in found.items()]
    return lines


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _as_json(result: Result) -> dict[str, Any]:
    claim = result.claim
    return {
        **claim.model_dump(mode="json", exclude={"expect"}),
        "expect": claim.expect.model_dump(mode="json", exclude_none=True) if claim.expect else None,
        "ours": result.ours,
        "how": result.how if claim.expect else None,
        "deviation": result.deviation,
        "verdict": result.verdict.value,
    }
