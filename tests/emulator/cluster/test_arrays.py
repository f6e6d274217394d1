"""Boards whose convolutions run on arrays of outputs x positions, with a start and a drain."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.cluster import ArrayFpga, EngineArray, Work, load_cluster
from emuchain.emulator.common import InputError

PERIOD_PS = 1000

works = st.builds(
    Work,
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    inputs=st.integers(1, 6),
    outputs=st.integers(1, 6),
    tile=st.sampled_from([1, 4, 9]),
    phase=st.integers(0, 2),
)
arrays = st.builds(
    EngineArray,
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 12),
    st.integers(0, 30),
)


def board(array: EngineArray, dsp: int = 10**6) -> ArrayFpga:
    return ArrayFpga("arrays", PERIOD_PS, dsp, 10**9, array=array)


def test_a_sample_by_hand() -> None:
    """The drawing of arrays.py: 48 outputs, 100 pixels, 27 taps on 32 x 64 results of 3
    multipliers.
    """
    array = EngineArray(32, 64, drain_cycles=4, start_cycles=10)
    work = Work(rows=10, columns=10, inputs=3, outputs=48, tile=9)
    assert array.passes(work) == 4
    assert array.sample_cycles(work, 3) == 4 * 9 + 10
    assert array.sample_cycles(work, 27) == 4 * 4 + 10, "the drain bounds it"
    held = board(array)
    assert held.row_cycles(work, 3 * 2048) == 5, "46 cycles in ten rows"
    assert held.multipliers_within(work, 50) == 3 * 2048
    assert held.multipliers_within(work, 49) == 4 * 2048, "40 cycles, of which the start takes 10"
    assert held.multipliers_within(work, 25) > held.multipliers


def test_results_of_each_engine() -> None:
    """EB makes input channels x pixels, PG weights: output channels x weights of one."""
    array = EngineArray(2, 3)
    shape = {"rows": 2, "columns": 4, "inputs": 5, "outputs": 7, "tile": 9}
    assert array.sample_cycles(Work(**shape, phase=0), 1) == 4 * 3 * 45
    assert array.sample_cycles(Work(**shape, phase=1), 1) == 3 * 3 * 63
    assert array.sample_cycles(Work(**shape, phase=2), 1) == 4 * 15 * 8


def test_fully_connected_layers_take_turns_after_a_start() -> None:
    work = Work(1, 1, 400, 10, 1, takes_turns=True)
    held = board(EngineArray(8, 8, 4, 20))
    assert held.row_cycles(work, 40) == 120
    assert held.multipliers_within(work, 120) == 40
    assert held.multipliers_within(work, 20) > held.multipliers


@given(works, arrays, st.integers(1, 400))
def test_the_fewest_multipliers_within_a_time(work: Work, array: EngineArray, cycles: int) -> None:
    held = board(array)
    each = range(1, work.inputs * work.outputs * work.tile * work.rows * work.columns + 1)
    enough = (
        count * array.size
        for count in each
        if work.rows * held.row_cycles(work, count * array.size) <= cycles
    )
    fewest = next(enough, None)
    within = held.multipliers_within(work, cycles)
    assert within == fewest if fewest is not None else within > held.multipliers


@given(works, arrays, st.integers(1, 300), st.integers(1, 12))
def test_the_most_channels_within_a_time(
    work: Work, array: EngineArray, cycles: int, available: int
) -> None:
    held = board(array, 60)
    channels, used = held.most_channels([work], available, 60, cycles * PERIOD_PS)
    needs = [held.multipliers_within(work.of_channels(n), cycles) for n in range(1, available + 1)]
    fitting = [*itertools.takewhile(lambda need: need <= 60, needs)]
    assert channels == len(fitting)
    assert used == (fitting[-1] if fitting else 0)


@settings(max_examples=60)
@given(st.lists(works, min_size=1, max_size=3), arrays, st.integers(50, 400))
def test_engines_share_a_board_as_fast_as_they_can(
    given_works: list[Work], array: EngineArray, dsp: int
) -> None:
    held = board(array, dsp)
    if held.fewest_multipliers(given_works) > dsp:
        return
    built = held.build(given_works, 0)
    assert sum(engine.multipliers for engine in built) <= dsp
    slowest = max(engine.sample_ps for engine in built) // PERIOD_PS
    faster = [held.multipliers_within(work, slowest - 1) for work in given_works]
    assert sum(faster) > dsp


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('convolution_engines = "arrays"', "`array_outputs` is missing"),
        ('convolution_engines = "arrays"\narray_outputs = 8', "`array_positions` is missing"),
        ("array_outputs = 8", '`array_outputs`: is of `convolution_engines` = "arrays" alone'),
        ("start_cycles = 8", '`start_cycles`: is of `convolution_engines` = "arrays" alone'),
        ("load_exposed = 1.5", "`boards[0].load_exposed` = 1.5"),
    ],
)
def test_wrong_keys_say_what_is_right(tmp_path: Path, keys: str, message: str) -> None:
    path = tmp_path / "c.toml"
    links = "[links]\nbandwidth_gbps = 1\nlatency_ns = 0\n"
    path.write_text(f'name = "c"\n[[boards]]\ntype = "u280"\n{keys}\n{links}')
    with pytest.raises(InputError) as error:
        load_cluster(str(path))
    assert message in str(error.value)


def test_a_board_that_takes_layers_in_turn_runs_them_on_its_array() -> None:
    """By hand: FP of a convolution with 8 x 16 results at once, 4 multipliers each, of 3
    samples.
    """
    network = {
        "name": "n",
        "input": [4, 6, 6],
        "layers": [
            {"type": "conv", "name": "c", "channels": 10, "kernel": 3, "pad": 1},
            {"type": "fc", "features": 3},
            {"type": "softmax"},
        ],
    }
    keys = {"convolution_engines": "arrays", "array_outputs": 8, "array_positions": 16}
    keys |= {"drain_cycles": 4, "start_cycles": 100, "clock_mhz": 100, "dsp": 600}
    board = {"name": "b", "on_chip_memory_kbit": 100_000, **keys}
    links = {"bandwidth_gbps": 1, "latency_ns": 0}
    cluster = {"name": "c", "boards": [board], "links": links}
    plan = emuchain.plan(network, cluster, devices=1, batch=3, engines="turns")
    assert plan.stages is not None
    costs = plan.timing.loads.costs(0, 3)
    convolution = 3 * (2 * 3) * max(9, 4) + 100
    dense = math.ceil(3 * 360 * 3 / 600) + 100
    assert costs.forward_ps == 10_000 * (convolution + dense)
