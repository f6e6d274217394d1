"""`emuchain calibrate check`: measurements that were not fitted, beside what a file expects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from emuchain import Coverage, calibrate_board, calibrate_check, calibrate_link
from emuchain.emulator.commands.calibrate import calibrate
from emuchain.emulator.common import InputError

from .synthetic import Link, Message, messages_of, scattered, write_csv, write_messages

CLUSTER = """
name = "mine"
boards = [{ type = "vc709" }]
links = { bandwidth_gbps = 10, latency_ns = 1000 }
[[next_measurement]]
what = "message"
where = { system = "a" }
sizes = [64, 1024]
values = [1000, 2000]
lows = [900, 1800]
highs = [1100, 2200]
null = [1000, 1960]
[[next_measurement]]
what = "message"
start_ns = 500
sizes = [64, 1024]
values = [100, 200]
lows = [90, 180]
highs = [110, 220]
null = [50, 100]
"""


@pytest.fixture
def constants(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(CLUSTER)
    return path


def checked(constants: Path, columns: list[str], *rows: list[object]) -> Coverage:
    return calibrate_check(constants, write_csv(constants.parent / "m.csv", columns, rows))


def test_each_row_is_compared_by_hand(constants: Path) -> None:
    done = checked(
        constants,
        ["system", "message_bytes", "message_ns"],
        ["a", 64, 1250],  # -20 %, above its range
        ["a", 1024, 2000],  # exact
        ["b", 64, 80],  # +25 %, below its range
        ["b", 1024, 200],
    )
    assert (done.rows, done.in_range) == (4, 0.5)
    assert done.mean_percent == pytest.approx((20 + 25) / 4)
    assert done.worst_percent == pytest.approx(25)
    assert done.worst_row == f"{constants.parent / 'm.csv'}:4"
    assert done.median_percent == pytest.approx((0 + 20) / 2)
    assert done.null_percent == pytest.approx((20 + 2 + 37.5 + 50) / 4)
    assert done.null_median_percent == pytest.approx((20 + 37.5) / 2)
    assert done.null_worst_percent == pytest.approx(50)
    assert done.half_width_percent == pytest.approx(100 * ((1.1 / 0.9) ** 0.5 - 1))


def test_between_two_sizes_ratios_to_the_line_are_taken(constants: Path) -> None:
    """At 256 bytes, halfway by powers: the line's 1192 ns by the root of its 1 and 1.0204."""
    done = checked(
        constants,
        ["system", "message_bytes", "message_ns"],
        ["a", 256, 1192 * (2000 / 1960) ** 0.5],
    )
    assert done.mean_percent == pytest.approx(0, abs=1e-3)


def test_the_start_of_a_kernel_is_once_in_a_loop(constants: Path) -> None:
    columns = ["system", "message_bytes", "loop_length", "transfer_s", "version"]
    done = checked(
        constants,
        columns,
        ["b", 64, 1, 600e-9, "1.3"],
        ["b", 64, 10, 150e-9 * 10, "1.3"],
        ["b", 64, 5, 2 * 150e-9 * 5, "1.1"],  # ten messages
    )
    assert done.mean_percent == pytest.approx(0, abs=1e-6)
    assert done.in_range == 1


def test_further_runs_of_a_link(tmp_path: Path) -> None:
    """What calibration wrote holds nine of ten rows of further runs."""
    draw = np.random.default_rng(12)
    done = []
    for _ in range(12):
        links = [scattered(Link(), 0.01, draw) for _ in range(6)]
        messages = messages_of(links, draw)
        runs = sorted({each.run for each in messages})
        fitted = [each for each in messages if each.run in runs[:4]]
        others = [each for each in messages if each.run in runs[4:]]
        out = tmp_path / "link.toml"
        calibrate_link(write_messages(tmp_path / "fitted.csv", fitted), out=out)
        done.append(calibrate_check(out, write_messages(tmp_path / "others.csv", others)))
    assert np.mean([each.in_range for each in done]) >= 0.85
    assert np.mean([each.half_width_percent for each in done]) < 2 * 1.645 * 1.12


def test_messages_far_beyond_what_was_measured(tmp_path: Path) -> None:
    """As on a line; the range is wider there."""
    link, out = Link(), tmp_path / "link.toml"
    sizes = [64 * 4**power for power in range(7)]
    near = [Message("1", size, 1, link.message_s(size)) for size in sizes]
    far = [Message("2", 2**28, 1, link.message_s(2**28))]
    calibrate_link(write_messages(tmp_path / "near.csv", near), out=out)
    done = calibrate_check(out, write_messages(tmp_path / "far.csv", far))
    assert done.in_range == 1
    assert done.mean_percent < 1 < done.half_width_percent


def test_a_board(tmp_path: Path) -> None:
    """Memory beside the data sheet's rate; products beside one multiplier a DSP at 200 MHz."""
    stream = write_csv(
        tmp_path / "s.csv",
        ["run", "function", "best_mbytes_per_s"],
        [[run, what, 24_000 + 10 * run] for run in (1, 2, 3) for what in ("copy", "triad")],
    )
    gemm = write_csv(tmp_path / "g.csv", ["run", "matrix_size", "gflops"], [[1, 4096, 700]])
    out = tmp_path / "board.toml"
    calibrate_board([stream, gemm], "vc709", out=out)
    later = write_csv(
        tmp_path / "later.csv", ["run", "function", "best_mbytes_per_s"], [[4, "copy", 24_050]]
    )
    done = calibrate_check(out, later)
    assert done.in_range == 1 and done.mean_percent < 0.5
    assert done.null_percent == pytest.approx(100 * (29.9 / 24.05 - 1), abs=0.1)
    products = write_csv(tmp_path / "p.csv", ["matrix_size", "gflops"], [[4096, 700], [8192, 690]])
    assert calibrate_check(out, products).null_percent == pytest.approx(3600 * 0.4 / 7 - 100, abs=5)


@pytest.mark.parametrize(
    ("columns", "row", "why"),
    [
        (
            ["function", "best_mbytes_per_s"],
            ["copy", 1000],
            "copy: mine.toml expects nothing of it, but of message",
        ),
        (
            ["oc", "ic", "oh", "ow", "k", "cycles"],
            [64, 64, 8, 8, 3, 1000],
            "messages, memory and products are compared",
        ),
        (["message_bytes", "message_ns"], [64, -1], "message_ns"),
    ],
)
def test_what_is_refused(
    constants: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: list[str],
    row: list[object],
    why: str,
) -> None:
    monkeypatch.chdir(constants.parent)
    path = write_csv(constants.parent / "m.csv", columns, [row])
    with pytest.raises(InputError, match=why):
        calibrate_check("mine.toml", path)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("sizes = [64, 1024]", "sizes = [1024, 64]", "`sizes` must increase"),
        ("values = [1000, 2000]", "values = [1000]", "must have the same length"),
        ("lows = [900, 1800]", "lows = [0, 1800]", "lows"),
        ('what = "message"', 'what = "massage"', "what"),
        ("null = [50, 100]", "none = [50, 100]", "none"),
    ],
)
def test_a_faulty_file_of_constants(
    constants: Path, one_line: Callable[[object], str], before: str, after: str, why: str
) -> None:
    constants.write_text(CLUSTER.replace(before, after, 1))
    with pytest.raises(InputError, match=why) as caught:
        checked(constants, ["message_bytes", "message_ns"], [64, 1000])
    assert one_line(caught)


def test_constants_that_expect_nothing(constants: Path) -> None:
    constants.write_text(CLUSTER[: CLUSTER.index("[[next")])
    with pytest.raises(InputError, match=r"mine.toml: has no `\[\[next_measurement\]\]`"):
        checked(constants, ["message_bytes", "message_ns"], [64, 1000])


def test_the_command_prints_the_same(constants: Path) -> None:
    path = write_csv(
        constants.parent / "m.csv", ["system", "message_bytes", "message_ns"], [["a", 64, 1250]]
    )
    text = CliRunner().invoke(calibrate, ["check", str(constants), str(path)]).output
    assert text.startswith("1 row: 20.00 % off on average, 20.00 % at most")
    assert "ranges of 90 % hold 0.0 % of the rows" in text
    said = json.loads(
        CliRunner().invoke(calibrate, ["check", str(constants), str(path), "--json"]).output
    )
    assert {"rows", "mean_percent", "worst_percent", "in_range", "null_percent"} <= said.keys()
    assert said["in_range"] == 0
