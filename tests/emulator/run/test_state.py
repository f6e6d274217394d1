"""`Trainer.state` and `restore`: training that stops between two epochs goes on, in another trainer, bit for bit."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.comm import SingleProcess
from emuchain.emulator.config import load_config
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import Plan, make_plan, training_data
from emuchain.emulator.run import EpochResult, StepResult, Trainer

# All that a device keeps from one mini-batch to the next: weights, biases, scales and shifts with their velocities, and
# moving averages. Dropout depends on the samples' numbers since the start of training.
NORMALISED = {
    "name": "normalised",
    "input": [3, 32, 32],
    "layers": [
        {"type": "conv", "channels": 18, "kernel": 5, "stride": 2, "pad": 2},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "max-pool", "kernel": 2},
        {"type": "conv", "channels": 20, "kernel": 3, "pad": 1, "bias": False},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "dropout", "rate": 0.3},
        {"type": "average-pool", "kernel": 4},
        {"type": "fc", "features": 16},
        {"type": "relu"},
        {"type": "dropout", "rate": 0.5},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
RECURRENT = {
    "name": "recurrent",
    "input": [3, 32, 32],
    "layers": [
        {"type": "sequence"},
        {"type": "gru", "units": 12, "bidirectional": True},
        {"type": "lstm", "units": 20},
        {"type": "last-step"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
SAMPLES = 42  # the last mini-batch is shorter

Keys = dict[str, Any]
RUNS: dict[str, Keys] = {
    "fpdeep": {"schedule": "fpdeep", "devices": 4},
    "sync": {"schedule": "sync", "devices": 4},
    "normalised, fpdeep": {"network": NORMALISED, "schedule": "fpdeep", "devices": 3},
    "normalised, sync": {"network": NORMALISED, "schedule": "sync", "devices": 3},
    "balanced, fpdeep": {"cluster": "small", "schedule": "fpdeep", "devices": 5, "memory": "ignored"},
    "balanced, sync": {"cluster": "small", "schedule": "sync", "devices": 5, "memory": "ignored"},
    "replicas, fpdeep": {"schedule": "fpdeep", "devices": 3, "replicas": 2, "compress": "inceptionn:-10"},
    "replicas, sync": {"schedule": "sync", "devices": 3, "replicas": 2, "compress": "truncate:16"},
    "aggregator": {"devices": 2, "replicas": 2, "exchange": "aggregator", "compress": "inceptionn:-8"},
    "groups": {"devices": 1, "replicas": 6, "groups": 2, "exchange": "aggregator", "compress": "inceptionn:-10"},
    "recurrent, sync": {"network": RECURRENT, "schedule": "sync", "devices": 5},
    "recurrent, fpdeep": {"network": RECURRENT, "schedule": "fpdeep", "devices": 3},
    "recurrent, pipedream": {"network": RECURRENT, "schedule": "pipedream", "devices": 5},
    "recurrent, replicas": {
        "network": RECURRENT,
        "devices": 4,
        "schedule": "sync",
        "replicas": 2,
        "compress": "truncate:16",
    },
    "adam": {
        "network": NORMALISED,
        "schedule": "fpdeep",
        "devices": 3,
        "optimizer": "adam",
        "lr_schedule": "cosine",
        "lr_warm_up": 6,
        "label_smoothing": 0.1,
    },
    "adamw, balanced": {
        "network": NORMALISED,
        "cluster": "small",
        "balancing": "none",  # and some chosen blocks
        "schedule": "sync",
        "devices": 4,
        "optimizer": "adamw",
    },
    "turns": {"schedule": "1f1b-so", "devices": 3, "engines": "turns"},
    "interleaved": {"schedule": "interleaved", "devices": 2, "engines": "turns", "transport": "hidden"},
    "2bw on engines of their own": {"schedule": "2bw", "devices": 3, "engines": "split", "transport": "stored"},
    "all at once": {
        "network": NORMALISED,
        "cluster": "small",
        "balancing": "none",  # and some chosen blocks
        "schedule": "fpdeep",
        "devices": 4,
        "replicas": 2,
        "compress": "inceptionn:-10",
        "compress_weights": "truncate:22",
        "learning_rate_steps": (1,),
    },
}


class Session:
    """A trainer, and what it reported of its steps."""

    def __init__(self, plan: Plan) -> None:
        self.steps: list[StepResult] = []
        ranks = SingleProcess()
        ranks.on_object = self.steps.append
        self.trainer = Trainer(plan, training_data(plan), ranks)

    def epoch(self, number: int) -> EpochResult:
        result = self.trainer.epoch(number)
        assert result is not None
        return result

    def stopped(self, plan: Plan) -> Session:
        """Another session, which has this one's state alone."""
        following = Session(plan)
        following.trainer.restore(pickle.loads(pickle.dumps(self.trainer.state())))
        return following


MakePlan = Callable[[Keys], Plan]


@pytest.fixture
def session_plan(small_cifar: Path, small_cluster: str, many_blocks: Any, with_blocks: Any) -> MakePlan:
    """Makes the plan of a run."""

    def make(keys: Keys) -> Plan:
        settings = {"data": str(small_cifar), "samples": SAMPLES, "test_samples": 7, "batch": 12, "micro_batch": 5}
        chosen = {key: value for key, value in keys.items() if key != "network"}
        if keys.get("cluster") == "small":
            chosen["cluster"] = small_cluster
        network = load_network(keys.get("network", "quick-cifar"))
        plan = make_plan(load_config(None, {**settings, "epochs": 2, "seed": 3, **chosen}), network=network)
        return with_blocks(plan, many_blocks(plan)) if keys.get("balancing") == "none" else plan

    return make


def comparable(result: EpochResult) -> dict[str, Any]:
    """All of a result but the host's time."""
    fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    del fields["host_time_s"]
    exchanged = fields.pop("exchanged")
    fields["sizes"] = {source: sizes.tolist() for source, sizes in result.sizes.items()}
    return {**fields, "exchanged": (exchanged.traffic, exchanged.spent_ps, exchanged.histogram.tolist())}


@pytest.mark.parametrize("run", RUNS)
def test_training_goes_on_bit_for_bit_in_another_trainer(session_plan: MakePlan, bits: Any, run: str) -> None:
    plan = session_plan(RUNS[run])
    assert bool(plan.timing.blocks) == ("cluster" in RUNS[run])
    whole = Session(plan)
    expected = [whole.epoch(0), whole.epoch(1)]
    first = Session(plan)
    before = first.epoch(0)
    assert comparable(before) == comparable(expected[0])
    weights = bits(first.trainer.weights())
    second = first.stopped(plan)
    assert bits(second.trainer.weights()) == weights
    after = second.epoch(1)
    assert bits(second.trainer.weights()) == bits(whole.trainer.weights()) != weights
    assert comparable(after) == comparable(expected[1])
    assert [*first.steps, *second.steps] == whole.steps
    assert after.virtual_time_ps > before.virtual_time_ps
    if plan.data_parallel.replicas > 1:
        assert after.exchanged.traffic.value_bytes > after.exchanged.traffic.compressed_bytes > 0


@pytest.mark.parametrize("run", ["fpdeep", "normalised, fpdeep", "balanced, fpdeep", "replicas, fpdeep"])
def test_a_state_is_a_copy(session_plan: MakePlan, run: str) -> None:
    """Training that goes on does not change it, nor does training that goes on from it."""
    plan = session_plan(RUNS[run])
    first, second = Session(plan), Session(plan)
    first.epoch(0)
    state = first.trainer.state()
    before = pickle.dumps(state)
    first.epoch(1)
    assert pickle.dumps(state) == before
    second.trainer.restore(state)
    second.epoch(1)
    assert pickle.dumps(state) == before
    assert pickle.dumps(first.trainer.state()) != before


def test_a_state_may_be_restored_after_more_training(session_plan: MakePlan, bits: Any) -> None:
    """What was trained since then leaves no trace."""
    plan = session_plan(RUNS["all at once"])
    session = Session(plan)
    session.epoch(0)
    state = pickle.dumps(session.trainer.state())
    expected, weights = comparable(session.epoch(1)), bits(session.trainer.weights())
    session.trainer.restore(pickle.loads(state))
    assert comparable(session.epoch(1)) == expected
    assert bits(session.trainer.weights()) == weights


def test_weights_alone_are_not_the_state(session_plan: MakePlan, bits: Any) -> None:
    """Without velocities training goes on otherwise, so the tests above do compare them."""
    plan = session_plan(RUNS["sync"])
    first = Session(plan)
    first.epoch(0)
    state = pickle.loads(pickle.dumps(first.trainer.state()))
    assert _clear_velocities(state) > 0
    second = Session(plan)
    second.trainer.restore(state)
    assert bits(second.trainer.weights()) == bits(first.trainer.weights())
    first.epoch(1)
    second.epoch(1)
    assert bits(second.trainer.weights()) != bits(first.trainer.weights())


def _clear_velocities(state: Any) -> int:
    """Set all velocities in a state to 0; return how many arrays of them there were."""
    if isinstance(state, list):
        return sum(map(_clear_velocities, state))
    if not isinstance(state, dict):
        return 0
    found = 0
    for key, value in state.items():
        if key == "velocity":
            assert np.any(value)
            value[...] = 0
            found += 1
        else:
            found += _clear_velocities(value)
    return found
