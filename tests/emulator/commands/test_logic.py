"""Multipliers and look-up tables in `plan`, `simulate` and `sweep`: rates of narrow formats, what
is short, caveats.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.commands.cli import main

LINKS = "[links]\nbandwidth_gbps = 1000\nlatency_ns = 0\n"
BOARD = """name = "{name}"
[[boards]]
type = "vcu118"
name = "{name}"
clock_mhz = 200
dsp_share = 1
lut_share = 1
efficiency = 1
shell_dsp = 0
shell_lut = 0
shell_ff = 0
shell_bram = 0
"""
SHORT = "lut = 300_000\n"
"""Fewer LUTs than 6,840 DSPs need, 83 each."""

Ended = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ended(capsys: pytest.CaptureFixture[str]) -> Ended:
    """Runs a command; returns its status and what it prints."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(words)
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return run


def as_json(ended: Ended, *words: str) -> Any:
    status, printed, errors = ended(*words, "--json")
    assert status == 0, errors
    return json.loads(printed)


def cluster(folder: Path, more: str = "", name: str = "c") -> str:
    path = folder / f"{name}.toml"
    counted = "" if "multipliers" in more else 'multipliers = "one-per-dsp"\n'
    path.write_text(f"{BOARD.format(name=name)}{counted}{more}{LINKS}")
    return str(path)


def multipliers(plan: dict[str, Any]) -> int:
    return sum(
        sum(held["multipliers"].values()) for device in plan["devices"] for held in device["slices"]
    )


def test_int8_has_twice_the_multipliers_of_a_dsp48e2(ended: Ended, tmp_path: Path) -> None:
    words = ("plan", "vgg16-cifar", "--memory", "ignored", "--cluster", cluster(tmp_path))
    single, narrow = as_json(ended, *words), as_json(ended, *words, "--precision", "int8")
    assert multipliers(narrow) == pytest.approx(2 * multipliers(single), rel=0.02)
    assert narrow["images_per_s"] == pytest.approx(2 * single["images_per_s"], rel=0.1)
    [device] = narrow["devices"]
    assert (
        sum(held["dsp_count"] for held in device["slices"]) == -(-multipliers(narrow) // 2) <= 6840
    )


@pytest.mark.parametrize("engines", ["split", "turns"])
def test_rates_of_multipliers_that_a_board_says(ended: Ended, tmp_path: Path, engines: str) -> None:
    """A quarter of the multipliers is a quarter of the rate, where engines limit."""
    words = ("plan", "vgg16-cifar", "--engines", engines, "--memory", "ignored", "--cluster")
    whole = ended(*words, cluster(tmp_path))[1]
    quarter = ended(
        *words, cluster(tmp_path, "[boards.multipliers]\nfp32 = { per_dsp = 0.25, lut = 100 }\n")
    )[1]
    rates = [
        float(said.partition("images/s")[0].split()[-1].replace(",", ""))
        for said in (whole, quarter)
    ]
    assert rates[0] == pytest.approx(4 * rates[1], rel=0.1)


def test_kinds_may_have_classes_of_their_own(ended: Ended, tmp_path: Path) -> None:
    """Weights in bf16 widen FP and EB; PG multiplies int8 by int8, at half the DSPs."""
    flags = ("--precision", "int8", "--precision.weights", "bf16")
    found = as_json(ended, "plan", "quick-cifar", "--cluster", cluster(tmp_path), *flags)
    for device in found["devices"]:
        for held in device["slices"]:
            counts = held["multipliers"]
            wide = counts["fp"] + counts.get("eb", 0)
            assert held["dsp_count"] == pytest.approx(wide + counts["pg"] / 2, abs=1)


@pytest.mark.parametrize("engines", ["split", "turns"])
def test_all_commands_say_that_luts_are_short(ended: Ended, tmp_path: Path, engines: str) -> None:
    few, many = cluster(tmp_path, SHORT, "few"), cluster(tmp_path, name="many")
    network = ("vgg16-cifar", "--devices", "2", "--engines", engines)
    for command in (("plan",), ("simulate", "--samples", "64")):
        words = (command[0], *network, *command[1:], "--range", "none", "--cluster")
        assert "logic: too few look-up tables on 2 devices\n" in ended(*words, few)[1]
        assert "look-up tables" not in ended(*words, many)[1]
        assert [as_json(ended, *words, name)["fits_lut"] for name in (few, many)] == [False, True]
    words = ("sweep", *network, "--cluster", f"{few},{many}", "--range", "none", "--jobs", "1")
    assert [row["fits_lut"] for row in as_json(ended, *words)["rows"]] == [False, True]
    printed = ended(*words)[1]
    assert "logic: too few look-up tables at 1 of 2 points; rates ignore this\n" in printed
    assert "fits" in printed and " LUT " in printed


def test_where_luts_are_unknown_nothing_is_said(ended: Ended, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    board = '[[boards]]\nname = "b"\nclock_mhz = 200\ndsp = 900\non_chip_memory_kbit = 60_000\n'
    path.write_text(f'name = "c"\n{board}{LINKS}')
    words = ("simulate", "quick-cifar", "--samples", "64", "--cluster", str(path))
    assert as_json(ended, *words)["fits_lut"] is None
    assert "logic: " not in ended(*words)[1]


@pytest.mark.parametrize(
    ("keys", "flags", "message"),
    [
        (
            "",
            (),
            (
                "1 fp32 on a DSP48E2, 83 LUTs each, as papers count; a built one takes 5 DSPs and"
                " 292 LUTs: the board has room for 1,368, not 6,840"
            ),
        ),
        (
            "",
            ("--precision", "int8"),
            "2 int8 on a DSP48E2, 42 LUTs each, as papers count by its `dsp_type`, LUTs assumed",
        ),
        ("", ("--precision", "bf16"), "as papers count by its `dsp_type`, LUTs assumed; a built"),
        (
            'dsp_type = "DSP58"\n',
            (),
            "1 fp32 on a DSP58, 83 LUTs each, as papers count",
        ),
        (
            'multipliers = "built"\n',
            (),
            "engines of c: 1,368 fp32 multipliers of 5 DSPs at 200 MHz, 547 of 547 GFLOP/s; report;",
        ),
        (
            "[boards.multipliers]\nfp32 = { per_dsp = 0.5, lut = 900 }\n",
            (),
            "0.5 fp32 on a DSP48E2, 900 LUTs each, by",
        ),
        (
            "[boards.multipliers]\nfp32 = {}\n",
            (),
            "by its `multipliers`; a built one takes 5 DSPs",
        ),
    ],
)
def test_the_answer_says_what_is_counted(
    ended: Ended, tmp_path: Path, keys: str, flags: tuple[str, ...], message: str
) -> None:
    path = cluster(tmp_path, keys)
    for command in (
        ("plan",),
        ("simulate", "--samples", "64"),
        ("sweep", "--devices", "1", "--jobs", "1"),
    ):
        printed = ended(command[0], "quick-cifar", *command[1:], *flags, "--cluster", path)[1]
        assert message in " ".join(printed.partition("\n\n")[0].split()), command


def test_a_built_multiplier_is_not_held_against_a_dsp_that_has_one(
    ended: Ended, tmp_path: Path
) -> None:
    assert (
        "a built one"
        not in ended("plan", "quick-cifar", "--cluster", cluster(tmp_path, 'dsp_type = "DSP58"\n'))[
            1
        ]
    )


def test_a_format_wider_than_the_boards_multipliers_ends_with_status_2(
    ended: Ended, tmp_path: Path
) -> None:
    path = cluster(tmp_path, "[boards.multipliers]\nint8 = { per_dsp = 2, lut = 40 }\n")
    for command in (("plan",), ("simulate", "--samples", "64"), ("explore", "--devices", "1")):
        status, printed, errors = ended(command[0], "quick-cifar", *command[1:], "--cluster", path)
        assert (status, printed) == (2, "")
        assert errors.splitlines()[-1].startswith(
            "emuchain: error: `precision` = fp32: board c: `multipliers` has int8,"
        )
    assert ended("plan", "quick-cifar", "--cluster", path, "--precision", "int8")[0] == 0
    assert (
        ended("sweep", "quick-cifar", "--precision", "fp32", "--cluster", path, "--jobs", "1")[0]
        == 2
    )
