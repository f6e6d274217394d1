"""Boards as data: those that come with emuchain, and a cluster's `type`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from emuchain.emulator.cluster import Fpga, Gpu, board_keys, board_types, load_cluster
from emuchain.emulator.cluster.fpga import FF_PER_DSP, LUT_PER_DSP
from emuchain.emulator.common import InputError

LINKS = "[links]\nbandwidth_gbps = 1\nlatency_ns = 0\n"


def cluster_of(folder: Path, boards: str, more: str = "") -> Path:
    """A cluster's file with these `[[boards]]` tables, and further tables."""
    path = folder / "c.toml"
    path.write_text(f'name = "c"\n{boards}\n{LINKS}{more}')
    return path


FPGAS = [name for name in board_types() if board_keys(name).get("kind", "fpga") == "fpga"]


@pytest.mark.parametrize("name", FPGAS)
def test_boards_hold_together(tmp_path: Path, name: str) -> None:
    board = load_cluster(str(cluster_of(tmp_path, f'[[boards]]\ntype = "{name}"'))).board(0)
    assert isinstance(board, Fpga)
    assert board.lut
    assert board.ff
    assert board.bram
    # Data sheets give blocks and kilobits: 36 or 20 to a block RAM and 288 to an UltraRAM.
    assert board.on_chip_memory_bytes == (board.bram * board.bram_kbit + board.uram * 288) * 128
    # All these FPGAs have two flip-flops to a LUT, and LUTs enough to drive their DSPs.
    keys = board_keys(name)
    assert keys["ff"] == 2 * keys["lut"]
    assert LUT_PER_DSP * keys["dsp"] < keys["lut"]
    assert FF_PER_DSP * keys["dsp"] < keys["ff"]


@pytest.mark.parametrize("name", FPGAS)
def test_a_shell_leaves_less(tmp_path: Path, name: str) -> None:
    board = load_cluster(str(cluster_of(tmp_path, f'[[boards]]\ntype = "{name}"'))).board(0)
    assert isinstance(board, Fpga)
    keys = board_keys(name)
    for key in ("dsp", "lut", "ff", "bram"):
        assert getattr(board, key) == keys[key] - keys.get(f"shell_{key}", 0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("shell_lut = 1_303_680", "`shell_lut` = 1303680 leaves nothing"),
        ('multipliers = "two"', "multipliers"),
        ('dsp_type = "DSP99"', "known: DSP48E1"),
    ],
)
def test_a_wrong_shell_or_count_ends_with_what_is_right(
    tmp_path: Path, keys: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_cluster(str(cluster_of(tmp_path, f'[[boards]]\ntype = "u280"\n{keys}')))


def test_built_multipliers_need_a_type_of_dsps(tmp_path: Path) -> None:
    board = '[[boards]]\nname = "b"\nclock_mhz = 1\ndsp = 9\non_chip_memory_kbit = 36\n'
    with pytest.raises(InputError, match="needs `dsp_type`, one of DSP48E1"):
        load_cluster(str(cluster_of(tmp_path, board + 'multipliers = "built"')))


def test_the_boards_that_come_with_emuchain() -> None:
    assert set(board_types()) >= {
        "520n",
        "agf027",
        "d5005",
        "kc705",
        "stratix-v-gsd5",
        "stratix-v-gxa7",
        "u250",
        "u280",
        "u50",
        "u55c",
        "v80",
        "vc709",
        "vck5000",
        "vcu118",
        "vcu129",
        "zcu102",
    }


def test_keys_beside_a_type_go_before_its_own(tmp_path: Path) -> None:
    boards = (
        '[[boards]]\ntype = "vc709"\ncount = 2\n[[boards]]\ntype = "vc709"\nname ='
        ' "slow"\nclock_mhz = 50\nefficiency = 0.8\n'
    )
    first, second, third = load_cluster(str(cluster_of(tmp_path, boards))).boards
    assert first == second
    assert third == dataclasses.replace(
        first, name="slow", period_ps=25_000, efficiency=0.8, ranges=()
    )


def test_a_type_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "m"\nclock_mhz = 1\ndsp = 7\non_chip_memory_kbit = 36\n'
    )
    boards = f'[[boards]]\ntype = "{tmp_path / "mine.toml"}"'
    assert load_cluster(str(cluster_of(tmp_path, boards))).board(0) == Fpga("m", 1_000_000, 7, 4608)


BAD = {
    "unknown type": (
        '[[boards]]\ntype = "vc707"',
        "",
        "boards[0]: `type` = 'vc707': did you mean `vc709`?",
    ),
    "type is a number": ("[[boards]]\ntype = 7", "", "`boards[0].type` = 7"),
    "a share of nothing": (
        '[[boards]]\ntype = "vc709"\ndsp_share = 0',
        "",
        "`boards[0].dsp_share` = 0",
    ),
    "a share of more than all": (
        '[[boards]]\ntype = "vc709"\ndsp_share = 1.1',
        "",
        "`boards[0].dsp_share` = 1.1",
    ),
    "alpha of nothing": (
        '[[boards]]\ntype = "vc709"',
        "[resources]\nalpha = 0",
        "`resources.alpha` = 0",
    ),
    "beta above one": (
        '[[boards]]\ntype = "vc709"',
        "[resources]\nbeta = 1.5",
        "`resources.beta` = 1.5",
    ),
    "unknown aim": (
        '[[boards]]\ntype = "vc709"',
        '[resources]\naim = "fun"',
        "`resources.aim` = 'fun'",
    ),
    "LUTs not known": (
        '[[boards]]\nname = "b"\nclock_mhz = 1\ndsp = 1\non_chip_memory_kbit = 1',
        "[resources]\nalpha = 0.5",
        "`boards[0].lut` is missing",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_boards(tmp_path: Path, one_line: Callable[..., str], case: str) -> None:
    boards, more, message = BAD[case]
    path = cluster_of(tmp_path, boards, more)
    with pytest.raises(InputError) as error:
        load_cluster(str(path))
    line = one_line(error)
    assert line.startswith(f"{path}: ")
    assert message in line


PE_KEYS = "pe_chains = 16\npes_per_chain = 16\npe_words = 4608\n"
FPGA_KEYS = '[[boards]]\nname = "f"\nclock_mhz = 400\ndsp = 7\non_chip_memory_kbit = 36\n'


def test_a_gpu_and_an_fpga_of_pe_chains(tmp_path: Path) -> None:
    boards = f'[[boards]]\ntype = "p100"\nrecurrent_us = 20\n{FPGA_KEYS}{PE_KEYS}'
    gpu, fpga = load_cluster(str(cluster_of(tmp_path, boards))).boards
    assert isinstance(gpu, Gpu) and isinstance(fpga, Fpga) and fpga.pe_array is not None
    assert (gpu.recurrent_ps, gpu.persistent_gru_gbytes_per_s) == (20_000_000, 1074)
    assert (fpga.pe_array.pes, fpga.pe_array.units, fpga.pe_array.activation_cycles) == (
        256,
        4,
        204,
    )


def test_changes_reach_the_boards_that_have_the_key() -> None:
    gpu, fpga = load_cluster("farnn-9p", {"board.peak_tflops": 10, "board.pes_per_chain": 8}).boards
    assert isinstance(gpu, Gpu) and gpu.peak_tflops == 10
    assert isinstance(fpga, Fpga) and fpga.pe_array is not None and fpga.pe_array.pes == 128
    with pytest.raises(InputError, match=r"`board.peak_tflops`: no board of vc709"):
        load_cluster("vc709", {"board.peak_tflops": 10})


def test_bad_pairs(tmp_path: Path, one_line: Callable[..., str]) -> None:
    for boards, message in {
        FPGA_KEYS + "pe_chains = 16\n": "boards[0]: `pes_per_chain` is missing",
        FPGA_KEYS + 'kind = "tpu"\n': "`boards[0].kind` = 'tpu'",
        '[[boards]]\nkind = "gpu"\nname = "g"\ndsp = 7\n': "unknown key `boards[0].dsp` = 7",
    }.items():
        with pytest.raises(InputError) as error:
            load_cluster(str(cluster_of(tmp_path, boards)))
        assert message in one_line(error)


def test_a_gpu_takes_no_slices() -> None:
    board = load_cluster("p100").board(0)
    with pytest.raises(
        InputError, match="board P100: a GPU, on which no slices of layers can be placed"
    ):
        board.build([], 0)


def test_engines_work_in_a_share_of_the_cycles(tmp_path: Path) -> None:
    boards = "".join(
        f'[[boards]]\ntype = "vc709"\nclock_mhz = 200\nefficiency = {share}\n' for share in (1, 0.8)
    )
    whole, measured = load_cluster(str(cluster_of(tmp_path, boards))).boards
    assert isinstance(whole, Fpga) and isinstance(measured, Fpga)
    assert (whole.period_ps, measured.period_ps) == (5000, 6250)
    assert whole.clock_mhz == measured.clock_mhz == 200
    assert measured.multipliers == whole.multipliers


@pytest.mark.parametrize("share", ["0", "1.01", "-0.5", "nan"])
def test_no_other_share_is_an_efficiency(tmp_path: Path, share: str) -> None:
    boards = f'[[boards]]\ntype = "vc709"\nefficiency = {share}\n'
    with pytest.raises(InputError, match=r"`boards\[0\].efficiency` = "):
        load_cluster(str(cluster_of(tmp_path, boards)))
