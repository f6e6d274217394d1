"""Boards as data: those that come with emuchain, a cluster's `type`, and what engines may take of a board."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster.board import Board
from emuchain.emulator.cluster.load import board_types, load_cluster
from emuchain.emulator.common.errors import InputError
from emuchain.emulator.plan.resources import FF_PER_DSP, LUT_PER_DSP

LINKS = "[links]\nbandwidth_gbps = 1\nlatency_ns = 0\n"


def cluster_of(folder: Path, boards: str, more: str = "") -> Path:
    """A cluster's file with such boards."""
    path = folder / "c.toml"
    path.write_text(f'name = "c"\n{boards}\n{LINKS}{more}')
    return path


@pytest.mark.parametrize("name", board_types())
def test_boards_hold_together(tmp_path: Path, name: str) -> None:
    board = load_cluster(str(cluster_of(tmp_path, f'[[boards]]\ntype = "{name}"'))).board(0)
    assert board.lut
    assert board.ff
    assert board.bram
    # Data sheets give blocks and kilobits: 36 or 20 to a block RAM and 288 to an UltraRAM.
    assert board.on_chip_memory_bytes == (board.bram * board.bram_kbit + board.uram * 288) * 125
    # All these FPGAs have two flip-flops to a LUT, and LUTs enough to drive their DSPs.
    assert board.ff == 2 * board.lut
    assert LUT_PER_DSP * board.dsp < board.lut
    assert FF_PER_DSP * board.dsp < board.ff


def test_the_boards_that_come_with_emuchain() -> None:
    assert set(board_types()) >= {"kc705", "stratix-v-gsd5", "stratix-v-gxa7", "u280", "vc709", "vcu118", "vcu129"}


def test_keys_beside_a_type_go_before_its_own(tmp_path: Path) -> None:
    boards = '[[boards]]\ntype = "vc709"\ncount = 2\n[[boards]]\ntype = "vc709"\nname = "slow"\nclock_mhz = 100\n'
    first, second, third = load_cluster(str(cluster_of(tmp_path, boards))).boards
    assert first == second
    assert third == dataclasses.replace(first, name="slow", period_ps=10_000)


def test_a_type_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "m"\nclock_mhz = 1\ndsp = 7\non_chip_memory_kbit = 36\n')
    boards = f'[[boards]]\ntype = "{tmp_path / "mine.toml"}"'
    assert load_cluster(str(cluster_of(tmp_path, boards))).board(0) == Board("m", 1_000_000, 7, 4500)


BAD = {
    "unknown type": ('[[boards]]\ntype = "vc707"', "", "boards[0]: `type` = 'vc707': did you mean `vc709`?"),
    "type is a number": ("[[boards]]\ntype = 7", "", "`boards[0].type` = 7"),
    "a share of nothing": ('[[boards]]\ntype = "vc709"\ndsp_share = 0', "", "`boards[0].dsp_share` = 0"),
    "a share of more than all": ('[[boards]]\ntype = "vc709"\ndsp_share = 1.1', "", "`boards[0].dsp_share` = 1.1"),
    "alpha of nothing": ('[[boards]]\ntype = "vc709"', "[resources]\nalpha = 0", "`resources.alpha` = 0"),
    "beta above one": ('[[boards]]\ntype = "vc709"', "[resources]\nbeta = 1.5", "`resources.beta` = 1.5"),
    "unknown aim": ('[[boards]]\ntype = "vc709"', '[resources]\naim = "fun"', "`resources.aim` = 'fun'"),
    "LUTs not known": (
        '[[boards]]\nname = "b"\nclock_mhz = 1\ndsp = 1\non_chip_memory_kbit = 1',
        "[resources]\nalpha = 0.5",
        "`boards[0].lut` is missing",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_boards(tmp_path: Path, case: str) -> None:
    boards, more, told = BAD[case]
    path = cluster_of(tmp_path, boards, more)
    with pytest.raises(InputError) as error:
        load_cluster(str(path))
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_engines_may_take_a_share_of_the_dsps() -> None:
    board = load_cluster("vc709").board(0)
    assert board.dsp == 3600
    assert board.multipliers == 2998  # 0.833 of them
    assert dataclasses.replace(board, dsp_share=1.0, lut_multipliers=12).multipliers == 3612


@given(st.integers(1, 20_000), st.integers(1, 100))
def test_a_share_rounds_down_to_one_at_the_least(dsp: int, per_cent: int) -> None:
    assert Board("b", 1, dsp, 1, dsp_share=per_cent / 100).multipliers == max(1, dsp * per_cent // 100)


def test_banks_of_blocks() -> None:
    board = Board("b", 1, 1, 9000)
    assert board.banks == 4  # 72 kbit
    assert dataclasses.replace(board, bram=5).banks == 10
    assert dataclasses.replace(board, bram=5, bram_kbit=20).banks == 5
    assert dataclasses.replace(board, bram=5, uram=2).banks == 42
