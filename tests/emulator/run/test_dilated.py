"""Convolutions whose kernels have gaps: on chains the same bits and times however a network is cut,
their memory and rows by hand, and their way through ONNX and from models of PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Slice, cut_channels, slice_memory
from emuchain.emulator.network import load_network

from ..networks import of_images
from .operations import KEYS, Bits, check_bits, check_file, check_step

NETWORK = of_images(
    "dilated",
    {"type": "conv", "channels": 8, "kernel": 3, "stride": 2, "pad": 2, "dilation": 2},
    {"type": "relu"},
    {"type": "conv", "channels": 8, "kernel": [3, 1], "pad": [3, 0], "dilation": [3, 1]},
    {"type": "conv", "channels": 8, "kernel": 3, "pad": 2, "dilation": 2, "groups": 8},
    {"type": "relu"},
    {"type": "conv", "channels": 6, "kernel": 2, "stride": 2, "dilation": [2, 3], "groups": 2},
)
PRECISIONS = ["fp32", "bf16", "mxint8 accumulate=dot:8"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_mapping_changes_a_bit(bits: Bits, precision: str) -> None:
    keys = {**KEYS, "precision": precision}
    reference = emuchain.train(NETWORK, micro_batch=8, **keys)
    for devices, micro_batch in ((2, 1), (3, 4), (7, 4)):
        check_bits(NETWORK, keys, reference, bits, devices=devices, micro_batch=micro_batch)


def test_a_step_is_that_of_pytorch() -> None:
    assert len(check_step(NETWORK)) == 10


def test_rows_and_memory_by_hand() -> None:
    """A kernel of three rows, two apart, spans five: the line buffers hold five rows of inputs, and
    output row n waits for input row n + 2.
    """
    layers = [
        {"type": "conv", "channels": 4, "kernel": 1, "name": "first"},
        {"type": "conv", "channels": 2, "kernel": 3, "pad": 2, "dilation": 2, "name": "one"},
        *({"type": "fc", "features": 3}, {"type": "softmax"}),
    ]
    network = load_network({"name": "n", "input": [3, 6, 5], "layers": layers})
    layer = network.layers[1]
    rows = layer.operation.rows(layer.input, layer.output)
    assert rows.fp.tolist() == [2, 3, 4, 5, 5, 5]
    assert rows.eb.tolist() == [2, 3, 4, 5, 5, 5]
    dense = {**layers[1], "kernel": 5, "dilation": 1}
    peer = load_network(
        {"name": "n", "input": [3, 6, 5], "layers": [layers[0], dense, *layers[2:]]}
    )
    memories = []
    for own in (layer, peer.layers[1]):
        memories.append(slice_memory(Slice(own, 0, cut_channels(own)), 1, None))
    assert memories[0].line_buffers == memories[1].line_buffers
    assert [own.lgb.bytes for own in memories] == [4 * (2 * 4 * 9 + 2), 4 * (2 * 4 * 25 + 2)]


def test_it_goes_through_onnx(tmp_path: Path) -> None:
    check_file(
        NETWORK, emuchain.train(NETWORK, **{**KEYS, "samples": 8}), tmp_path / "dilated.onnx"
    )


def test_a_kernel_that_reaches_too_far_is_one_line(one_line: Any) -> None:
    layers = [{"type": "conv", "channels": 4, "kernel": 3, "dilation": 20}, *NETWORK["layers"][-2:]]
    with pytest.raises(InputError, match="`kernel` = 41 is larger than its input of 32") as error:
        load_network({**NETWORK, "layers": layers})
    assert one_line(error)
