"""The work of a network: recurrent layers one by one, others together."""

from __future__ import annotations

from pathlib import Path

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.pair import Cell, OtherWork, RecurrentWork, workload_of

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


def test_a_network_without_a_state() -> None:
    with pytest.raises(InputError, match="`network` = 'quick-cifar': has no recurrent layer"):
        workload_of(load_network("quick-cifar"), 1)
