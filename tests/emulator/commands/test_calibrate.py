"""`emuchain calibrate`: what it prints, in JSON too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from emuchain.emulator.commands.calibrate import calibrate
from emuchain.emulator.common import InputError

from .running import status_of

LATENCY_NS, GBYTES_PER_S = 812.0, 1.25


def pingpong(folder: Path) -> Path:
    """Three runs of a link; of the second board's there is one row."""
    rows = ["run,board,message_bytes,message_ns"]
    for run in (1, 2, 3):
        rows += [
            f"{run},ours,{size},{(LATENCY_NS + size / GBYTES_PER_S) * (1 + run / 1000)}"
            for size in (64, 1024, 16384, 2**20)
        ]
    path = folder / "pingpong.csv"
    path.write_text("\n".join([*rows, "4,theirs,64,5000", ""]))
    return path


def printed(*arguments: object) -> str:
    """What the command prints when it succeeds."""
    result = CliRunner().invoke(calibrate, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_answer_comes_first(tmp_path: Path) -> None:
    out = tmp_path / "cluster.toml"
    lines = printed("link", pingpong(tmp_path), "--only", "board=ours", "-o", out).splitlines()
    assert lines[0].startswith("link: 9.98 Gb/s (9.9")
    assert "latency 813.6 ns (8" in lines[0]
    assert lines[1].startswith("12 rows, 3 runs: rms 0.08 %; worst row ")
    assert any(line.startswith("leave one run out: 0.1") for line in lines)
    text = " ".join(lines)
    for sentence in (
        "bandwidth and header bytes",
        "link latency and kernel hand-over",
        "`share` of links",
    ):
        assert sentence in text
    assert out.exists()


def test_json_has_all_figures(tmp_path: Path) -> None:
    said = json.loads(printed("link", pingpong(tmp_path), "--only", "board=ours", "--json"))
    assert said["constants"].keys() == {"link.bandwidth_gbps", "link.latency_ns"}
    latency = said["constants"]["link.latency_ns"]
    assert latency["low"] < latency["value"] < latency["high"]
    assert (latency["class"], latency["runs"], said["rows"], said["runs"]) == ("measured", 3, 12, 3)
    assert said["leave_one_run_out"]["held"] == 1
    assert said["worst_row"]["row"].startswith(str(tmp_path))
    assert len(said["cannot_tell_apart"]) == 4
    assert said["warnings"] == []


def test_a_board_and_a_profile(tmp_path: Path) -> None:
    gemm = tmp_path / "gemm.csv"
    gemm.write_text("matrix_size,best_s\n4096,2\n")
    assert "VC709: board.efficiency 0.5965 (0.5" in printed("board", gemm, "--type", "vc709")
    layers = tmp_path / "layers.csv"
    layers.write_text(
        "network,layer,phase,samples,us\nlenet,conv1,FP,8,500\nlenet,conv1,PG,8,700\n"
    )
    assert "\nlenet on VC709: a profile of 1 layer\n" in "\n" + printed(
        "board", layers, "--type", "vc709"
    )
    said = json.loads(printed("board", layers, "--type", "vc709", "--json"))
    assert said["layers"] == [
        {
            "layer": "conv1",
            "samples": 8,
            "forward_us": 500.0,
            "backward_us": 700.0,
            "gradient_us": 700.0,
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "rows are of several boards: choose one by `--only board=NAME`: ours, theirs"),
        (["--only", "board"], "should be COLUMN=VALUE"),
        (["--only", "bord=ours"], "no file has a column `bord`; did you mean `board`?"),
        (["--line-gbps", "nan"], "`line_gbps` = nan: must be a rate above 0"),
        (["--only", "board=ours", "--from-bytes", "65"], "3 message sizes"),
        (["--only", "board=ours", "--line-gbps", "9.7"], "is 1.03 times the line's rate, 9.7 Gb/s"),
        (["--only", "board=ours", "--type", "p100"], "is no FPGA"),
    ],
)
def test_what_is_refused(tmp_path: Path, arguments: list[str], why: str) -> None:
    error = CliRunner().invoke(calibrate, ["link", str(pingpong(tmp_path)), *arguments]).exception
    assert isinstance(error, InputError)
    assert why in str(error)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["board", "FILE"], "Missing option '--type'"),
        (["board", "FILE", "--type", ""], "`type` = '': known: "),
        (["link", "FILE", "--b-eff-version", "new"], "`b_eff_version`: 'new' is no version"),
        (["link", "FILE", "--line-gbps", "1e400"], "`line_gbps` = inf: must be a rate above 0"),
    ],
)
def test_the_command_refuses_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert (
        status_of(
            "calibrate", *(str(pingpong(tmp_path)) if word == "FILE" else word for word in words)
        )
        == 2
    )
    said = capfd.readouterr()
    assert said.out == "" and said.err.startswith("emuchain: error: ") and said.err.count("\n") == 1
    assert why in said.err


def test_extreme_numbers_print_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "times": "message_bytes,message_us\n64,1e-320\n512,1e-320\n4096,1e-320\n32768,1e-320\n",
        "sizes": f"matrix_size,best_s\n{'9' * 200},1\n",
    }.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        kind = "link" if name == "times" else "board"
        assert status_of("calibrate", kind, str(path), "--type", "vc709") == 2
        [line] = capfd.readouterr().err.splitlines()
        assert "should be a number from 1e-18 to 1e+18" in line


def test_plan_takes_what_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, out = pingpong(tmp_path), tmp_path / "cluster.toml"
    assert status_of("calibrate", "link", str(path), "--only", "board=ours", "-o", str(out)) == 0
    assert status_of("plan", "quick-cifar", "--devices", "4", "--cluster", str(out)) == 0
    out.unlink()
    path.write_text(path.read_text().replace("message_ns", "message_us"))
    capfd.readouterr()
    assert status_of("calibrate", "link", str(path), "--only", "board=ours", "-o", str(out)) == 2
    assert (
        "if `message_us` were in ns, they would be 9.98 Gb/s and 813.6 ns" in capfd.readouterr().err
    )
    assert not out.exists()


def test_of_many_runs_some_are_left_out(tmp_path: Path) -> None:
    rows = [
        f"{run},{size},{812 + run + size / 1.25}"
        for run in range(40)
        for size in (64, 1024, 16384, 2**20)
    ]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(["run,message_bytes,message_ns", *rows, ""]))
    text = " ".join(printed("link", path).split())
    assert "leave one run out, each of 20 of 40: 0." in text
