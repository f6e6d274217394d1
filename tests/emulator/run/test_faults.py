"""Faults of a run: three cases by hand and lost packets, exact to the ps; training as simulation;
bits that flip.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.config import Config
from emuchain.emulator.faults import BoardFault, Faults, FlipFault, LinkFault, described_faults
from emuchain.emulator.mapping import Cut, cut_of
from emuchain.emulator.plan import ChainPlan, make_pair_plan, make_plan
from emuchain.emulator.run import fault_costs, simulate
from emuchain.emulator.view.page.source import rebuild
from emuchain.kernels.quantise import decoded, encoded

# The chain of two boards that docs/faults.md works out: 700 ns for a sample.
TOY = """
name = "toy"
input = [1, 2, 3]
layers = [{ type = "conv", channels = 2, kernel = [1, 2] }, { type = "fc", features = 2 }, { type = "softmax" }]
"""
FOUR = """
name = "four"
[[boards]]
name = "board"
clock_mhz = 100
dsp = 4
on_chip_memory_kbit = 800
[links]
bandwidth_gbps = 3.2
latency_ns = 100
"""

RunOf = Callable[..., ChainPlan]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """Makes the plan of a sample in a mini-batch of the toy, with faults."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.toml").write_text(TOY)
    (folder / "four.toml").write_text(FOUR)
    keys: dict[str, Any] = {
        "network": str(folder / "toy.toml"),
        "cluster": str(folder / "four.toml"),
        "devices": 2,
    }

    def plan(*faults: Any, seed: int | None = None, **more: Any) -> ChainPlan:
        found = make_plan(
            Config.model_validate({**keys, "samples": 1, "batch": 1, "schedule": "sync", **more})
        )
        return dataclasses.replace(found, faults=faults_of(*faults, seed=seed))

    return plan


def faults_of(*faults: Any, seed: int | None = None) -> Faults:
    """Faults, each in its list."""
    boards, links, flips = (
        tuple(fault for fault in faults if isinstance(fault, kind))
        for kind in (BoardFault, LinkFault, FlipFault)
    )
    return Faults(boards, links, flips, seed)


@pytest.mark.parametrize(
    ("faults", "end_ns"),
    [
        ([], 700),
        ([BoardFault(board=1, factor=2, to_sample=1)], 940),
        ([LinkFault(link=0, factor=2, latency_ns=50)], 960),
        ([BoardFault(board=0, factor=3, from_us=0.05, to_us=0.66)], 780),
        ([BoardFault(board=1, factor=2, from_sample=1)], 700),
        ([BoardFault(board=0, factor=3, from_us=0.66)], 700),
    ],
    ids=["none", "straggler", "link", "in time", "behind the sample", "behind the last start"],
)
def test_by_hand(toy: RunOf, faults: list[Any], end_ns: int) -> None:
    assert simulate(toy(*faults), 1).virtual_time_ps == 1000 * end_ns


def test_a_lost_packet_by_hand(toy: RunOf) -> None:
    """Rows of 16 bytes are two packets of 8: one that is lost takes half of a row's 40 ns again,
    after 2 · 100 ns.
    """
    fault = LinkFault(link=0, loss=0.1, packet_bytes=8)
    for seed in range(40):
        lost = [drawn(seed, board, path) for board, path in ((0, 1), (1, 4))]
        if lost == [[1, 0], [0, 0]]:
            # Path 1 leaves at 300 and 340; FP of board 1 ends at 520, EB and PG at 680; path 4
            # arrives at 820 and 860.
            assert simulate(toy(fault, seed=seed), 1).virtual_time_ps == 920_000
            break
    else:
        pytest.fail("no seed loses just one packet")


def drawn(seed: int, board: int, path: int) -> list[int]:
    """Packets of the first sample's rows that are lost on a path, by the words of
    docs/faults.md.
    """
    tensor = {1: 1, 4: 1}[path]
    key = np.array([seed, 1 << 32 | 0], np.uint64)
    counter = np.array([0, 0, path << 40 | tensor, board], np.uint64)
    return (
        np.random.Generator(np.random.Philox(key=key, counter=counter))
        .negative_binomial(2, 0.9, 2)
        .tolist()
    )


KEYS: dict[str, Any] = {
    "network": "quick-cifar",
    "devices": 3,
    "samples": 48,
    "batch": 16,
    "test_samples": 8,
}
SLOW = [
    BoardFault(board=1, factor=2.5, from_sample=5, to_sample=30),
    BoardFault(board=0, factor=1.5, from_us=100, to_us=400),
    LinkFault(link=0, factor=1.7, latency_ns=900, loss=0.05, from_us=50),
    LinkFault(link=1, loss=0.3, to_sample=20),
]
FLIPS = [
    FlipFault(of="weights", rate=1e-5, highest_bit=22),
    FlipFault(of="activations", rate=1e-5, highest_bit=22, board=1),
    FlipFault(of="messages", rate=1e-5, highest_bit=22),
]


@pytest.mark.parametrize(
    "more",
    [
        {"schedule": "sync"},
        {"schedule": "fpdeep"},
        {"schedule": "1f1b-sno", "engines": "turns"},
        {"schedule": "1f1b-as", "engines": "split", "transport": "hidden"},
        {"schedule": "fbp-as", "engines": "shared", "micro_batch": 5},
        {"schedule": "interleaved", "engines": "turns"},
        {"schedule": "sync", "replicas": 2},
    ],
    ids=str,
)
def test_training_takes_the_time_of_simulation(
    trained: Any, plan_of: Any, bits: Any, more: dict[str, Any]
) -> None:
    plan = plan_of(**KEYS, epochs=2, **more)
    hurt = dataclasses.replace(plan, faults=faults_of(*SLOW))
    alone, done = simulate(hurt, 48), trained(hurt)
    assert [epoch.virtual_time_ps for epoch in done.history] == list(alone.epoch_ends_ps)
    assert alone.virtual_time_ps > simulate(plan, 48).virtual_time_ps
    if not more.get(
        "engines"
    ):  # where rows are streamed, a row in time is a row of any micro-batch
        small = dataclasses.replace(
            plan_of(**KEYS, epochs=2, micro_batch=5, **more), faults=hurt.faults
        )
        assert [epoch.virtual_time_ps for epoch in trained(small).history] == list(
            alone.epoch_ends_ps
        )
    # Times alone are hurt: weights are those of the unhurt run.
    assert bits(done.weights) == bits(trained(plan).weights)


def test_no_faults_and_rate_zero_change_nothing(trained: Any, plan_of: Any, bits: Any) -> None:
    plan = plan_of(**KEYS, schedule="fpdeep", replicas=2)
    without = trained(plan)
    flips = [FlipFault(of=of, rate=0) for of in ("weights", "activations", "messages", "gradients")]
    for faults in (
        Faults(),
        faults_of(*flips),
        faults_of(LinkFault(link=0), BoardFault(board=1, factor=1)),
    ):
        found = trained(dataclasses.replace(plan, faults=faults))
        assert bits(found.weights) == bits(without.weights)
        assert found.history[0].virtual_time_ps == without.history[0].virtual_time_ps
        assert found.history[0].usage == without.history[0].usage


@pytest.mark.parametrize("flip", FLIPS, ids=lambda flip: flip.of)
def test_flips_change_weights_alone_whatever_the_micro_batch(
    trained: Any, plan_of: Any, bits: Any, flip: Any
) -> None:
    plan = plan_of(**KEYS, schedule="sync")
    hurt = trained(dataclasses.replace(plan, faults=faults_of(flip)))
    small = dataclasses.replace(
        plan_of(**KEYS, schedule="sync", micro_batch=3), faults=faults_of(flip)
    )
    without = trained(plan)
    assert bits(hurt.weights) == bits(trained(small).weights) != bits(without.weights)
    assert hurt.history[0].virtual_time_ps == without.history[0].virtual_time_ps
    other = dataclasses.replace(plan, faults=faults_of(flip, seed=99))
    assert bits(trained(other).weights) != bits(hurt.weights)


@pytest.mark.parametrize("precision", ["mxfp4 loss_scale=256", "nvfp4 loss_scale=256", "q2.6"])
def test_flips_leave_weights_in_their_format(
    trained: Any, plan_of: Any, bits: Any, precision: str
) -> None:
    """Of codes and scales; elements of these have no NaN."""
    plan = plan_of(**KEYS, schedule="sync", precision=precision)
    faults = faults_of(FlipFault(of="weights", rate=1e-4, highest_bit=4))
    hurt = trained(dataclasses.replace(plan, faults=faults)).weights
    assert bits(hurt) != bits(trained(plan).weights)
    number = plan.config.precision.weights
    for layer in plan.network.layers:
        weight = hurt[layer.name]["weight"]
        lines = weight.reshape(len(weight), -1)
        if cut_of(layer) is Cut.ICP:
            lines = np.moveaxis(weight, 0, -1).reshape(-1, len(weight))
        in_tensor = weight[0, 0].size if cut_of(layer) is Cut.ICP else 1
        lines = np.ascontiguousarray(lines)
        back = decoded(encoded(lines, number, in_tensor), number, in_tensor)
        assert np.isfinite(lines).all() and np.array_equal(back, lines), layer.name


@pytest.mark.parametrize("of", ["activations", "messages"])
def test_flips_of_narrow_maps(trained: Any, plan_of: Any, bits: Any, of: Any) -> None:
    faults = faults_of(FlipFault(of=of, rate=2e-5, highest_bit=1))
    for precision in ("nvfp4 loss_scale=256", "mxint8 accumulate=bf16"):
        runs = []
        for micro_batch in (3, 6):
            keys = {**KEYS, "schedule": "sync", "micro_batch": micro_batch, "precision": precision}
            runs.append(trained(dataclasses.replace(plan_of(**keys), faults=faults)).weights)
        plain = trained(plan_of(**KEYS, schedule="sync", precision=precision)).weights
        assert bits(runs[0]) == bits(runs[1]) != bits(plain)


@pytest.mark.parametrize("compress", ["none", "inceptionn:-10", "truncate:16"])
@pytest.mark.parametrize("exchange", ["data-parallel-ring", "data-parallel-aggregator"])
def test_flips_of_gradients(
    trained: Any, plan_of: Any, bits: Any, compress: str, exchange: str
) -> None:
    plan = plan_of(**{**KEYS, "devices": 4}, schedule=exchange, compress=compress)
    faults = faults_of(FlipFault(of="gradients", rate=2e-7))
    hurt = trained(dataclasses.replace(plan, faults=faults))
    assert bits(hurt.weights) == bits(trained(dataclasses.replace(plan, faults=faults)).weights)
    assert bits(hurt.weights) != bits(trained(plan).weights)


@pytest.mark.parametrize("of", ["weights", "activations"])
def test_flips_on_recurrent_layers(trained: Any, plan_of: Any, bits: Any, of: Any) -> None:
    keys = {
        "network": "char-lstm",
        "devices": 2,
        "samples": 16,
        "batch": 8,
        "test_samples": 4,
        "schedule": "sync",
    }
    plan = plan_of(**keys, stages="layers")
    faults = faults_of(FlipFault(of=of, rate=1e-5, highest_bit=22))
    hurt = trained(dataclasses.replace(plan, faults=faults))
    assert bits(hurt.weights) != bits(trained(plan).weights)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(0, 1),
    st.sampled_from([1.0, 1.25, 2.0]),
    st.integers(0, 5),
    st.integers(1, 6),
    st.floats(0, 0.5),
)
def test_faults_cost_time_and_never_save_any(
    toy: RunOf, board: int, factor: float, first: int, count: int, loss: float
) -> None:
    keys = {"samples": 6, "batch": 2}
    slow = BoardFault(board=board, factor=factor, from_sample=first, to_sample=first + count)
    lossy = LinkFault(link=0, loss=loss, packet_bytes=8, from_sample=first)
    plan = toy(slow, lossy, **keys)
    costs = fault_costs(plan, 6, simulate(plan, 6).virtual_time_ps)
    alone = [cost_ps for _, cost_ps in costs.each]
    assert min(alone) >= 0
    assert costs.cost_ps >= max(alone)
    assert alone[0] == 0 or (factor > 1 and first < 6)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            "[[faults.boards]]\nboard = 3\nfactor = 2",
            "`faults.boards[0].board` = 3: there is no such board",
        ),
        ("[[faults.boards]]\nboard = 1\nfactor = 0.5", "`faults.boards[0].factor` = 0.5"),
        ("[[faults.boards]]\nboard = 1\nfactor = 0", "`faults.boards[0].factor` = 0"),
        ("[[faults.boards]]\nboard = -1\nfactor = 2", "`faults.boards[0].board` = -1"),
        ("[[faults.boards]]\nfactor = 2", "`faults.boards[0].board` is missing"),
        (
            "[[faults.boards]]\nboard = 1\nfactor = 2\nfrom_sample = 9\nto_sample = 9",
            "`to_sample` = 9: should be after",
        ),
        (
            "[[faults.boards]]\nboard = 1\nfactor = 2\nfrom_us = 9\nto_us = 8.5",
            "`to_us` = 8.5: should be after",
        ),
        (
            "[[faults.links]]\nlink = 2\nloss = 0.1",
            "`faults.links[0].link` = 2: there is no such link",
        ),
        ("[[faults.links]]\nlink = 1\nloss = 1.5", "`faults.links[0].loss` = 1.5"),
        ("[[faults.links]]\nlink = 1\nloss = nan", "`faults.links[0].loss` = nan"),
        ("[[faults.links]]\nlink = 1\ntimeout_ns = 5", "`timeout_ns` = 5"),
        ("[[faults.flips]]\nof = 'weights'\nrate = 1.5", "`faults.flips[0].rate` = 1.5"),
        ("[[faults.flips]]\nof = 'weights'\nrate = -0.1", "`faults.flips[0].rate` = -0.1"),
        ("[[faults.flips]]\nof = 'biases'\nrate = 0.1", "`faults.flips[0].of` = 'biases'"),
        (
            "[[faults.flips]]\nof = 'weights'\nrate = 0.1\nboard = 7",
            "`faults.flips[0].board` = 7: there is no such board",
        ),
        ("[[faults.flips]]\nof = 'weights'\nrate = 0.1\nlink = 0", "should be `board`"),
        ("[[faults.flips]]\nof = 'messages'\nrate = 0.1\nboard = 0", "should be `link`"),
        ("[[faults.flips]]\nof = 'gradients'\nrate = 0.1", "a single chain exchanges none"),
        (
            "[[faults.flips]]\nof = 'weights'\nrate = 0.1\nlowest_bit = 5\nhighest_bit = 4",
            "is below `lowest_bit` = 5",
        ),
        ("[[faults.bords]]\nboard = 1", "unknown key `faults.bords`"),
        ("[fault]\nseed = 1", "unknown key `fault`"),
        ("faults = 3", "`faults` = 3"),
    ],
)
def test_bad_faults_are_refused_in_one_line(tmp_path: Path, table: str, said: str) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(table)
    with pytest.raises(InputError) as refused:
        emuchain.plan(**KEYS, faults=str(file))
    assert str(file) in str(refused.value)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"network": "char-lstm", "schedule": "sync", "devices": 4}, "step together"),
        ({"devices": 1}, "there is no such board; this run has only board 0"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_cannot_be_hurt(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    file = tmp_path / "faults.toml"
    file.write_text("[[faults.boards]]\nboard = 1\nfactor = 2\n")
    with pytest.raises(InputError, match=said):
        emuchain.plan(**{**KEYS, **keys, "faults": str(file)})


def test_a_pair_has_no_chain_to_hurt(tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text("[[faults.boards]]\nboard = 1\nfactor = 2\n")
    keys = {
        "network": "lstm-5x1024",
        "schedule": "farnn",
        "cluster": "farnn-9p",
        "faults": str(file),
    }
    with pytest.raises(InputError, match="has no chain"):
        make_pair_plan(Config.model_validate(keys))


def test_results_describe_their_faults(tmp_path: Path) -> None:
    """A finished run is timed again with its faults, though their file is gone."""
    file, out = tmp_path / "faults.toml", tmp_path / "run.h5"
    file.write_text(
        "[faults]\nseed = 5\n[[faults.boards]]\nboard = 1\nfactor = 2\n[[faults.links]]\nlink ="
        " 0\nloss = 0.1\n"
    )
    emuchain.train(**KEYS, faults=str(file), out=str(out))
    file.unlink()
    results = emuchain.results(str(out))
    again = emuchain.retime(results, changes={"link.latency_ns": 1000})
    assert again.simulation.virtual_time_ps == results.virtual_time_ps
    healthy = emuchain.simulate(
        **{key: value for key, value in KEYS.items() if key != "test_samples"}
    )
    assert results.virtual_time_ps > healthy.virtual_time_ps
    hurt = described_faults(results.descriptions["faults.json"], "it")
    assert hurt == Faults((BoardFault(board=1, factor=2),), (LinkFault(link=0, loss=0.1),), (), 5)
    with pytest.raises(InputError, match="had faults"):
        rebuild(results)
    with pytest.raises(InputError, match="does not describe its faults"):
        described_faults("{", "it")


def test_the_cluster_may_have_faults(toy: RunOf, tmp_path: Path) -> None:
    file = tmp_path / "hurt.toml"
    file.write_text(FOUR + "[[faults.boards]]\nboard = 1\nfactor = 2\nto_sample = 1\n")
    (tmp_path / "toy.toml").write_text(TOY)
    keys = {
        "network": str(tmp_path / "toy.toml"),
        "cluster": str(file),
        "devices": 2,
        "samples": 1,
        "batch": 1,
    }
    keys["schedule"] = "sync"
    assert emuchain.simulate(**keys).virtual_time_ps == 940_000
    assert emuchain.simulate(**keys, faults="none").virtual_time_ps == 700_000
