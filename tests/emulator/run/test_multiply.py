"""Products of two maps on chains: the same bits and times however a network is cut, the same step
as PyTorch, and their way through ONNX and from models of PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network

from ..networks import of_images
from . import operations
from .operations import Bits, check_bits, check_file, check_step, check_weights

NETWORK = of_images(
    "gated",
    {"type": "conv", "channels": 16, "kernel": 5, "stride": 4, "pad": 2, "name": "x"},
    *({"type": "conv", "channels": 12, "kernel": 1, "name": "gate"}, {"type": "silu", "name": "g"}),
    {"type": "conv", "channels": 12, "kernel": 1, "name": "up", "from": "x"},
    {"type": "multiply", "from": ["g", "up"], "name": "swiglu"},
    {"type": "multiply", "from": ["swiglu", "swiglu"]},
    {"type": "conv", "channels": 16, "kernel": 3, "pad": 1, "name": "down"},
    {"type": "multiply", "from": ["down", "x"]},
)
KEYS = {**operations.KEYS, "learning_rate": 1e-5}


@pytest.fixture(scope="module")
def reference() -> Any:
    """Results on one board."""
    return emuchain.train(NETWORK, micro_batch=8, **KEYS)


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_no_mapping_changes_a_bit(
    reference: Any, bits: Bits, devices: int, micro_batch: int
) -> None:
    check_bits(NETWORK, KEYS, reference, bits, devices=devices, micro_batch=micro_batch)


def test_pytorch_takes_the_same_step() -> None:
    assert check_step(NETWORK)


def test_it_goes_through_onnx(reference: Any, tmp_path: Path, bits: Bits) -> None:
    path = tmp_path / "gated.onnx"
    check_file(NETWORK, reference, path)
    check_weights(path, KEYS, reference, bits)


@pytest.mark.parametrize("factors", [["x", "gate"], ["x", "x", "x"]])
def test_two_maps_of_one_shape_are_needed(factors: list[str], one_line: Any) -> None:
    layers = [
        *NETWORK["layers"][:2],
        {"type": "multiply", "from": factors},
        *NETWORK["layers"][-2:],
    ]
    with pytest.raises(
        InputError, match="multiplies two maps of one shape, or one by a value"
    ) as error:
        load_network({**NETWORK, "layers": layers})
    assert one_line(error)


def test_llama_tiny_trains_the_same_bits_on_several_boards(bits: Bits) -> None:
    keys = {**KEYS, "samples": 8, "test_samples": 2, "batch": 4, "learning_rate": 0.01}
    runs = [
        emuchain.train("llama-tiny", devices=devices, micro_batch=micro_batch, **keys)
        for devices, micro_batch in ((1, 4), (5, 1))
    ]
    assert bits(runs[0].weights) == bits(runs[1].weights)
