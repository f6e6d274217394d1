"""Mini-batches on Verilated chains: the bits of training, each row in its cycle, and mutations that
are seen.
"""

from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.mapping import Cut
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.rtl import RtlResult

from .chains import QUICK, RELU, TWO_LAYERS, Mutation, cluster, conv, fc, network, plan, simulated

pytestmark = pytest.mark.usefixtures("verilator")


def cuts_of(of: ChainPlan) -> set[Cut]:
    """The cuts of layers that continue on a next device."""
    return {part.cut for slices in of.mapping.devices for part in slices if not part.is_last}


@pytest.fixture(scope="module")
def two_layers(verilator: str, tmp_path_factory: pytest.TempPathFactory) -> RtlResult:
    """The simulation of a network whose second layer two devices share, cut by its input
    channels.
    """
    of = plan(TWO_LAYERS, cluster(40), 2)
    assert Cut.ICP in cuts_of(of)
    return simulated(of, tmp_path_factory.mktemp("two"))


def test_two_layers_on_two_devices(two_layers: RtlResult) -> None:
    assert two_layers.values == 16 * 3 + 16 + 4 * 16 * 4 + 4 + 3 * 36 + 3
    assert not any(two_layers.wrong.values())
    for engine in two_layers.engines:
        assert np.array_equal(engine.done, engine.expected), engine.name
    first = two_layers.engines[
        0
    ].later  # nothing holds up FP of the first layer: its pipeline is a constant
    assert first[0] == first[1]
    assert two_layers.updated_ps == two_layers.expected_ps
    assert two_layers.is_right


@pytest.mark.parametrize(
    ("name", "dsp", "devices", "cuts"),
    [
        pytest.param("lenet-mnist", 200, 3, {Cut.ICP, Cut.OCP}, marks=pytest.mark.exhaustive),
        ("quick-cifar", 90, 4, {Cut.ICP, Cut.OCP}),
    ],
)
def test_named_networks(tmp_path: Path, name: str, dsp: int, devices: int, cuts: set[Cut]) -> None:
    """With both cuts, pooling and fc; fast enough for the tests that run at each change."""
    of = plan(QUICK if name == "quick-cifar" else name, cluster(dsp), devices)
    assert cuts_of(of) == cuts
    assert simulated(of, tmp_path).is_right


def test_strides_and_padding(tmp_path: Path) -> None:
    """A stride of 2 in rows and columns, and one of rows alone; on two devices."""
    layers = [conv(4, 3, stride=2, pad=1), RELU, conv(3, [2, 1], stride=[2, 1]), RELU, fc(3)]
    assert simulated(plan(network([2, 7, 5], *layers), cluster(45), 2), tmp_path).is_right


@pytest.mark.slow
@pytest.mark.parametrize("latency", [pytest.param(1, marks=pytest.mark.exhaustive), 4])
def test_multiply_adds_with_latency(tmp_path: Path, latency: int) -> None:
    result = simulated(plan(TWO_LAYERS, cluster(40), 2), tmp_path, latency)
    assert any(engine.design.every > 1 for engine in result.engines)  # too few sums to hide it
    assert result.is_right


MUTATIONS = {
    "a tile forgets a tap": (
        Mutation("tile", "assign y = g_taps[TAPS-1].after;", "assign y = g_taps[TAPS-1].addend;"),
        "bits",
    ),
    "a row leaves a cycle early": (
        Mutation("engine", ".STAGES(DEPTH + 2)", ".STAGES(DEPTH + 1)"),
        "cycles",
    ),
    "EB takes output channels upwards": (
        Mutation(
            "engine",
            "OUTERS - 1 - int'(outer) : int'(outer)) : '0",
            "int'(outer) : int'(outer)) : '0",
        ),
        "bits",
    ),
    "sums begin anew behind a cut": (
        Mutation("fp_engine", "from <= TAKES_PARTIAL != 0 ? partial", "from <= 0 != 0 ? partial"),
        "bits",
    ),
    "PG takes a row twice as long": (
        Mutation("pg_engine", ".EVERY(EVERY)) control", ".EVERY(2 * EVERY)) control"),
        "cycles",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_mutations_are_seen(two_layers: RtlResult, tmp_path: Path, name: str) -> None:
    mutation, seen = MUTATIONS[name]
    assert two_layers.is_right  # without it
    result = simulated(plan(TWO_LAYERS, cluster(40), 2), tmp_path, mutation=mutation)
    assert not result.is_right
    if seen == "bits":
        assert any(result.wrong.values())
    else:
        assert not all(engine.is_right for engine in result.engines)
