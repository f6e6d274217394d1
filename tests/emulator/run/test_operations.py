"""Every operation of the special function unit, in whole chains: what may not change the
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from emuchain.comm import Mailbox, Message
from emuchain.emulator.plan import ChainPlan
from emuchain.kernels import Arena

# Every operation, and those next to one another that keep maps or change them in place.
NETWORK = """
name = "everything"
input = [3, 32, 32]
layers = [
  { type = "conv", channels = 20, kernel = 5, stride = 2, pad = 2 },
  { type = "relu" },
  { type = "lrn", size = 5 },
  { type = "relu" },
  { type = "max-pool", kernel = 3, stride = 2, pad = 1 },
  { type = "conv", channels = 33, kernel = [3, 1], pad = [1, 0], bias = false },
  { type = "relu" },
  { type = "max-pool", kernel = 3, stride = 1, pad = 1 },
  { type = "dropout", rate = 0.3 },
  { type = "average-pool", kernel = 3, stride = 2 },
  { type = "relu" },
  { type = "conv", channels = 17, kernel = 1 },
  { type = "max-pool", kernel = 2, stride = 1 },
  { type = "relu" },
  { type = "dropout", rate = 0.5 },
  { type = "fc", features = 21 },
  { type = "relu" },
  { type = "lrn", size = 3 },
  { type = "dropout", rate = 0.5 },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""


EveryOperation = Callable[..., ChainPlan]
TrainBits = Callable[..., dict[str, bytes]]


@pytest.fixture
def every_operation(
    plan_of: Callable[..., ChainPlan], tmp_path: Path, small_cifar: Path
) -> EveryOperation:
    """Makes a plan of the network above with these keys."""
    (tmp_path / "everything.toml").write_text(NETWORK)

    def make(**keys: Any) -> ChainPlan:
        settings = {
            "network": str(tmp_path / "everything.toml"),
            "batch": 12,
            "micro_batch": 5,
            "schedule": "sync",
        }
        settings |= {"data": str(small_cifar), "samples": 40, "test_samples": 7}
        return plan_of(**{**settings, **keys})

    return make


@pytest.fixture
def train_bits(every_operation: EveryOperation, trained: Any, bits: Any) -> TrainBits:
    """Gives the bits of the weights after an epoch with these keys."""
    return lambda **keys: bits(trained(every_operation(**keys)).weights)


def test_the_mapping_never_changes_what_any_operation_gives(train_bits: TrainBits) -> None:
    expected = train_bits(devices=1)
    assert train_bits(devices=1, seed=2) != expected
    for devices, micro_batch in ((2, 5), (5, 12), (9, 1), (25, 4)):
        assert train_bits(devices=devices, micro_batch=micro_batch) == expected, devices


@pytest.mark.parametrize("devices", [2, 5, 9])
def test_spans_never_change_what_any_operation_gives(
    plan_of: Any, every_operation: EveryOperation, train_bits: TrainBits, devices: int
) -> None:
    """Where a device's version changes within a micro-batch, it does that one in spans."""
    fpdeep = {"devices": devices, "schedule": "fpdeep"}
    for make in (plan_of, every_operation):
        programs = make(**fpdeep, batch=12, micro_batch=12).schedule(40).programs([0])
        assert any(action.span for action in programs[0])
    expected = train_bits(**fpdeep, micro_batch=1)
    for micro_batch in (5, 12):
        assert train_bits(**fpdeep, micro_batch=micro_batch) == expected, micro_batch


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
@pytest.mark.parametrize("devices", [4, 9])
def test_it_makes_no_difference_that_messages_within_a_process_are_not_copied(
    monkeypatch: pytest.MonkeyPatch, train_bits: TrainBits, schedule: str, devices: int
) -> None:
    """Neither does a sender change what it sent, nor a receiver what the sender still needs."""
    expected = train_bits(devices=devices, schedule=schedule)
    put, copied = Mailbox.put, 0

    def put_copy(self: Mailbox, message: Message) -> None:
        nonlocal copied
        if message.data is not None:
            copied += 1
            message = Message(message.first, message.times.copy(), message.data.copy())
        put(self, message)

    monkeypatch.setattr(Mailbox, "put", put_copy)
    assert train_bits(devices=devices, schedule=schedule) == expected
    assert copied > 0


def test_nothing_is_read_from_an_arena_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch, train_bits: TrainBits
) -> None:
    expected = train_bits(devices=9)
    take = Arena.take

    def take_poisoned(
        self: Arena, shape: tuple[int, ...], dtype: DTypeLike = np.float32
    ) -> NDArray[Any]:
        found = take(self, shape, dtype)
        found[...] = 255 if found.dtype == np.uint8 else np.nan
        return found

    monkeypatch.setattr(Arena, "take", take_poisoned)
    assert train_bits(devices=9) == expected
