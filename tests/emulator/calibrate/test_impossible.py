"""Measurements of what cannot be: one line that says which unit would fit, or that no constant
explains the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.calibrate import calibrate_board, calibrate_link
from emuchain.emulator.cluster import load_cluster
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network

from .synthetic import SIZES, Link, scattered, write_csv

LINKS = {
    "serial": Link(674e-9, 79.4e9 / 8),
    "10 Gb/s": Link(810e-9, 9.5e9 / 8),
    "PCIe": Link(120e-6, 50e9 / 8),
}
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def messages(folder: Path, link: Link, header: str, unit: str, sizes: float = 1.0) -> Path:
    """Rows whose times, or sizes, are in another unit than the header says."""
    rows = [
        [round(size / sizes), link.message_s(size) / UNITS[unit]] for size in SIZES if size >= sizes
    ]
    return write_csv(folder / "link.csv", ["message_bytes", header], rows)


def refused(call: object, *arguments: object, **more: object) -> str:
    """The line with which a call refuses."""
    assert callable(call)
    with pytest.raises(InputError) as caught:
        call(*arguments, **more)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("said", UNITS)
@pytest.mark.parametrize("real", UNITS)
@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("kind", ["vc709", "u280", "kc705", "stratix-v-gsd5"])
def test_the_unit_that_would_fit_a_link_is_named(
    tmp_path: Path, kind: str, name: str, real: str, said: str
) -> None:
    out = tmp_path / "cluster.toml"
    path = messages(tmp_path, LINKS[name], f"message_{said}", real)
    if real == said:
        calibrate_link(path, type=kind, out=out)
        assert load_cluster(str(out)).link.bandwidth_gbps == pytest.approx(
            LINKS[name].bytes_per_s * 8e-9, rel=1e-3
        )
        return
    line = refused(calibrate_link, path, type=kind, out=out)
    assert (
        f"if `message_{said}` were in {real}, they would be {LINKS[name].bytes_per_s * 8e-9:,.4g}"
        " Gb/s and" in line
    )
    assert f"name it `message_{real}`, or give the line's rate by `--line-gbps`" in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("factor", "unit"), [(1e-3, "10^3 s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"), (1e12, "ps")]
)
def test_times_of_loops_are_in_seconds(tmp_path: Path, factor: float, unit: str) -> None:
    rows = [[size, 100, LINKS["serial"].message_s(size) * 100 * factor] for size in SIZES]
    path = write_csv(tmp_path / "link.csv", ["message_bytes", "loop_length", "transfer_s"], rows)
    assert f"if `transfer_s` were in {unit}, they would be 79.4 Gb/s" in refused(
        calibrate_link, path
    )


def test_sizes_in_kilobytes(tmp_path: Path) -> None:
    path = messages(
        tmp_path, LINKS["serial"]._replace(latency_s=20e-6), "message_us", "us", sizes=64_000
    )
    line = refused(calibrate_link, write_sizes(path, 64))
    assert "if `message_bytes` were in kB, they would be 79.4 Gb/s" in line


def write_sizes(path: Path, sizes: int) -> Path:
    """Sizes that are whole units of 64, as those of larger messages would be in kilobytes."""
    link = Link(20e-6, 79.4e9 / 8)
    rows = [
        [size * sizes, link.message_s(size * sizes * 1000) * 1e6] for size in (1, 4, 16, 64, 256)
    ]
    return write_csv(path, ["message_bytes", "message_us"], rows)


def test_a_slow_line_is_believed_when_it_is_said(tmp_path: Path) -> None:
    """Links of 50 Mb/s exist, and would be of 50 Gb/s in another unit."""
    path = messages(tmp_path, Link(120e-6, 50e6 / 8), "message_us", "us")
    assert "in ns, they would be 50 Gb/s" in refused(calibrate_link, path)
    with pytest.warns(
        UserWarning, match=r"`link.bandwidth_gbps` = 0.05 Gb/s: what exists is 0.1 to 10,000 Gb/s"
    ):
        constants = calibrate_link(path, line_gbps=0.1).constants
    assert [constant.value for constant in constants] == pytest.approx([0.05, 120_000], rel=1e-3)


@pytest.mark.parametrize("fall", [0.5, 0.9, 0.999])
def test_times_that_fall_with_the_size_throughout(tmp_path: Path, fall: float) -> None:
    rows = [[size, 1000 * fall**place] for place, size in enumerate(SIZES)]
    path = write_csv(tmp_path / "link.csv", ["message_bytes", "message_us"], rows)
    assert "times hardly grow with the size" in refused(calibrate_link, path)


def test_one_row_and_equal_rows(tmp_path: Path) -> None:
    columns = ["message_bytes", "message_us"]
    for rows in ([[64, 1]], [[64, 1]] * 30):
        assert "1 message size: a fit needs 4" in refused(
            calibrate_link, write_csv(tmp_path / "link.csv", columns, rows)
        )


def stream(
    folder: Path, *rates: float, functions: Sequence[str] = ("copy",), name: str = "stream.csv"
) -> Path:
    rows = [[run, functions[run % len(functions)], rate] for run, rate in enumerate(rates)]
    return write_csv(folder / name, ["run", "function", "best_mbytes_per_s"], rows)


def gemm(folder: Path, *seconds: float) -> Path:
    rows = [[run, 4096, time] for run, time in enumerate(seconds)]
    return write_csv(folder / "gemm.csv", ["run", "matrix_size", "best_s"], rows)


@pytest.mark.parametrize(
    ("factor", "unit"), [(1e-3, "GB/s"), (1e-6, "TB/s"), (1e3, "kB/s"), (1e6, "B/s")]
)
@pytest.mark.parametrize("kind", ["vc709", "farnn-9p-lstm"])
def test_the_unit_that_would_fit_a_memory_is_named(
    tmp_path: Path, kind: str, factor: float, unit: str
) -> None:
    assert f"as if it were in {unit}" in refused(
        calibrate_board, stream(tmp_path, 24_000 * factor), kind
    )


@pytest.mark.parametrize(
    ("factor", "unit"), [(1e3, "ms"), (1e6, "us"), (1e9, "ns"), (1e-3, "10^3 s")]
)
def test_the_unit_that_would_fit_products_is_named(
    tmp_path: Path, factor: float, unit: str
) -> None:
    line = refused(calibrate_board, gemm(tmp_path, 1.4 * factor), "vc709")
    assert "`best_s` gives" in line and f"as if it were in {unit}" in line
    rates = write_csv(tmp_path / "rates.csv", ["matrix_size", "gflops"], [[4096, 0.0982]])
    assert "as if it were in TFLOP/s" in refused(calibrate_board, rates, "vc709")


@pytest.mark.parametrize(("clock", "unit"), [(2.725e8, "Hz"), (272_500, "kHz"), (0.2725, "GHz")])
def test_the_unit_that_would_fit_a_clock_is_named(tmp_path: Path, clock: float, unit: str) -> None:
    report = write_csv(tmp_path / "report.csv", ["clock_mhz", "dsp_used"], [[clock, 2000]])
    assert f"as if it were in {unit}" in refused(calibrate_board, report, "vc709")


def layers(
    folder: Path, us: float, runs: Sequence[float] = (1,), sizes: Sequence[int] = (16,)
) -> Path:
    """Layers of a network that take so long for each of its multiply-accumulates."""
    rows = [
        [run, "quick-cifar", layer.name, phase, samples, scale * us * layer.macs * samples]
        for run, scale in enumerate(runs)
        for samples in sizes
        for layer in load_network("quick-cifar").layers
        for phase in ("FP", "EB", "PG")
    ]
    return write_csv(
        folder / "layers.csv", ["run", "network", "layer", "phase", "samples", "us"], rows
    )


@pytest.mark.parametrize(("factor", "unit"), [(1e-3, "ms"), (1e-6, "s"), (1e3, "ns"), (1e6, "ps")])
def test_the_unit_that_would_fit_layers_is_named(tmp_path: Path, factor: float, unit: str) -> None:
    line = refused(calibrate_board, layers(tmp_path, 5e-5 * factor), "vc709")
    assert "`us` gives" in line and f"as if it were in {unit}" in line


CONTRADICTIONS: dict[str, tuple[list[float], str]] = {
    "two runs": (
        [24_870, 70_000_000],
        "is both 24.87 and 70,000 GB/s of copy: rms 397 % (at most 15 %)",
    ),
    "two halves": (
        [24_870, 24_860, 24_880, 12_000, 12_010, 12_020],
        "is both 12 and 24.88 GB/s of copy",
    ),
    "two of five": ([24_870, 24_860, 24_880, 240, 241], "is both 0.24 and 24.88 GB/s of copy"),
    "scattered": ([10_000, 14_000, 20_000, 28_000], "rms 39 %"),
    "one of six": (
        [24_870] * 5 + [24.87],
        "mixed units: copy reach 0.001 times what other rows say",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictory_rows_are_refused(tmp_path: Path, name: str) -> None:
    """What is left of rows has one constant, or it has none."""
    rates, expected_text = CONTRADICTIONS[name]
    out = tmp_path / "board.toml"
    line = refused(calibrate_board, stream(tmp_path, *rates), "vc709", out=out)
    assert expected_text in line
    assert "stream.csv:" in line
    assert not out.exists()
    seconds = [0.1313 * 24_870 / rate for rate in rates]
    if name != "one of six":
        assert "10^9 MACs/s of products: rms" in refused(
            calibrate_board, gemm(tmp_path, *seconds), "vc709", out=out
        )


def test_functions_that_differ_by_far_are_no_memory(tmp_path: Path) -> None:
    apart = stream(tmp_path, 24_000, 4_000, functions=("copy", "add"))
    assert "no constant is both 4 and 24 GB/s: rms 90 % (at most 69 %)" in refused(
        calibrate_board, apart, "vc709"
    )
    calibrate_board(
        stream(tmp_path, 20_000, 15_000, functions=("copy", "add"), name="near.csv"), "vc709"
    )


def test_layers_of_which_runs_say_otherwise(tmp_path: Path) -> None:
    calibrate_board(layers(tmp_path, 5e-6, runs=(0.6, 1, 1.4)), "vc709")
    line = refused(calibrate_board, layers(tmp_path, 5e-6, runs=(1, 10)), "vc709")
    assert "rms 115 % (at most 69 %)" in line


def test_layers_of_which_more_samples_take_less(tmp_path: Path) -> None:
    columns = ["network", "layer", "phase", "samples", "us"]
    rows = [
        ["quick-cifar", layer, phase, samples, us]
        for layer, times in (("conv1", (400, 100)), ("conv2", (900, 200)))
        for samples, us in zip((8, 16), times, strict=True)
        for phase in ("FP", "PG")
    ]
    path = write_csv(tmp_path / "layers.csv", columns, rows)
    assert "layer conv1: 16 samples take less time than 8, as do more of all layers" in refused(
        calibrate_board, path, "vc709"
    )
    more = write_csv(
        path,
        columns,
        [
            *rows,
            *(
                ["quick-cifar", "conv3", phase, n, 30 * n]
                for n in (8, 16)
                for phase in ("FP", "PG")
            ),
        ],
    )
    assert (
        "not monotone: layer conv1: 16 samples take less time than 8, and in 1 more pairs"
        in " ".join(calibrate_board(more, "vc709").warnings)
    )


def test_layers_that_the_network_has_not(tmp_path: Path) -> None:
    columns = ["network", "layer", "phase", "samples", "us"]
    rows = [["quick-cifar", "conf1", phase, 8, 100] for phase in ("FP", "PG")]
    line = refused(calibrate_board, write_csv(tmp_path / "layers.csv", columns, rows), "vc709")
    assert "`layer` = 'conf1': did you mean `conv1`? quick-cifar has conv1, conv2" in line
    rows = [["mine", "conf1", phase, 8, 100] for phase in ("FP", "PG")]
    expected_text = calibrate_board(
        write_csv(tmp_path / "own.csv", columns, rows), "vc709"
    ).warnings
    assert any(
        "`network` = 'mine': none that comes with emuchain" in warning for warning in expected_text
    )


def test_equal_rates_of_runs_are_computed(tmp_path: Path) -> None:
    expected_text = calibrate_board(stream(tmp_path, *[24_000] * 4), "vc709").warnings
    assert any("of copy in 4 runs: computed, not measured" in warning for warning in expected_text)


def test_what_rounds_to_nothing_is_refused(tmp_path: Path) -> None:
    """A file has Mb/s; what is less, its own reader refuses."""
    path = messages(tmp_path, Link(1e-3, 2e4 / 8), "message_s", "s")
    out = tmp_path / "cluster.toml"
    line = refused(calibrate_link, path, line_gbps=1e-3, out=out)
    assert (
        "what follows from these rows is refused by all who read it: 'cluster': `uncertainty.link"
        in line
    )
    assert not out.exists()


def test_what_is_far_from_hardware_is_noted(tmp_path: Path) -> None:
    path = messages(tmp_path, Link(20e-3, 0.9e9 / 8), "message_s", "s")
    with pytest.warns(
        UserWarning, match="`link.latency_ns` = 20,000,000 ns: what exists is 1 to 1,000,000 ns"
    ):
        calibrate_link(path, line_gbps=1)


def test_of_many_runs_some_are_left_out(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    sizes = (64, 1024, 16384, 2**20)
    rows = [
        [run, size, link.message_s(size) * 1e9]
        for run in range(100)
        for link in [scattered(Link(), 0.01, draw)]
        for size in sizes
    ]
    done = calibrate_link(
        write_csv(tmp_path / "many.csv", ["run", "message_bytes", "message_ns"], rows)
    )
    left = done.fit.fitness.left_out
    assert left is not None and left.runs == 25
    assert done.fit.evidence.runs == 100


def test_limits_of_sizes_come_before_work(tmp_path: Path) -> None:
    wide = write_csv(
        tmp_path / "wide.csv", ["message_bytes", "message_us", *map(str, range(500_000))], []
    )
    assert "has 500,002 columns, above 1,000" in refused(calibrate_link, wide)
    long = write_csv(tmp_path / "long.csv", ["message_bytes", "message_us"], [[1, 1]] * 600_000)
    assert "lines of 2 columns, above 1,000,000 cells" in refused(calibrate_link, long)
    runs = write_csv(
        tmp_path / "runs.csv",
        ["run", "message_bytes", "message_us"],
        [[run, 1, 1] for run in range(5001)],
    )
    assert "5,001 runs, above 5,000" in refused(calibrate_link, runs)
