"""The fit of a link: constants, ranges, runs left out, warnings."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.calibrate import calibrate_link
from emuchain.emulator.calibrate.link import LinkFit, fit_link
from emuchain.emulator.calibrate.reading import read_tables
from emuchain.emulator.cluster import load_cluster
from emuchain.emulator.common import InputError

from .synthetic import (
    LOOPS,
    SIZES,
    Link,
    Message,
    messages_of,
    scattered,
    write_csv,
    write_messages,
)

TRUTH = Link()


def fit_of(path: Path) -> LinkFit:
    return fit_link(read_tables([path]))


def exact(link: Link = TRUTH, run: str = "only") -> list[Message]:
    return [
        Message(run, size, loop, link.message_s(size, loop))
        for size, loop in zip(SIZES, LOOPS, strict=True)
    ]


def test_exact_times_give_exact_constants(tmp_path: Path) -> None:
    fit = fit_of(write_messages(tmp_path / "m.csv", exact()))
    model = fit.model
    assert (model.latency_s, model.bytes_per_s, model.start_s) == pytest.approx(TRUTH, rel=1e-9)
    assert any("computed, not measured" in warning for warning in fit.warnings)
    assert any("one run" in warning for warning in fit.warnings)
    assert fit.fitness.left_out is None


def test_units_change_nothing(tmp_path: Path) -> None:
    """Rows in ns, us, ms, s, and as the time of a whole loop, give the same constants to 1e-9."""
    draw = np.random.default_rng(7)
    messages = messages_of([scattered(TRUTH, 0.01, draw) for _ in range(3)], draw, outliers=0.05)
    of_loops = fit_of(write_messages(tmp_path / "loops.csv", messages))
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3), ("s", 1.0)):
        rows = ([each.run, each.size, each.loop, repr(each.message_s * scale)] for each in messages)
        columns = ["run", "message_bytes", "loop_length", f"message_{unit}"]
        model = fit_of(write_csv(tmp_path / f"{unit}.csv", columns, rows)).model
        wanted = of_loops.model
        for constant in ("latency_s", "bytes_per_s", "start_s"):
            assert getattr(model, constant) == pytest.approx(getattr(wanted, constant), rel=1e-9)


def test_without_loops_the_start_of_kernels_is_no_term(tmp_path: Path) -> None:
    rows = [[size, TRUTH.message_s(size) * 1e9] for size in SIZES]
    model = fit_of(write_csv(tmp_path / "ns.csv", ["message_bytes", "message_ns"], rows)).model
    assert (model.latency_s, model.bytes_per_s, model.start_s) == pytest.approx(
        (*TRUTH[:2], 0), rel=1e-9
    )


@pytest.mark.slow
def test_ranges_hold_the_constants_of_further_runs(tmp_path: Path) -> None:
    """100 files of five runs, with 5 % of rows three times too long: 85 to 97 % hold those of a
    sixth run.
    """
    draw = np.random.default_rng(2021)
    held = {"latency": 0, "bandwidth": 0}
    files = 100
    for number in range(files):
        *links, sixth = (scattered(TRUTH, 0.02, draw) for _ in range(6))
        fit = fit_of(
            write_messages(tmp_path / f"{number}.csv", messages_of(links, draw, outliers=0.05))
        )
        held["latency"] += fit.latency_s.low <= sixth.latency_s <= fit.latency_s.high
        held["bandwidth"] += fit.bytes_per_s.low <= sixth.bytes_per_s <= fit.bytes_per_s.high
    assert all(0.85 <= count / files <= 0.97 for count in held.values()), held


def eager(size: int) -> float:
    """What messages take in s that agree first from 4 KiB on, for 9 us, and then are copied
    once.
    """
    return 1e-6 + size / (2e9 if size < 4096 else 10e9) + (9e-6 if size >= 4096 else 0)


def test_two_regimes_are_pieces(tmp_path: Path) -> None:
    """A cluster has them, and its messages take what was measured, to 2 %."""
    draw = np.random.default_rng(11)
    rows = [
        [run, size, repr(eager(size) * math.exp(draw.normal(0, 0.003)) * 1e6)]
        for run in range(3)
        for size in SIZES
    ]
    path = write_csv(tmp_path / "m.csv", ["run", "message_bytes", "message_us"], rows)
    done = calibrate_link(path, out=tmp_path / "c.toml")
    assert done.fit.pieces is not None
    assert any("`message_ns`" in warning for warning in done.warnings)
    link = load_cluster(str(tmp_path / "c.toml")).link
    assert len(done.to_dict()["message_ns"]) == len(link.cost.points) <= 8
    for size in SIZES:
        taken_s = (link.latency_ps + link.transfer_ps(size)) * 1e-12
        assert taken_s == pytest.approx(eager(size), rel=0.02)
    bandwidth, latency = done.constants
    for constant in (bandwidth, latency):
        assert constant.range.low <= constant.value <= constant.range.high


@pytest.mark.parametrize("noise", [0, 0.02])
def test_a_line_has_no_pieces(tmp_path: Path, noise: float) -> None:
    messages = messages_of([TRUTH] * 3, np.random.default_rng(5), noise, outliers=0.05)
    path = write_messages(tmp_path / "m.csv", messages)
    done = calibrate_link(path, out=tmp_path / "c.toml")
    assert done.fit.pieces is None
    assert "message_ns" not in (tmp_path / "c.toml").read_text().partition("[uncertainty]")[0]


def test_runs_are_predicted_by_the_others(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    links = [scattered(TRUTH, 0.004, draw) for _ in range(6)]
    left_out = fit_of(write_messages(tmp_path / "m.csv", messages_of(links, draw))).fitness.left_out
    assert left_out is not None
    assert left_out.mean < 0.007
    assert left_out.held >= 0.85
    assert left_out.half_width <= 0.02


def test_several_files_are_several_runs(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    paths = []
    for number in range(3):
        messages = messages_of([scattered(TRUTH, 0.01, draw)], draw)
        rows = [[each.size, repr(each.message_s * 1e6)] for each in messages]
        paths.append(write_csv(tmp_path / f"{number}.csv", ["message_bytes", "message_us"], rows))
    fit = fit_link(read_tables(paths))
    assert (fit.evidence.runs, fit.latency_s.runs, fit.evidence.rows) == (3, 3, 63)
    assert str(fit.evidence).startswith("0.csv and 2 more: 63 rows, 3 runs, sha256 ")


def test_outliers_are_named(tmp_path: Path) -> None:
    messages = messages_of([TRUTH, TRUTH], np.random.default_rng(5))
    messages[4] = messages[4]._replace(message_s=3 * messages[4].message_s)
    path = write_messages(tmp_path / "m.csv", messages)
    fit = fit_of(path)
    [warning] = [warning for warning in fit.warnings if warning.startswith("1 outlier")]
    assert f"{path}:6 (16 bytes, 3" in warning
    assert fit.fitness.rms < 0.01
    assert fit.fitness.worst_error == pytest.approx(2, abs=0.05)


def test_larger_messages_that_take_less_time_are_named(tmp_path: Path) -> None:
    """As those of 1,024 bytes over PCIe do; they are left out by `from_bytes`."""
    messages = [
        each._replace(message_s=each.message_s * (1.2 if each.size < 1024 else 1))
        for each in exact()
    ]
    path = write_messages(tmp_path / "m.csv", messages)
    assert any("not monotone" in warning for warning in fit_of(path).warnings)
    model = fit_link(read_tables([path]), from_bytes=1024).model
    assert model.latency_s == pytest.approx(TRUTH.latency_s, rel=1e-6)


def test_what_is_no_line_is_reported(tmp_path: Path) -> None:
    """Its messages are expected where they were measured, not on the line."""
    rows = [[size, 700 * size**0.4] for size in SIZES]
    fit = fit_of(write_csv(tmp_path / "m.csv", ["message_bytes", "message_ns"], rows))
    assert any(warning.startswith("no line: rms ") for warning in fit.warnings)
    [message] = fit.expected
    values = [message.at(size).value for size, _ in rows]
    assert values == pytest.approx([time for _, time in rows], rel=0.02)


def loops(
    folder: Path, first: str = "", columns: tuple[str, ...] = (), cells: tuple[object, ...] = ()
) -> Path:
    """Loops of two messages one after the other, as b_eff before 1.3 times them."""
    rows = [
        [size, loop, 2 * TRUTH.message_s(size, 2 * loop) * loop, *cells]
        for size, loop in zip(SIZES, LOOPS, strict=True)
    ]
    path = write_csv(
        folder / "m.csv", ["message_bytes", "loop_length", "transfer_s", *columns], rows
    )
    path.write_text(first + path.read_text())
    return path


SAYINGS: dict[str, tuple[str, tuple[str, ...], tuple[object, ...], str | None]] = {
    "a column": ("", ("version",), ("1.1",), None),
    "a long version": ("", ("version",), ("1.1.1",), None),
    "a comment": ("# channel version of b_eff 1.2, 2020\n", (), (), None),
    "an argument": ("", (), (), "1.0"),
}


@pytest.mark.parametrize("name", SAYINGS)
def test_a_loop_of_early_versions_has_two_messages(tmp_path: Path, name: str) -> None:
    first, columns, cells, version = SAYINGS[name]
    fit = fit_link(read_tables([loops(tmp_path, first, columns, cells)]), b_eff_version=version)
    assert (fit.model.latency_s, fit.model.bytes_per_s, fit.model.start_s) == pytest.approx(
        TRUTH, rel=1e-9
    )
    assert not any("b_eff" in warning for warning in fit.warnings)


def test_what_is_assumed_of_the_version_is_reported(tmp_path: Path) -> None:
    """Without one a loop has one message, of half the rate; the line says how to say otherwise."""
    path = loops(tmp_path)
    fit = fit_link(read_tables([path]))
    assert fit.model.bytes_per_s == pytest.approx(TRUTH.bytes_per_s / 2, rel=1e-9)
    [expected_text] = [warning for warning in fit.warnings if "b_eff" in warning]
    assert (
        expected_text
        == f"{path}: says no version of b_eff; 1.3 or later is assumed, with one message a loop;"
        " earlier ones have two: say so by `--b-eff-version X`, or a column `version`"
    )
    later = fit_link(read_tables([path]), b_eff_version="1.10")
    assert later.model.bytes_per_s == fit.model.bytes_per_s
    assert not any("b_eff" in warning for warning in later.warnings)


def test_a_version_that_is_none_or_another(tmp_path: Path) -> None:
    path = loops(tmp_path, columns=("version",), cells=("1.1",))
    with pytest.raises(
        InputError, match=r"m.csv:2: `version` = '1.1': `b_eff_version` has '1.3'; leave it out"
    ):
        fit_link(read_tables([path]), b_eff_version="1.3")
    path = loops(tmp_path, columns=("version",), cells=("new",))
    with pytest.raises(
        InputError, match=r"m.csv:2: 'new' is no version; should be one such as 1.3"
    ):
        fit_link(read_tables([path]))
    with pytest.raises(InputError, match="`b_eff_version`: '1,3' is no version"):
        calibrate_link(path, b_eff_version="1,3")
