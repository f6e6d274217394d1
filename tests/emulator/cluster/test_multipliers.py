"""Multipliers by class: what a DSP makes, what engines of several classes share, and what boards
refuse.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from emuchain.emulator.calibrate import BoardFit, Evidence
from emuchain.emulator.calibrate.calibrate import board_toml
from emuchain.emulator.cluster import (
    DSP_TYPES,
    Cluster,
    Fpga,
    MultiplierRate,
    Work,
    board_keys,
    load_cluster,
    lut_multipliers,
)
from emuchain.emulator.cluster.fpga import LUT_PER_DSP
from emuchain.emulator.cluster.multipliers import SharedDsps
from emuchain.emulator.common import InputError
from emuchain.emulator.number import Precision, joint_class, narrowest, precision_of
from emuchain.emulator.plan import in_precision
from emuchain.kernels.number import FP32, MULTIPLIERS

LINKS = "[links]\nbandwidth_gbps = 1\nlatency_ns = 0\n"
MINE = (
    '[[boards]]\nname = "mine"\nclock_mhz = 200\ndsp = 100\nlut = 20_000\non_chip_memory_kbit ='
    " 1000\n"
)
ALL_INT8 = ("int8", "int8", "int8")


def cluster_of(folder: Path, boards: str, more: str = "") -> Cluster:
    path = folder / "c.toml"
    path.write_text(f'name = "c"\n{boards}\n{LINKS}{more}')
    return load_cluster(str(path))


def fpga(cluster: Cluster, precision: object = "fp32") -> Fpga:
    board = in_precision(cluster, precision_of(precision)).board(0)
    assert isinstance(board, Fpga)
    return board


@pytest.mark.parametrize("kind", MULTIPLIERS)
def test_fp32_holds_all_and_a_class_holds_itself(kind: str) -> None:
    assert joint_class(kind, "fp32") == joint_class("fp32", kind) == "fp32"
    assert joint_class(kind, kind) == kind


@given(*[st.sampled_from(MULTIPLIERS)] * 3)
def test_joint_classes_do_not_depend_on_the_order(one: str, two: str, three: str) -> None:
    assert joint_class(one, two) == joint_class(two, one)
    assert joint_class(joint_class(one, two), three) == joint_class(one, joint_class(two, three))


def test_an_integer_and_a_float_of_eight_bits_meet_in_half() -> None:
    """Seven digits of an int8 are more than an fp8's four, and an fp8's range is more than an
    int8's.
    """
    assert joint_class("int8", "fp8") == "half"
    assert joint_class("int4", "fp8") == "fp8"
    assert joint_class("int4", "int8") == "int8"
    assert narrowest(("fp8", "int8"), "half") is None
    assert narrowest(("half", "fp32"), "int8") == "half"


def test_engines_have_the_class_of_both_operands() -> None:
    """FP: activations and weights; EB: errors and weights; PG: activations and errors."""
    assert Precision().multipliers == ("fp32",) * 3
    assert precision_of("mxfp8").multipliers == ("fp8",) * 3
    mixed = precision_of({"activations": "int8", "weights": "int8", "errors": "bf16"})
    assert mixed.multipliers == ("int8", "half", "half")
    assert precision_of({"format": "int8", "weights": "fp8"}).multipliers == (
        "half",
        "half",
        "int8",
    )
    assert (
        precision_of({"format": "int8", "master": "bf16", "gradients": "fp16"}).multipliers
        == ALL_INT8
    )


@pytest.mark.parametrize("dsp_type", DSP_TYPES)
@pytest.mark.parametrize("kind", ["half", "fp8", "int8", "int4"])
def test_rates_scale_by_what_a_dsp_makes(dsp_type: str, kind: str) -> None:
    single = Fpga("b", 1, 1000, 1, dsp_share=0.7, dsp_type=dsp_type)
    narrow = single.in_classes((kind, kind, kind), 1.0)
    per_dsp = DSP_TYPES[dsp_type].per_dsp[kind]
    assert single.multipliers == 700
    assert narrow.multipliers == 700 * per_dsp
    assert narrow.capacity == per_dsp * single.capacity
    [taken] = narrow.engine_resources([narrow.multipliers])
    assert taken.dsp == 700
    assert 700 * LUT_PER_DSP <= taken.lut < 700 * (LUT_PER_DSP + per_dsp)


def test_types_of_dsps_say_their_classes_and_sources() -> None:
    for kind in DSP_TYPES.values():
        assert {*kind.per_dsp} == {*MULTIPLIERS} - {"fp32"}
        assert "(" in kind.source
    assert DSP_TYPES["DSP48E1"].per_dsp["int8"] == DSP_TYPES["DSP48E2"].per_dsp["int8"] == 2
    assert DSP_TYPES["DSP58"].per_dsp["int8"] == 3


def test_without_a_type_all_classes_have_one_multiplier_a_dsp(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, MINE)
    for precision in ("fp32", "bf16", "fp8", "int8", "mxfp4"):
        board = fpga(cluster, precision)
        assert board.multipliers == 100
        assert board.engine_resources([10])[0].lut == 10 * LUT_PER_DSP


def test_single_precision_is_what_it_was(tmp_path: Path) -> None:
    """With any type of DSPs, as the papers count."""
    cluster = load_cluster("vc709", {"board.multipliers": "one-per-dsp"})
    assert in_precision(cluster, Precision()) == cluster
    assert fpga(cluster).shared.parts == (1, 1, 1)
    assert fpga(cluster).shared.parts_per_dsp == 1
    counted = 'dsp_type = "DSP58"\nmultipliers = "one-per-dsp"\n'
    typed = cluster_of(tmp_path, MINE + counted)
    assert dataclasses.replace(fpga(typed), dsp_type=None) == fpga(cluster_of(tmp_path, MINE))


def test_a_board_says_its_own_multipliers(tmp_path: Path) -> None:
    table = (
        "[boards.multipliers]\nfp32 = { per_dsp = 0.4, lut = 500 }\nint8 = { per_dsp = 3 }\nhalf ="
        " {}\n"
    )
    cluster = cluster_of(tmp_path, MINE + 'dsp_type = "DSP48E2"\n' + table)
    assert fpga(cluster).multipliers == 40
    assert fpga(cluster).engine_resources([10])[0].lut == 5000
    assert fpga(cluster).engine_resources([10])[0].dsp == 25
    assert fpga(cluster, "int8").multipliers == 300
    assert fpga(cluster, "int8").engine_resources([3])[0].lut == 3 * math.ceil(LUT_PER_DSP / 3)
    assert fpga(cluster, "bf16").multipliers == fpga(cluster, "fp8").multipliers == 100, (
        "fp8 in those of half"
    )
    assert fpga(cluster, "mxfp4").multipliers == 300, "int4 in those of int8"


@pytest.mark.parametrize(
    ("given", "precision", "message"),
    [
        (
            "int8 = {}",
            "fp32",
            "`precision` = fp32: board mine: `multipliers` has int8, and none as wide as fp32",
        ),
        ("int8 = {}\nfp8 = {}", "bf16", "`multipliers` has fp8, int8, and none as wide as half"),
        ("int8 = {}", "fp8", "none as wide as fp8"),
        ("fp8 = {}", "int8", "none as wide as int8"),
        ("half = {}", {"format": "bf16", "errors": "fp32"}, "none as wide as fp32"),
    ],
)
def test_formats_wider_than_all_multipliers_are_refused(
    tmp_path: Path, one_line: Callable[..., str], given: str, precision: object, message: str
) -> None:
    cluster = cluster_of(tmp_path, f"{MINE}[boards.multipliers]\n{given}\n")
    with pytest.raises(InputError) as error:
        fpga(cluster, precision)
    assert message in one_line(error)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "[boards.multipliers]\nint7 = { per_dsp = 2 }",
            "unknown key `boards[0].multipliers.int7`",
        ),
        (
            "[boards.multipliers]\nint8 = { per_dps = 2 }",
            "unknown key `boards[0].multipliers.int8.per_dps`",
        ),
        (
            "[boards.multipliers]\nint8 = { per_dsp = 0 }",
            "`boards[0].multipliers.int8.per_dsp` = 0",
        ),
        ("[boards.multipliers]\nint8 = { lut = -1 }", "`boards[0].multipliers.int8.lut` = -1"),
        ('dsp_type = "DSP48E3"', "boards[0]: `dsp_type` = 'DSP48E3': did you mean `DSP48E2`?"),
    ],
)
def test_bad_multipliers(
    tmp_path: Path, one_line: Callable[..., str], keys: str, message: str
) -> None:
    with pytest.raises(InputError) as error:
        cluster_of(tmp_path, f"{MINE}{keys}\n")
    assert message in one_line(error)


def test_a_board_of_narrow_multipliers_can_have_some_of_luts(tmp_path: Path) -> None:
    resources = "[resources]\nalpha = 0.95\n"
    cluster = cluster_of(
        tmp_path, f"{MINE}[boards.multipliers]\nint8 = {{ per_dsp = 2, lut = 10 }}\n", resources
    )
    board = fpga(cluster, "int8")
    assert board.lut_multipliers == lut_multipliers(board, 0.95) == 10
    assert board.multipliers == 210
    [taken] = board.engine_resources([210])
    assert (taken.dsp, taken.lut) == (100, 200 * 10 + 10 * FP32.multiplier_lut)


RATES = st.builds(
    MultiplierRate,
    st.just("any"),
    st.fractions(Fraction(1, 4), 8, max_denominator=4),
    st.integers(0, 900),
)
WORKS = st.builds(
    Work,
    rows=st.integers(1, 6),
    columns=st.integers(1, 6),
    inputs=st.integers(1, 4),
    outputs=st.integers(1, 4),
    tile=st.sampled_from([1, 9]),
)


@given(st.lists(RATES, min_size=3, max_size=3))
def test_parts_are_the_largest_that_divide_all_multipliers(rates: list[MultiplierRate]) -> None:
    shared = SharedDsps.among(rates)
    for rate, parts in zip(rates, shared.parts, strict=True):
        assert Fraction(parts) / shared.parts_per_dsp == 1 / rate.per_dsp
    assert math.gcd(*shared.parts) == 1
    assert len({rate.per_dsp for rate in rates}) > 1 or shared.parts == (1, 1, 1)


@given(st.lists(RATES, min_size=3, max_size=3), st.tuples(WORKS, WORKS, WORKS), st.integers(1, 500))
def test_engines_of_several_classes_take_no_more_dsps_than_there_are(
    rates: list[MultiplierRate], works: tuple[Work, Work, Work], dsp: int
) -> None:
    """And the slowest would not be faster with another sharing of the DSPs."""
    kinds = ("fp32", "half", "int8")
    given_rates = tuple(
        dataclasses.replace(rate, kind=kind) for rate, kind in zip(rates, kinds, strict=True)
    )
    board = Fpga("b", 1000, dsp, 1, rates=given_rates, classes=kinds)
    phased = [dataclasses.replace(work, phase=phase) for phase, work in enumerate(works)]
    assume(board.fewest_multipliers(phased) <= board.multipliers)
    engines = board.build(phased, 0)
    one, two, three = (engine.multipliers for engine in engines)
    taken = sum(
        Fraction(engine.multipliers) / rate.per_dsp
        for engine, rate in zip(engines, rates, strict=True)
    )
    assert taken <= max(dsp, 1 / board.shared.parts_per_dsp)
    [resources] = board.slice_resources([(one, two, three)])
    assert resources.dsp == math.ceil(taken)
    assert resources.lut == sum(
        engine.multipliers * rate.lut for engine, rate in zip(engines, rates, strict=True)
    )
    slowest = max(engine.sample_ps for engine in engines)
    cycles = slowest // board.period_ps - 1
    if all(work.rows <= cycles for work in phased):
        faster = sum(
            Fraction(board.multipliers_within(work, cycles)) / rate.per_dsp
            for work, rate in zip(phased, rates, strict=True)
        )
        assert faster * board.shared.parts_per_dsp > board.multipliers


def test_ranges_of_constants_stay(tmp_path: Path) -> None:
    """Beside multipliers, and on a board whose classes change."""
    more = (
        '[boards.multipliers]\nint8 = {}\n[boards.uncertainty]\n"board.clock_mhz" = { class ='
        ' "fitted" }\n'
    )
    cluster = cluster_of(tmp_path, MINE + more)
    board = fpga(cluster, "int8")
    assert board.ranges == cluster.board(0).ranges
    assert [(entry.key, entry.kind) for entry in board.ranges] == [("board.clock_mhz", "fitted")]


def test_a_calibrated_board_keeps_its_multipliers(tmp_path: Path) -> None:
    """Its file is that of its type, with the tables in one line."""
    table = {"fp32": {"per_dsp": 0.4, "lut": 500}, "int8": {"per_dsp": 2}}
    keys = {
        "name": "b",
        "clock_mhz": 200,
        "dsp": 100,
        "on_chip_memory_kbit": 36,
        "multipliers": table,
    }
    evidence = Evidence(("products.csv",), 3, 1, "0" * 64, datetime.date(2026, 11, 25))
    (tmp_path / "b.toml").write_text(
        board_toml(BoardFit("b", keys, (), (), False, None, evidence, ()))
    )
    assert board_keys(str(tmp_path / "b.toml"))["multipliers"] == table
