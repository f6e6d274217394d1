"""The fit of a link: t = L + ceil(m / u) u / B + T0 / loop for a message of m bytes, with units of
u = 64 bytes.

L is the latency and B the bandwidth of one direction. T0 is the start of a kernel, once for `loop`
messages: it is fitted where rows differ in `loop_length`, and goes into the file's
`[[next_measurement]]` alone, as emuchain's links have no such thing.

No link is a line: packets, windows and protocols bend it, and step it. How far the truth is from
it, at each size, is a part of the mixed model (`mixed.py`), by which the next message is expected.
Where straight pieces between sizes predict sizes that are left out better than the line does, the
link has them (`Pieces`): what messages cost beside their bytes, by size.

Messages are rows of sizes and times, in bytes and seconds, whatever units the files have.

The picture of a fit has the time of a message over its size, and below it how far each row is from
the fit.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, format_bytes, plural
from ..view import log_ticks, new_figure, save_figure
from .constants import (
    MESSAGE,
    ONE_RUN,
    Evidence,
    Fitness,
    LeftOut,
    LeftOutRow,
    NextMeasurement,
    Range,
    Setup,
    expected,
    left_out_rows,
    left_out_runs,
    next_by_setup,
    ranges_of,
    setups_of,
)
from .mixed import MixedModel, Rows, labelled
from .reading import MESSAGE_TIMES, SINGLE_MESSAGES, VERSION, Kind, Row, Table, named, version_of
from .robust import (
    LEAST_RMS,
    WORST_RMS,
    Fit,
    Floats,
    Pieces,
    fit_times,
    pieces_of,
    stand_out,
)

Places = NDArray[np.intp]

OTHER_UNIT = 100.0
"""Ratio of two times of one message size above which their units differ."""

_AGREE = 0.01
_LEAST_LOOPS = 1.5
"""Least ratio of the longest to the shortest loop at which the start of kernels can be
distinguished from the latency.
"""


@dataclasses.dataclass(frozen=True)
class Messages:
    """Rows of a link: the size in bytes, the loop's length (infinite where it is not known), and
    the time in s.

    `assumed` says what was assumed of how they were measured; empty if all is known.
    """

    rows: tuple[Row, ...]
    sizes: Floats
    loops: Floats
    times: Floats
    assumed: str = ""

    @functools.cached_property
    def runs(self) -> dict[str, Places]:
        """The places of each run's rows, by the runs in the order of their first rows."""
        places: dict[str, list[int]] = defaultdict(list)
        for place, row in enumerate(self.rows):
            places[row.run].append(place)
        return {run: np.array(own, np.intp) for run, own in places.items()}

    def of_run(self, run: str) -> Messages:
        """Return the rows of a run."""
        places = self.runs[run]
        rows = tuple(self.rows[place] for place in places)
        return Messages(rows, self.sizes[places], self.loops[places], self.times[places])

    @functools.cached_property
    def run_labels(self) -> Places:
        """The number of each row's run."""
        return labelled([row.run for row in self.rows])[1]

    @functools.cached_property
    def setups(self) -> tuple[list[Setup], Places]:
        """The set-ups, and the number of each row's."""
        return labelled(setups_of(self.rows))

    @property
    def starts(self) -> bool:
        """Whether the start of kernels can be distinguished from the latency: rows differ in the
        length of their loop.
        """
        return bool(
            np.isfinite(self.loops).all() and self.loops.max() >= _LEAST_LOOPS * self.loops.min()
        )


def _endless(sizes: Floats) -> Messages:
    """Return messages of some sizes in endless loops, in which the start of kernels has no part."""
    infinite = np.full_like(sizes, np.inf)
    return Messages((), sizes, infinite, infinite)


def messages_of(
    tables: Sequence[Table], from_bytes: int = 0, b_eff_version: str | None = None
) -> Messages:
    """Return the rows of links with messages of `from_bytes` and more.

    `b_eff_version` is that of files which do not say it.

    Raises:
        InputError: a table measures something else, a row has no valid number, or none is left.
    """
    rows: list[Row] = []
    values: list[tuple[float, float, float]] = []
    assumed: list[str] = []
    for table in tables:
        if table.kind is not Kind.LINK:
            hint = "" if table.kind is Kind.LAYERS else "; `emuchain calibrate board` takes it"
            raise InputError(
                f"{table.name}: measures {table.kind.value}, not {Kind.LINK.value}{hint}"
            )
        if not b_eff_version and not any(map(table.rows[0].has, (VERSION, *MESSAGE_TIMES))):
            assumed.append(table.name)
        for row in table.rows:
            size, loop, time = row.count("message_bytes"), *_loop_and_time(row, b_eff_version)
            if size >= from_bytes:
                rows.append(row)
                values.append((size, loop, time))
    if not rows:
        raise InputError(
            f"no messages of {from_bytes:,} bytes and more: `--from-bytes` leaves no row"
        )
    sizes, loops, times = (np.array(column, np.float64) for column in zip(*values, strict=True))
    messages = Messages(tuple(rows), sizes, loops, times, _assumption(assumed))
    _check_units(messages)
    return messages


def _assumption(files: Sequence[str]) -> str:
    if not files:
        return ""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return (
        f"{files[0]}{more}: says no version of b_eff; {_spelt(SINGLE_MESSAGES)} or later is"
        " assumed, with one message a loop; earlier ones have two: say so by `--b-eff-version X`,"
        f" or a column `{VERSION}`"
    )


def _spelt(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _messages_of_loop(row: Row, given: str | None) -> int:
    """Return how many messages one after the other a loop has, by the version of b_eff."""
    said = row.cells.get(VERSION) or given
    if given and said != given:
        raise InputError(
            f"{row}: `{VERSION}` = {said!r}: `b_eff_version` has {given!r}; leave it out"
        )
    return 1 if said is None or version_of(said, str(row)) >= SINGLE_MESSAGES else 2


def _loop_and_time(row: Row, version: str | None) -> tuple[float, float]:
    """Return how many messages go one after the other from a start of kernels on, and the time of
    one in s.
    """
    units = [column for column in MESSAGE_TIMES if row.has(column)]
    if len(units) > 1:
        raise InputError(f"{row}: `{units[0]}` and `{units[1]}`: one unit to a file; leave one out")
    loop = float(row.count("loop_length")) if row.has("loop_length") else math.inf
    stated = row.number(units[0]) * MESSAGE_TIMES[units[0]] if units else None
    if not row.has("transfer_s"):
        assert stated is not None
        return loop, stated
    if math.isinf(loop):
        raise InputError(
            f"{row}: `transfer_s` is the time of all messages of a loop; `loop_length` is missing"
        )
    loop *= _messages_of_loop(row, version)
    time = row.number("transfer_s") / loop
    if stated is not None and abs(stated / time - 1) > _AGREE:
        raise InputError(
            f"{row}: mixed units: `{units[0]}` is {stated / time:.3g} times what a message takes by"
            " `transfer_s` and `loop_length`"
        )
    return loop, time


def _check_units(messages: Messages) -> None:
    """Refuse rows of one size that differ as units do."""
    by_size: dict[float, list[int]] = defaultdict(list)
    for place, size in enumerate(messages.sizes):
        by_size[size].append(place)
    for size, places in by_size.items():
        first, last = (
            chosen(places, key=lambda place: messages.times[place]) for chosen in (min, max)
        )
        ratio = messages.times[last] / messages.times[first]
        if ratio > OTHER_UNIT:
            raise InputError(
                f"{messages.rows[last]}: mixed units: {size:,.0f} bytes take {ratio:,.0f} times as"
                f" long as in {messages.rows[first]}"
            )


UNIT_BYTES = 64
FEWEST_SIZES, LEAST_SPAN = 4, 64
MOST_RUNS = 5000
"""More take longer than half a minute, and narrow no range."""

_MOST_SIZES = 40
"""Sizes of which a file says what messages take; of more, some."""

_LEAST_GROWTH, _LEAST_LATENCY = 0.05, 0.005
"""Least time of the largest message's bytes over the latency, and of the latency over the smallest
time.
"""


_NO_LINK_RMS = 1.0
"""Rows further from a line are of no link: bent and stepped ones are nearer."""


class Unfit(Exception):
    """Messages of which no link follows; the text says why, without the files."""


@dataclasses.dataclass(frozen=True)
class LinkModel:
    """Latency in s, bandwidth of a direction in bytes/s, and the start of kernels in s."""

    latency_s: float
    bytes_per_s: float
    start_s: float
    fit: Fit

    @property
    def line(self) -> Pieces:
        """Its latency and bandwidth, without the start of kernels: messages cost nothing beside."""
        return Pieces(self.latency_s, self.bytes_per_s, ())

    def times(self, messages: Messages) -> Floats:
        """Return the times in s that messages take by the model."""
        return _terms(messages, True) @ self._values

    def rows(self, messages: Messages, runs: Places, setups: Places) -> Rows:
        """Return where messages of some runs and set-ups stand in the mixed model."""
        terms = _terms(messages, True) * self._values
        terms /= terms.sum(axis=1)[:, None]
        return Rows(terms[:, self._values > 0], np.log2(messages.sizes), runs, setups)

    @property
    def _values(self) -> Floats:
        return np.array([self.latency_s, 1 / self.bytes_per_s, max(self.start_s, 0.0)])


def _pieces(messages: Messages, model: LinkModel) -> Pieces | None:
    """Return the straight pieces of a link, by the median of each size; None where it is a line."""
    kept = ~stand_out(model.fit, messages.sizes)
    sizes, places = np.unique(messages.sizes[kept], return_inverse=True)
    taken = messages.times[kept] - model.start_s / messages.loops[kept]
    times = np.array([np.median(taken[places == place]) for place in range(len(sizes))])
    # A larger message takes no less.
    times = np.maximum.accumulate(times)
    return pieces_of(sizes, times, model.times(_endless(sizes)), model.bytes_per_s)


@dataclasses.dataclass(frozen=True)
class LinkFit:
    """The line of all rows, or their pieces, ranges by the mixed model, what messages are expected
    to take in each set-up, and how well all that fits.
    """

    messages: Messages
    model: LinkModel
    pieces: Pieces | None
    latency_s: Range
    bytes_per_s: Range
    expected: tuple[NextMeasurement, ...]
    fitness: Fitness
    evidence: Evidence
    warnings: tuple[str, ...]

    @property
    def link(self) -> Pieces:
        """Latency, bandwidth and costs of a cluster's links; a line has no costs."""
        return self.pieces or self.model.line


def fit_link(
    tables: Sequence[Table], from_bytes: int = 0, b_eff_version: str | None = None
) -> LinkFit:
    """Return the fit of a link's latency and bandwidth; files that do not say b_eff's version have
    the given one.

    Raises:
        InputError: files cannot be used; a line does not fit their rows, or does not tell latency
            and bandwidth apart.
    """
    messages = messages_of(tables, from_bytes, b_eff_version)
    if len(messages.runs) > MOST_RUNS:
        raise InputError(
            f"{named(tables)}: {plural(len(messages.runs), 'run')}, above"
            f" {MOST_RUNS:,}: give fewer; runs are distinguished by the columns `file` and `run`"
        )
    try:
        return _fit(messages, tables, from_bytes)
    except Unfit as error:
        raise InputError(f"{named(tables)}: {error}") from None


def _fit(messages: Messages, tables: Sequence[Table], from_bytes: int) -> LinkFit:
    _check_sizes(messages)
    model = link_model(messages)
    _check_fit(messages, model, from_bytes)
    mixed = _mixed(messages, model)
    latency, per_byte, *_ = ranges_of(mixed.constants(), 1.0, len(messages.runs))
    residuals = model.fit.residuals
    worst = int(np.argmax(np.abs(residuals)))
    place = f"{messages.rows[worst]}, {messages.sizes[worst]:,.0f} bytes"
    fitness = Fitness(
        model.fit.rms, place, math.expm1(residuals[worst]), _left_out(messages, model, mixed)
    )
    rate = Range(1 / per_byte.high, 1 / per_byte.low, per_byte.runs)
    pieces = _pieces(messages, model)
    latency_s, bytes_per_s, _ = pieces or model.line
    return LinkFit(
        messages,
        model,
        pieces,
        latency.times(latency_s).around(latency_s),
        rate.times(bytes_per_s).around(bytes_per_s),
        tuple(_expected(messages, model, mixed)),
        fitness,
        Evidence.of(tables, len(messages.rows), len(messages.runs)),
        tuple(_warnings(messages, model, pieces)),
    )


def _mixed(messages: Messages, model: LinkModel) -> MixedModel:
    """Return the mixed model of rows that do not stand out."""
    rows = model.rows(messages, messages.run_labels, messages.setups[1])
    kept = np.flatnonzero(~stand_out(model.fit, messages.sizes))
    return MixedModel(model.fit.residuals[kept], rows.at(kept))


_FURTHEST = 1024
"""How many times the largest message another one may be of which a time is expected."""


def _expected(messages: Messages, model: LinkModel, mixed: MixedModel) -> Iterator[NextMeasurement]:
    """Yield what messages take in a further run of each set-up: at sizes measured, and between."""
    measured = np.unique(messages.sizes)
    every = -(-len(measured) // _MOST_SIZES)
    measured = np.unique([*measured[::every], measured[-1]])
    between = np.sqrt(measured[1:] * measured[:-1]).round()
    beyond = measured[-1] * np.geomspace(4, _FURTHEST, 5)
    sizes = np.unique([*measured, *between, *beyond])
    along = _endless(sizes)
    line, further = model.times(along) * 1e9, np.full(len(sizes), -1, np.intp)
    for setup, mixture in next_by_setup(
        mixed,
        messages.setups[0],
        lambda number: model.rows(along, further, np.full_like(further, number)),
    ):
        ends = ranges_of(mixture, line, len(messages.runs))
        yield NextMeasurement(
            MESSAGE,
            dict(setup),
            sizes,
            expected(mixture, line),
            np.array([end.low for end in ends]),
            np.array([end.high for end in ends]),
            line,
            model.start_s * 1e9,
        )


def link_model(messages: Messages) -> LinkModel:
    """Return the model of messages.

    Raises:
        Unfit: they do not tell latency and bandwidth apart.
    """
    starts = messages.starts
    try:
        fit = fit_times(_terms(messages, starts), messages.times)
        # No start takes less than no time: it is scatter, and left out.
        if starts and fit.values[2] < 0:
            fit = fit_times(_terms(messages, False), messages.times)
    except ValueError:
        raise Unfit(
            f"sizes from {messages.sizes.min():,.0f} to {messages.sizes.max():,.0f} bytes, in units"
            f" of {UNIT_BYTES}, do not tell latency and bandwidth apart; measure larger"
            " messages, too"
        ) from None
    latency, per_byte, *others = (float(value) for value in fit.values)
    if (
        per_byte * messages.sizes.max() < _LEAST_GROWTH * latency
        or fit.deviations[1] > per_byte / 2
    ):
        largest = f"those of {messages.sizes.max():,.0f} bytes"
        raise Unfit(
            f"times hardly grow with the size, up to {largest}; measure larger messages, too"
        )
    if latency < _LEAST_LATENCY * messages.times.min():
        raise Unfit(
            f"the latency comes out at {latency * 1e9:,.4g} ns, of at least"
            f" {messages.times.min() * 1e9:,.4g} ns in all rows; measure smaller messages, too"
        )
    return LinkModel(latency, 1 / per_byte, others[0] if others else 0.0, fit)


def _terms(messages: Messages, starts: bool) -> Floats:
    # The time of one message: L + ceil(m / u) u / B + T0 / loop.
    sizes = np.ceil(messages.sizes / UNIT_BYTES) * UNIT_BYTES
    columns = [np.ones_like(sizes), sizes, *([1 / messages.loops] if starts else [])]
    return np.stack(columns, axis=1)


def _check_sizes(messages: Messages) -> None:
    sizes = sorted(set(messages.sizes))
    if len(sizes) < FEWEST_SIZES:
        raise Unfit(f"{plural(len(sizes), 'message size')}: a fit needs {FEWEST_SIZES} at least")
    if sizes[-1] < LEAST_SPAN * sizes[0]:
        raise Unfit(
            f"message sizes from {sizes[0]:,.0f} to {sizes[-1]:,.0f} bytes: a fit needs the largest"
            f" to be {LEAST_SPAN} times the smallest at least"
        )


def _check_fit(messages: Messages, model: LinkModel, from_bytes: int) -> None:
    worst = int(np.argmax(np.abs(model.fit.residuals)))
    if model.fit.outliers[worst] and abs(model.fit.residuals[worst]) > math.log(OTHER_UNIT):
        raise InputError(
            f"{messages.rows[worst]}: mixed units: takes"
            f" {math.exp(model.fit.residuals[worst]):,.3g} times as long as other rows say"
        )
    if model.fit.rms > _NO_LINK_RMS:
        hint = (
            "small messages may go another way: leave them out by `--from-bytes N`"
            if not from_bytes
            else "runs may be of different set-ups: choose some by `--only COLUMN=VALUE`"
        )
        rms = f"rms {100 * model.fit.rms:.0f} % (at most {100 * _NO_LINK_RMS:.0f} %)"
        raise Unfit(f"a line does not fit: {rms}; {hint}")


def _left_out(messages: Messages, model: LinkModel, mixed: MixedModel) -> LeftOut | None:
    """Return how well each run is predicted by the others, and how many of its rows their ranges
    hold.
    """
    if len(messages.runs) < 2:
        return None
    rows, line = (
        model.rows(messages, messages.run_labels, messages.setups[1]),
        model.times(messages),
    )
    left_out: list[LeftOutRow] = []
    names = [*messages.runs]
    chosen = left_out_runs(names)
    for run in chosen:
        places = messages.runs[run]
        left_out += left_out_rows(
            mixed, names.index(run), rows.at(places), line[places], messages.times[places]
        )
    return LeftOut.of(left_out, len(chosen))


_MOST_NAMED = 3
_STEP_DOWN = 0.02


def _warnings(messages: Messages, model: LinkModel, pieces: Pieces | None) -> list[str]:
    fit, warnings = model.fit, []
    named = [
        f"{messages.rows[place]} ({messages.sizes[place]:,.0f} bytes,"
        f" {math.exp(fit.residuals[place]):.3g} times)"
        for place in np.flatnonzero(fit.outliers)
    ]
    if named:
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        warnings.append(
            f"{plural(len(named), 'outlier')} left out: {', '.join(named[:_MOST_NAMED])}{more}"
        )
    if messages.assumed:
        warnings.append(messages.assumed)
    falling = _falling(messages)
    if falling:
        more = f", and at {len(falling) - 1} more sizes" if len(falling) > 1 else ""
        warnings.append(f"not monotone: {falling[0]}{more}")
    if pieces is not None:
        warnings.append(
            f"no line: rms {100 * fit.rms:.2g} %; `message_ns` has what messages take beside"
            f" `latency_ns` and `bandwidth_gbps`, in {plural(len(pieces.costs) - 1, 'piece')}"
        )
    elif fit.rms > WORST_RMS:
        warnings.append(
            f"no line: rms {100 * fit.rms:.0f} %; `latency_ns` and `bandwidth_gbps` are those of the"
            " nearest one. `[[next_measurement]]` follows the measured sizes"
        )
    if len(messages.runs) == 1:
        warnings.append(ONE_RUN)
    if fit.rms < LEAST_RMS:
        warnings.append(f"residuals of {fit.rms:.1e}: computed, not measured")
    lowest = float(np.min(model.times(messages)))
    if model.latency_s < 0.1 * lowest:
        warnings.append(
            f"the latency is at most {100 * model.latency_s / lowest:.0f} % of a row; measure"
            " smaller messages"
        )
    return warnings


def _falling(messages: Messages) -> list[str]:
    """Return where a larger message of a run takes less time than a smaller one."""
    falls = []
    for run in messages.runs:
        alone = messages.of_run(run)
        # By size, and then by time: lexsort takes its last key first.
        order = np.lexsort((alone.times, alone.sizes))
        for before, after in itertools.pairwise(order):
            if (
                alone.sizes[after] > alone.sizes[before]
                and alone.times[after] < (1 - _STEP_DOWN) * alone.times[before]
            ):
                larger, smaller = (
                    format_bytes(int(alone.sizes[place])) for place in (after, before)
                )
                falls.append(f"{alone.rows[after]}: {larger} take less than {smaller}")
    return falls


_MARKS = (("o", "#0072b2"), ("s", "#d55e00"), ("^", "#009e73"), ("D", "#cc79a7"), ("v", "#e69f00"))
_MOST_MARKED = 8
"""More runs than these share one mark."""


def draw_link(fit: LinkFit, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Draw a link's fit into a file, whose extension sets the format.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(8, 6, flag, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    messages, model = fit.messages, fit.model
    sizes = np.unique(np.geomspace(messages.sizes.min(), messages.sizes.max(), 400).round())
    table = fit.expected[-1]
    outlooks = [table.at(size) for size in sizes.tolist()]
    low, high = (
        np.array([getattr(outlook, end) for outlook in outlooks]) / 1e9 for end in ("low", "high")
    )
    line = model.times(_endless(sizes))
    above.fill_between(sizes, low * 1e6, high * 1e6, color="0.85", label="90 % of further messages")
    gbps = model.bytes_per_s * 8e-9
    above.plot(
        sizes,
        line * 1e6,
        color="0.35",
        label=f"{model.latency_s * 1e9:,.4g} ns + size / {gbps:,.4g} Gb/s",
    )
    without_start = messages.times - model.start_s / messages.loops
    together = {plural(len(messages.runs), "run"): np.arange(len(messages.sizes))}
    runs = messages.runs if len(messages.runs) <= _MOST_MARKED else together
    for (run, chosen), (shape, colour) in zip(runs.items(), itertools.cycle(_MARKS), strict=False):
        label = run[-40:]
        style = {"color": colour, "markerfacecolor": "white", "markersize": 4}
        above.plot(messages.sizes[chosen], without_start[chosen] * 1e6, shape, label=label, **style)
        below.plot(
            messages.sizes[chosen], 100 * np.expm1(model.fit.residuals[chosen]), shape, **style
        )
    above.set(xscale="log", yscale="log", ylabel="time of a message in us")
    below.set(xscale="log", xlabel="bytes of a message", ylabel="from the fit, in %")
    below.axhline(0, color="0.35", linewidth=0.8)
    above.legend(fontsize="small")
    for axes in (above, below):
        axes.grid(color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    log_ticks(above.yaxis)
    log_ticks(below.xaxis)
    save_figure(figure, path, flag, dpi=130)
