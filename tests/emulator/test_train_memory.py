"""What a device keeps does not grow with the number of samples, and what it takes it gives back."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.comm.host import Mailbox
from emuchain.comm.message import Message
from emuchain.comm.ranks import Alone
from emuchain.emulator.config.config import load_config
from emuchain.emulator.data.load import load
from emuchain.emulator.device.numerics import SliceNumerics
from emuchain.emulator.plan.plan import make_plan
from emuchain.emulator.run.train import train
from emuchain.emulator.schedule.action import Portion
from emuchain.kernels import arena

DEVICES = 4


def most_held(monkeypatch: pytest.MonkeyPatch, folder: Path, schedule: str, samples: int) -> dict[str, int]:
    """For each slice, the most micro-batches that its Act-RAM held at once during an epoch."""
    held: dict[str, int] = {}
    free = SliceNumerics.gradient

    def counting(self: SliceNumerics, whole: Portion) -> None:
        held[str(self.part)] = max(held.get(str(self.part), 0), len(self._act_ram))
        free(self, whole)

    data = load(str(folder)).first(samples).test_first(1)
    flags = {"devices": DEVICES, "batch": 32, "micro_batch": 2, "schedule": schedule}
    with monkeypatch.context() as patch:
        patch.setattr(SliceNumerics, "gradient", counting)
        config = load_config(None, flags)
        train(make_plan(config, 1), data, Alone(), lambda _: None, lambda *_: None, gather_weights=False)
    return held


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_act_ram_holds_as_much_for_many_samples_as_for_few(
    monkeypatch: pytest.MonkeyPatch, small_cifar: Path, schedule: str
) -> None:
    few = most_held(monkeypatch, small_cifar, schedule, 96)
    many = most_held(monkeypatch, small_cifar, schedule, 320)
    assert few == many
    assert max(many.values()) <= 2 * DEVICES + 1 + 16  # in flight, and those that go ahead of an update
    assert all(count >= 1 for count in many.values())


def most_waiting(monkeypatch: pytest.MonkeyPatch, test_samples: int) -> int:
    """The most samples that waited for one device in an evaluation."""
    most, put = [0], Mailbox.put

    def counting(self: Mailbox, message: Message) -> None:
        put(self, message)
        most[0] = max(most[0], sum(len(waiting.times) for waiting in self._messages))

    data = load("shapes").first(16).test_first(test_samples)
    with monkeypatch.context() as patch:
        patch.setattr(Mailbox, "put", counting)
        config = load_config(None, {"devices": DEVICES, "batch": 16})
        [result] = train(make_plan(config, 1), data, Alone(), lambda _: None, lambda *_: None, gather_weights=False)
    assert result.test.samples == test_samples
    return most[0]


def test_evaluation_holds_as_much_for_many_samples_as_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_waiting(monkeypatch, 70) == most_waiting(monkeypatch, 200) == 64


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_an_epoch_like_the_one_before_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch, small_cifar: Path, schedule: str
) -> None:
    """All maps and messages come from the arena, and in the second epoch it has them all."""
    aligned, taken, peaks = arena.aligned, [0], []

    def counting(size: int) -> NDArray[np.uint8]:
        taken[-1] += size
        return aligned(size)

    def after_epoch(*_: object) -> None:
        if tracemalloc.is_tracing():
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        else:
            tracemalloc.start()
        taken.append(0)

    data = load(str(small_cifar)).first(320).test_first(40)
    flags = {"network": "quick-cifar", "devices": DEVICES, "batch": 32, "micro_batch": 16, "schedule": schedule}
    monkeypatch.setattr(arena, "aligned", counting)
    config = load_config(None, {**flags, "epochs": 2})
    train(make_plan(config, 1), data, Alone(), lambda _: None, after_epoch, gather_weights=False)
    maps_bytes = 4 * 32 * 32 * 32 * 16  # the first layer's outputs
    assert taken[0] > maps_bytes
    assert taken[1:] == [0, 0]
    assert peaks[0] < maps_bytes / 4


_PEAKS = """
import resource, sys
from emuchain.comm.host import Mailbox
from emuchain.comm.message import Message
from emuchain.comm.ranks import Alone
from emuchain.emulator.config.config import load_config
from emuchain.emulator.data.load import load
from emuchain.emulator.plan.plan import make_plan
from emuchain.emulator.run.train import train

def on_step(result):
    if result.step + 1 in (10, 1000):
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

flags = {"devices": 4, "batch": 4, "micro_batch": 2, "schedule": "fpdeep", "learning_rate": 0.001}
data = load("shapes").first(4000).test_first(1)
train(make_plan(load_config(None, flags), 1), data, Alone(), on_step, lambda *_: None, gather_weights=False)
"""


@pytest.mark.slow
def test_peak_memory_is_flat_from_step_10_to_step_1000() -> None:
    """The process's own peak; what little it grows by are the losses and times that are kept of each step."""
    done = subprocess.run([sys.executable, "-c", _PEAKS], capture_output=True, text=True, check=True, timeout=500)
    early_kib, late_kib = map(int, done.stdout.split())
    assert late_kib - early_kib < 1024, f"{early_kib} KiB at step 10, {late_kib} KiB at step 1000"
