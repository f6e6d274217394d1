"""What a sweep says, in a few lines and as a table: best point and why, knee, where memory fits and
rates fall.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...common import percent, plural
from ...view import at_values, choice_text, range_lines
from .result import FEWEST, Series, SweepResult, is_on_chip

_MOST_COMPARED = 4
"""Schedules that the fastest one is held against in a line."""
_SEVERAL = {"engine": "engines", "link": "links", "exchange": "exchanges", "waiting": "waits"}

_FEWEST = 4
_REASONS = 3
"""Reasons for which points fail that are said."""


def findings(result: SweepResult) -> list[str]:
    """Return the lines, the answer first; none if all points fail."""
    best = result.best
    if best is None:
        return []
    lines = [
        *_target(result),
        *_front(result),
        _best(result, best),
        *_sure(result, best),
        _schedules(result),
    ]
    series = result.best_series
    if series is not None:
        lines.append(_knee(series, result.noun))
        if series.along == "devices":
            lines.append(_memory(series))
    return [*filter(None, [*lines, _logic(result.rows), _falls(result), _failures(result)])]


def _front(result: SweepResult) -> list[str]:
    """Return how many points are on the front, and how many were tried; nothing without one."""
    front = result.front
    if front is None:
        return []
    names = [objective.name for objective in front.objectives]
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    tried = f"{plural(front.points, 'point')} tried"
    share = "all of the space"
    if front.points < front.whole:
        share = f"{front.points / front.whole:.2%}".replace("%", " %")
        share += f" of the {front.whole:,} of the space"
    return [
        f"front: {plural(len(front.rows), 'point')} of {listed}, of {front.tried} that have all"
        f" figures; {tried}, {share}"
    ]


def front_table(result: SweepResult) -> tuple[list[str], list[list[str]]]:
    """Return the heads of the columns, and the cells of the rows of a front."""
    front = result.front
    assert front is not None
    keys = [key for key in result.space.varied if key != "devices"]
    heads = [f"{result.noun}s/s" if one.name == "rate" else one.head for one in front.objectives]
    others = [] if "boards" in heads else ["boards"]
    cells = []
    for row, ranges in zip(front.rows, front.ranges, strict=True):
        values = [str(row["boards"])] * len(others)
        values += [_key_cell(row, key) for key in keys]
        for one in front.objectives:
            ends = ranges.get(one.name)
            value = _objective_text(one.name, one.value(row))
            if ends is not None and ends[0] < ends[1]:
                low, high = (_objective_text(one.name, end) for end in ends)
                value += f" ({low} to {high})"
            values.append(value)
        cells.append(values)
    return [*others, *(key.replace(".", ".\n") for key in keys), *heads], cells


def _objective_text(name: str, value: float | None) -> str:
    assert value is not None
    if name == "boards":
        return str(value)
    return rate_text(value) if name in ("rate", "price") else f"{value:.4g}"


def _target(result: SweepResult) -> list[str]:
    """Return which point reaches the rate that was asked for, and what its links carry; nothing
    without such a rate.
    """
    target = result.target
    if target is None:
        return []
    wanted = f"target {rate_text(target.samples_per_s)} {result.noun}s/s"
    left = target.points - len(result.rows)
    computed = f"computed: {len(result.rows)} of {plural(target.points, 'point')}; the others "
    if target.row is None:
        lines = [f"{wanted}: no point of the sweep reaches it"]
        return [*lines, *([f"{computed}cannot reach it"] if left else [])]
    row, links, ends = dict(target.row), "", ""
    rate = _rate(row, result.noun)
    if target.demand_gbps is not None and target.link_gbps is not None:
        links = f"; its busiest link carries {target.demand_gbps:.3g} of {target.link_gbps:g} Gb/s"
    keys = ["devices", *(key for key in result.space.varied if key not in ("devices", "replicas"))]
    if row.get("range_low") is not None and row["range_low"] < row["range_high"]:
        rate += at_values(result.best_range)
        ends = f" (90 % from {rate_text(row['range_low'])} to {rate_text(row['range_high'])})"
    lines = [f"{wanted}: {where(row, keys)}: {rate}{ends}{links}; {_limit(row)}"]
    return [*lines, *([f"{computed}cannot reach it, or have more boards"] if left else [])]


def _sure(result: SweepResult, best: dict[str, Any]) -> list[str]:
    """Return the range of the best rate, and in what share of draws the choices stand; nothing
    without ranges.
    """
    choice, varied = result.choice, result.space.varied
    lines = [line.text for line in range_lines(result.best_range, rate_text)]
    if choice is None or len(result.rows) == 1:
        return lines
    knee = (
        ""
        if choice.knee_share is None
        else f"; the knee is there in {percent(choice.knee_share)} of them"
    )
    named = [where(row, varied) for row in (best, *choice.rivals[: _MOST_COMPARED - 1])]
    more = len(choice.rivals) - _MOST_COMPARED + 1
    separator = "; " if any(", " in name for name in named) else ", "
    named[-1] += f" and {more} more" if more > 0 else ""
    return [*lines, choice_text(named, choice.best_share, separator=separator) + knee]


def where(row: dict[str, Any], keys: Sequence[str]) -> str:
    """Return what tells a row from others, as text: `40 boards, link.bandwidth_gbps = 100`."""
    parts = [f"{key} = {row[key]}" for key in keys if key != "devices"]
    if "devices" in keys or not parts:
        boards = _boards(row["boards"])
        if row["boards"] != row["devices"]:
            boards += f" ({row['boards'] // row['devices']} replicas of {row['devices']})"
        parts.insert(0, boards)
    return ", ".join(parts)


def rate_text(images_per_s: float) -> str:
    """Return a rate as text: four digits, or whole images with commas."""
    return f"{images_per_s:,.0f}" if images_per_s >= 1000 else f"{images_per_s:.4g}"


def _rate(row: dict[str, Any], noun: str) -> str:
    return f"{rate_text(row['images_per_s'])} {noun}s/s"


def _boards(count: int) -> str:
    return f"{count} board{'s' * (count != 1)}"


def _best(result: SweepResult, best: dict[str, Any]) -> str:
    rate = _rate(best, result.noun) + at_values(result.best_range)
    line = f"best: {where(best, result.space.varied)}: {rate}; {_limit(best)}"
    return line if best["fits"] else f"{line}; memory ignored: {_lacking(best)}"


def _logic(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line about points whose boards have too few LUTs."""
    short = sum(row["fits_lut"] is False for row in rows)
    return (
        f"logic: too few look-up tables at {short} of {plural(len(rows), 'point')}; rates ignore"
        " this" * bool(short)
    )


def _schedules(result: SweepResult) -> str:
    """Return how often the schedule that wins most is the fastest, and by how much, where schedules
    are compared.
    """
    others = [key for key in result.space.varied if key != "schedule"]
    if len(others) == len(result.space.varied):
        return ""
    rates: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in result.rows:
        if row["error"] is None:
            rates.setdefault(tuple(row[key] for key in others), {})[row["schedule"]] = row[
                "images_per_s"
            ]
    wins = Counter(
        max(rate_of, key=lambda name: rate_of[name])
        for rate_of in rates.values()
        if len(rate_of) > 1
    )
    if not wins:
        return ""
    shares = {}
    for name in wins:
        shares[name] = sum(
            rate_of.get(name, 0.0) / max(rate_of.values()) for rate_of in rates.values()
        )
    winner = max(wins, key=lambda name: (wins[name], shares[name]))
    gains: dict[str, list[float]] = {}
    for rate_of in rates.values():
        for name in rate_of.keys() - {winner} if winner in rate_of else ():
            gains.setdefault(name, []).append(rate_of[winner] / rate_of[name])
    ranked = sorted(gains, key=lambda name: (max(gains[name]), name))
    named = ", ".join(f"{_span(gains[name])} {name}'s" for name in ranked[:_MOST_COMPARED])
    often = f" in {wins[winner]} of {wins.total()} cases" if others else ""
    return f"schedules: {winner} is the fastest{often}; its rate is {named}"


def _span(gains: Sequence[float]) -> str:
    least, most = (f"{extreme(gains):.3g}" for extreme in (min, max))
    return f"{least} times" if least == most else f"{least} to {most} times"


def _lacking(row: dict[str, Any]) -> str:
    """Return what is not on chip, as text."""
    off_chip = [f"{row['off_chip_mib']:.1f} MiB are off chip"] * bool(row["off_chip_mib"])
    return ", ".join(
        [*off_chip, *[f"{row['missing_mib']:.1f} MiB are missing"] * (not row["fits"])]
    )


def _knee(series: Series, noun: str) -> str:
    row, along = series.knee, series.along
    if len(series.rows) < FEWEST or series.is_best_at_first:
        return ""
    if row is None:
        return f"knee: none; rate still rising at {_amount(series.rows[-1], along)}"
    place = series.rows.index(row) + 1
    before, beyond = (_commonest(part) for part in (series.rows[:place], series.rows[place:]))
    addition = "each board" if along == "devices" else "each step"
    bend = f"{_amount(row, along)}, {_rate(row, noun)}; {_limit(before, part=True)} up to it"
    same = "" if limiting_kind(before) != limiting_kind(beyond) else ", too"
    return (
        f"knee: {bend}; beyond, {addition} adds less than half as much:"
        f" {_limit(beyond, part=True)}{same}"
    )


def _commonest(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the last row of those with what limits most of them."""
    kind, _ = Counter(map(limiting_kind, rows)).most_common(1)[0]
    return next(row for row in reversed(rows) if limiting_kind(row) == kind)


def limiting_kind(row: dict[str, Any]) -> str:
    """Return what kind of resource holds a point back, whatever its cut; where that is not known,
    the slowest one's.
    """
    return str(row["cause"] or row["bottleneck_kind"])


def limiting_words(kind: str) -> str:
    """Return that something of a kind limits, as text: `links limit`."""
    return f"{_SEVERAL[kind]} limit" if kind in _SEVERAL else f"{kind} limits"


def _limit(row: dict[str, Any], *, part: bool = False) -> str:
    """Return what limits a point, as text; of `part` of a line, of whose points it is one, the kind
    alone.
    """
    slowest, kind = row["bottleneck"], limiting_kind(row)
    if row["cause"] is None or (kind == row["bottleneck_kind"] and not part):
        return f"{slowest} limits"
    most = "busiest" if kind == "waiting" else "slowest in this cut"
    return limiting_words(kind) if part else f"{limiting_words(kind)}; {most}: {slowest}"


def _amount(row: dict[str, Any], along: str) -> str:
    return where(row, [along])


def _memory(series: Series) -> str:
    start, last = series.on_chip_from, series.rows[-1]
    if start == series.rows[0]["devices"]:
        return f"memory: all is on chip from {_boards(start)} on, the fewest of the sweep"
    whole = [row["devices"] for row in series.rows if is_on_chip(row)]
    if start is not None:
        before = series.rows[[row["devices"] for row in series.rows].index(start) - 1]
        return (
            f"memory: all is on chip from {_boards(start)} on; with {before['devices']},"
            f" {_lacking(before)}"
        )
    if whole:
        boards = f"{_ranges(whole)} board{'s' * (whole != [1])}"
        return (
            f"memory: all is on chip only with {boards}; with {last['devices']}, {_lacking(last)}"
        )
    return f"memory: never all on chip; with {_boards(last['devices'])}, {_lacking(last)}"


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: `5-10, 12`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _falls(result: SweepResult) -> str:
    """Return a line about the greatest fall of the rate with more boards."""
    falls = [
        fall for series in result.series if series.along == "devices" for fall in series.falls()
    ]
    if not falls:
        return ""
    slower, better = min(falls, key=lambda fall: fall[0]["images_per_s"] / fall[1]["images_per_s"])
    others = [f"{key} = {slower[key]}" for key in result.space.varied if key != "devices"]
    more = (
        f"; so {'is' if len(falls) == 2 else 'are'} {len(falls) - 1} more" if len(falls) > 1 else ""
    )
    at = f" at {', '.join(others)}" if others else ""
    are = "is" if slower["boards"] == 1 else "are"
    return (
        f"not monotone: {_boards(slower['boards'])} ({_rate(slower, result.noun)}) {are} slower"
        f" than {better['boards']} ({rate_text(better['images_per_s'])}){at}{more}"
    )


def _failures(result: SweepResult) -> str:
    """Return how many points fail, and why: the first, or each reason where a target is sought."""
    failed = [row for row in result.rows if row["error"] is not None]
    if not failed:
        return ""
    said = f"{len(failed)} of {plural(len(result.rows), 'point')} fail"
    by_reason = {row["error"]: row for row in reversed(failed)}
    if result.target is None or len(by_reason) == 1:
        return f"{said}, the first: {failed[0]['error']}"
    shown = [*reversed(by_reason.items())][:_REASONS]
    keys = ["devices", *(key for key in result.space.varied if key not in ("devices", "replicas"))]
    reasons = "; ".join(f"{_named(row, keys)}: {reason}" for reason, row in shown)
    more = len(by_reason) - len(shown)
    return f"{said}: {reasons}" + (f"; and {plural(more, 'other reason')}" if more else "")


def _named(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return what tells a failed row, which has no number of boards of all replicas."""
    replicas = row.get("replicas") or 1
    return where({**row, "boards": row["devices"] * replicas}, keys)


def table_of(
    result: SweepResult, rows: Sequence[dict[str, Any]]
) -> tuple[list[str], list[list[str]]]:
    """Return the heads of the columns, and the cells of rows."""
    keys = [key for key in result.space.varied if key != "devices"]
    columns: dict[str, Callable[[dict[str, Any]], str]] = {"boards": lambda row: str(row["boards"])}
    columns |= {key.replace(".", ".\n"): functools.partial(_key_cell, key=key) for key in keys}
    columns[f"{result.noun}s/s"] = lambda row: rate_text(row["images_per_s"])
    columns["eff. %"] = lambda row: (
        "-" if row["efficiency"] is None else f"{100 * row['efficiency']:.1f}"
    )
    if any(row["images_per_j"] is not None for row in rows):
        columns[f"{result.noun}s/J"] = lambda row: (
            "-" if row["images_per_j"] is None else f"{row['images_per_j']:.3g}"
        )
    if any(row["off_chip_mib"] for row in rows):
        columns["off chip\nMiB"] = lambda row: (
            f"{row['off_chip_mib']:.1f}" if row["off_chip_mib"] else "-"
        )
    if any(row["fits"] is False for row in rows):
        columns["missing\nMiB"] = lambda row: "-" if row["fits"] else f"{row['missing_mib']:.1f}"
    if any(row["fits_lut"] is False for row in rows):
        columns["fits\nLUT"] = lambda row: {True: "yes", False: "no", None: "-"}[row["fits_lut"]]
    columns["limited by"] = _limit_cell
    return [*columns], [_cells(row, columns, len(keys)) for row in rows]


def _key_cell(row: dict[str, Any], key: str) -> str:
    return str(row[key])


def _limit_cell(row: dict[str, Any]) -> str:
    slowest = re.sub(r"\[\d+:\d+\]( [IO]CP)?| \(.*\)", "", row["bottleneck"])
    kind = limiting_kind(row)
    return slowest if kind == row["bottleneck_kind"] else f"{kind}: {slowest}"


def _cells(
    row: dict[str, Any], columns: Mapping[str, Callable[[dict[str, Any]], str]], keys: int
) -> list[str]:
    """Return the cells of a row; of one that fails, the keys and the reason."""
    if row["error"] is None:
        return [cell(row) for cell in columns.values()]
    _, *others = columns.values()
    return [
        str(row["devices"]),
        *(cell(row) for cell in others[:keys]),
        *["-"] * (len(others) - keys - 1),
        row["error"],
    ]


def chosen_rows(result: SweepResult, most: int) -> list[dict[str, Any]]:
    """Return all rows, or, where there are more than `most`, some of each series, or else the best
    of each series.
    """
    if len(result.rows) <= most:
        return result.rows
    if not result.series:
        return result.rows[:most]
    share = most // len(result.series)
    if share < _FEWEST:
        best = [max(series.rows, key=lambda row: row["images_per_s"]) for series in result.series]
        return sorted(best, key=lambda row: -row["images_per_s"])[:most]
    return [row for series in result.series for row in _some(series, share)]


def _some(series: Series, most: int) -> list[dict[str, Any]]:
    """Return the first, the last, the fastest and the knee of a series, and others evenly
    spread.
    """
    rows = series.rows
    fastest = max(range(len(rows)), key=lambda place: rows[place]["images_per_s"])
    places = {0, len(rows) - 1, fastest} | ({rows.index(series.knee)} if series.knee else set())
    free = most - len(places)
    places |= {round((number + 1) * (len(rows) - 1) / (free + 1)) for number in range(free)}
    return [rows[place] for place in sorted(places)]
