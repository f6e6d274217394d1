"""The benchmark of kernels: what it counts and prints, and that wrong results are refused. No test
asks for a speed.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from emuchain.benchmarks import commands, frame, kernels
from emuchain.benchmarks.frame import Pace
from emuchain.emulator.network import load_network
from emuchain.kernels.conv import Convolution
from emuchain.kernels.llvm import rates

from .helpers import NEEDS_TORCH, keys_of, run_main


def test_a_row_and_the_summary_of_rows() -> None:
    shape = kernels.LISTS["vgg-cifar-1"][1]
    peak_s = [1e-11, 2e-11, 1e-11]  # of one operation: 100, 50, 100 GFLOP/s
    ours_s = [shape.flop * s / 0.5 for s in peak_s]
    row = kernels.row_of("some", shape, "FP", peak_s, ours_s, [3 * s for s in ours_s])
    assert (row.gflops, row.peak_gflops, row.torch_gflops) == (
        pytest.approx(50),
        pytest.approx(100),
        pytest.approx(50 / 3),
    )
    assert (row.peak_share, row.ratio, row.rounds) == (pytest.approx(0.5), pytest.approx(3), 3)
    assert row.peak_ratio == pytest.approx(6)
    without_torch = kernels.row_of("some", shape, "FP", peak_s, ours_s)
    assert (without_torch.torch_seconds, without_torch.torch_gflops, without_torch.ratio) == (
        None,
        None,
        None,
    )

    small = dataclasses.replace(row, has_bar=False, peak_share=0.1, ratio=12.0, peak_ratio=24.0)
    (summary,) = kernels.summarise([row, small])
    assert (summary.layers, summary.bar_layers) == (2, 1)
    assert summary.ratio_geometric_mean == pytest.approx(6)
    assert summary.peak_ratio_geometric_mean == pytest.approx(12)
    assert summary.ratio_minimum == pytest.approx(3)
    assert summary.bar_share_minimum == pytest.approx(0.5)
    (summary,) = kernels.summarise([without_torch])
    assert (summary.ratio_geometric_mean, summary.ratio_minimum) == (None, None)


def test_the_peak_does_all_its_multiply_adds() -> None:
    # x -> (x + 1) / 2 in each chain: the distance of the chains' sum from CHAINS halves with each
    # step.
    distances = [rates.CHAINS - rates.multiply_add(rounds) for rounds in (1, 2)]
    assert distances[0] > 0
    assert distances[1] / distances[0] == pytest.approx(2.0**-rates.UNROLLED, rel=0.1)


TINY = kernels.Shape("tiny", 2, 5, 7, (6, 5), (3, 3), (2, 2), (1, 1), is_first=False)


@pytest.fixture
def tiny_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of two layers that take no time, and a pace that does not wait."""
    first = dataclasses.replace(TINY, in_channels=3, kernel=(5, 3), pad=(2, 0), is_first=True)
    monkeypatch.setitem(kernels.LISTS, "vgg-cifar-1", (first, TINY))
    monkeypatch.setattr(frame, "Pace", lambda runs: Pace(runs, least_s=0.0, enough_s=0.0))


@pytest.mark.parametrize("with_torch", [False, pytest.param(True, marks=NEEDS_TORCH)])
def test_kernels_from_end_to_end(
    tiny_list: None, with_torch: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["kernels", "--list", "vgg-cifar-1", *([] if with_torch else ["--no-torch"])]
    assert run_main(*arguments, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert set(found) == {"host", "threads", "runs", "rows", "summary"}
    assert [(row["layer"], row["phase"], row["rounds"]) for row in found["rows"]] == [
        ("3->7 @6x5 5x3 stride 2 pad 2", "FP", 7),
        ("3->7 @6x5 5x3 stride 2 pad 2", "PG", 7),
        ("5->7 @6x5 3x3 stride 2 pad 1", "FP", 7),
        ("5->7 @6x5 3x3 stride 2 pad 1", "EB", 7),
        ("5->7 @6x5 3x3 stride 2 pad 1", "PG", 7),
    ]
    assert {key for row in found["rows"] for key in row} == keys_of("key of `rows`")
    assert {key for row in found["summary"] for key in row} == keys_of("key of `summary`")
    assert all((row["ratio"] is not None) is with_torch for row in found["rows"])
    assert all(row["gflops"] > 0 and row["peak_share"] > 0 for row in found["rows"])
    assert (found["host"]["versions"]["torch"] is not None) is with_torch

    assert run_main(*arguments, "--markdown") == 0
    said = capfd.readouterr().out
    assert "| tiny | 5->7 @6x5 3x3 stride 2 pad 1 | EB |" in said
    assert ("PyTorch was not measured" in " ".join(said.split())) is not with_torch


@NEEDS_TORCH
def test_wrong_results_are_not_timed(tiny_list: None, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Convolution.unpack
    monkeypatch.setattr(Convolution, "unpack", lambda self, packed: right(self, packed) + 0.01)
    with pytest.raises(ArithmeticError, match="PG: differs from PyTorch"):
        list(kernels.measure(["vgg-cifar-1"], Pace(7, 0.0, 0.0), frame.load_torch()))


@NEEDS_TORCH
def test_every_layer_agrees_with_pytorch() -> None:
    # The benchmark refuses to time what differs.
    rows = list(kernels.measure(["vgg-cifar-1"], Pace(1, 0.0, 0.0), frame.load_torch()))
    assert [row.phase for row in rows] == ["FP", "PG", *("FP", "EB", "PG") * 8]


def test_the_command_offers_every_list() -> None:
    assert tuple(kernels.LISTS) == commands.LISTS


@pytest.mark.parametrize(
    ("name", "network"), [("vgg-cifar-1", "vgg16-cifar"), ("imagenet-1", "vgg16")]
)
def test_lists_hold_the_networks_distinct_convolutions(name: str, network: str) -> None:
    expected = {
        (
            layer.input[0],
            layer.channels,
            layer.input[1:],
            layer.kernel,
            layer.window.stride,
            layer.window.pad,
            layer.index == 0,
        )
        for layer in load_network(network).layers
        if layer.convolves
    }
    found = [
        (s.in_channels, s.out_channels, s.size, s.kernel, s.stride, s.pad, s.is_first)
        for s in kernels.LISTS[name]
        if s.network == "vgg16"
    ]
    assert len(found) == 9
    assert set(found) == expected


def test_micro_batches_of_16_are_the_same_layers() -> None:
    one, many = kernels.LISTS["vgg-cifar-1"], kernels.LISTS["vgg-cifar-16"]
    assert [dataclasses.replace(shape, samples=16) for shape in one] == list(many)


def test_alexnet_has_the_sizes_of_its_layers() -> None:
    layers = [shape for shape in kernels.LISTS["imagenet-1"] if shape.network == "alexnet"]
    ours = [layer for layer in load_network("alexnet").layers if layer.convolves]
    assert [shape.output for shape in layers] == [layer.output[1:] for layer in ours]
    assert [shape.flop for shape in layers] == [2 * layer.macs for layer in ours]
    assert [shape.is_first for shape in layers] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("name", "place", "flop", "phases", "has_bar"),
    [
        ("vgg-cifar-1", 0, 2 * 32 * 32 * 64 * 3 * 9, ("FP", "PG"), False),  # 3 channels
        ("vgg-cifar-1", 1, 75_497_472, ("FP", "EB", "PG"), True),  # 2 x 1024 pixels x 64 x 64 x 9
        ("vgg-cifar-1", 5, 75_497_472, ("FP", "EB", "PG"), True),  # 64 pixels, just enough
        ("vgg-cifar-1", 6, 37_748_736, ("FP", "EB", "PG"), False),  # 16 pixels
        ("vgg-cifar-16", 8, 301_989_888, ("FP", "EB", "PG"), True),  # 16 samples of 4 pixels
        ("imagenet-1", 9, 210_830_400, ("FP", "PG"), False),  # 2 x 55 x 55 x 96 x 3 x 11 x 11
    ],
)
def test_operations_phases_and_bars(
    name: str, place: int, flop: int, phases: tuple[str, ...], has_bar: bool
) -> None:
    shape = kernels.LISTS[name][place]
    assert (shape.flop, shape.phases, shape.has_bar) == (flop, phases, has_bar)
