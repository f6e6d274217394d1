"""The fit of a link: t = L + ceil(m / u) u / B + T0 / loop for a message of m bytes, with units of u = 64 bytes.

L is the latency and B the bandwidth of one direction. T0 is the start of a kernel, once for `loop` messages: it is
fitted where rows differ in `loop_length`, and goes nowhere, as emuchain's links have no such thing.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from ..common import InputError, format_bytes, plural
from .constants import ONE_RUN, Evidence, Fitness, LeftOut, Range, left_out_runs, range_of
from .messages import OTHER_UNIT, Messages, messages_of
from .reading import Table, named
from .robust import LEAST_RMS, WORST_RMS, Fit, Floats, fit_times

UNIT_BYTES = 64
FEWEST_SIZES, LEAST_SPAN = 4, 64
MOST_RUNS = 5000
"""More take longer than half a minute, and narrow no range."""

_LEAST_GROWTH, _LEAST_LATENCY = 0.05, 0.005
"""Least time of the largest message's bytes over the latency, and of the latency over the smallest time."""


class Unfit(Exception):
    """Messages of which no link follows; the text says why, without the files."""


@dataclasses.dataclass(frozen=True)
class LinkModel:
    """Latency in s, bandwidth of a direction in bytes/s, and the start of kernels in s."""

    latency_s: float
    bytes_per_s: float
    start_s: float
    fit: Fit

    def times(self, messages: Messages) -> Floats:
        """Return the times in s that messages take by the model."""
        return _terms(messages, True) @ np.array([self.latency_s, 1 / self.bytes_per_s, self.start_s])


@dataclasses.dataclass(frozen=True)
class LinkFit:
    """The model of all rows, ranges by the scatter between runs, and how well the model fits."""

    messages: Messages
    model: LinkModel
    latency_s: Range
    bytes_per_s: Range
    fitness: Fitness
    evidence: Evidence
    warnings: tuple[str, ...]


def fit_link(tables: Sequence[Table], from_bytes: int = 0, b_eff_version: str | None = None) -> LinkFit:
    """Return the fit of a link's latency and bandwidth; files that do not say b_eff's version have the given one.

    Raises:
        InputError: files cannot be used; a line does not fit their rows, or does not tell latency and bandwidth apart.
    """
    messages = messages_of(tables, from_bytes, b_eff_version)
    if len(messages.runs) > MOST_RUNS:
        raise InputError(
            f"{named(tables)}: {plural(len(messages.runs), 'run')}, each fitted on its own, above {MOST_RUNS:,}: give"
            " fewer; runs are told apart by the columns `file` and `run`"
        )
    try:
        return _fit(messages, tables, from_bytes)
    except Unfit as error:
        raise InputError(f"{named(tables)}: {error}") from None


def _fit(messages: Messages, tables: Sequence[Table], from_bytes: int) -> LinkFit:
    _check_sizes(messages)
    model = link_model(messages)
    _check_fit(messages, model, from_bytes)
    by_run = {run: _model_of_run(messages, run) for run in messages.runs}
    models = {run: of_run for run, of_run in by_run.items() if of_run is not None}
    known = list(models.values()) or [model]
    latency = range_of([of_run.latency_s for of_run in known]).around(model.latency_s)
    bandwidth = range_of([of_run.bytes_per_s for of_run in known]).around(model.bytes_per_s)
    residuals = model.fit.residuals
    worst = int(np.argmax(np.abs(residuals)))
    told = f"{messages.rows[worst]}, {messages.sizes[worst]:,.0f} bytes"
    fitness = Fitness(model.fit.rms, told, math.expm1(residuals[worst]), _left_out(messages, models))
    evidence = Evidence.of(tables, len(messages.rows), len(messages.runs))
    warnings = tuple(_warnings(messages, model, len(models)))
    return LinkFit(messages, model, latency, bandwidth, fitness, evidence, warnings)


def link_model(messages: Messages) -> LinkModel:
    """Return the model of messages.

    Raises:
        Unfit: they do not tell latency and bandwidth apart.
    """
    starts = messages.starts
    try:
        fit = fit_times(_terms(messages, starts), messages.times)
        if starts and fit.values[2] < 0:
            fit = fit_times(_terms(messages, False), messages.times)
    except ValueError:
        raise Unfit(
            f"sizes from {messages.sizes.min():,.0f} to {messages.sizes.max():,.0f} bytes, in units of {UNIT_BYTES},"
            " do not tell latency and bandwidth apart; measure larger messages, too"
        ) from None
    latency, per_byte, *others = (float(value) for value in fit.values)
    if per_byte * messages.sizes.max() < _LEAST_GROWTH * latency or fit.deviations[1] > per_byte / 2:
        largest = f"those of {messages.sizes.max():,.0f} bytes"
        raise Unfit(f"times hardly grow with the size, up to {largest}; measure larger messages, too")
    if latency < _LEAST_LATENCY * messages.times.min():
        raise Unfit(
            f"the latency comes out at {latency * 1e9:,.4g} ns, of at least {messages.times.min() * 1e9:,.4g} ns in all"
            " rows; measure smaller messages, too"
        )
    return LinkModel(latency, 1 / per_byte, others[0] if others else 0.0, fit)


def _terms(messages: Messages, starts: bool) -> Floats:
    sizes = np.ceil(messages.sizes / UNIT_BYTES) * UNIT_BYTES
    columns = [np.ones_like(sizes), sizes, *([1 / messages.loops] if starts else [])]
    return np.stack(columns, axis=1)


def _check_sizes(messages: Messages) -> None:
    sizes = sorted(set(messages.sizes))
    if len(sizes) < FEWEST_SIZES:
        raise Unfit(f"{plural(len(sizes), 'message size')}: a fit needs {FEWEST_SIZES} at least")
    if sizes[-1] < LEAST_SPAN * sizes[0]:
        raise Unfit(
            f"message sizes from {sizes[0]:,.0f} to {sizes[-1]:,.0f} bytes: a fit needs the largest to be"
            f" {LEAST_SPAN} times the smallest at least"
        )


def _check_fit(messages: Messages, model: LinkModel, from_bytes: int) -> None:
    worst = int(np.argmax(np.abs(model.fit.residuals)))
    if model.fit.outliers[worst] and abs(model.fit.residuals[worst]) > math.log(OTHER_UNIT):
        raise InputError(
            f"{messages.rows[worst]}: mixed units: takes {math.exp(model.fit.residuals[worst]):,.3g} times as long as"
            " other rows say"
        )
    if model.fit.rms > WORST_RMS:
        hint = (
            "small messages may go another way: leave them out by `--from-bytes N`"
            if not from_bytes
            else "runs may be of different set-ups: choose some by `--only COLUMN=VALUE`"
        )
        rms = f"rms {100 * model.fit.rms:.0f} % (at most {100 * WORST_RMS:.0f} %)"
        raise Unfit(f"a line does not fit: {rms}; {hint}")


def _model_of_run(messages: Messages, run: str) -> LinkModel | None:
    """Return the model of a run alone, or None if it has too few sizes for one."""
    try:
        alone = messages.of_run(run)
        _check_sizes(alone)
        return link_model(alone)
    except Unfit:
        return None


def _left_out(messages: Messages, models: dict[str, LinkModel]) -> LeftOut | None:
    """Return how well each run is predicted by the others, and how many of its rows their range holds."""
    if len(models) < 2:
        return None
    errors: list[float] = []
    held: list[bool] = []
    widths: list[float] = []
    chosen = left_out_runs([*models])
    for run in chosen:
        left, others = messages.of_run(run), messages.without(run)
        predicted = link_model(others).times(left)
        errors += [abs(float(error)) for error in predicted / left.times - 1]
        by_run = np.array([model.times(left) for other, model in models.items() if other != run])
        for place, time in enumerate(left.times):
            interval = range_of([float(other) for other in by_run[:, place]])
            held.append(bool(interval.low <= time <= interval.high))
            widths.append(interval.half_width)
    return LeftOut.of(errors, held, widths, len(chosen))


_MOST_NAMED = 3
_STEP_DOWN = 0.02


def _warnings(messages: Messages, model: LinkModel, fitted_runs: int) -> list[str]:
    fit, told = model.fit, []
    named = [
        f"{messages.rows[place]} ({messages.sizes[place]:,.0f} bytes, {math.exp(fit.residuals[place]):.3g} times)"
        for place in np.flatnonzero(fit.outliers)
    ]
    if named:
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        told.append(f"{plural(len(named), 'outlier')} left out: {', '.join(named[:_MOST_NAMED])}{more}")
    if messages.assumed:
        told.append(messages.assumed)
    falling = _falling(messages)
    if falling:
        more = f", and at {len(falling) - 1} more sizes" if len(falling) > 1 else ""
        told.append(f"not monotone: {falling[0]}{more}")
    runs = len(messages.runs)
    if runs == 1:
        told.append(ONE_RUN)
    elif fitted_runs < runs:
        told.append(
            f"ranges are those of {plural(fitted_runs, 'run')}: {runs - fitted_runs} more have fewer than"
            f" {FEWEST_SIZES} sizes, or a span below {LEAST_SPAN}"
        )
    if fit.rms < LEAST_RMS:
        told.append(f"residuals of {fit.rms:.1e}: computed, not measured")
    lowest = float(np.min(model.times(messages)))
    if model.latency_s < 0.1 * lowest:
        told.append(f"the latency is at most {100 * model.latency_s / lowest:.0f} % of a row; measure smaller messages")
    return told


def _falling(messages: Messages) -> list[str]:
    """Return where a larger message of a run takes less time than a smaller one."""
    falls = []
    for run in messages.runs:
        alone = messages.of_run(run)
        order = np.lexsort((alone.times, alone.sizes))
        for before, after in itertools.pairwise(order):
            if alone.sizes[after] > alone.sizes[before] and alone.times[after] < (1 - _STEP_DOWN) * alone.times[before]:
                larger, smaller = (format_bytes(int(alone.sizes[place])) for place in (after, before))
                falls.append(f"{alone.rows[after]}: {larger} take less than {smaller}")
    return falls
