"""All-reduces of chips that DeepBench measured: constants of two chips are fitted, and say what a
ring of four takes, on one level of links or on two.

Of two levels, hosts of two chips have links of their own (`comm/topology/hosts.py`); how much
slower those between hosts are, and how many latencies they have, is chosen by every other size at
four chips, or by all of them where more chips are predicted.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence

from ...comm import Hosts, Interconnect
from ...comm.exchange import DataParallel, exchange_ps
from ...emulator.calibrate import calibrate_collective
from ...emulator.cluster import load_cluster
from ...emulator.common import read_description
from ..claim import NoEvidence
from ..constants import kept
from .rows import Row, bundled, chosen, constants_of, witnesses

FILE = "deepbench_allreduce.csv"
FITTED_CHIPS, FURTHER_CHIPS = 2, 4
SLOWER, LATENCIES = (1, 2, 4), (1, 4, 16)
EXCHANGES = ("ring", "rings:groups=2")
"""One ring of all chips, or one within each host and one between hosts."""


@dataclasses.dataclass(frozen=True)
class Levels:
    """How four chips and more are joined, and how they exchange; the default has one level."""

    slower: int = 1
    latencies: int = 1
    exchange: str = "ring"

    @property
    def topology(self) -> Hosts:
        """Hosts of as many chips as were fitted."""
        return Hosts(boards=FITTED_CHIPS, slower=self.slower, latencies=self.latencies)


FLAT = Levels()
ALL_LEVELS = tuple(itertools.starmap(Levels, itertools.product(SLOWER, LATENCIES, EXCHANGES)))


@kept
def _interconnect(gpu: str) -> Interconnect:
    """Return what joins chips whose messages cost what two of them say."""
    rows = chosen(bundled(FILE), gpu=gpu, chips=str(FITTED_CHIPS))
    constants = constants_of(rows, calibrate_collective)
    return load_cluster(read_description(constants)).between_replicas(FITTED_CHIPS, 1)


@kept
def all_reduce_us(gpu: str, chips: int, floats: int, levels: Levels) -> float:
    """Return what an all-reduce takes, in us."""
    over = dataclasses.replace(_interconnect(gpu), topology=levels.topology).among(chips)
    return exchange_ps(DataParallel(chips, exchange=levels.exchange), over, floats) / 1e6


def _factors(rows: Iterable[Row], levels: Levels = FLAT) -> list[float]:
    """Return ours over the measured time of each row."""
    return [
        all_reduce_us(row["gpu"], int(row["chips"]), int(row["floats"]), levels)
        / (1000 * float(row["ms"]))
        for row in rows
    ]


def mean_factor(factors: Iterable[float]) -> float:
    """Return the geometric mean of factors, each taken as one above 1."""
    return math.exp(statistics.fmean(abs(math.log(factor)) for factor in factors))


def _at(chips: int) -> list[Row]:
    return chosen(bundled(FILE), chips=str(chips))


def factor(chips: int) -> float:
    """Return the mean factor between ours and measured all-reduces of a ring on one level."""
    return mean_factor(_factors(_at(chips)))


def worst_factor(chips: int) -> float:
    """Return the largest factor of that guess."""
    return _worst(_factors(_at(chips)))


def _worst(factors: Iterable[float]) -> float:
    return max(max(one, 1 / one) for one in factors)


def times_two_factor(times: float) -> float:
    """Return the mean factor of a guess: that four chips take `times` as long as two. By the
    textbook's ring, which sends 2 (p - 1) / p of a gradient, that is 1.5.
    """
    return mean_factor(_times_two(times))


def times_two_worst_factor(times: float) -> float:
    """Return the largest factor of that guess."""
    return _worst(_times_two(times))


def _times_two(times: float) -> list[float]:
    two = {(row["gpu"], row["floats"]): float(row["ms"]) for row in _at(FITTED_CHIPS)}
    return [times * two[row["gpu"], row["floats"]] / float(row["ms"]) for row in _at(FURTHER_CHIPS)]


@kept
def levels_of(gpu: str, every: int) -> Levels:
    """Return what some sizes of a chip at four, one of `every`, say of its levels; the simplest
    that is nearest.
    """
    seen = chosen(_at(FURTHER_CHIPS), gpu=gpu)[::every]
    return min(ALL_LEVELS, key=lambda levels: round(mean_factor(_factors(seen, levels)), 6))


def _chips() -> list[str]:
    return sorted({row["gpu"] for row in _at(FITTED_CHIPS)})


def _two_levels(rows: Sequence[Row], every: int) -> list[float]:
    return [
        one for gpu in _chips() for one in _factors(chosen(rows, gpu=gpu), levels_of(gpu, every))
    ]


def gain_by_levels() -> float:
    """Return the logarithm of the mean factor on two levels over that on one, at the sizes of four
    chips that have not chosen the levels.
    """
    others = [row for gpu in _chips() for row in chosen(_at(FURTHER_CHIPS), gpu=gpu)[1::2]]
    on_two, on_one = mean_factor(_two_levels(others, 2)), mean_factor(_factors(others))
    return math.log(on_two) / math.log(on_one)


def with_second_level() -> int:
    """Return the number of chips whose other sizes prefer a second level."""
    return sum(levels_of(gpu, 2) != FLAT for gpu in _chips())


def beyond_factor() -> float:
    """Return the mean factor at eight chips and more, on levels that four chips have chosen.

    Raises:
        NoEvidence: no file here has such rows.
    """
    larger = [
        row
        for row in witnesses(FILE)
        if int(row["chips"]) > FURTHER_CHIPS and row["gpu"] in _chips()
    ]
    if not larger:
        raise NoEvidence(f"the rows of {FILE} that are known here have 2 and 4 chips alone")
    return mean_factor(_two_levels(larger, 1))
