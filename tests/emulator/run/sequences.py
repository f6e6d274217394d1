"""Small recurrent networks and data for them, and plans that cut layers by units."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from emuchain.emulator.config import load_config
from emuchain.emulator.data import Dataset
from emuchain.emulator.mapping import Mapping, partition
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import ChainPlan, find_steady, make_plan
from emuchain.emulator.run import EpochRecord, Weights, train
from emuchain.emulator.timing import Timing
from emuchain.launch import SingleProcess

STEPS, INPUTS, CLASSES = 6, 13, 5
SAMPLES, BATCH = 40, 16  # the last mini-batch is shorter

Table = dict[str, Any]


def network(*layers: Table, end: str = "fc") -> Table:
    """A network of recurrent layers and a classifier: on all steps, on the last one (`last`), or on
    each (`each`).
    """
    ends: dict[str, list[Table]] = {
        "fc": [{"type": "fc", "features": CLASSES}],
        "last": [{"type": "last-step"}, {"type": "fc", "features": CLASSES}],
        "each": [{"type": "conv", "channels": CLASSES, "kernel": 1}],
    }
    named = [{"name": f"r{number}", **layer} for number, layer in enumerate(layers)]
    operations = [*named, *ends[end], {"type": "softmax"}]
    return {"name": "sequences", "input": [INPUTS, STEPS, 1], "layers": operations}


def recurrent(kind: str, units: int = 48, **more: object) -> Table:
    return {"type": kind, "units": units, **more}


def sequences(*, each_step: bool = False, samples: int = SAMPLES) -> Dataset:
    """Random maps of one column, with a label each, or for each step."""
    rng = np.random.default_rng(7)
    maps = rng.integers(0, 256, (samples + 8, INPUTS, STEPS, 1), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, (samples + 8, STEPS) if each_step else samples + 8)
    train_part, test_part = slice(samples), slice(samples, None)
    names = tuple(map(str, range(CLASSES)))
    return Dataset(
        "random", maps[train_part], labels[train_part], maps[test_part], labels[test_part], names
    )


def plan_of(described: Table, **keys: Any) -> ChainPlan:
    """The plan of two epochs."""
    run = {
        "batch": BATCH,
        "micro_batch": 4,
        "samples": SAMPLES,
        "epochs": 2,
        "learning_rate": 0.1,
        "seed": 3,
    }
    return make_plan(
        load_config(None, {**run, "schedule": "sync", **keys}), network=load_network(described)
    )


def by_units(plan: ChainPlan) -> ChainPlan:
    """The plan with its network cut by channels, whatever that costs."""
    return mapped(plan, partition(plan.network, plan.cluster, plan.devices))


def mapped(plan: ChainPlan, mapping: Mapping) -> ChainPlan:
    timing = Timing.of(mapping, plan.cluster)
    return dataclasses.replace(
        plan, mapping=mapping, timing=timing, steady=find_steady(timing, plan.batch)
    )


def most_parts(plan: ChainPlan) -> int:
    """The most devices that share a recurrent layer."""
    places = [
        part.layer.name
        for slices in plan.mapping.devices
        for part in slices
        if part.layer.operation.recurs
    ]
    return max(map(places.count, places))


def trained(plan: ChainPlan, data: Dataset) -> tuple[Weights, list[EpochRecord]]:
    """The weights after the last epoch, and the results of all."""
    weights: Weights = {}
    history = train(
        plan,
        data,
        SingleProcess(),
        on_epoch=lambda _, found: weights.update(found),
        gather_weights=True,
    )
    return weights, history


def bits_of(plan: ChainPlan, data: Dataset) -> dict[str, bytes]:
    """The bits of all weights after training, and of the losses of its epochs."""
    weights, history = trained(plan, data)
    found = {
        f"{layer}/{name}": array.tobytes()
        for layer, arrays in weights.items()
        for name, array in arrays.items()
    }
    losses = np.array([[result.train.mean_loss, result.test.mean_loss] for result in history])
    assert np.isfinite(losses).all()
    return {**found, "losses": losses.tobytes()}
