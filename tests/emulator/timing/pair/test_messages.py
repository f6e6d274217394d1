"""What travels between the devices of a pair, by hand."""

from __future__ import annotations

import pytest

from emuchain.emulator.network import load_network
from emuchain.emulator.schedule import Offload
from emuchain.emulator.timing.pair import (
    Cell,
    Content,
    Pair,
    PairKey,
    RecurrentWork,
    all_needs,
    pair_streams,
    streams_of,
)
from emuchain.emulator.timing.pair import Workload as Work

from .workloads import pair

LSTM = RecurrentWork("lstm", Cell.LSTM, 3, 5, 7)
GRU = RecurrentWork("gru", Cell.GRU, 3, 5, 7, reads_again=True)
PROJECTED = RecurrentWork("projected", Cell.LSTM, 3, 5, 7, 2)

STEPS = {
    "lstm": {
        "WEIGHTS": 100 + 40,
        "SUMS": 20,
        "OUTPUTS": 5,
        "TURNED_WEIGHTS": 100,
        "OUTPUT_ERRORS": 5,
        "DELTAS": 20,
    },
    "gru": {
        **{"WEIGHTS": 75 + 30, "SUMS": 15, "OUTPUTS": 5, "TURNED_WEIGHTS": 75, "OUTPUT_ERRORS": 5},
        **{"DELTAS": 15, "RESET": 5},
    },
    "projected": {
        **{
            "WEIGHTS": 40 + 10 + 40,
            "SUMS": 20,
            "OUTPUTS": 2,
            "TURNED_WEIGHTS": 50,
            "OUTPUT_ERRORS": 2,
        },
        **{"DELTAS": 20, "CELLS": 5, "PROJECTED_ERRORS": 2},
    },
}
"""Values of a step, and weights, where the GPU does I-MVM."""


@pytest.mark.parametrize("work", [LSTM, GRU, PROJECTED], ids=lambda work: work.name)
def test_streams_of_a_layer(work: RecurrentWork) -> None:
    found = {each.content.name: each.values for each in streams_of(work, 0, inputs_too=False)}
    assert found == STEPS[work.name]


@pytest.mark.parametrize("work", [LSTM, GRU, PROJECTED], ids=lambda work: work.name)
def test_streams_of_a_layer_whose_inputs_are_the_fpgas(work: RecurrentWork) -> None:
    found = {each.content.name: each.values for each in streams_of(work, 0, inputs_too=True)}
    weights = 3 * work.gates * 5
    inputs = {
        "INPUT_WEIGHTS": weights,
        "TURNED_INPUT_WEIGHTS": weights,
        "INPUTS": 3,
        "INPUT_ERRORS": 3,
    }
    others = {"OTHER_INPUT_ERRORS": 3} if work.reads_again else {}
    steps = {name: values for name, values in STEPS[work.name].items() if name != "SUMS"}
    assert found == {**steps, **inputs, **others}


def test_errors_of_other_layers_are_sent_once() -> None:
    """To the direction whose sums begin with them: that of the reverse one is the first."""
    both = RecurrentWork("both", Cell.LSTM, 3, 5, 7, directions=2, reads_again=True)
    sent = [
        Content.OTHER_INPUT_ERRORS
        in [each.content for each in streams_of(both, direction, inputs_too=True)]
        for direction in range(2)
    ]
    assert sent == [False, True]


def test_streams_of_a_network() -> None:
    layers = [{"type": "lstm", "units": 5}, {"type": "gru", "units": 4, "bidirectional": True}]
    ends = [{"type": "last-step"}, {"type": "fc", "features": 2}, {"type": "softmax"}]
    network = load_network({"name": "two", "input": [3, 7, 1], "layers": [*layers, *ends]})
    found = pair_streams(network, inputs_too=False)
    assert {key[:2] for key in found} == {(0, 0), (1, 0), (1, 1)}
    assert found[PairKey(1, 1, Content.SUMS)].values == 12
    assert not found[PairKey(1, 1, Content.DELTAS)].to_fpga


@pytest.mark.parametrize(
    ("offload", "bytes_in"), [(Offload.OVERLAPPED, 15), (Offload.ALL_STEPS, 3)]
)
def test_needs_have_all_that_travels(offload: Offload, bytes_in: int) -> None:
    devices: Pair = pair()
    [needs] = all_needs(Work("w", (GRU,), 2), devices, offload)
    steps = 4 * 2 * 7
    too = offload is Offload.ALL_STEPS
    assert (needs.values_in_bytes, needs.values_out_bytes) == (steps * bytes_in, steps * 5)
    assert needs.errors_in_bytes == steps * (5 + 3 * too)
    assert needs.errors_out_bytes == steps * (15 + 5 + 3 * too)
    assert (needs.weight_bytes, needs.bias_bytes) == (4 * (75 + 45 * too), 4 * 30)
