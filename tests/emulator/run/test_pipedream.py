"""PipeDream and PipeDream-2BW train bit for bit as SGD with delays, which a loop of its own works
out here.

The loop knows no schedule: on one device, mini-batch n is computed with weights that are put
together from those after earlier mini-batches, each channel's as late as its device makes it, and
the update is made on the newest ones. Training with slices on several devices must give the same
bits, as the kernels sum in one order however layers are cut.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from emuchain.comm import run
from emuchain.emulator.config import load_config
from emuchain.emulator.device import Maps, State, epoch_order
from emuchain.emulator.device.device_numerics import DeviceNumerics
from emuchain.emulator.device.rules import Rule
from emuchain.emulator.mapping import Cut
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import ChainPlan, make_plan, training_data
from emuchain.emulator.run.chain_trainer import ChainTrainer
from emuchain.emulator.schedule import MicroBatch, SampleSpan
from emuchain.kernels.optimizers import Sgd
from emuchain.launch import SingleProcess

from .sequences import by_units, most_parts

BATCH, SAMPLES, EPOCHS = 8, 44, 2
Delay = Callable[[int, int], int]
"""By how many updates weights are late, by device and number of devices."""

DELAYS: dict[str, Delay] = {
    "pipedream": lambda device, devices: devices - 1 - device,
    "2bw": lambda device, devices: 1,
}


@pytest.fixture
def planned(small_cifar, plan_of) -> Callable[..., ChainPlan]:
    """Gives the plan of a run, of which the tests choose schedule, devices and micro-batch."""

    def make(schedule: str, devices: int, micro_batch: int) -> ChainPlan:
        keys: dict[str, Any] = {
            "samples": SAMPLES,
            "test_samples": 5,
            "batch": BATCH,
            "epochs": EPOCHS,
            "seed": 3,
        }
        keys |= {
            "network": "quick-cifar",
            "data": str(small_cifar),
            "schedule": schedule,
            "devices": devices,
        }
        return plan_of(**keys, micro_batch=micro_batch)

    return make


def delays_of(plan: ChainPlan, delay: Delay) -> list[tuple[np.ndarray, int]]:
    """For each layer the delay of each of its weights (oc, ic, kh, kw), and that of its bias."""
    found = {layer.name: [np.full(layer.weight_shape, -1), -1] for layer in plan.network.layers}
    for device, slices in enumerate(plan.mapping.devices):
        for part in slices:
            of_layer, late = found[part.layer.name], delay(device, plan.devices)
            channels = slice(part.begin, part.end)
            of_layer[0][(slice(None), channels) if part.cut is Cut.ICP else channels] = late
            if part.is_last:
                of_layer[1] = late
    assert all(weights.min() >= 0 <= bias for weights, bias in found.values())
    return [(weights, bias) for weights, bias in found.values()]


History = list[list[State]]
"""What the slices keep, after each update."""


def put_together(
    numerics: DeviceNumerics, history: History, delays: list[tuple[np.ndarray, int]]
) -> list[State]:
    """The states in which each weight is that of as many updates ago as it is late, of at most as
    many as there are.
    """

    def past(late: int) -> list[State]:
        return history[max(0, len(history) - 1 - late)]

    mixed = []
    for number, (late_weights, late_others) in enumerate(delays):
        newest = past(0)[number]["weight"]
        value = newest["value"].copy()
        lateness = np.broadcast_to(late_weights, value.shape)
        for late in np.unique(late_weights):
            chosen = lateness == late
            value[chosen] = past(int(late))[number]["weight"]["value"][chosen]
        mixed.append({**past(late_others)[number], "weight": {**newest, "value": value}})
    assert len(mixed) == len(numerics.slices)
    return mixed


def states(numerics: DeviceNumerics) -> list[State]:
    """What the slices keep."""
    return [of.state() for of in numerics.slices]


def restore(numerics: DeviceNumerics, held: list[State]) -> None:
    """Give the slices what they kept."""
    for of, state in zip(numerics.slices, held, strict=True):
        of.restore(state)


def mini_batches(micro_batch: int) -> Iterator[list[MicroBatch]]:
    """The micro-batches of each mini-batch of an epoch."""
    numbers = iter(range(SAMPLES))
    for step, first in enumerate(range(0, SAMPLES, BATCH)):
        last = min(first + BATCH, SAMPLES)
        begins = range(first, last, micro_batch)
        yield [
            MicroBatch(next(numbers), step, begin, min(begin + micro_batch, last))
            for begin in begins
        ]


async def there_and_back(numerics: DeviceNumerics, span: SampleSpan, samples: np.ndarray) -> None:
    await numerics.forward(span, Maps(), 0, samples)
    await numerics.backward(span, Maps(), 0)


def delayed_sgd(
    plan: ChainPlan, delays: list[tuple[np.ndarray, int]]
) -> dict[str, dict[str, np.ndarray]]:
    """The weights after training with delays, on the one device of `plan`."""
    config = plan.config
    trainer = ChainTrainer.of(plan, training_data(plan), SingleProcess())
    [chain] = trainer.replicas.chains
    [device] = chain.devices
    numerics = device.numerics
    assert numerics is not None
    rule = Rule(Sgd(config.learning_rate, config.weight_decay, config.momentum))
    for epoch in range(EPOCHS):
        trainer._ends[0].attach_training(chain, epoch_order(config.seed, epoch, SAMPLES))
        history = [states(numerics)]
        for group in mini_batches(config.micro_batch):
            restore(numerics, put_together(numerics, history, delays))
            for micro_batch in group:
                span = micro_batch.whole
                samples = np.arange(SAMPLES)[span.slice] + epoch * SAMPLES
                run([there_and_back(numerics, span, samples)])
                numerics.gradient(span)
            restore(numerics, history[-1])
            numerics.update(sum(micro_batch.samples for micro_batch in group), rule, keeps=False)
            numerics.begin_epoch()
            history.append(states(numerics))
    return trainer.weights()


CASES = [
    ("pipedream", 1, 3),
    ("pipedream", 2, 8),
    ("pipedream", 3, 3),
    ("pipedream", 3, 8),
    ("pipedream", 5, 3),
]
CASES += [("2bw", 1, 3), ("2bw", 2, 8), ("2bw", 3, 3), ("2bw", 3, 2), ("2bw", 5, 1)]

RECURRENT_CASES = [("pipedream", 2, 3, False), ("pipedream", 3, 8, False), ("2bw", 3, 2, False)]
RECURRENT_CASES += [("pipedream", 4, 3, True), ("pipedream", 5, 8, True), ("2bw", 5, 1, True)]


@pytest.mark.parametrize(("schedule", "devices", "micro_batch"), CASES)
def test_weights_are_those_of_delayed_sgd(
    planned, trained, bits, schedule, devices, micro_batch
) -> None:
    plan = planned(schedule, devices, micro_batch)
    alone = planned("sync", 1, micro_batch)
    expected = delayed_sgd(alone, delays_of(plan, DELAYS[schedule]))
    assert bits(trained(plan).weights) == bits(expected)


RECURRENT = {
    "name": "recurrent",
    "input": [3, 32, 32],
    "layers": [
        {"type": "sequence"},
        {"type": "lstm", "units": 14, "projection": 9},
        {"type": "gru", "units": 24},
        {"type": "last-step"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}


@pytest.mark.parametrize(("schedule", "devices", "micro_batch", "cut"), RECURRENT_CASES)
def test_weights_of_recurrent_layers_are_those_of_delayed_sgd(
    small_cifar, trained, bits, schedule, devices, micro_batch, cut
) -> None:
    def plan_of(**keys: Any) -> ChainPlan:
        return make_plan(load_config(None, keys), network=load_network(RECURRENT))

    keys: dict[str, Any] = {
        "samples": SAMPLES,
        "test_samples": 5,
        "batch": BATCH,
        "epochs": EPOCHS,
        "seed": 3,
    }
    keys |= {"data": str(small_cifar), "micro_batch": micro_batch, "learning_rate": 0.1}
    plan = plan_of(**keys, schedule=schedule, devices=devices)
    plan = by_units(plan) if cut else plan
    assert (most_parts(plan) > 1) == cut
    expected = delayed_sgd(
        plan_of(**keys, schedule="sync", devices=1), delays_of(plan, DELAYS[schedule])
    )
    found = bits(trained(plan).weights)
    assert found == bits(expected)
    assert found != bits(trained(plan_of(**keys, schedule="sync", devices=devices)).weights)


def test_the_loop_without_delays_is_sync(planned, trained, bits) -> None:
    plan = planned("sync", 1, 3)
    none = delays_of(plan, lambda device, devices: 0)
    assert bits(delayed_sgd(plan, none)) == bits(trained(plan).weights)


def test_pipedream_on_one_device_is_sync(planned, trained, bits) -> None:
    """It has one mini-batch in flight, whose F comes after the update before it."""
    pipedream, sync = (bits(trained(planned(name, 1, 3)).weights) for name in ("pipedream", "sync"))
    assert pipedream == sync


def test_delays_change_the_weights(planned, trained, bits) -> None:
    """The tests above compare weights that differ. 2BW is late by one update on any number of
    devices.
    """
    found = {
        (name, devices): bits(trained(planned(name, devices, 3)).weights)
        for name, devices in (
            ("sync", 1),
            ("2bw", 1),
            ("2bw", 3),
            ("pipedream", 2),
            ("pipedream", 3),
        )
    }
    assert found["2bw", 1] == found["2bw", 3]
    assert (
        len({found["sync", 1]["conv1/weight"], *(each["conv1/weight"] for each in found.values())})
        == 4
    )


@pytest.mark.parametrize(
    ("schedule", "devices", "copies"),
    [
        ("pipedream", 3, [3, 2, 1]),
        ("pipedream", 1, [1]),
        ("2bw", 3, [2, 2, 2]),
        ("2bw", 1, [2]),
        ("sync", 3, [1, 1, 1]),
    ],
)
def test_devices_keep_as_many_versions_as_the_paper_says(
    planned, trained, monkeypatch, schedule, devices, copies
) -> None:
    most = collections.Counter[int]()
    update = DeviceNumerics.update

    def counting(numerics: DeviceNumerics, samples: int, rule: Rule, *, keeps: bool) -> None:
        update(numerics, samples, rule, keeps=keeps)
        held = max(len(of._weight.versions) for of in numerics.slices)
        most[numerics.streams.device] = max(most[numerics.streams.device], held)

    monkeypatch.setattr(DeviceNumerics, "update", counting)
    trained(planned(schedule, devices, 3))
    assert [most[device] for device in range(devices)] == copies
