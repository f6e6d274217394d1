"""A robust fit of times that are sums of terms: t = A x, by the logarithm of measured over modelled
times.

The loss of a residual r is soft-L1, 2 s^2 (sqrt(1 + (r / s)^2) - 1), by reweighting; s is the
robust standard deviation of all residuals. Rows beyond five of these are outliers: they are named,
and the others fitted again without them.

Where sums of terms do not follow the rows, straight lines between some sizes may: as few as pass
all others by no more than a size is missed by that is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

OUTLIER_SIGMAS = 5
_LEAST_SIGMA = 1e-3
"""Rows nearer than five thousandths are no outliers, however well all others fit."""

MOST_OUTLIERS = 0.2
"""Where more rows are outliers, the model is wrong, not the rows."""

WORST_RMS, LEAST_RMS = 0.15, 1e-6
"""Rows further from a model do not follow it; nearer ones are computed, not measured."""

_ROUNDS, _SCALE_ROUNDS = 200, 10
_EXACT = 1e-13


@dataclasses.dataclass(frozen=True)
class Fit:
    """Values of the terms, logarithms of measured over modelled times, and which rows are outliers.

    `deviations` are the standard deviations of the values, by the rows' own scatter.
    """

    values: Floats
    residuals: Floats
    outliers: Flags
    deviations: Floats

    @property
    def rms(self) -> float:
        """The root mean square of the residuals of rows that are no outliers."""
        return _rms(self.residuals[~self.outliers])


def fit_times(terms: Floats, times: Floats) -> Fit:
    """Return the fit of times (rows) by terms (rows x values), which are all above zero.

    Raises:
        ValueError: rows do not tell the values apart.
    """
    kept = np.ones(len(times), np.bool_)
    values = _values(terms, times)
    outliers = _outliers(np.log(times) - np.log(_above_zero(terms @ values)))
    if outliers.any():
        kept = ~outliers
        values = _values(terms[kept], times[kept])
    modelled = _above_zero(terms @ values)
    residuals = np.log(times) - np.log(modelled)
    return Fit(
        values, residuals, ~kept, _deviations(terms[kept] / modelled[kept, None], residuals[kept])
    )


def stand_out(fit: Fit, sizes: Floats) -> Flags:
    """Return which outliers stand out from rows of about their size, too: the others are where the
    model is wrong.

        residual      x        x stands out; what bends away, o, does not
                o o o   o o
            o o             o o
                            --> size
    """
    steps = np.unique(sizes)
    pools = [fit.residuals[sizes == size] for size in steps]
    middles = np.array([np.median(pool) for pool in pools])
    around = np.clip(np.arange(len(steps)), 1, max(len(steps) - 2, 1))
    local = [
        float(np.median(np.concatenate(pools[place - 1 : place + 2]))) for place in around.tolist()
    ]
    apart = fit.residuals - np.array(local)[np.searchsorted(steps, sizes)]
    sigma = max(robust_sigma(apart, _LEAST_SIGMA), robust_sigma(np.diff(middles), _LEAST_SIGMA))
    flags: Flags = fit.outliers & (np.abs(apart) > OUTLIER_SIGMAS * sigma)
    return flags


def robust_sigma(residuals: Floats, least: float) -> float:
    """Return the standard deviation of residuals about zero by their median magnitude, `least` at
    least.
    """
    return max(_MAD * float(np.median(np.abs(residuals))), least)


def _values(terms: Floats, times: Floats) -> Floats:
    """Return the values of the terms under soft-L1, by Gauss-Newton steps from a fit of relative
    errors.
    """
    # Values of terms, such as s and s a byte, differ by many powers of ten: each column is scaled
    # to length 1, without which neither the rank nor the solution could be trusted.
    relative = terms / times[:, None]
    sizes = np.linalg.norm(relative, axis=0)
    if np.linalg.matrix_rank(relative / sizes, 1e-6) < terms.shape[1]:
        raise ValueError("rows do not tell the values apart")
    # Terms are above zero, so that all modelled times begin above zero, and stay so below.
    values: Floats = np.maximum(_least_squares(relative, np.ones_like(times), sizes), 0)
    sigma = 0.0
    for step in range(_ROUNDS):
        modelled = _above_zero(terms @ values)
        residuals: Floats = np.log(times) - np.log(modelled)
        # Held from then on: the loss stays the same, and steps can converge.
        if step < _SCALE_ROUNDS:
            sigma = robust_sigma(residuals, 1e-12)
        # Square roots of soft-L1's weights, since least squares squares them.
        roots = (1 + (residuals / sigma) ** 2) ** -0.25
        change = _least_squares(
            terms / modelled[:, None] * roots[:, None], residuals * roots, sizes
        )
        # A step is straight and the logarithm is not: none may take a time below a quarter.
        while (terms @ (values + change) < modelled / 4).any():
            change /= 2
        values += change
        if step >= _SCALE_ROUNDS and np.max(np.abs(terms @ change) / modelled) < _EXACT:
            break
    return values


def _least_squares(terms: Floats, wanted: Floats, sizes: Floats) -> Floats:
    scaled: Floats = np.linalg.lstsq(terms / sizes, wanted, rcond=None)[0] / sizes
    return scaled


def _above_zero(times: Floats) -> Floats:
    return np.maximum(times, 1e-300)


def _outliers(residuals: Floats) -> Flags:
    sigma = robust_sigma(residuals, _LEAST_SIGMA)
    outliers: Flags = np.abs(residuals) > OUTLIER_SIGMAS * sigma
    return outliers if outliers.mean() <= MOST_OUTLIERS else np.zeros_like(outliers)


def _deviations(relative: Floats, residuals: Floats) -> Floats:
    rows, values = relative.shape
    sizes = np.linalg.norm(relative, axis=0)
    spread = np.linalg.pinv((relative / sizes).T @ (relative / sizes))
    variance = float(residuals @ residuals) / max(1, rows - values)
    deviations: Floats = np.sqrt(variance * np.diag(spread)) / sizes
    return deviations


def _apart(sizes: Floats, times: Floats, at: Sequence[int]) -> Floats:
    """Return logarithms of times by straight lines between some sizes, over the times."""
    chosen = sorted(at)
    apart: Floats = np.log(np.interp(sizes, sizes[chosen], times[chosen]) / times)
    return apart


def left_out_sizes(sizes: Floats, times: Floats) -> Floats:
    """Return what each size but the first and the last is missed by, as a logarithm, where its two
    neighbours alone are known.
    """
    triples = zip(range(len(sizes)), range(1, len(sizes)), range(2, len(sizes)), strict=False)
    return np.array([_apart(sizes[[*three]], times[[*three]], (0, 2))[1] for three in triples])


def straight_pieces(sizes: Floats, times: Floats, within: float) -> list[int]:
    """Return the places of sizes between which straight lines pass all others within a logarithm;
    the furthest one is taken until none is further.
    """
    places = [0, len(sizes) - 1]
    while True:
        apart = np.abs(_apart(sizes, times, places))
        furthest = int(np.argmax(apart))
        if apart[furthest] <= within:
            return sorted(places)
        places.append(furthest)


class Pieces(NamedTuple):
    """A link of straight pieces: its latency in s, bandwidth in bytes/s, and what messages cost
    beside both, in s, by their size.
    """

    latency_s: float
    bytes_per_s: float
    costs: tuple[tuple[float, float], ...]


_STRAIGHT, _BETTER, _FINEST = 0.02, 0.7, 0.01
"""A line that misses sizes by less is one; pieces miss them by this part of what it does, at most;
and they are no finer.
"""


def pieces_of(sizes: Floats, times: Floats, line: Floats, bytes_per_s: float) -> Pieces | None:
    """Return the straight pieces of a link whose messages of some sizes take these times in s; None
    where a line, of a bandwidth, predicts the sizes that are left out as well.
    """
    missed = _rms(left_out_sizes(sizes, times))
    off = _rms(np.log(line / times)[1:-1])
    if off < _STRAIGHT or missed > _BETTER * off:
        return None
    chosen = straight_pieces(sizes, times, max(missed, _FINEST))
    sizes, times = sizes[chosen], times[chosen]
    latency = float(max(times[0] - sizes[0] / bytes_per_s, times[0] / 2))
    # No cost is below zero: the bandwidth is that of the fastest piece, latency apart.
    rate = float((sizes / (times - latency)).max())
    costs = np.maximum(times - latency - sizes / rate, 0.0)
    return Pieces(latency, rate, tuple(zip(sizes.tolist(), costs.tolist(), strict=True)))


def _rms(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))
