"""What tests of the emulator share: plans from keys, training in this process, and the bits of weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from emuchain.comm import Observer, SingleProcess
from emuchain.emulator.config import load_config
from emuchain.emulator.plan import Plan, make_plan, training_data
from emuchain.emulator.run import EpochResult, Weights, train


class Trained(NamedTuple):
    """What training gave: the weights after the last epoch, and the results of all epochs."""

    weights: Weights
    history: list[EpochResult]


PlanOf = Callable[..., Plan]
Train = Callable[..., Trained]
Bits = Callable[[Weights], dict[str, bytes]]


@pytest.fixture(scope="session")
def plan_of() -> PlanOf:
    """Makes a plan of the keys of a configuration: `plan_of(network="quick-cifar", devices=4)`."""

    def make(**keys: Any) -> Plan:
        return make_plan(load_config(None, keys), 1)

    return make


@pytest.fixture(scope="session")
def trained() -> Train:
    """Trains a plan in this process, with an observer if one is given, on the data set that its configuration names."""

    def run(plan: Plan, observer: Observer | None = None) -> Trained:
        weights: Weights = {}
        history = train(
            plan,
            training_data(plan),
            SingleProcess(),
            on_epoch=lambda _, found: weights.update(found),
            gather_weights=True,
            observer=observer,
        )
        return Trained(weights, history)

    return run


@pytest.fixture(scope="session")
def bits() -> Bits:
    """Gives the bytes of all arrays of weights, by layer and name."""

    def of(weights: Weights) -> dict[str, bytes]:
        return {
            f"{layer}/{name}": array.tobytes() for layer, arrays in weights.items() for name, array in arrays.items()
        }

    return of
