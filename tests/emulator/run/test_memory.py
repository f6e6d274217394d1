"""What a device keeps does not grow with the number of samples, and what it takes it gives back."""

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.comm import Mailbox, Message
from emuchain.emulator.device.slices.conv import ConvSlice
from emuchain.emulator.plan import ChainPlan, training_data
from emuchain.emulator.run import train
from emuchain.emulator.schedule import SampleSpan
from emuchain.kernels.memory import Slabs
from emuchain.launch import SingleProcess

DEVICES = 4


def most_held(monkeypatch: pytest.MonkeyPatch, trained: Any, plan: ChainPlan) -> dict[str, int]:
    """For each slice, the most micro-batches that its Act-RAM held at once during an epoch."""
    held: dict[str, int] = {}
    gradient = ConvSlice.gradient

    def counting(self: ConvSlice, whole: SampleSpan) -> None:
        held[str(self.part)] = max(held.get(str(self.part), 0), len(self._act_ram))
        gradient(self, whole)

    with monkeypatch.context() as patch:
        patch.setattr(ConvSlice, "gradient", counting)
        trained(plan)
    return held


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_act_ram_holds_as_much_for_many_samples_as_for_few(
    monkeypatch: pytest.MonkeyPatch, plan_of: Any, trained: Any, small_cifar: Path, schedule: str
) -> None:
    keys = {"devices": DEVICES, "batch": 32, "micro_batch": 2, "schedule": schedule}
    keys |= {"data": str(small_cifar), "test_samples": 1}
    few = most_held(monkeypatch, trained, plan_of(**keys, samples=96))
    many = most_held(monkeypatch, trained, plan_of(**keys, samples=320))
    assert few == many
    assert (
        max(many.values()) <= 2 * DEVICES + 1 + 16
    )  # in flight, and those that go ahead of an update
    assert all(count >= 1 for count in many.values())


def most_waiting(
    monkeypatch: pytest.MonkeyPatch, plan_of: Any, trained: Any, test_samples: int
) -> int:
    """The most samples that waited for one device in an evaluation."""
    most, put = [0], Mailbox.put

    def counting(self: Mailbox, message: Message) -> None:
        put(self, message)
        most[0] = max(most[0], sum(len(waiting.times) for waiting in self._messages))

    plan = plan_of(devices=DEVICES, batch=16, samples=16, test_samples=test_samples)
    with monkeypatch.context() as patch:
        patch.setattr(Mailbox, "put", counting)
        [result] = trained(plan).history
    assert result.test.samples == test_samples
    return most[0]


def test_evaluation_holds_as_much_for_many_samples_as_for_few(
    monkeypatch: pytest.MonkeyPatch, plan_of: Any, trained: Any
) -> None:
    few, many = (most_waiting(monkeypatch, plan_of, trained, samples) for samples in (70, 200))
    assert few == many == 64


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_an_epoch_like_the_one_before_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch, plan_of: Any, small_cifar: Path, schedule: str
) -> None:
    """All maps and messages come from the arena, and in the second epoch it has them all."""
    take, taken, peaks = Slabs.take, [0], []

    def counting(self: Slabs, size: int) -> NDArray[np.uint8]:
        taken[-1] += size
        return take(self, size)

    def after_epoch(*_: object) -> None:
        if tracemalloc.is_tracing():
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        else:
            tracemalloc.start()
        taken.append(0)

    keys = {
        "network": "quick-cifar",
        "devices": DEVICES,
        "batch": 32,
        "micro_batch": 16,
        "schedule": schedule,
    }
    plan = plan_of(**keys, epochs=2, data=str(small_cifar), samples=320, test_samples=40)
    data = training_data(plan)
    monkeypatch.setattr(Slabs, "take", counting)
    train(plan, data, SingleProcess(), on_epoch=after_epoch, gather_weights=False)
    maps_bytes = 4 * 32 * 32 * 32 * 16  # the first layer's outputs
    assert taken[0] > maps_bytes
    assert taken[1:] == [0, 0]
    assert peaks[0] < maps_bytes / 4


_PEAKS = """
import resource, sys
from emuchain.launch import SingleProcess
from emuchain.emulator.config import load_config
from emuchain.emulator.data import load_data
from emuchain.emulator.plan import make_plan
from emuchain.emulator.run import train

def on_step(result):
    if result.step + 1 in (10, 1000):
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

flags = {"devices": 4, "batch": 4, "micro_batch": 2, "schedule": "fpdeep", "learning_rate": 0.001}
data = load_data("shapes").first(4000).test_first(1)
train(make_plan(load_config(None, flags), 1), data, SingleProcess(), on_step, gather_weights=False)
"""


@pytest.mark.slow
@pytest.mark.exhaustive  # test_an_epoch_like_the_one_before_takes_no_memory does, of two epochs
def test_peak_memory_is_flat_from_step_10_to_step_1000() -> None:
    """The process's own peak; it may grow by the losses and times that are kept of each step."""
    finished = subprocess.run(
        [sys.executable, "-c", _PEAKS], capture_output=True, text=True, check=True, timeout=500
    )
    early_kib, late_kib = map(int, finished.stdout.split())
    assert late_kib - early_kib < 1024, f"{early_kib} KiB at step 10, {late_kib} KiB at step 1000"
