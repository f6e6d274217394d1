"""What a parameter takes in each format, and that boards' memories follow."""

from __future__ import annotations

from typing import Any

import pytest

from emuchain.emulator.mapping import OffChip, Slice, WeightBanks, memories, port_bytes, slice_memory, update_bytes
from emuchain.emulator.network import load_network
from emuchain.emulator.number import precision_of

CONV = next(layer for layer in load_network("vgg16").layers if layer.name == "conv4_1")
PART = Slice(CONV, 0, 64)


@pytest.mark.parametrize(
    ("given", "states", "bytes_of_32"),
    [
        *[("fp32", 0, 8 * 32), ("fp32", 2, 16 * 32), ("bf16", 0, 10 * 32), ("mxfp8", 0, 9 * 32 + 1)],
        *[("bf16 master=bf16", 0, 6 * 32), ("mxfp8 master=bf16 states=bf16", 1, 9 * 32 + 1)],
    ],
)
def test_arrays_of_a_parameter(given: str, states: int, bytes_of_32: int) -> None:
    """A working copy, where it is not the master; the master; its gradient of 4 bytes; and states."""
    assert precision_of(given).storage(states).weight_bytes(32) == bytes_of_32


@pytest.mark.parametrize("given", ["bf16", "mxfp8", "mxfp4 master=q2.10", "q2.6 master=q2.14"])
def test_buffers(given: str) -> None:
    precision = precision_of(given)
    storage, plain = precision.storage(0), precision_of("fp32").storage(0)
    narrow, wide = slice_memory(PART, 3, None, storage), slice_memory(PART, 3, None, plain)
    assert narrow.pab == wide.pab, "partial sums are wide"
    assert narrow.act_ram.bytes == precision.activations.bytes_of(wide.act_ram.bytes // 4 // 64) * 64
    assert narrow.lpram.bytes == precision.weights.bytes_of(CONV.channels) * 64 * 9
    assert narrow.lgb.bytes == wide.lgb.bytes + precision.master.bytes_of(CONV.channels) * 64 * 9
    banks = WeightBanks.of(PART, storage)
    assert banks.of_channels(64) == narrow.lpram.banks + narrow.lgb.banks
    for channels in range(65):
        assert banks.most_channels(64, banks.of_channels(channels)) >= channels
        assert banks.of_channels(banks.most_channels(64, channels)) <= channels


def test_ports_move_narrow_maps_and_weights() -> None:
    """A map's values twice, weights for FP and EB, and sums of gradients in and out; updates, master copies."""
    storage = precision_of("bf16").storage(0)
    _, rows, columns = CONV.input
    weights = CONV.channels * 9 * 5
    assert port_bytes(PART, OffChip(activations=True), storage) == 2 * 2 * 64 * rows * columns
    assert port_bytes(PART, OffChip(channels=5), storage) == (2 + 2 + 4 + 4) * weights
    assert update_bytes(PART, OffChip(channels=5), storage) == 2 * 4 * weights
    assert memories(1, 100, storage.weights).bytes == 200


def test_a_narrow_run_fits_where_a_wide_one_does_not(plan_of: Any) -> None:
    keys = {"network": "vgg16", "devices": 15, "schedule": "sync", "balancing": "none"}
    wide, narrow = (sum(plan_of(**keys, precision=given).off_chip_bytes) for given in ("fp32", "bf16 master=bf16"))
    assert narrow < wide
