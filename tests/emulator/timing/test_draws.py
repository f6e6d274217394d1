"""Draws of constants: the ends of a range as percentiles, the same for a key everywhere, one factor
at any range.
"""

import subprocess
import sys

import numpy as np
import pytest

from emuchain.emulator.cluster import ConstantRange
from emuchain.emulator.timing import DRAWS, factors, middle, slows

MEMORY = ConstantRange("board.off_chip_gbytes_per_s", 0.8, 0.95, "data sheet")


@pytest.mark.parametrize("count", [DRAWS, 400])
def test_ends_are_the_5th_and_95th_percentile(count: int) -> None:
    low, centre, high = np.percentile(factors(MEMORY, count), [5, 50, 95])
    assert (low, high) == (pytest.approx(0.8, rel=1e-3), pytest.approx(0.95, rel=1e-3))
    assert centre == pytest.approx(middle(MEMORY), rel=1e-3)


def test_exact_constant_has_one_factor() -> None:
    assert set(factors(ConstantRange("board.dsp", 1, 1, "data sheet"))) == {1.0}


def test_constant_meets_the_same_draws_whatever_its_range() -> None:
    wide = ConstantRange(MEMORY.key, 0.5, 2, "assumed")
    assert (np.argsort(factors(MEMORY)) == np.argsort(factors(wide))).all()


def test_constants_are_drawn_independently() -> None:
    other = ConstantRange("link.bandwidth_gbps", 0.8, 0.95, "data sheet")
    assert abs(np.corrcoef(factors(MEMORY), factors(other))[0, 1]) < 0.05


def test_other_processes_draw_the_same() -> None:
    code = (
        "from emuchain.emulator.cluster import ConstantRange as C; from emuchain.emulator.timing"
        " import factors;print(factors(C('board.off_chip_gbytes_per_s', 0.8, 0.95, 'data"
        " sheet')).tobytes().hex())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert bytes.fromhex(ran.stdout) == factors(MEMORY).tobytes()


def test_times_slow_and_rates_do_not() -> None:
    assert [
        key
        for key in ("link.latency_ns", "network.latency_us", "link.bandwidth_gbps")
        if slows(key)
    ] == [
        "link.latency_ns",
        "network.latency_us",
    ]
