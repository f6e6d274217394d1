"""The benchmarks' lists of layers: those of the networks, their operations and phases."""

from __future__ import annotations

import dataclasses

import pytest

from emuchain.emulator.bench import shapes
from emuchain.emulator.network import load_network


@pytest.mark.parametrize(("name", "network"), [("vgg-cifar-1", "vgg16-cifar"), ("imagenet-1", "vgg16")])
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
        for s in shapes.LISTS[name]
        if s.network == "vgg16"
    ]
    assert len(found) == 9
    assert set(found) == expected


def test_micro_batches_of_16_are_the_same_layers() -> None:
    one, many = shapes.LISTS["vgg-cifar-1"], shapes.LISTS["vgg-cifar-16"]
    assert [dataclasses.replace(shape, samples=16) for shape in one] == list(many)


def test_alexnet_has_the_sizes_of_its_layers() -> None:
    layers = [shape for shape in shapes.LISTS["imagenet-1"] if shape.network == "alexnet"]
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
def test_operations_phases_and_bars(name: str, place: int, flop: int, phases: tuple[str, ...], has_bar: bool) -> None:
    shape = shapes.LISTS[name][place]
    assert (shape.flop, shape.phases, shape.has_bar) == (flop, phases, has_bar)
