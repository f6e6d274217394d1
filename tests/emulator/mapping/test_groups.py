"""Convolutions in groups: what slices hold and what passes between them, by hand and at every
boundary.
"""

from __future__ import annotations

import pytest

from emuchain.emulator.cluster import Link, LinkShare
from emuchain.emulator.mapping import (
    Cut,
    DataPath,
    Mapping,
    Slice,
    Stream,
    channel_bytes,
    sample_ps,
    slice_memory,
    slice_works,
    streams,
)
from emuchain.emulator.mapping.row import Boundaries
from emuchain.emulator.network import Layer, Network
from emuchain.emulator.number import precision_of

from .networks import conv, fc, network


def grouped(channels: int, groups: int, inputs: int = 24, **more: object) -> Network:
    return network((20, 5, 6), conv(inputs), conv(channels, 3, groups=groups, **more), fc(9))


def layer_of(channels: int, groups: int) -> Layer:
    return grouped(channels, groups).layers[1]


@pytest.mark.parametrize(
    ("begin", "end", "inputs", "outputs"),
    [
        (0, 3, (0, 6), (3,)),
        (3, 14, (0, 12), (5, 6)),
        (8, 9, (6, 12), (1,)),
        (4, 32, (0, 24), (4, 8, 8, 8)),
    ],
)
def test_a_slice_takes_the_inputs_of_its_groups(
    begin: int, end: int, inputs: tuple[int, int], outputs: tuple[int, ...]
) -> None:
    """Four groups of 6 input and 8 output channels, cut by output channels however many inputs
    there are.
    """
    part = Slice(layer_of(32, 4), begin, end)
    assert part.cut is Cut.OCP
    assert part.in_channels == range(*inputs)
    assert part.out_channels == range(begin, end)
    assert part.weight_inputs == range(6)
    assert part.outputs_by_group == outputs


def test_a_layer_without_groups_is_one_group() -> None:
    part = Slice(layer_of(32, 1), 3, 5)
    assert (part.cut, part.in_channels, part.weight_inputs, part.outputs_by_group) == (
        Cut.ICP,
        range(3, 5),
        range(3, 5),
        (32,),
    )


@pytest.mark.parametrize("groups", [1, 4, 24])
def test_work_and_weights_are_divided_by_the_groups(groups: int) -> None:
    layer = layer_of(48, groups)
    pixels = 3 * 4
    assert layer.macs == pixels * 9 * 24 * 48 // groups
    assert layer.weights == 9 * 24 * 48 // groups
    whole = Slice(layer, 0, 48 if groups > 1 else 24)
    fp, eb, pg = slice_works(whole)
    assert fp.macs == pg.macs == layer.macs == whole.macs
    assert eb.macs == 5 * 6 * layer.macs // pixels
    assert channel_bytes(whole) * whole.channels == 4 * layer.weights
    cuts = [Slice(layer, begin, begin + 1) for begin in range(whole.channels)]
    assert sum(part.macs for part in cuts) == layer.macs
    assert (
        sum(slice_memory(part, 1).lpram.bytes - part.is_last * 4 * 48 for part in cuts)
        == 4 * layer.weights
    )


def test_act_ram_holds_the_inputs_of_the_groups() -> None:
    assert slice_memory(Slice(layer_of(32, 4), 3, 14), 2).act_ram.bytes == 4 * 12 * 5 * 6 * 2
    assert slice_memory(Slice(layer_of(24, 24), 3, 14), 2).act_ram.bytes == 4 * 11 * 5 * 6 * 2


def between(found: Network, boundary: int) -> tuple[Stream, ...]:
    """The streams where the second layer is cut."""
    layer = found.layers[1]
    return streams(
        Mapping(found, ((Slice(layer, 0, boundary),), (Slice(layer, boundary, layer.channels),))), 0
    )


@pytest.mark.parametrize(("boundary", "inputs"), [(7, 24), (8, 18), (15, 18), (16, 12), (31, 6)])
def test_inputs_go_on_up_to_the_last_output_of_their_group(boundary: int, inputs: int) -> None:
    assert between(grouped(32, 4), boundary) == (
        Stream(DataPath.ACTIVATIONS, 1, inputs, 5, 6, begin=24 - inputs),
        Stream(DataPath.PARTIAL_ACTIVATIONS, 2, boundary, 3, 4),
        Stream(DataPath.OUTPUT_ERRORS, 2, boundary, 3, 4),
        Stream(DataPath.INPUT_ERRORS, 1, inputs, 5, 6),
    )


def test_a_depthwise_layer_swaps_a_channel_for_another() -> None:
    """What has been convolved goes on as output, what has not as input: each channel once."""
    for boundary in range(1, 24):
        forward = [stream.channels for stream in between(grouped(24, 24), boundary)][:2]
        assert forward == [24 - boundary, boundary]


@pytest.mark.parametrize("number", ["fp32", "bf16", "mxfp6", "int5@7"])
@pytest.mark.parametrize("share", list(LinkShare))
@pytest.mark.parametrize(
    ("channels", "groups"), [(32, 4), (24, 24), (48, 24), (6, 3), (2, 2), (24, 8), (32, 1)]
)
def test_a_link_takes_what_its_streams_take(
    channels: int, groups: int, share: LinkShare, number: str
) -> None:
    """At every boundary, in and between the steps in which a group's inputs end, also inside of
    blocks.
    """
    found, precision = grouped(channels, groups), precision_of(number)
    boundaries = Boundaries(found.layers, share, precision)
    layer, end = found.layers[1], channels if groups > 1 else 24
    for link in (Link(777, 5, share), Link(777, 5, share, header_bytes=11, packet_bytes=30)):
        taken = boundaries.sample_ps(link)
        for boundary in range(1, end):
            cut = Mapping(found, ((Slice(layer, 0, boundary),), (Slice(layer, boundary, end),)))
            assert taken[20 + boundary] == sample_ps(link, streams(cut, 0, share, precision))
