"""What tests of training on pairs share: networks of recurrent layers, data, and runs under any schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from emuchain.comm import SingleProcess
from emuchain.emulator.config import settings_config
from emuchain.emulator.data import Dataset
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.plan import PairPlan, Plan, make_pair_plan, make_plan
from emuchain.emulator.run import EpochResult, Weights, train

STEPS, INPUTS, CLASSES = 5, 6, 3
CLUSTERS = {"gpu-standard": "p100", "gpu-persistent": "p100"}


def network_of(*layers: dict[str, Any], name: str = "small") -> Network:
    """Return a network of these layers, which takes sequences, behind them a classifier of the last step."""
    ends = [{"type": "last-step"}, {"type": "fc", "features": CLASSES}, {"type": "softmax"}]
    return load_network({"name": name, "input": [INPUTS, STEPS, 1], "layers": [*layers, *ends]})


def data_of(samples: int = 10, tests: int = 4, *, ragged: bool = False) -> Dataset:
    """Return sequences of symbols with a label each; where `ragged`, of differing lengths, the first ones all of 1."""
    random = np.random.default_rng(7)
    x = random.integers(0, INPUTS, (samples + tests, 1, STEPS, 1), np.int32)
    y = random.integers(0, CLASSES, samples + tests)
    lengths = np.where(np.arange(samples + tests) < 2, 1, random.integers(1, STEPS + 1, samples + tests))
    some, others = (lengths[:samples], lengths[samples:]) if ragged else (None, None)
    classes = tuple("abc"[:CLASSES])
    return Dataset("made", x[:samples], y[:samples], x[samples:], y[samples:], classes, "", INPUTS, some, others)


def plan_on(schedule: str, network: Network, **keys: Any) -> Plan | PairPlan:
    """Return the plan of a run of two mini-batches of 4 samples and one of 2, unless `keys` say otherwise."""
    cluster = CLUSTERS.get(schedule, "farnn-9p" if schedule.startswith("farnn") else "vc709")
    config = settings_config({"schedule": schedule, "cluster": cluster, "batch": 4, "epochs": 2, **keys})
    make = make_plan if config.schedule.offload is None else make_pair_plan
    return make(config, network=network)


def trained(plan: Plan | PairPlan, data: Dataset) -> tuple[Weights, list[EpochResult]]:
    """Return the weights and the history of a run in this process."""
    weights: Weights = {}
    history = train(
        plan, data, SingleProcess(), on_epoch=lambda _, found: weights.update(found), gather_weights=True
    )
    return weights, history
