"""Fixed parts of a link for each data path, and slices that pool before they send."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from emuchain.emulator.cluster import Link, LinkShare, load_cluster
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import (
    DataPath,
    Slice,
    Stream,
    path_row_ps,
    sample_ps,
    steps_before_sending,
)
from emuchain.emulator.mapping.traffic import streams_between
from emuchain.emulator.network import Layer, Network, load_network

BYTES, PATHS = LinkShare.BYTES, LinkShare.PATHS


def first_layer(*operations: dict[str, Any], channels: int = 3) -> Layer:
    """A convolution of 6x8 maps with 20 output channels, then these operations."""
    layers = [
        {"type": "conv", "name": "c", "channels": 20, "kernel": 1},
        *operations,
        {"type": "fc", "features": 2},
    ]
    return load_network(
        {"name": "n", "input": [channels, 6, 8], "layers": [*layers, {"type": "softmax"}]}
    ).layers[0]


POOL = {"type": "max-pool", "name": "p", "kernel": 2}


@pytest.mark.parametrize(
    ("operations", "steps"),
    [
        ([{"type": "relu"}, POOL], 2),
        ([POOL, {"type": "dropout", "rate": 0.5}, {"type": "global-average-pool"}], 3),
        ([{"type": "batch-norm"}, {"type": "leaky-relu"}], 2),
        ([{"type": "relu"}, {"type": "lrn"}, POOL], 1),
        ([], 0),
        ([{"type": "add", "from": ["c", "c"]}, POOL], 0),
        ([POOL, {"type": "concat", "from": ["p", "p"]}, {"type": "relu"}], 0),
    ],
)
def test_steps_of_each_channel_alone(operations: list[dict[str, Any]], steps: int) -> None:
    layer = first_layer(*operations)
    if steps == 0 and operations and operations[0] is POOL:
        steps = 1  # what the pool makes is needed twice, what it reads is not
    assert steps_before_sending(layer, PATHS) == layer.sfu[:steps]
    assert steps_before_sending(layer, BYTES) == ()


def test_partial_sums_are_not_pooled() -> None:
    layer = first_layer(POOL, channels=16)
    assert steps_before_sending(layer, PATHS) == ()


def test_outputs_that_are_needed_whole_are_not_pooled() -> None:
    branch = [
        POOL,
        {"type": "conv", "name": "d", "from": "c", "channels": 4, "kernel": 2, "stride": 2},
    ]
    layer = first_layer(*branch, {"type": "concat", "from": ["p", "d"]})
    assert [tensor.number for tensor in layer.hands_on].count(layer.makes.number) == 1
    assert steps_before_sending(layer, PATHS) == ()


def test_pooled_maps_on_paths_2_and_3() -> None:
    layer = first_layer({"type": "relu"}, POOL)
    right = Slice(layer, 7, 20)
    found = {stream.path: stream for stream in streams_between(layer, right, PATHS)}
    assert found[DataPath.ACTIVATIONS] == Stream(DataPath.ACTIVATIONS, 0, 3, 6, 8)
    for path in (DataPath.PARTIAL_ACTIVATIONS, DataPath.OUTPUT_ERRORS):
        assert found[path] == Stream(path, layer.makes.number, 7, 3, 4)
    whole = {stream.path: stream for stream in streams_between(layer, right)}
    assert whole[DataPath.OUTPUT_ERRORS] == Stream(
        DataPath.OUTPUT_ERRORS, layer.makes.number, 7, 6, 8
    )


def test_a_row_by_hand() -> None:
    """At 8 Gb/s, a byte a nanosecond: 576 bytes on path 1, 336 on paths 2 and 3, and later 40 on
    paths 5 and 6.
    """
    layer = first_layer({"type": "relu"}, POOL)
    found = streams_between(layer, Slice(layer, 7, 20), PATHS)
    link = Link(8000, 0, PATHS)
    activations, partial, errors = found
    assert path_row_ps(link, activations, found) == 2 * 576 // 6 * 1000
    assert (
        path_row_ps(link, partial, found) == path_row_ps(link, errors, found) == 2 * 336 // 3 * 1000
    )
    assert sample_ps(link, found) == 2 * 576 * 1000
    balanced = (
        *found,
        Stream(DataPath.PARAMETERS, 0, 10, 1, 1),
        Stream(DataPath.PARAMETER_GRADIENTS, 0, 10, 1, 1),
    )
    assert (
        path_row_ps(link, balanced[-1], balanced)
        == path_row_ps(link, balanced[-2], balanced)
        == 3 * 40 * 1000
    )
    assert path_row_ps(link, partial, balanced) == 3 * 336 // 3 * 1000
    by_bytes = dataclasses.replace(link, share=BYTES)
    assert path_row_ps(by_bytes, partial, found) == (576 + 336) // 3 * 1000
    assert path_row_ps(by_bytes, errors, found) == 336 // 3 * 1000


def test_several_maps_share_a_path() -> None:
    network: Network = load_network("resnet8-cifar")
    layer = next(layer for layer in network.layers if len(layer.takes) == 2)
    found = streams_between(network.layers[layer.index - 1], Slice(layer, 0, layer.input[0]), PATHS)
    first, second = (stream for stream in found if stream.path is DataPath.ACTIVATIONS)
    link = Link(8000, 0, PATHS)
    both = first.sample_bytes + second.sample_bytes
    assert [path_row_ps(link, each, found) * each.rows for each in (first, second)] == [
        2 * both * 1000
    ] * 2


def test_all_links_share_alike() -> None:
    tables = [
        {"bandwidth_gbps": 1, "latency_ns": 0, "share": share} for share in ("paths", "bytes")
    ]
    cluster = {"name": "c", "boards": [{"type": "vc709"}], "links": tables}
    with pytest.raises(InputError, match="must have the same `share` in all tables"):
        load_cluster(cluster)
    assert load_cluster({**cluster, "links": tables[0]}).link.share is PATHS
    assert load_cluster({**cluster, "links": tables[:1] * 2}).link.share is PATHS
    with pytest.raises(InputError, match="share"):
        load_cluster({**cluster, "links": {**tables[0], "share": "path"}})
