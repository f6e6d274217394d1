"""Recurrent layers that are cut by units: what cuts must not change, and what they send and
store.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster import LinkShare
from emuchain.emulator.mapping import (
    Cut,
    DataPath,
    DeviceStreams,
    Mapping,
    OffChip,
    Slice,
    activation_bytes,
    cut_channels,
    memory_streams,
    partition,
    slice_memory,
    slice_works,
    streams,
)
from emuchain.emulator.network import Layer, Network

from .networks import board, check_order, cluster, network

UNITS, INPUTS, STEPS = 24, 10, 7
VALUE_BYTES = 4


def lstm(**more: object) -> dict[str, Any]:
    return {"type": "lstm", "units": UNITS, **more}


def gru(**more: object) -> dict[str, Any]:
    return {"type": "gru", "units": UNITS, **more}


def layer_of(described: dict[str, Any], *, behind_another: bool = False) -> Layer:
    before = [{"type": "gru", "units": INPUTS}] if behind_another else []
    return network((INPUTS, STEPS, 1), *before, described).layers[-1]


CUTS = st.lists(st.integers(1, UNITS - 1), max_size=5, unique=True).map(
    lambda places: [0, *sorted(places), UNITS]
)


@given(st.sampled_from([lstm(), gru()]), CUTS, st.booleans())
def test_parts_add_up_to_the_layer(
    described: dict[str, Any], places: list[int], behind_another: bool
) -> None:
    layer = layer_of(described, behind_another=behind_another)
    gates, parts = (
        4 if described["type"] == "lstm" else 3,
        [Slice(layer, *ends) for ends in itertools.pairwise(places)],
    )
    assert cut_channels(layer) == UNITS and all(part.cut is Cut.OCP for part in parts)
    whole = UNITS * gates * (INPUTS + UNITS)
    assert sum(part.macs for part in parts) == STEPS * whole
    backward = whole if behind_another else UNITS * gates * UNITS
    for phase, row in enumerate((whole, backward, whole)):
        assert sum(slice_works(part)[phase].convolutions for part in parts) == row
        assert {slice_works(part)[phase].rows for part in parts} == {STEPS}
    weights = UNITS * gates * (INPUTS + UNITS + 2)
    assert layer.weights == weights
    memories = [slice_memory(part, 0) for part in parts]
    last = memories[-1].lpram.bytes
    assert sum(memory.lpram.bytes for memory in memories) == VALUE_BYTES * weights >= last
    kept = STEPS * (UNITS + UNITS * (gates + 1))
    assert sum(activation_bytes(part) for part in parts) == VALUE_BYTES * (
        len(parts) * INPUTS * STEPS + kept
    )


@given(CUTS.filter(lambda places: len(places) > 2))
def test_gradients_of_all_devices_are_those_of_the_network(places: list[int]) -> None:
    found = network(
        (INPUTS, STEPS, 1), lstm(), {"type": "last-step"}, {"type": "fc", "features": 3}
    )
    parts = [(Slice(found.layers[0], *ends),) for ends in itertools.pairwise(places)]
    mapping = Mapping(found, (*parts, (Slice(found.layers[1], 0, 24),)))
    values = [
        DeviceStreams.of(mapping, device, ()).gradient_values
        for device in range(len(mapping.devices))
    ]
    assert sum(values) == found.parameters
    assert values[0] == places[1] * 4 * (INPUTS + UNITS + 2)


@given(st.integers(1, UNITS - 1))
def test_what_crosses_a_cut(begin: int) -> None:
    found: Network = network((INPUTS, STEPS, 1), gru(), gru())
    layer = found.layers[1]
    mapping = Mapping(
        found,
        ((Slice(found.layers[0], 0, UNITS), Slice(layer, 0, begin)), (Slice(layer, begin, UNITS),)),
    )
    for share in LinkShare:
        crossing = {
            (each.path, each.number): (each.channels, each.rows)
            for each in streams(mapping, 0, share)
        }
        assert crossing == {
            (DataPath.ACTIVATIONS, 1): (UNITS, STEPS),
            (DataPath.PARTIAL_ACTIVATIONS, 2): (begin, STEPS),
            (DataPath.OUTPUT_ERRORS, 2): (begin, STEPS),
            (DataPath.INPUT_ERRORS, 1): (UNITS, STEPS),
            (DataPath.STATES, 2): (UNITS - begin, STEPS),
            (DataPath.INPUT_ERRORS, 2): (UNITS, STEPS),
            (DataPath.STATE_ERRORS, 2): (UNITS - begin, STEPS),
        }


@pytest.mark.parametrize(
    "described", [lstm(bidirectional=True), lstm(projection=5), gru(reset="before")]
)
def test_layers_that_need_all_units_within_a_step_stay_whole(described: dict[str, Any]) -> None:
    layer = layer_of(described)
    assert cut_channels(layer) == 1
    part = Slice(layer, 0, 1)
    assert part.out_channels == range(layer.channels) and part.macs == layer.macs


@given(st.integers(1, 12), st.integers(300, 4000))
def test_every_unit_is_on_one_device(devices: int, dsp: int) -> None:
    found = network(
        (INPUTS, STEPS, 1), lstm(), gru(bidirectional=True), gru(), {"type": "fc", "features": 3}
    )
    check_order(found, partition(found, cluster(board(dsp)), devices))


def test_bytes_on_the_memory_port() -> None:
    """6 of 24 units off chip: FP and EB read their weights at each of 7 steps, PG reads and writes
    gradients once.
    """
    part = Slice(layer_of(gru(), behind_another=True), 0, UNITS)
    of_units = 6 * 3 * (INPUTS + UNITS + 2) * VALUE_BYTES
    moved = [stream.sample_bytes for stream in memory_streams(part, OffChip(6, False))]
    assert moved == [STEPS * of_units, STEPS * of_units, 2 * of_units]
    activations = VALUE_BYTES * STEPS * (INPUTS + UNITS + 4 * UNITS)
    with_rows = [stream.sample_bytes for stream in memory_streams(part, OffChip(6, True))]
    assert with_rows == [
        STEPS * of_units + activations,
        STEPS * of_units,
        2 * STEPS * of_units + activations,
    ]


def test_memory_by_hand() -> None:
    """A GRU of 24 units on 10 inputs and 7 steps, 3 samples in flight; a line buffer holds one
    step.
    """
    memory = slice_memory(Slice(layer_of(gru(), behind_another=True), 0, 12), 3)
    half = STEPS * (UNITS + 4 * UNITS) // 2
    assert memory.act_ram.bytes == 3 * VALUE_BYTES * (STEPS * INPUTS + half)
    assert memory.lpram.bytes == memory.lgb.bytes == VALUE_BYTES * 12 * 3 * (INPUTS + UNITS + 2)
    assert memory.line_buffers.bytes == VALUE_BYTES * (INPUTS + 12)
    assert memory.error_buffer.bytes == VALUE_BYTES * INPUTS
    assert memory.pab.bytes == VALUE_BYTES * 12
