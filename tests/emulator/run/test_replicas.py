"""Replicas that train data-parallel: numbers, times and bytes, in one process and on ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.comm import Chain, Switch
from emuchain.emulator.cluster import Cluster
from emuchain.emulator.common import InputError
from emuchain.emulator.config import load_config
from emuchain.emulator.plan import ChainPlan, exchange_times, idle_settings, make_plan
from emuchain.emulator.run import ChainTrainer, Weights, simulate, steady_state

SAMPLES, BATCH = (
    54,
    24,
)  # so the last mini-batch of an epoch has 6 samples, which 4 replicas share unevenly
Flags = dict[str, Any]
REPLICAS: list[Flags] = [
    {"schedule": "data-parallel-ring", "devices": 4},
    {"schedule": "data-parallel-aggregator", "devices": 3},
    {"schedule": "data-parallel-ring", "devices": 4, "groups": 2},
    {"schedule": "data-parallel-aggregator", "devices": 6, "groups": 3},
    {"schedule": "sync", "replicas": 2, "devices": 3},
    {"schedule": "fpdeep", "replicas": 2, "devices": 4},
    {
        "schedule": "fpdeep",
        "replicas": 3,
        "devices": 2,
        "exchange": "aggregator",
        "cluster": "titan-xp-10gbe",
    },
]


ReplicasPlan = Callable[..., ChainPlan]


@pytest.fixture(scope="module")
def replicas_plan(plan_of: Callable[..., ChainPlan], small_cifar: Path) -> ReplicasPlan:
    """Makes a plan whose last mini-batch is shorter, of these keys."""

    def make(**keys: Any) -> ChainPlan:
        settings = {
            "batch": BATCH,
            "micro_batch": 5,
            "samples": SAMPLES,
            "epochs": 2,
            "network": "quick-cifar",
        }
        settings |= {"data": str(small_cifar), "test_samples": 7}
        return plan_of(**{**settings, **keys})

    return make


def furthest(these: Weights, those: Weights) -> float:
    """The largest difference of any weight."""
    return max(
        float(np.abs(these[layer][name] - those[layer][name]).max())
        for layer in those
        for name in those[layer]
    )


DROPOUT = """
name = "dropout"
input = [3, 32, 32]
layers = [
  { type = "conv", channels = 12, kernel = 5, stride = 2, pad = 2 },
  { type = "relu" },
  { type = "max-pool", kernel = 4 },
  { type = "fc", features = 60 },
  { type = "relu" },
  { type = "dropout", rate = 0.5 },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""


@pytest.fixture(scope="module", params=["quick-cifar", "dropout"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One without dropout, and one with it, which must fall alike in all replicas."""
    if request.param != "dropout":
        return request.param
    path = tmp_path_factory.mktemp("replicas") / "dropout.toml"
    path.write_text(DROPOUT)
    return str(path)


@pytest.mark.parametrize(
    "flags", [flags for flags in REPLICAS if flags["schedule"] != "fpdeep"], ids=str
)
def test_replicas_train_as_one_does_on_whole_mini_batches(
    flags: Flags, network: str, replicas_plan: ReplicasPlan, trained: Any
) -> None:
    one = {"schedule": "sync", "devices": 1, "network": network, "epochs": 1}
    single, [whole] = trained(replicas_plan(**one))
    together, [shared] = trained(replicas_plan(network=network, epochs=1, **flags))
    start = trained(replicas_plan(**one, learning_rate=1e-30)).weights
    assert furthest(together, single) < 1e-4 * furthest(single, start)
    assert shared.train.samples == whole.train.samples == SAMPLES
    assert shared.train.loss == pytest.approx(whole.train.loss, rel=1e-5)


@pytest.mark.parametrize("flags", REPLICAS, ids=str)
def test_simulation_and_training_take_the_same_time(
    flags: Flags, replicas_plan: ReplicasPlan, trained: Any
) -> None:
    plan = replicas_plan(**flags)
    ends = [result.virtual_time_ps for result in trained(plan).history]
    assert list(simulate(plan, SAMPLES).epoch_ends_ps) == ends


@pytest.mark.parametrize("micro_batch", [1, 12])
def test_micro_batches_do_not_matter(
    micro_batch: int, replicas_plan: ReplicasPlan, trained: Any, bits: Any
) -> None:
    flags = REPLICAS[0]
    weights, results = trained(replicas_plan(**flags))
    other_weights, others = trained(replicas_plan(**flags, micro_batch=micro_batch))
    assert bits(other_weights) == bits(weights)
    assert others[-1].virtual_time_ps == results[-1].virtual_time_ps


@pytest.mark.parametrize(
    "compress", ["none", "inceptionn:-10", "truncate:24", "topk:0.02+feedback"]
)
@pytest.mark.parametrize("flags", [REPLICAS[0], REPLICAS[3], REPLICAS[5]], ids=str)
def test_all_replicas_end_with_the_same_weights(
    flags: Flags,
    compress: str,
    replicas_plan: ReplicasPlan,
    trained: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compress, _, feedback = compress.partition("+")
    closed: list[ChainTrainer] = []
    close = ChainTrainer.close
    monkeypatch.setattr(
        ChainTrainer, "close", lambda trainer: closed.append(trainer) or close(trainer)
    )
    trained(replicas_plan(**flags, compress=compress, error_feedback=bool(feedback), epochs=1))
    replicas = closed[0].replicas
    held = [
        [of.weights().tobytes() for device in chain.devices for of in device.numerics.slices]
        for chain in replicas.chains
    ]
    assert len(held) > 1
    assert all(weights == held[0] for weights in held)


def test_a_codec_makes_gradients_smaller_and_time_shorter(
    replicas_plan: ReplicasPlan, trained: Any
) -> None:
    flags = {"schedule": "data-parallel-ring", "devices": 4, "cluster": "titan-xp-10gbe"}
    plan = replicas_plan(**flags)
    weights, whole = trained(plan)
    lossy_weights, lossy = trained(replicas_plan(**flags, compress="inceptionn:-8"))
    assert 0 < furthest(lossy_weights, weights) < 0.1
    assert lossy[-1].virtual_time_ps < whole[-1].virtual_time_ps
    sent, plain = lossy[0].exchanged, whole[0].exchanged
    assert sent.traffic.value_bytes == plain.traffic.value_bytes == plain.traffic.compressed_bytes
    assert 3 < sent.traffic.ratio < 16
    assert set(sent.traffic.statistics) == {"width_0", "width_8", "width_16", "width_32"}
    assert sum(sent.traffic.statistics.values()) * 4 == sent.traffic.value_bytes
    assert sent.spent_ps < plain.spent_ps
    steps = 3
    assert (
        sent.traffic.value_bytes == steps * 6 * plan.network.parameters * 4
    )  # 2 (N - 1) N blocks of 1/N


def test_the_bytes_of_an_exchange_are_those_that_virtual_time_took(
    replicas_plan: ReplicasPlan, trained: Any
) -> None:
    """With the codec's own ratio the simulator gives the trained run's time; truncation's is
    known.
    """
    flags = {
        "schedule": "data-parallel-ring",
        "devices": 4,
        "cluster": "titan-xp-10gbe",
        "compress": "truncate:16",
    }
    plan = replicas_plan(**flags)
    history = trained(plan).history
    assert history[-1].exchanged.traffic.ratio == 2
    ends = [result.virtual_time_ps for result in history]
    for same in (plan, replicas_plan(**flags, compress_ratio=2.0)):
        assert list(simulate(same, SAMPLES).epoch_ends_ps) == ends


def test_weights_that_are_cut_off_stay_cut_off(replicas_plan: ReplicasPlan, trained: Any) -> None:
    plan = replicas_plan(schedule="sync", devices=2, compress_weights="truncate:16", epochs=1)
    for name, layer in trained(plan).weights.items():
        assert not np.any(layer["weight"].view(np.uint32) & 0xFFFF), name
        assert np.any(layer["weight"])


def test_error_feedback_learns_what_the_largest_values_alone_do_not(
    replicas_plan: ReplicasPlan, trained: Any
) -> None:
    def distance(these: Weights, those: Weights) -> float:
        pairs = (
            (these[layer][name], array) for layer in those for name, array in those[layer].items()
        )
        return sum(float(np.square(one - other).sum()) for one, other in pairs)

    flags: Flags = {
        "schedule": "data-parallel-ring",
        "devices": 2,
        "momentum": 0,
        "epochs": 8,
        "memory": "ignored",
    }
    exact = trained(replicas_plan(**flags)).weights
    lossy, fed = (
        trained(replicas_plan(**flags, compress="topk:0.02", error_feedback=kept))
        for kept in (False, True)
    )
    assert distance(fed.weights, exact) < 0.8 * distance(lossy.weights, exact)
    assert [each.virtual_time_ps for each in fed.history] == [
        each.virtual_time_ps for each in lossy.history
    ]


def test_error_feedback_is_simulated_in_the_same_time(
    replicas_plan: ReplicasPlan, trained: Any
) -> None:
    """Off chip, what is kept passes the memory port at each update."""
    flags: Flags = {"schedule": "data-parallel-ring", "devices": 2, "compress": "topk:0.02"}
    plain, fed = (replicas_plan(**flags, error_feedback=kept) for kept in (False, True))
    ends = [result.virtual_time_ps for result in trained(fed).history]
    assert list(simulate(fed, SAMPLES).epoch_ends_ps) == ends
    assert ends[-1] > simulate(plain, SAMPLES).epoch_ends_ps[-1]


def test_what_error_feedback_keeps_takes_memory(replicas_plan: ReplicasPlan) -> None:
    flags: Flags = {"replicas": 4, "devices": 2, "compress": "topk:0.02"}
    plain, fed, grouped = (
        replicas_plan(**flags, **more)
        for more in ({}, {"error_feedback": True}, {"error_feedback": True, "groups": 2})
    )
    copies = [plan.cluster.parameter_copies for plan in (plain, fed, grouped)]
    assert copies == [2, 3, 5]
    arrays = [len(plan.cluster.storage.arrays) for plan in (plain, fed, grouped)]
    assert arrays == copies == [plan.cluster.storage.bias_arrays for plan in (plain, fed, grouped)]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"devices": 2, "compress": "topk:0.02"}, "without replicas; add `replicas`, such as 2"),
        ({"replicas": 2}, "without a codec; add `compress`, such as topk:0.01"),
    ],
)
def test_error_feedback_with_nothing_to_do_is_said(
    flags: Flags, why: str, replicas_plan: ReplicasPlan
) -> None:
    assert f"`error_feedback` = true: has no effect {why}" in idle_settings(
        replicas_plan(**flags, error_feedback=True)
    )


def test_error_feedback_has_no_room_where_parameters_have_none(
    replicas_plan: ReplicasPlan, small_cluster: str
) -> None:
    flags: Flags = {
        "replicas": 2,
        "devices": 6,
        "cluster": small_cluster,
        "schedule": "sync",
        "compress": "topk:0.02",
    }
    flags |= {"memory": "fpdeep", "batch": 24}
    with pytest.raises(InputError, match="has no room even for its parameters"):
        replicas_plan(**flags, error_feedback=True)


BlocksPlan = Callable[..., ChainPlan]


@pytest.fixture(scope="module")
def blocks_plan(
    replicas_plan: ReplicasPlan, small_cluster: str, many_blocks: Any, with_blocks: Any
) -> BlocksPlan:
    """Makes a plan with many blocks of balanced parameters, or without any."""

    def make(blocks: bool = True, **keys: Any) -> ChainPlan:
        plan = replicas_plan(
            cluster=small_cluster, schedule="sync", devices=5, balancing="none", **keys
        )
        return with_blocks(plan, many_blocks(plan)) if blocks else plan

    return make


@pytest.mark.parametrize("compress", ["none", "inceptionn:-10"])
def test_balanced_parameters_are_exchanged_where_they_are_stored(
    blocks_plan: BlocksPlan, trained: Any, compress: str
) -> None:
    plan = blocks_plan(replicas=2)
    exact, results = trained(plan)
    assert plan.timing.blocks
    if compress == "none":  # the sums of a ring begin elsewhere, for rows lie otherwise
        assert furthest(exact, trained(blocks_plan(blocks=False, replicas=2)).weights) < 1e-6
        return
    lossy, compressed = trained(blocks_plan(replicas=2, compress=compress))
    assert 0 < furthest(lossy, exact) < 0.1
    assert compressed[-1].virtual_time_ps < results[-1].virtual_time_ps


def test_path_6_goes_through_the_codec(blocks_plan: BlocksPlan, trained: Any) -> None:
    """In a single chain: fewer bytes from the second mini-batch on, other weights, and no link busy
    for longer.
    """
    exact, whole = trained(blocks_plan())
    lossy, compressed = trained(blocks_plan(compress="truncate:16"))
    assert 0 < furthest(lossy, exact) < 0.1
    for before, after in zip(whole[-1].usage.links, compressed[-1].usage.links, strict=True):
        for path, count in before.path_bytes.items():
            # All mini-batches but the first of 24 samples: half of the bytes of 2 epochs' other 84.
            expected = count - count * 84 // (2 * 2 * SAMPLES) if path.value == 6 else count
            assert after.path_bytes[path] == pytest.approx(expected, abs=2)
    assert whole[-1].usage.links[-1].path_bytes  # something was compared
    assert compressed[-1].virtual_time_ps <= whole[-1].virtual_time_ps


@pytest.mark.parametrize("flags", [REPLICAS[5], REPLICAS[6], {**REPLICAS[5], "groups": 2}], ids=str)
def test_where_exchange_is_slowest_it_sets_the_rate(
    flags: Flags, replicas_plan: ReplicasPlan
) -> None:
    """A device's exchanges come one after another: mini-batches take one exchange each, and little
    more.
    """
    steps = 40
    plan = replicas_plan(**{**flags, "cluster": "titan-xp-10gbe"}, batch=6, epochs=1)
    slowest = max(exchange_times(plan.timing, plan.data_parallel))
    assert slowest > 2 * plan.batch * plan.timing.interval_ps  # or the chain would set the rate
    ended_ps = simulate(plan, 6 * steps).epoch_ends_ps[0]
    assert steps * slowest <= ended_ps < (steps + 2) * slowest + plan.steady.fill_ps
    steady = steady_state(plan)
    assert steady.period_ps == pytest.approx(slowest / plan.batch, rel=1e-6)
    assert steady.bottleneck.slowest.name.startswith("exchange of gradients on device")
    assert simulate(plan, 6 * steps).exchange_share <= 1
    latest = max(late for staleness in plan.steady.staleness for late in staleness.forward)
    assert latest <= 2 + plan.steady.fill_ps // slowest


@pytest.mark.parametrize("flags", REPLICAS, ids=str)
def test_every_sample_has_one_replica(flags: Flags, replicas_plan: ReplicasPlan) -> None:
    of = replicas_plan(**flags).data_parallel
    shares = [of.samples_of(replica, SAMPLES, BATCH) for replica in range(of.replicas)]
    assert sorted(np.concatenate(shares).tolist()) == list(range(SAMPLES))
    for share in shares:
        steps = share // BATCH
        assert set(steps) == {0, 1, 2}
        assert np.all(np.bincount(steps)[:2] == BATCH // of.replicas)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"replicas": 5}, "`batch` = 24: cannot be divided evenly among 5 replicas; try 20 or 25"),
        ({"replicas": 4, "groups": 3}, "`groups` = 3: 4 replicas cannot be divided into as many equal groups"),
        ({"replicas": 8, "samples": 50}, "leaves 2 for the last mini-batch, fewer than 8 replicas; try 48 or 56"),
        ({"replicas": 8, "samples": 2}, "fewer than 8 replicas; try 8"),
        ({"schedule": "data-parallel-ring", "devices": 4, "replicas": 2}, "every one of 4 devices is a replica"),
        ({"schedule": "data-parallel-ring", "devices": 4, "exchange": "aggregator"}, "uses 'ring'"),
        ({"compress": "gzip"}, "`compress` = 'gzip': there is no codec 'gzip'; known codecs: none, inceptionn:E"),
        ({"compress": "inceptionn:3"}, "-127"),
        ({"compress_weights": "truncate:7"}, "16, 22"),
        ({"compress_ratio": 0.0}, "`compress_ratio` = 0.0"),
        ({"compress_ratio": 8.0}, "`compress_ratio` = 8: has no effect without a codec; add `compress`"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_reported_in_a_line(
    flags: Flags, said: str, replicas_plan: ReplicasPlan, one_line: Any
) -> None:
    with pytest.raises(InputError) as error:
        replicas_plan(**flags)
    assert said in one_line(error)


def test_devices_and_replicas_share_the_ranks() -> None:
    config = load_config(None, {"replicas": 2, "batch": 8, "samples": 8})
    assert [make_plan(config, ranks).devices for ranks in (1, 2, 8)] == [1, 1, 4]


def test_a_cluster_without_a_network_exchanges_on_its_chain(replicas_plan: ReplicasPlan) -> None:
    cluster = replicas_plan().cluster
    assert isinstance(cluster, Cluster)
    assert cluster.interconnect.topology == Chain()
    assert replicas_plan(cluster="titan-xp-10gbe").cluster.interconnect.topology == Switch()


@pytest.mark.parametrize(
    ("mpiexec", "ranks", "flags"),
    [
        (
            "mpich",
            3,
            {"schedule": "data-parallel-ring", "devices": 4, "compress": "inceptionn:-10"},
        ),
        (
            "openmpi",
            2,
            {"schedule": "fpdeep", "replicas": 2, "devices": 4, "exchange": "aggregator"},
        ),
        ("mpich", 5, {"schedule": "data-parallel-ring", "devices": 4, "groups": 2}),
        (
            "mpich",
            2,
            {"replicas": 2, "devices": 2, "compress": "topk:0.02", "error_feedback": True},
        ),
    ],
    indirect=["mpiexec"],
    ids=str,
)
def test_ranks_do_not_matter(
    ranks: int,
    flags: Flags,
    replicas_plan: ReplicasPlan,
    trained: Any,
    bits: Any,
    small_cifar: Path,
    tmp_path: Path,
    mpiexec: Any,
) -> None:
    """2, 3 and 5 ranks, one without a device, against one process: the same bits, the same time,
    the same bytes.
    """
    settings = {
        "data": str(small_cifar),
        "test_samples": 7,
        "network": "quick-cifar",
        "batch": BATCH,
        "epochs": 1,
    }
    keys = {**settings, "samples": SAMPLES, **flags}
    words = [
        f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}")
        for key, value in keys.items()
    ]
    mpiexec(ranks, ["-m", "emuchain", "train", *words, "--out", str(tmp_path / "ranks.h5")])
    plan = replicas_plan(**{**flags, "epochs": 1})
    weights, [result] = trained(plan)
    with h5py.File(tmp_path / "ranks.h5") as file:
        found = {
            f"{layer}/{name}": data[()].tobytes()
            for layer, held in file["weights"].items()
            for name, data in held.items()
        }
        assert found == bits(weights)
        assert file["history/virtual_time_ps"][0] == result.virtual_time_ps
        assert file["exchange/compressed_bytes"][0] == result.exchanged.traffic.compressed_bytes
        assert file["exchange/histogram"][0].tolist() == result.exchanged.histogram.tolist()
        assert file["exchange/histogram"][0].sum() == plan.network.parameters
