"""Mini-batches on Verilated chains: the bits of training, each row in its cycle, and mutations that are seen."""

from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.mapping import Cut
from emuchain.emulator.plan import Plan

from .chains import QUICK, RELU, TWO_LAYERS, Mutation, cluster, conv, fc, network, plan, pool, simulated

pytestmark = pytest.mark.usefixtures("verilator")

DRAWN = 20


def cuts_of(of: Plan) -> set[Cut]:
    """The cuts of layers that continue on a next device."""
    return {part.cut for slices in of.mapping.devices for part in slices if not part.is_last}


def is_icp_cut_within(of: Plan) -> bool:
    """Whether a layer that is cut by input channels is on two devices."""
    return Cut.ICP in cuts_of(of)


@pytest.mark.slow
def test_two_layers_on_two_devices(tmp_path: Path) -> None:
    of = plan(TWO_LAYERS, cluster(40), 2)
    assert is_icp_cut_within(of)
    result = simulated(of, tmp_path)
    assert result.values == 16 * 3 + 16 + 4 * 16 * 4 + 4 + 3 * 36 + 3
    assert not any(result.wrong.values())
    for engine in result.engines:
        assert np.array_equal(engine.done, engine.expected), engine.name
    first = result.engines[0].later  # nothing holds up FP of the first layer: its pipeline is a constant
    assert first[0] == first[1]
    assert result.updated_ps == result.expected_ps
    assert result.is_right


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dsp", "devices", "cuts"),
    [("lenet-mnist", 400, 3, {Cut.ICP, Cut.OCP}), ("quick-cifar", 150, 4, {Cut.ICP, Cut.OCP})],
)
def test_named_networks(tmp_path: Path, name: str, dsp: int, devices: int, cuts: set[Cut]) -> None:
    of = plan(QUICK if name == "quick-cifar" else name, cluster(dsp), devices)
    assert cuts_of(of) == cuts
    assert simulated(of, tmp_path).is_right


@pytest.mark.slow
@pytest.mark.parametrize("latency", [1, 4])
def test_multiply_adds_with_latency(tmp_path: Path, latency: int) -> None:
    result = simulated(plan(TWO_LAYERS, cluster(40), 2), tmp_path, latency)
    assert any(engine.design.every > 1 for engine in result.engines)  # too few sums to hide it
    assert result.is_right


def drawn_chain(seed: int) -> tuple[Plan, int]:
    """A small chain, and the latency of its multiply-adds."""
    stream = np.random.default_rng(seed)

    def one_of(*values: int) -> int:
        return int(stream.choice(values))

    rows, columns = (int(size) for size in stream.integers(5, 9, 2))
    kernel = (one_of(1, 2, 3), one_of(1, 2, 3))
    first = conv(one_of(3, 5, 16), kernel, pad=[min(one_of(0, 1), kernel[0] - 1), min(one_of(0, 1), kernel[1] - 1)])
    second = conv(one_of(2, 5), one_of(1, 2, 3), stride=one_of(1, 2), pad=0, bias=bool(one_of(0, 1)))
    layers = [first, RELU]
    if one_of(0, 1):
        layers.append(pool(2, **({"pad": 1} if one_of(0, 1) else {})))
    smallest = min(rows - kernel[0] + 1, columns - kernel[1] + 1) // (2 if len(layers) > 2 else 1)
    if smallest >= second["kernel"]:
        layers += [second, *([RELU] if one_of(0, 1) else [])]
    layers.append(fc(one_of(2, 4)))
    if one_of(0, 1):
        layers += [RELU, fc(3)]
    of = network([one_of(1, 3), rows, columns], *layers)
    boards = cluster(one_of(50, 70, 110), one_of(1, 8, 40), one_of(0, 30, 200), one_of(100, 150, 200))
    return plan(of, boards, one_of(1, 2, 2, 3), batch=one_of(1, 2, 3), seed=seed), one_of(0, 0, 0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DRAWN))
def test_drawn_chains(tmp_path: Path, seed: int) -> None:
    of, latency = drawn_chain(seed)
    assert simulated(of, tmp_path, latency).is_right


MUTATIONS = {
    "a tile forgets a tap": (
        Mutation("tile", "assign y = g_taps[TAPS-1].after;", "assign y = g_taps[TAPS-1].addend;"),
        "bits",
    ),
    "a row leaves a cycle early": (Mutation("engine", ".STAGES(DEPTH + 2)", ".STAGES(DEPTH + 1)"), "cycles"),
    "EB takes output channels upwards": (
        Mutation("engine", "OUTERS - 1 - int'(outer) : int'(outer)) : '0", "int'(outer) : int'(outer)) : '0"),
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
def test_mutations_are_seen(tmp_path: Path, name: str) -> None:
    mutation, seen = MUTATIONS[name]
    of = plan(TWO_LAYERS, cluster(40), 2)
    result = simulated(of, tmp_path, mutation=mutation)
    assert not result.is_right
    if seen == "bits":
        assert any(result.wrong.values())
    else:
        assert not all(engine.is_right for engine in result.engines)
