"""Bytes on links in narrow formats: whole maps are narrow with the scales of their blocks, sums are
wide.
"""

from __future__ import annotations

from typing import Any

import pytest

from emuchain.emulator.mapping import DataPath, Mapping, Slice, streams
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.number import SINGLE, Precision, precision_of

MXFP8 = precision_of("mxfp8")


def cut_in(network: Network, index: int, channel: int) -> Mapping:
    """Two devices, cut in a layer before one of its channels; at 0 between layers."""
    layers = network.layers
    layer = layers[index]
    end = layer.input[0] if index else layer.channels
    left = [
        Slice(other, 0, other.input[0] if other.index else other.channels)
        for other in layers[:index]
    ]
    right = [Slice(other, 0, other.input[0]) for other in layers[index + 1 :]]
    if channel == 0:
        return Mapping(network, (tuple(left), (Slice(layer, 0, end), *right)))
    return Mapping(
        network, ((*left, Slice(layer, 0, channel)), (Slice(layer, channel, end), *right))
    )


def row_bytes(mapping: Mapping, precision: Precision = MXFP8) -> dict[DataPath, int]:
    return {stream.path: stream.row_bytes for stream in streams(mapping, 0, precision=precision)}


def test_by_hand() -> None:
    """quick-cifar's conv2 takes 32 channels of 16 columns and makes 64: cut before channel 10."""
    network = load_network("quick-cifar")
    layer = network.layers[1]
    assert (layer.input[0], layer.input[2], layer.channels, layer.output[2]) == (32, 16, 64, 16)
    assert row_bytes(cut_in(network, 1, 10)) == {
        DataPath.ACTIVATIONS: 22 * 16 + 16,
        DataPath.PARTIAL_ACTIVATIONS: 4 * 64 * 16,
        DataPath.OUTPUT_ERRORS: 64 * 16 + 2 * 16,
        DataPath.INPUT_ERRORS: 4 * 22 * 16,
    }
    assert row_bytes(cut_in(network, 2, 10))[DataPath.INPUT_ERRORS] == (4 * 22 + 32 + 1) * 8
    assert row_bytes(cut_in(network, 1, 0)) == {
        DataPath.ACTIVATIONS: 32 * 16 + 16,
        DataPath.INPUT_ERRORS: 32 * 16 + 16,
    }


def test_rows_with_a_scale_are_rounded_whole() -> None:
    """NVFP4: errors of inputs travel as sums up to the layer's first slice; each row has 4
    bytes.
    """
    network, number = load_network("quick-cifar"), precision_of("nvfp4")
    assert row_bytes(cut_in(network, 1, 10), number) == {
        DataPath.ACTIVATIONS: 22 * 8 + 2 * 16 + 4,
        DataPath.PARTIAL_ACTIVATIONS: 4 * 64 * 16,
        DataPath.OUTPUT_ERRORS: 64 * 8 + 4 * 16 + 4,
        DataPath.INPUT_ERRORS: 4 * 22 * 16,
    }
    assert row_bytes(cut_in(network, 2, 10), number)[DataPath.INPUT_ERRORS] == 4 * 54 * 8
    whole = 32 * 8 + 2 * 16 + 4
    assert row_bytes(cut_in(network, 1, 0), number) == {
        DataPath.ACTIVATIONS: whole,
        DataPath.INPUT_ERRORS: whole,
    }


def test_maps_with_a_scale_are_rounded_by_one_device() -> None:
    """Its largest number tells later scales: errors of inputs travel as sums within the layer, and
    are narrow on links between layers; a scale of a mini-batch takes no bytes.
    """
    network = load_network("quick-cifar")
    scaled, plain = precision_of("fp8 scaling=delayed"), precision_of("fp8")
    within, before = (row_bytes(cut_in(network, 2, 10), number) for number in (scaled, plain))
    assert within == {**before, DataPath.INPUT_ERRORS: 4 * 54 * 8}
    assert row_bytes(cut_in(network, 1, 0), scaled) == row_bytes(cut_in(network, 1, 0), plain)


@pytest.mark.parametrize(
    ("accumulate", "size"), [("bf16", 2), ("fp16", 2), ("fp32", 4), ("dot:8", 4)]
)
def test_sums_on_links_have_the_format_of_accumulators(accumulate: str, size: int) -> None:
    rows = row_bytes(
        cut_in(load_network("quick-cifar"), 1, 10), precision_of(f"mxfp8 accumulate={accumulate}")
    )
    assert rows[DataPath.PARTIAL_ACTIVATIONS] == size * 64 * 16
    assert rows[DataPath.INPUT_ERRORS] == size * 22 * 16


def test_cut_between_blocks_by_hand() -> None:
    """conv3 takes 64 channels of 8 columns, and makes 128. At a multiple of 32 channels no block is
    open: errors of inputs have one byte each, and a scale for 32.
    """
    precision = precision_of("mxint8 accumulate=dot:32")
    assert row_bytes(cut_in(load_network("quick-cifar"), 2, 32), precision) == {
        DataPath.ACTIVATIONS: 32 * 8 + 8,
        DataPath.PARTIAL_ACTIVATIONS: 4 * 128 * 8,
        DataPath.OUTPUT_ERRORS: 128 * 8 + 4 * 8,
        DataPath.INPUT_ERRORS: 32 * 8 + 8,
    }


def test_errors_that_several_operations_add_to_are_wide() -> None:
    network = load_network("resnet8-cifar")
    shared = [
        layer
        for layer in network.layers
        if layer.index and layer.reads.number not in layer.read_once
    ]
    alone = [
        layer for layer in network.layers if layer.index and layer.reads.number in layer.read_once
    ]
    assert shared and alone
    for layer in (*shared, *alone):
        crossing = streams(cut_in(network, layer.index, 0), 0, precision=precision_of("bf16"))
        [errors] = [
            stream
            for stream in crossing
            if stream.path is DataPath.INPUT_ERRORS and stream.number == layer.reads.number
        ]
        assert errors.row_bytes == (2 if layer in alone else 4) * errors.channels * errors.columns


@pytest.mark.parametrize("name", ["quick-cifar", "resnet8-cifar", "inception-cifar"])
def test_single_precision_is_as_before(name: str) -> None:
    network = load_network(name)
    for layer in network.layers[1:]:
        for channel in (0, 1, 3):
            for stream in streams(cut_in(network, layer.index, channel), 0, precision=SINGLE):
                assert stream.row_bytes == 4 * stream.channels * stream.columns


def test_a_cut_inside_a_block_changes_no_other_link(plan_of: Any) -> None:
    """Its scale is sent on both sides of the cut, where channels of it are."""
    network = load_network("quick-cifar")
    inside, at_edge = (row_bytes(cut_in(network, 2, channel)) for channel in (31, 32))
    columns = network.layers[2].input[2]
    assert inside[DataPath.ACTIVATIONS] - at_edge[DataPath.ACTIVATIONS] == columns + columns
    assert inside[DataPath.OUTPUT_ERRORS] == at_edge[DataPath.OUTPUT_ERRORS]


def test_bytes_of_the_page(plan_of: Any) -> None:
    """docs/numbers.md: VGG-16 at 32 x 32 on 40 boards, without balanced parameters."""
    sent = {}
    for given in ("fp32", "mxfp8"):
        plan = plan_of(
            network="vgg16-cifar", devices=40, precision=given, balancing="none", schedule="sync"
        )
        directions = [
            [
                sum(stream.sample_bytes for stream in plan.timing.sent(link, forward=forward))
                for link in range(39)
            ]
            for forward in (True, False)
        ]
        sent[given] = (
            [f"{sum(sizes) / 1e6:.2f}" for sizes in directions],
            round(max(map(max, directions)) / 1e3),
        )
    assert sent == {"fp32": (["4.82", "4.82"], 479), "mxfp8": (["3.78", "1.58"], 318)}
