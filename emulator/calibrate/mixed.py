"""A mixed model of measured times: log time = form + group + run + misfit + row.

What a form of a few constants predicts, measurements miss in four ways. Each is normal, about zero:

    group    between set-ups: a bitstream, a system
    run      between runs of one set-up: the same at all sizes, as a clock, or slowly changing
    misfit   between the form and the truth, the same in all runs, and another one at each size
    row      of one row alone

How large each is follows from the data: standard deviations are weighed by the likelihood of the
data (restricted, as the constants of the form are unknown, too: Patterson and Thompson, Biometrika
58, 1971) and by a weak prior, and ranges are those of the mixture. So what the data leave open
makes a range wide, and the scatter between runs, where there is one run, is the prior's.

Misfit, and what changes slowly with the size, are Gaussian processes (Rasmussen and Williams, 2006,
chapter 2): a size beside measured ones is as they are, one far off can miss by all of the misfit.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]
Name = TypeVar("Name", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Part:
    """What measurements miss a form by: its name, the standard deviation that is most likely before
    any is known, how many times more or less it may well be, and how alike rows are.
    """

    name: str
    likely: float
    factor: float
    alike: Callable[[Rows, Rows], Floats]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Where measurements stand: in which group and run, at which size, in octaves, and with which
    terms of the form.

    `terms` are derivatives of the logarithm of time by those of the constants. Labels are those of
    one fit; -1 is a run or a group that it has none of.
    """

    terms: Floats
    octaves: Floats
    runs: Labels
    groups: Labels

    def at(self, places: Labels) -> Rows:
        """Return some of the rows."""
        return Rows(
            self.terms[places], self.octaves[places], self.runs[places], self.groups[places]
        )

    def further(self) -> Rows:
        """Return the same rows of a run that was not fitted."""
        return dataclasses.replace(self, runs=np.full_like(self.runs, -1))


def labelled(names: Sequence[Name]) -> tuple[list[Name], Labels]:
    """Return the distinct names, in the order in which they come first, and the label of each."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [*numbers], np.array([numbers[name] for name in names], np.intp)


def _together(one: Labels, other: Labels) -> Floats:
    return (one[:, None] == other[None, :]).astype(np.float64)


def _apart(one: Rows, other: Rows) -> Floats:
    apart: Floats = np.abs(one.octaves[:, None] - other.octaves[None, :])
    return apart


def _rough(apart: Floats, octaves: float) -> Floats:
    """Return the covariance of a process with kinks and steps: Ornstein and Uhlenbeck's."""
    covariance: Floats = np.exp(-apart / octaves)
    return covariance


def _smooth(apart: Floats, octaves: float) -> Floats:
    """Return the covariance of a process with a slope: Matern's of 3/2."""
    scaled = math.sqrt(3) * apart / octaves
    covariance: Floats = (1 + scaled) * np.exp(-scaled)
    return covariance


_SLOW_OCTAVES = 24
"""Over these, what differs between runs changes: latency does not scatter as bandwidth does."""


def _of_runs(one: Rows, other: Rows) -> Floats:
    return _together(one.runs, other.runs) * _smooth(_apart(one, other), _SLOW_OCTAVES)


def _of_clocks(one: Rows, other: Rows) -> Floats:
    return _together(one.runs, other.runs)


def _of_groups(one: Rows, other: Rows) -> Floats:
    return _together(one.groups, other.groups) * _smooth(_apart(one, other), _SLOW_OCTAVES)


RUN = Part("run", 0.005, 3, _of_runs)
CLOCK = Part("run", 0.005, 3, _of_clocks)
"""Between runs: 0.5 % in HPCC FPGA's on the 520N; that of a clock is the same at all sizes."""

GROUP = Part("group", 0.06, 3, _of_groups)
"""Between bitstreams: 6 % there."""

STEPS = Part("misfit", 0.01, 6, lambda one, other: _rough(_apart(one, other), 2))
BENDS = Part("misfit", 0.01, 6, lambda one, other: _smooth(_apart(one, other), 4))
_ROW, _ROW_FACTOR = 0.01, 20.0

_SIGMAS = np.geomspace(1e-5, 1.0, 81)
"""Standard deviations of a row that are weighed."""

_FIRST = np.geomspace(1 / 64, 512, 6)
"""Standard deviations of a part, over that of a row, that are weighed first; those that matter are
split in two, and again.
"""

_SPLITS, _MATTERS, _KEPT = 2, 0.01, 0.998

_RANK = 1e-9
"""Directions of constants with less than this share of the largest are roundings."""

MOST_ROWS = 200
"""Of more rows, whole runs are left out: they would tell little more of the scatter."""

_SCORES = np.linspace(-8, 8, 16001)
_SHARES = np.array([0.5 * math.erfc(-score / math.sqrt(2)) for score in _SCORES])
"""The normal distribution, of which NumPy has no quantiles: a table is right to 1e-8."""


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Normal distributions with their weights, for each of some values: (choices, values)."""

    weights: Floats
    means: Floats
    deviations: Floats

    def widened(self, part: Part) -> Mixture:
        """Return the distributions with a part more, of which no measurement tells."""
        return dataclasses.replace(self, deviations=np.hypot(self.deviations, part.likely))

    def quantile(self, below: float) -> Floats:
        """Return the values below which a share of the mixture lies."""
        low = (self.means - 8 * self.deviations).min(axis=0)
        high = (self.means + 8 * self.deviations).max(axis=0)
        for _ in range(60):
            middle = (low + high) / 2
            shares = np.interp((middle - self.means) / self.deviations, _SCORES, _SHARES)
            is_below = self.weights @ shares < below
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        middle = (low + high) / 2
        return middle


Choice = tuple[tuple[Part, ...], tuple[float, ...]]
"""Parts, and their standard deviations over that of a row."""


class MixedModel:
    """What residuals of a form tell: logarithms of measured over formed times, a row each.

    residual
        |  o   o                run 2       the distance between runs: run
        | x   x   o   o                     the shape that they share: misfit
        |         x   x   o     run 1       what is left of each: row
        +---------------------> size
    """

    def __init__(self, residuals: Floats, rows: Rows) -> None:
        kept = _some_runs(rows)
        self._residuals, self._rows = residuals[kept], rows.at(kept)
        sizes, runs, groups = (
            len(set(labels.tolist()))
            for labels in (self._rows.octaves, self._rows.runs, self._rows.groups)
        )
        misfits = [STEPS, BENDS] if sizes > rows.terms.shape[1] else []
        # How one run changes with the size is misfit; how far it is off, the prior says.
        between = [RUN, CLOCK] if runs > 1 and sizes > 1 else [CLOCK]
        sides = [side for side in (misfits, between, [GROUP] if groups > 1 else []) if side]
        self._alike = {part: part.alike(self._rows, self._rows) for part in itertools.chain(*sides)}
        self._weights = self._weigh([*itertools.product(*sides)])

    def next_rows(self, rows: Rows, without_run: int | None = None) -> Mixture:
        """Return the distributions of further measurements, logarithms over formed times; as if one
        run had not been measured, if so wished.
        """
        places = np.flatnonzero(self._rows.runs != without_run)
        means, variances = [], []
        for choice, sigmas in self._weights.items():
            mean, variance, _ = self._given(choice, places, rows)
            means += [mean] * len(sigmas)
            variances += [sigma**2 * (variance + 1) for sigma in sigmas]
        return self._mixture(means, variances)

    def determines(self, rows: Rows, without_run: int) -> NDArray[np.bool_]:
        """Return which rows are determined by what has been measured in other runs."""
        others = self._rows.terms[self._rows.runs != without_run]
        projected = rows.terms @ np.linalg.pinv(others, _RANK) @ others
        return np.asarray(np.isclose(projected, rows.terms, 0, _RANK).all(axis=1))

    def constants(self) -> Mixture:
        """Return the distributions of a further run's constants: logarithms over the form's."""
        terms = self._rows.terms.shape[1]
        nowhere = Rows(np.eye(terms), np.zeros(terms), *(np.full(terms, -1, np.intp),) * 2)
        places = np.arange(len(self._residuals))
        means, variances = [], []
        for choice, sigmas in self._weights.items():
            _, _, (values, spread) = self._given(choice, places, nowhere)
            between = sum(
                ratio**2 for part, ratio in zip(*choice, strict=True) if part.name != "misfit"
            )
            means += [values] * len(sigmas)
            variances += [sigma**2 * (np.diag(spread) + between) for sigma in sigmas]
        return self._mixture(means, variances)

    def _mixture(self, means: Sequence[Floats], variances: Sequence[Floats]) -> Mixture:
        weights = np.concatenate([[*sigmas.values()] for sigmas in self._weights.values()])
        return Mixture(weights / weights.sum(), np.array(means), np.sqrt(np.array(variances)))

    def _weigh(self, choices: Sequence[tuple[Part, ...]]) -> dict[Choice, dict[float, float]]:
        """Return the choices that matter, each with standard deviations of a row and their weights.

        First a coarse grid is weighed; cells with a hundredth of the weight are split, twice.
        """
        step = math.log(_FIRST[1] / _FIRST[0])
        grid = itertools.product(_FIRST, repeat=len(choices[0]))
        ratios = [tuple(map(float, cell)) for cell in grid]
        cells = {(parts, cell): 0.0 for parts in choices for cell in ratios}
        logs = self._logs([*cells])
        for _ in range(_SPLITS):
            step /= 2
            whole = {cell: np.logaddexp.reduce(logs[cell]) + cells[cell] for cell in cells}
            total = np.logaddexp.reduce([*whole.values()])
            halves: dict[Choice, float] = {}
            for cell in [cell for cell in cells if math.exp(whole[cell] - total) >= _MATTERS]:
                volume = cells.pop(cell) - len(choices[0]) * math.log(2)
                halves |= dict.fromkeys(_split(cell, step), volume)
            logs |= self._logs([*halves])
            cells |= halves
        shares = np.array([logs[cell] + volume for cell, volume in cells.items()])
        shares = np.exp(shares - np.logaddexp.reduce(shares, axis=None))
        order = np.argsort(shares, axis=None)[::-1]
        count = int(np.searchsorted(np.cumsum(shares.ravel()[order]), _KEPT)) + 1
        kept: dict[Choice, dict[float, float]] = defaultdict(dict)
        for place in order[:count].tolist():
            cell, sigma = divmod(place, len(_SIGMAS))
            kept[[*cells][cell]][float(_SIGMAS[sigma])] = float(shares[cell, sigma])
        return kept

    def _logs(self, choices: Sequence[Choice]) -> dict[Choice, Floats]:
        """Return the logarithms of the posterior densities of choices, for each standard deviation
        of a row.
        """
        rows, constants = self._rows.terms.shape
        everywhere = np.arange(rows)
        sides = np.column_stack([self._rows.terms, self._residuals])
        logs: dict[Choice, Floats] = {}
        for choice in choices:
            lower = np.linalg.cholesky(self._covariance(choice, everywhere))
            whitened = np.linalg.solve(lower, sides)
            # R's last entry is what the constants leave of the residuals: no difference of squares.
            upper = np.abs(np.linalg.qr(whitened).R.diagonal())
            determinant = np.log(lower.diagonal()).sum() + np.log(upper[:constants]).sum()
            density = -(rows - constants) * np.log(_SIGMAS) - determinant
            left = float(upper[constants:].sum()) ** 2
            density -= max(left, 1e-300) / (2 * _SIGMAS**2)
            density += _prior(_SIGMAS, _ROW, _ROW_FACTOR)
            for part, ratio in zip(*choice, strict=True):
                density += _prior(_SIGMAS * ratio, part.likely, part.factor)
            logs[choice] = density
        return logs

    def _covariance(self, choice: Choice, places: Labels) -> Floats:
        covariance = np.eye(len(places))
        for part, ratio in zip(*choice, strict=True):
            covariance += ratio**2 * self._alike[part][np.ix_(places, places)]
        return covariance

    def _given(
        self, choice: Choice, places: Labels, rows: Rows
    ) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
        """Return what stands behind further rows, given some rows: mean, variance; and the
        constants' own, all variances over that of a row.
        """
        measured, residuals = self._rows.at(places), self._residuals[places]
        inverse = np.linalg.inv(self._covariance(choice, places))
        # What no row measures has no part in rows that these determine: a pseudo-inverse.
        spread = np.linalg.pinv(measured.terms.T @ inverse @ measured.terms, _RANK, hermitian=True)
        values: Floats = spread @ (measured.terms.T @ (inverse @ residuals))
        along, own = np.zeros((len(rows.runs), len(places))), np.zeros(len(rows.runs))
        for part, ratio in zip(*choice, strict=True):
            along += ratio**2 * part.alike(rows, measured)
            own += ratio**2
        weights = along @ inverse
        mean: Floats = rows.terms @ values + weights @ (residuals - measured.terms @ values)
        apart = rows.terms - weights @ measured.terms
        variance: Floats = own - (weights * along).sum(axis=1)
        variance += ((apart @ spread) * apart).sum(axis=1)
        np.maximum(variance, 0, out=variance)
        return mean, variance, (values, np.asarray(spread, np.float64))


def _prior(deviations: Floats, likely: float, factor: float) -> Floats:
    logs: Floats = -0.5 * (np.log(deviations / likely) / math.log(factor)) ** 2
    return logs


def _split(cell: Choice, step: float) -> Iterator[Choice]:
    """Yield the halves of a cell along each of its sides, `step` apart."""
    parts, ratios = cell
    for signs in itertools.product((-0.5, 0.5), repeat=len(ratios)):
        moved = (ratio * math.exp(sign * step) for ratio, sign in zip(ratios, signs, strict=True))
        yield parts, tuple(moved)


def _some_runs(rows: Rows) -> Labels:
    """Return the places of all rows, or of those of some runs if there are too many."""
    everything = np.arange(len(rows.runs))
    every = math.ceil(len(everything) / MOST_ROWS)
    runs = list(dict.fromkeys(rows.runs.tolist()))
    some = everything[np.isin(rows.runs, runs[::every])]
    return some[:: math.ceil(len(some) / MOST_ROWS)]
