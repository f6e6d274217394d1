"""What a board's multipliers reach, beside designs that were measured, and what they are built
of.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster import (
    DSP_TYPES,
    Budget,
    Fpga,
    Gain,
    best_mix,
    board_keys,
    board_types,
    gain,
    load_cluster,
    peaks,
)
from emuchain.emulator.cluster.peak import (
    CLOCK_RANGE,
    DESIGNS,
    FILL_RANGE,
    clock_mhz,
    fill,
    rate_of_design,
    reach,
)
from emuchain.emulator.number import Precision, precision_of

MEASURED = [design for design in DESIGNS if design.gflops]
BOARDS = {"U280": "u280", "520N": "520n", "PAC D5005": "d5005"}
BUILT = [name for name in board_types() if "efficiency" in board_keys(name)]


def board_of(kind: str, **keys: object) -> Fpga:
    links = {"bandwidth_gbps": 1, "latency_ns": 0}
    said = {"name": kind, "boards": [{"type": kind, **keys}], "links": links}
    board = load_cluster(said).board(0)
    assert isinstance(board, Fpga)
    return board


@pytest.mark.parametrize("design", MEASURED, ids=lambda design: f"{design.board}-{design.gflops}")
def test_measured_engines_lie_within_the_range_of_their_board(design: object) -> None:
    peak = peaks(board_of(BOARDS[design.board]))[0]  # type: ignore[attr-defined]
    assert peak.kind == "fp32"
    assert peak.low <= design.gflops <= peak.high  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", range(len(MEASURED)))
def test_a_measured_engine_follows_from_its_dsps_and_clock(place: int) -> None:
    design = MEASURED[place]
    rate = rate_of_design(design.dsp_type, design.dsp, design.clock_mhz)
    assert rate == pytest.approx(design.gflops, rel=0.15)


def test_one_multiplier_a_dsp_is_six_times_off() -> None:
    """The null model: one multiply-accumulate a DSP at 200 MHz."""
    counted = board_of(
        "u280",
        multipliers="one-per-dsp",
        clock_mhz=200,
        dsp_share=1,
        efficiency=1,
        shell_dsp=0,
    )
    assert peaks(counted)[0].gflops == pytest.approx(6 * 603.86, rel=0.01)
    assert peaks(board_of("u280"))[0].gflops == pytest.approx(603.86, rel=0.05)


@pytest.mark.parametrize("name", BUILT)
def test_the_constants_of_a_board_are_those_of_the_designs(name: str) -> None:
    keys = board_keys(name)
    family = keys["dsp_type"]
    assert keys["clock_mhz"] == round(clock_mhz(family, fill(family)))
    engines = keys["dsp_share"] - keys.get("shell_dsp", 0) / keys["dsp"]
    assert engines == pytest.approx(fill(family), abs=0.01)
    assert keys["efficiency"] == pytest.approx(reach()[0], abs=0.005)
    clock = keys["uncertainty"]["board.clock_mhz"]
    assert [clock["low"], clock["high"]] == [round(keys["clock_mhz"] * it) for it in CLOCK_RANGE]


def test_ranges_are_those_of_the_designs() -> None:
    ratios = sorted(
        design.clock_mhz / clock_mhz(design.dsp_type, design.dsp_share) for design in DESIGNS
    )
    inside = [CLOCK_RANGE[0] <= ratio <= CLOCK_RANGE[1] for ratio in ratios]
    assert sum(inside) >= math.floor(0.9 * len(DESIGNS))
    fills = [design.dsp_share / fill(design.dsp_type) for design in MEASURED]
    assert FILL_RANGE[0] == pytest.approx(min(fills), abs=0.005)


@pytest.mark.parametrize("name", BUILT)
def test_peaks_have_all_classes_narrower_ones_at_least_as_many(name: str) -> None:
    counts = {peak.kind: peak.multipliers for peak in peaks(board_of(name))}
    assert [*counts] == ["fp32", "half", "fp8", "int8", "int4"]
    assert counts["fp32"] <= counts["half"] <= counts["fp8"]
    assert counts["half"] <= counts["int8"] <= counts["int4"]
    for peak in peaks(board_of(name)):
        assert 0 < peak.low < peak.gflops < peak.high
        assert peak.gflops < peak.full_gflops


@given(
    st.sampled_from([*DSP_TYPES]),
    st.sampled_from(["fp32", "half", "fp8", "int8", "int4"]),
    st.integers(0, 60),
    st.integers(0, 9000),
    st.none() | st.integers(0, 9000),
)
def test_no_mix_of_two_implementations_has_more_multipliers(
    dsp_type: str, kind: str, dsp: int, lut: int, ff: int | None
) -> None:
    """Beside a search through all counts of each pair, to one for each of the two."""
    budget = Budget(dsp, lut, ff)
    mix = best_mix(dsp_type, kind, budget)
    for room, taken in ((dsp, "dsp"), (lut, "lut"), (ff, "ff")):
        if room is not None:
            assert sum((getattr(it, taken) * count for it, count in mix), Fraction(0)) <= room
    able = {it for it, _ in mix} | {it for it in DSP_TYPES[dsp_type].built if it.kind == kind}
    if any(it.kind == kind and it.is_sure for it in able):
        able = {it for it in able if it.is_sure}
    most = max((budget.most(it) for it in able), default=0)
    for first, second in itertools.permutations(able, 2):
        for count in range(budget.most(first) + 1):
            most = max(most, count + budget.without(first, count).most(second))
    assert sum(count for _, count in mix) >= most - 2


def test_each_implementation_says_who_says_so() -> None:
    for kind in DSP_TYPES.values():
        assert any(it.kind == "fp32" for it in kind.built)
        for it in kind.built:
            assert len(it.source) > 10
            assert it.low < 1 < it.high


def test_a_board_whose_shell_leaves_nothing_reaches_nothing() -> None:
    """In no class; it had one multiplier, which its look-up tables had no room for."""
    board = board_of("u280", lut=250_000)
    assert [peak.multipliers for peak in peaks(board)] == [0] * len(peaks(board))
    assert all(peak.gflops == peak.low == peak.high == 0 for peak in peaks(board))
    assert peaks(board)[0].source


def in_precision(board: Fpga, text: str) -> tuple[Fpga, Precision]:
    precision = precision_of(text)
    return board.in_classes(precision.multipliers, 1.0, precision.dot), precision


def gain_over_bf16(board: Fpga, text: str) -> Gain:
    own, precision = in_precision(board, text)
    return gain(own, in_precision(board, "bf16")[0], precision.added_products)


def test_a_gain_by_hand() -> None:
    """Of a U280's 7,660 DSPs and 615,450 LUTs: int8 products, each with an addition as large as an
    fp8 multiply-add of 773 LUTs, and an engine of blocks of 32, with 53 LUTs and half a DSP each.
    """
    half, size = 1811, math.exp(math.hypot(math.log(1.2), math.log(0.95)))
    found = gain_over_bf16(board_of("u280"), "mxint8")
    assert found.times == pytest.approx(615450 // 42 / half, rel=1e-3)
    assert found.high == pytest.approx(615450 // 42 / half * size, rel=1e-3)
    with_additions = gain_over_bf16(board_of("u280"), "mxfp4 accumulate=dot:32")
    assert with_additions.low == pytest.approx(615450 // (21 + 25) / half / size, rel=1e-3)
    blocks = gain_over_bf16(board_of("u280"), "mxint8 accumulate=dot:32")
    assert blocks.times == pytest.approx(615450 // 53 / half, rel=1e-3)
    assert blocks.low == pytest.approx(615450 // 53 / half / size, rel=1e-3)
    most = math.exp(math.hypot(math.log(1.2), math.log(0.72)))
    assert blocks.high == pytest.approx(615450 // 53 / half * most, rel=1e-3)


@pytest.mark.parametrize("kind", BUILT)
def test_longer_blocks_gain_more(kind: str) -> None:
    """Up to sums that are whole numbers to their end; multipliers of a wider class do as well, so
    no gain is less than the range of sizes below 1.
    """
    board = board_of(kind)
    sums = ("fp32", "dot:8", "dot:16", "dot:32")
    gains = [gain_over_bf16(board, f"mxint8 accumulate={kept}") for kept in sums]
    gains.append(gain_over_bf16(board, "int8 accumulate=int32"))
    lows = [found.low for found in gains]
    assert lows == sorted(lows)
    times = [found.times for found in gains]
    if any(built.products for built in DSP_TYPES[board.dsp_type or ""].built):
        assert times[1:4] == sorted({*times[1:4]})
        assert times[3] <= times[0] == times[4]
    else:
        assert len({*times}) == 1
    assert all(found.low <= found.times <= found.high for found in gains)
    assert gain_over_bf16(board, "bf16").times == 1.0
    every = [built for kind in DSP_TYPES.values() for built in kind.built]
    widest = max(built.high for built in every), min(built.low for built in every)
    assert lows[0] >= 0.99 * math.exp(-math.hypot(*map(math.log, widest)))


def test_what_is_counted_has_no_range() -> None:
    found = gain_over_bf16(board_of("u280", multipliers="one-per-dsp"), "mxint8")
    assert (found.low, found.times, found.high) == (2.0, 2.0, 2.0)
