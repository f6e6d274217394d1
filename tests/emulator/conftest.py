"""What tests of the emulator share: plans from keys, small boards, training in this process, bits
of weights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from emuchain.comm import Observer
from emuchain.emulator.commands.cli import main
from emuchain.emulator.config import load_config
from emuchain.emulator.plan import ChainPlan, make_plan, training_data
from emuchain.emulator.run import EpochRecord, Weights, train
from emuchain.launch import SingleProcess


class Trained(NamedTuple):
    """What training gave: the weights after the last epoch, and the results of all epochs."""

    weights: Weights
    history: list[EpochRecord]


PlanOf = Callable[..., ChainPlan]
Train = Callable[..., Trained]
Bits = Callable[[Weights], dict[str, bytes]]

# With 300 kB a board, quick-cifar fits on five of them, but not each slice where it is used.
SMALL_CLUSTER = """
name = "small"
[[boards]]
name = "small"
clock_mhz = 100
dsp = 300
on_chip_memory_kbit = 2400
[links]
bandwidth_gbps = 40
latency_ns = 200
"""


@pytest.fixture(scope="session")
def small_cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a cluster on which quick-cifar needs balanced parameters."""
    path = tmp_path_factory.mktemp("clusters") / "small.toml"
    path.write_text(SMALL_CLUSTER)
    return str(path)


@pytest.fixture(scope="session")
def plan_of() -> PlanOf:
    """Makes a plan of the keys of a configuration: `plan_of(network="quick-cifar", devices=4)`."""

    def make(**keys: Any) -> ChainPlan:
        return make_plan(load_config(None, keys), 1)

    return make


@pytest.fixture(scope="session")
def trained() -> Train:
    """Trains a plan in this process, with an observer if one is given, on the data set that its
    configuration names.
    """

    def run(plan: ChainPlan, observer: Observer | None = None) -> Trained:
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
            f"{layer}/{name}": array.tobytes()
            for layer, arrays in weights.items()
            for name, array in arrays.items()
        }

    return of


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command, `printed("plan", "vgg16")`, and gives what it printed."""

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(words)
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return said.out

    return run
