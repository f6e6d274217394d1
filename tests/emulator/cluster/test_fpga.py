"""FPGA boards: multipliers of DSPs and of LUTs, banks of block RAM, and what engines take."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster import Fpga, load_cluster, lut_multipliers
from emuchain.emulator.cluster.fpga import LUT_PER_DSP, engine_resources
from emuchain.kernels.number import FP32


def test_engines_may_take_a_share_of_the_dsps() -> None:
    changes = {"board.multipliers": "one-per-dsp", "board.dsp_share": 0.833}
    board = load_cluster("vc709", changes).board(0)
    assert board.dsp == 3600
    assert board.multipliers == 2998  # 0.833 of them
    assert dataclasses.replace(board, dsp_share=1.0, lut_multipliers=12).multipliers == 3612


@given(st.integers(1, 20_000), st.integers(1, 100))
def test_a_share_rounds_down_to_one_at_the_least(dsp: int, per_cent: int) -> None:
    assert Fpga("b", 1, dsp, 1, dsp_share=per_cent / 100).multipliers == max(
        1, dsp * per_cent // 100
    )


def test_banks_of_blocks() -> None:
    assert Fpga("b", 1, 1, 9216).banks == 4  # 72 kbit
    board = Fpga("b", 1, 1, 1_000_000)
    assert dataclasses.replace(board, bram=5).banks == 10
    assert dataclasses.replace(board, bram=5, bram_kbit=20).banks == 5
    assert dataclasses.replace(board, bram=5, uram=2).banks == 42
    assert dataclasses.replace(board, bram=5, on_chip_memory_bytes=9216).banks == 4, (
        "no more than the memory makes"
    )


@pytest.mark.parametrize("alpha", [1.0, 0.99, 0.9, 0.5, 0.1])
def test_alpha_of_the_engines_are_of_dsps_as_far_as_luts_allow(alpha: float) -> None:
    board = load_cluster("vc709", {"board.multipliers": "one-per-dsp"}).board(0)
    of_luts = lut_multipliers(board, alpha)
    assert board.lut is not None
    assert LUT_PER_DSP * board.dsp_multipliers + FP32.multiplier_lut * of_luts <= board.lut
    wanted = board.dsp_multipliers / alpha
    if alpha >= 0.99:
        assert wanted - 1 < board.dsp_multipliers + of_luts <= wanted
    else:
        assert 0 < of_luts < wanted - board.dsp_multipliers  # as many as fit


def test_a_board_whose_dsps_take_all_luts_has_none_for_engines() -> None:
    assert lut_multipliers(Fpga("b", 1, 100, 1, lut=100 * LUT_PER_DSP), 0.5) == 0


def test_engines_take_dsps_first() -> None:
    """15 of 20 DSPs are for engines, and 4 multipliers are of LUTs: the second slice's engines take
    both kinds.
    """
    board = Fpga("b", 1, 20, 1, dsp_share=0.75, lut_multipliers=4)
    found = board.engine_resources([9, 8, 2])
    assert found == [engine_resources(9, 0), engine_resources(6, 2), engine_resources(0, 2)]
    assert [(taken.dsp, taken.bram_banks) for taken in found] == [(9, 0), (6, 0), (0, 0)]
