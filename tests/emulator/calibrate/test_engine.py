"""The shape of engines from cycles of single convolutions."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.cluster import ArrayFpga, board_keys, load_cluster
from emuchain.emulator.commands.cli import main
from emuchain.emulator.common import InputError

Layer = tuple[int, int, int, int]
"""Output and input channels, rows (as many as columns), and kernel."""

VGG: list[Layer] = [
    (64, 64, 224, 3),
    (128, 64, 112, 3),
    (256, 128, 56, 3),
    (512, 256, 28, 3),
    (512, 512, 14, 3),
]
OTHERS: list[Layer] = [(192, 64, 27, 5), (384, 192, 13, 3), (64, 32, 54, 1), (1024, 768, 13, 1)]
HEADER = "net,oc,ic,oh,ow,k,cycles,weight_bytes"


def cycles_of(layer: Layer, pixels: int, tap: float, start: float, byte: float) -> float:
    """A design with 32 outputs, of which two leave it in a cycle."""
    outputs, inputs, side, kernel = layer
    passes = math.ceil(outputs / 32) * math.ceil(side * side / pixels)
    taps = inputs * kernel * kernel
    return passes * max(taps * tap, 16) + start + outputs * taps * byte


def table(
    folder: Path, name: str, layers: Iterable[Layer], cycles: Callable[[Layer], float]
) -> str:
    rows = []
    for layer in layers:
        outputs, inputs, side, kernel = layer
        weights = outputs * inputs * kernel * kernel
        measured = round(cycles(layer))
        rows.append(f"n,{outputs},{inputs},{side},{side},{kernel},{measured},{weights}")
    path = folder / f"{name}.csv"
    path.write_text("\n".join([HEADER, *rows, ""]))
    return str(path)


@pytest.mark.parametrize("pixels", [16, 32, 64])
@pytest.mark.parametrize("array", [True, False])
@pytest.mark.parametrize("byte", [0.0, 0.004])
def test_a_design_is_found_by_its_layers(
    tmp_path: Path, pixels: int, array: bool, byte: float
) -> None:
    """Layers that were not fitted, among them one that the drain bounds, are predicted."""

    def cycles(layer: Layer) -> float:
        return cycles_of(layer, pixels, 0.38, 250, byte)

    files = table(tmp_path, "vgg", VGG, cycles), table(tmp_path, "others", OTHERS, cycles)
    shape = f"32x{pixels}" if array else None
    done = emuchain.calibrate_board(files[0], "vcu118", array=shape, check=files[1])
    figures = done.to_dict()
    assert figures["array_positions"] == pixels
    assert figures["start_cycles"] == pytest.approx(250, abs=8)
    board = board_keys("vcu118")
    bytes_a_cycle = 1000 * board["off_chip_gbytes_per_s"] / board["clock_mhz"]
    assert figures["load_exposed"] == pytest.approx(byte * bytes_a_cycle, abs=0.01)
    assert figures["check"]["near"] == figures["check"]["layers"] == len(OTHERS)
    if array:
        assert figures["multipliers_each"] == 3
        assert figures["efficiency"] == pytest.approx(1 / (3 * 0.38), abs=0.01)
        assert figures["drain_cycles"] == 16


def test_the_file_has_engines_that_take_as_long(tmp_path: Path) -> None:
    """The board that is written plans with the array, in its int8, and its row is the formula's."""

    def cycles(layer: Layer) -> float:
        return cycles_of(layer, 64, 1 / 3, 250, 0)

    out = tmp_path / "mine.toml"
    emuchain.calibrate_board(table(tmp_path, "vgg", VGG, cycles), "vcu118", array="32x64", out=out)
    links = {"bandwidth_gbps": 100, "latency_ns": 0}
    said = {"name": "c", "boards": [{"type": str(out)}], "links": links}
    board = load_cluster(said).board(0)
    assert isinstance(board, ArrayFpga)
    from emuchain.emulator.cluster import Work

    for layer in VGG:
        outputs, inputs, side, kernel = layer
        work = Work(side, side, inputs, outputs, kernel * kernel)
        taken = side * board.row_cycles(work, 3 * board.array.size)
        assert taken == pytest.approx(cycles(layer), abs=side + 2)
    keys: dict[str, Any] = {"devices": 2, "engines": "turns", "schedule": "sync"}
    assert emuchain.plan("quick-cifar", said, precision="int8", **keys).stages is not None
    with pytest.raises(InputError, match="1,160 multipliers: an array of 32 x 64 takes 2,048"):
        emuchain.plan("quick-cifar", said, **keys)


def test_layers_that_scatter_say_so(tmp_path: Path) -> None:
    noise = random.Random(5)

    def cycles(layer: Layer) -> float:
        return cycles_of(layer, 32, 0.38, 250, 0) * math.exp(noise.gauss(0, 0.02))

    file = table(tmp_path, "vgg", 3 * VGG, cycles)
    figures = emuchain.calibrate_board(file, "vcu118", array="32x32").to_dict()
    assert figures["tap_cycles"] == pytest.approx(0.38, rel=0.03)
    assert 0.005 < figures["rms"] < 0.05
    assert figures["left_out_error"] >= figures["rms"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "3 different layers; an engine takes 4 or more"),
        (("--array", "32"), "`array` = '32': should be outputs x pixels, such as 32x64"),
        (("--array", "0x4"), "`array` = '0x4': should be outputs x pixels, such as 32x64"),
        (("--check", "nothing.csv"), "nothing.csv"),
    ],
)
def test_what_is_wrong_ends_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    file = table(tmp_path, "few", VGG[:3], lambda layer: cycles_of(layer, 32, 0.4, 9, 0))
    with pytest.raises(SystemExit) as left:
        main(["calibrate", "board", file, "--type", "vcu118", *words])
    assert left.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_other_measurements_take_no_array(tmp_path: Path) -> None:
    path = tmp_path / "stream.csv"
    path.write_text("function,best_mbytes_per_s\ncopy,30000\n")
    with pytest.raises(InputError, match="`array`: is of convolutions alone"):
        emuchain.calibrate_board(path, "vcu118", array="32x32")


def test_the_answer_has_the_shape_and_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def cycles(layer: Layer) -> float:
        return cycles_of(layer, 32, 0.38, 250, 0)

    files = table(tmp_path, "vgg", VGG, cycles), table(tmp_path, "others", OTHERS, cycles)
    words = ["calibrate", "board", files[0], "--type", "vcu118", "--array", "32x32"]
    with pytest.raises(SystemExit):
        main([*words, "--check", files[1]])
    printed = " ".join(capsys.readouterr().out.split())
    assert "engines of 32 outputs x 32 pixels, 3 multipliers each, busy in" in printed
    assert "further layers: 4 of 4 within 10 %, by a roofline" in printed
    with pytest.raises(SystemExit):
        main([*words, "--check", files[1], "--json"])
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["check"]["layers"] == 4


def test_each_further_layer_has_its_error(tmp_path: Path) -> None:
    """One layer takes half as long again as the others say; a roofline misses what starts cost."""

    def cycles(layer: Layer) -> float:
        return cycles_of(layer, 32, 0.38, 250, 0) * (1.5 if layer == OTHERS[1] else 1)

    files = table(tmp_path, "vgg", VGG, cycles), table(tmp_path, "others", OTHERS, cycles)
    done = emuchain.calibrate_board(files[0], "vcu118", array="32x32", check=files[1]).check
    assert done is not None
    assert done.errors == pytest.approx([0, 1 / 1.5 - 1, 0, 0], abs=0.01)
    assert done.worst_error == done.errors[1] and done.worst == f"{files[1]}:3"
    assert done.near == 3
    assert len(done.roofline_errors) == done.layers == 4
    assert done.roofline_near == sum(abs(error) <= 0.1 for error in done.roofline_errors)


WITNESSES = os.environ.get("EMUCHAIN_WITNESSES")


@pytest.mark.skipif(WITNESSES is None, reason="EMUCHAIN_WITNESSES names no folder of measurements")
@pytest.mark.parametrize("design", ["M32P32", "M32P64"])
@pytest.mark.parametrize("mode", ["sta", "dyn"])
def test_measured_accelerators_follow_from_vgg_16(tmp_path: Path, design: str, mode: str) -> None:
    lines = (Path(str(WITNESSES)) / "ghp_vcu118_conv.csv").read_text().splitlines()
    header, *rows = [line for line in lines if not line.startswith("#")]
    fitted, others = tmp_path / "vgg16.csv", tmp_path / "others.csv"
    of_vgg = [row for row in rows if row.startswith("vgg16,")]
    fitted.write_text("\n".join([header, *of_vgg, ""]))
    others.write_text("\n".join([header, *(row for row in rows if row not in of_vgg), ""]))
    done = emuchain.calibrate_board(
        fitted,
        "vcu118",
        only={"acc": design, "mode": mode},
        array=design.replace("M", "").replace("P", "x"),
        check=others,
    )
    assert done.check is not None
    assert done.check.near >= 0.9 * done.check.layers
    assert done.check.roofline_near < done.check.near
