"""Measured hardware: rows by hand and by closed forms, planted faults, and figures as their files
have them.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from emuchain.comm import Interconnect
from emuchain.emulator.calibrate import calibrate_board, calibrate_link
from emuchain.papers import Class, constants_of, load_claims
from emuchain.papers.constants import in_force
from emuchain.papers.hardware import hpcc, torchgpipe, vtrain
from emuchain.papers.hardware.torchgpipe import amoebanet_d, resnet_101, unet

from .rows import Rows

CLAIMS = load_claims("hardware")
ROWS = Rows("hardware", CLAIMS, (torchgpipe,))
FOLDER = Path(os.environ.get("EMUCHAIN_HPCC") or "/none")
with_files = pytest.mark.skipif(
    not os.environ.get("EMUCHAIN_HPCC"),
    reason="EMUCHAIN_HPCC names no folder with HPCC FPGA's results",
)


def test_layers_are_those_that_torchgpipe_cuts() -> None:
    for network, layers in torchgpipe.NETWORKS.items():
        for run, benchmark in torchgpipe.BENCHMARKS[network].items():
            assert sum(benchmark.cut) == len(layers()), (network, run)


def test_multiply_accumulates() -> None:
    assert sum(layer.macs for layer in resnet_101()) == pytest.approx(7.80e9, rel=0.001), (
        "published: 7.8 G"
    )
    assert unet()[0].macs == 3 * 64 * 192 * 192 * 9
    assert unet()[-1].macs == 32 * 192 * 192
    assert unet()[-5].macs == 32 * 32 * 192 * 192 * 9
    wide = 2 * 256 * 64 + 2 * 7 * 64 * 64
    assert amoebanet_d()[5].macs == 28 * 28 * (2 * 1024 * 256 + 3 * 256 * 256 + 2 * wide), (
        "a normal cell, 256 channels"
    )


@pytest.mark.parametrize(
    ("tensor", "micro_batch", "stages"), [(8, 2, 4), (8, 24, 16), (4, 12, 16), (2, 3, 16)]
)
def test_a_deeper_pipeline_by_its_closed_form(tensor: int, micro_batch: int, stages: int) -> None:
    model = 39.1, tensor, micro_batch
    least = next(
        run for run in vtrain.FITTED if (run.billions, run.tensor, run.micro_batch) == model
    )
    before = 1536 // (least.replicas * micro_batch)
    after = before * stages // least.stages
    fill = (after + stages - 1) / stages * least.stages / (before + least.stages - 1)
    assert vtrain.iteration_ms(39.1, tensor, micro_batch, stages) == pytest.approx(
        least.time_ms * fill, rel=1e-5
    )


def test_a_message_by_hand() -> None:
    with in_force({"link.bandwidth_gbps": 80, "link.latency_ns": 500}):
        assert hpcc.message_ns().ours[0] == pytest.approx(500 + 6.4)
        assert hpcc.message_ns().ours[-1] == pytest.approx(
            500 + 2**20 / 10, rel=1e-5
        )  # its sum: 1 ps for 1,000 B


def slow_messages(patch: pytest.MonkeyPatch) -> None:
    """Messages that take their links twice as long."""
    transfer = Interconnect.transfer_ps
    patch.setattr(Interconnect, "transfer_ps", lambda self, *sizes: 2 * transfer(self, *sizes))


def free_values(patch: pytest.MonkeyPatch) -> None:
    """Values that cost nothing: stages take the time of their multiply-accumulates."""
    patch.setattr(torchgpipe, "_layer_fs", lambda layer: 300.0 * layer.macs)


def no_bubble(patch: pytest.MonkeyPatch) -> None:
    """A pipeline that neither fills nor drains."""
    patch.setattr(
        vtrain,
        "_time_ms",
        lambda stages, micro_batches, model_ms: micro_batches * model_ms / stages,
    )


FAULTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (slow_messages, "beff-10-fpgas"),
    (
        free_values,
        "resnet-101-pipeline-4 resnet-101-pipeline-8 unet-pipeline-8-speed-up amoebanet-d-n8m32",
    ),
    (no_bubble, "vtrain-3.6b-tp1 vtrain-18.4b-tp8 vtrain-39.1b-tp8"),
]


@pytest.mark.parametrize(("fault", "rows"), FAULTS)
def test_rows_notice_faults(fault: Callable[[pytest.MonkeyPatch], None], rows: str) -> None:
    ROWS.check_noticed(fault, rows)


def test_fitted_rows_are_those_that_constants_were_set_by() -> None:
    fitted = set(ROWS.of(Class.FITTED))
    wanted = (
        "beff-1-fpga beff-2-fpgas beff-4-fpgas stream-1-fpga gemm-1-fpga resnet-101-baseline"
        " resnet-101-pipeline-2"
    )
    turning = ROWS.named(
        "ptrans-32768-4-fpgas"
    )  # within at one end of the bandwidth's range, off at the default
    assert fitted == {*ROWS.named(wanted), *turning}
    assert all(result.verdict.is_good for result in ROWS.measured(fitted - {*turning}).values())
    assert all(constant.fitted_to for constant in constants_of("hardware"))


def table(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open() as file:
        return list(csv.DictReader(file))


@with_files
def test_figures_are_those_of_the_files() -> None:
    for claim in CLAIMS.values():
        name = claim.where.removeprefix("HPCC FPGA ")
        if claim.id.startswith("hardware-beff"):
            run = [row for row in table("beff_serial.csv") if row["file"] == name]
            rows = {int(row["message_bytes"]): float(row["message_ns"]) for row in run}
            assert claim.value == [rows[size] for size in hpcc.SIZES]
        elif claim.id.startswith("hardware-stream"):
            rates = {
                r["function"]: float(r["best_mbytes_per_s"])
                for r in table("stream.csv")
                if r["file"] == name
            }
            assert claim.value == [
                round(rates[kind] / 1000, 3) for kind in ("copy", "scale", "add", "triad")
            ]
        elif claim.id.startswith("hardware-gemm"):
            assert claim.value == next(
                float(r["best_s"]) for r in table("gemm.csv") if r["file"] == name
            )
        elif claim.id.startswith("hardware-ptrans") and claim.expect:
            assert claim.value == next(
                float(r["best_calc_s"]) for r in table("ptrans.csv") if r["file"] == name
            )


@with_files
def test_constants_are_what_calibrate_says(tmp_path: Path) -> None:
    rows = (FOLDER / "beff_serial.csv").read_text().splitlines(keepends=True)
    three = tmp_path / "three.csv"
    three.write_text("".join(row for row in rows if "N5-960944" not in row))
    link = {constant.key: constant for constant in calibrate_link(three).constants}
    one = {}
    for name, run in (("stream.csv", "N1-929870"), ("gemm.csv", "N1-929871")):
        rows = (FOLDER / name).read_text().splitlines(keepends=True)
        one[name] = tmp_path / name
        one[name].write_text("".join([rows[0], *(row for row in rows if run in row)]))
    kind = tmp_path / "520n.toml"
    described = Path(hpcc.__file__).with_name("520n.toml").read_text(encoding="utf-8")
    kind.write_text(described.partition("[[boards]]")[2].partition("[links]")[0])
    board = {
        constant.key: constant
        for constant in calibrate_board(list(one.values()), str(kind)).constants
    }
    for constant in constants_of("hardware")[:4]:
        fitted = (link | board)[constant.key]
        assert constant.default == pytest.approx(fitted.value, rel=2e-4)
        assert (constant.values[0], constant.values[-1]) == pytest.approx(
            fitted.range[:2], rel=2e-4
        )
