"""The work of a network: recurrent layers one by one, others together."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.timing.pair import (
    Cell,
    OtherWork,
    RecurrentWork,
    Workload,
    gpu_bytes,
    workload_of,
)

from .workloads import pair, synthetic

DESCRIBED = """
name = "mixed"
input = [2, 12, 12]
layers = [
  { type = "conv", channels = 3, kernel = 3, pad = 1 }, { type = "conv", channels = 3, kernel = 3, pad = 1 },
  { type = "sequence" },
  { type = "gru", units = 8, bidirectional = true },
  { type = "lstm", units = 8, projection = 4 },
  { type = "fc", features = 10 }, { type = "softmax" },
]
"""


def test_layers_become_parts(tmp_path: Path) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text(DESCRIBED)
    found = workload_of(load_network(str(path)), 3)
    network = load_network(str(path))
    assert found.batch == 3
    first, gru, lstm, last = found.parts
    assert first == OtherWork(
        "conv1 to conv2",
        9 * 144 * (2 * 3 + 3 * 3),
        sum(layer.parameters for layer in network.layers[:2]),
    )
    assert gru == RecurrentWork("gru1", Cell.GRU, 36, 8, 12, None, 2)
    assert lstm == RecurrentWork("lstm1", Cell.LSTM, 16, 8, 12, 4, 1)
    assert isinstance(last, OtherWork) and last.macs == 4 * 12 * 10
    assert lstm.parameters == 4 * 8 * (16 + 4 + 2) + 8 * 4


def test_memory_of_the_gpu(tmp_path: Path) -> None:
    work = RecurrentWork("x", Cell.LSTM, 3, 2, 5, directions=2)
    workload = Workload("w", (work, OtherWork("y", 10, 7)), 4)
    parameters = 2 * (4 * 2 * (3 + 2) + 2 * 4 * 2) + 7
    values = 5 * (3 + 2 * (2 + 2 * 8))
    assert gpu_bytes(workload, pair()) == 4 * (3 * parameters + 4 * values)
    assert gpu_bytes(workload, pair("p100", "gpu-standard")) == 4 * (
        3 * parameters + 4 * (values + 5 * 2 * (8 + 2))
    )


@pytest.mark.parametrize(
    ("name", "cell", "cells"), [("lstm-5x1024", Cell.LSTM, 1024), ("gru-5x1280", Cell.GRU, 1280)]
)
def test_the_zoo_has_the_synthetic_benchmarks(name: str, cell: Cell, cells: int) -> None:
    found = workload_of(load_network(name), 1).recurrent
    expected = synthetic(cell, cells=cells).recurrent
    assert [dataclasses.replace(work, name="") for work in found] == [
        dataclasses.replace(work, name="") for work in expected
    ]


def test_a_network_without_a_state() -> None:
    with pytest.raises(InputError, match="`network` = 'quick-cifar': has no recurrent layer"):
        workload_of(load_network("quick-cifar"), 1)
