"""Tables of sensitivities and of blind predictions, for screens, Markdown and JSON."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..emulator.common import plural
from .claim import Claim
from .constants import Constant
from .run import Verdict
from .sensitivity import Blind, Sensitivity
from .tables import markdown

CONSTANT_COLUMNS = ("constant", "default", "range", "fitted to", "claims that depend on it", "verdicts that change")
TURNING_COLUMNS = ("claim", "class", "constant", "verdicts")
BLIND_COLUMNS = ("fitted to", "DSP share", "predicted", "published", "ours", "deviation", "deviation of a guess")


def headline(found: Sequence[Sensitivity]) -> str:
    """Return how many claims depend on constants, and how many verdicts change, as a line."""
    hanging = {name for each in found for name in each.hanging}
    turning = {name for each in found for name in each.turning}
    fitted = sum(bool(each.constant.fitted_to) for each in found)
    return (
        f"{plural(len(hanging), 'claim')} depend{'s' * (len(hanging) == 1)} on"
        f" {plural(len(found), 'constant')}, of which {fitted} {'was' if fitted == 1 else 'were'} fitted;"
        f" {plural(len(turning), 'verdict')} change{'s' * (len(turning) == 1)} within their ranges"
    )


def constant_rows(found: Sequence[Sensitivity]) -> list[list[str]]:
    """Return a row for each constant, under `CONSTANT_COLUMNS`."""
    return [
        [
            each.constant.name,
            f"{each.constant.default:g}",
            f"{min(each.constant.values):g} to {max(each.constant.values):g}",
            each.constant.fitted_to or "-",
            str(len(each.hanging)),
            str(len(each.turning)),
        ]
        for each in found
    ]


def turning_rows(found: Sequence[Sensitivity], claims: Mapping[str, Claim]) -> list[list[str]]:
    """Return a row for each verdict that changes, under `TURNING_COLUMNS`."""
    return [
        [name, claims[name].row_class.value, each.constant.name, _ranges(each.constant, verdicts)]
        for each in found
        for name, verdicts in each.turning.items()
    ]


def _ranges(constant: Constant, verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts with the values at which they hold: within 0.82 to 0.84, off 0.85."""
    said = []
    for verdict, group in itertools.groupby(zip(constant.values, verdicts, strict=True), key=lambda each: each[1]):
        values = [f"{value:g}" for value, _ in group]
        said.append(f"{verdict.value} {values[0]}{f' to {values[-1]}' if len(values) > 1 else ''}")
    return ", ".join(said)


def blind_rows(found: Sequence[Blind]) -> list[list[str]]:
    """Return a row for each blind prediction, under `BLIND_COLUMNS`."""
    return [
        [
            each.fitted_to,
            f"{each.dsp_share:.3f}",
            f"{each.network} {each.figure}",
            f"{each.published:g}",
            f"{each.predicted:.4g}",
            f"{100 * each.deviation:+.1f} %",
            f"{100 * each.guess_deviation:+.1f} %",
        ]
        for each in found
    ]


def blind_headline(found: Sequence[Blind]) -> str:
    """Return how the blind predictions compare with guesses, as a line."""
    better = sum(abs(each.deviation) < abs(each.guess_deviation) for each in found)
    worst = max(abs(each.deviation) for each in found)
    return (
        f"blind predictions of Table 6 from one network's row: at most {100 * worst:.1f} % off;"
        f" nearer than a guess in {better} of {len(found)}"
    )


def sensitivity_markdown(
    found: Sequence[Sensitivity], claims: Mapping[str, Claim], blind: Sequence[Blind]
) -> list[str]:
    """Return lines of Markdown: constants, verdicts that change, and blind predictions, if there are any."""
    lines = [*markdown(CONSTANT_COLUMNS, constant_rows(found)), "", headline(found), ""]
    lines += markdown(TURNING_COLUMNS, turning_rows(found, claims))
    if blind:
        lines += ["", *markdown(BLIND_COLUMNS, blind_rows(blind)), "", blind_headline(blind)]
    return lines


def sensitivity_as_json(found: Sequence[Sensitivity], blind: Sequence[Blind]) -> dict[str, Any]:
    """Return constants with the verdicts of claims that depend on them, and the blind predictions, as JSON's values."""
    return {
        "constants": [
            {
                "key": each.constant.key,
                "default": each.constant.default,
                "values": list(each.constant.values),
                "why": each.constant.why,
                "fitted_to": each.constant.fitted_to,
                "verdicts": {name: [v.value for v in verdicts] for name, verdicts in each.verdicts.items()},
                "turning": list(each.turning),
            }
            for each in found
        ],
        "blind": [
            {
                "fitted_to": each.fitted_to,
                "dsp_share": each.dsp_share,
                "network": each.network,
                "figure": each.figure,
                "published": each.published,
                "predicted": each.predicted,
                "guess": each.guess,
            }
            for each in blind
        ],
    }
