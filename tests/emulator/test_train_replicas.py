"""Replicas that train data-parallel: numbers, times and bytes, in one process and on ranks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.comm.ranks import Alone
from emuchain.emulator.cluster.board import Cluster
from emuchain.emulator.common.errors import InputError
from emuchain.emulator.config.config import load_config
from emuchain.emulator.data.load import load
from emuchain.emulator.mapping.balancing import Loan, channel_bytes
from emuchain.emulator.plan.plan import Plan, exchange_times, make_plan
from emuchain.emulator.plan.steady import find_steady
from emuchain.emulator.report.steady_state import make_report
from emuchain.emulator.run.replicas import Fleet
from emuchain.emulator.run.simulate import simulate
from emuchain.emulator.run.train import EpochResult, Weights, train
from emuchain.emulator.timing.timing import Timing

SAMPLES, BATCH = 54, 24  # so the last mini-batch of an epoch has 6 samples, which 4 replicas share unevenly
Flags = dict[str, Any]
FLEETS: list[Flags] = [
    {"schedule": "data-parallel-ring", "devices": 4},
    {"schedule": "data-parallel-aggregator", "devices": 3},
    {"schedule": "data-parallel-ring", "devices": 4, "groups": 2},
    {"schedule": "data-parallel-aggregator", "devices": 6, "groups": 3},
    {"schedule": "sync", "replicas": 2, "devices": 3},
    {"schedule": "fpdeep", "replicas": 2, "devices": 4},
    {"schedule": "fpdeep", "replicas": 3, "devices": 2, "exchange": "aggregator", "cluster": "titan-xp-10gbe"},
]


def plan_of(**flags: Any) -> Plan:
    settings = {"batch": BATCH, "micro_batch": 5, "samples": SAMPLES, "epochs": 2, "network": "quick-cifar"}
    return make_plan(load_config(None, {**settings, **flags}), 1)


def trained(plan: Plan, data: Path) -> tuple[Weights, list[EpochResult]]:
    """Weights, and results of all epochs, in this process."""
    found: Weights = {}
    results = train(
        plan,
        load(str(data)).first(SAMPLES).test_first(7),
        Alone(),
        lambda _: None,
        lambda _, weights: found.update(weights),
        gather_weights=True,
    )
    return found, results


def bits(weights: Weights) -> dict[str, bytes]:
    return {f"{layer}/{name}": array.tobytes() for layer, arrays in weights.items() for name, array in arrays.items()}


def furthest(these: Weights, those: Weights) -> float:
    """The largest difference of any weight."""
    return max(float(np.abs(these[layer][name] - those[layer][name]).max()) for layer in those for name in those[layer])


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


@pytest.mark.parametrize("flags", [fleet for fleet in FLEETS if fleet["schedule"] != "fpdeep"], ids=str)
def test_replicas_train_as_one_does_on_whole_mini_batches(flags: Flags, network: str, small_cifar: Path) -> None:
    plan = plan_of(schedule="sync", devices=1, network=network, epochs=1)
    alone, results = trained(plan, small_cifar)
    together, shared = trained(plan_of(network=network, epochs=1, **flags), small_cifar)
    start = trained(plan_of(schedule="sync", devices=1, network=network, epochs=1, learning_rate=1e-30), small_cifar)[0]
    assert furthest(together, alone) < 1e-4 * furthest(alone, start)
    assert shared[0].train.samples == results[0].train.samples == SAMPLES
    assert shared[0].train.loss == pytest.approx(results[0].train.loss, rel=1e-5)


@pytest.mark.parametrize("flags", FLEETS, ids=str)
def test_simulation_and_training_take_the_same_time(flags: Flags, small_cifar: Path) -> None:
    plan = plan_of(**flags)
    ends = [result.virtual_time_ps for result in trained(plan, small_cifar)[1]]
    assert list(simulate(plan, SAMPLES).epoch_ends_ps) == ends


@pytest.mark.parametrize("micro_batch", [1, 12])
def test_micro_batches_do_not_matter(micro_batch: int, small_cifar: Path) -> None:
    flags = FLEETS[0]
    weights, results = trained(plan_of(**flags), small_cifar)
    other_weights, others = trained(plan_of(**flags, micro_batch=micro_batch), small_cifar)
    assert bits(other_weights) == bits(weights)
    assert others[-1].virtual_time_ps == results[-1].virtual_time_ps


@pytest.mark.parametrize("compress", ["none", "inceptionn:-10", "truncate:24"])
@pytest.mark.parametrize("flags", [FLEETS[0], FLEETS[3], FLEETS[5]], ids=str)
def test_all_replicas_end_with_the_same_weights(
    flags: Flags, compress: str, small_cifar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleets: list[Fleet] = []
    close = Fleet.close
    monkeypatch.setattr(Fleet, "close", lambda fleet: fleets.append(fleet) or close(fleet))
    trained(plan_of(**flags, compress=compress, epochs=1), small_cifar)
    [fleet] = fleets
    held = [
        [of.weights().tobytes() for device in chain.devices for of in device.numerics]  # type: ignore[attr-defined]  # they compute
        for chain in fleet.chains
    ]
    assert len(held) > 1
    assert all(weights == held[0] for weights in held)


def test_a_codec_makes_gradients_smaller_and_time_shorter(small_cifar: Path) -> None:
    flags = {"schedule": "data-parallel-ring", "devices": 4, "cluster": "titan-xp-10gbe"}
    weights, whole = trained(plan_of(**flags), small_cifar)
    lossy_weights, lossy = trained(plan_of(**flags, compress="inceptionn:-8"), small_cifar)
    assert 0 < furthest(lossy_weights, weights) < 0.1
    assert lossy[-1].virtual_time_ps < whole[-1].virtual_time_ps
    sent = lossy[0].exchanged
    assert sent.traffic.value_bytes == whole[0].exchanged.traffic.value_bytes == whole[0].exchanged.traffic.made_bytes
    assert 3 < sent.traffic.ratio < 16
    assert sum(sent.traffic.widths) * 4 == sent.traffic.value_bytes
    assert sent.spent_ps < whole[0].exchanged.spent_ps
    steps = 3
    assert sent.traffic.value_bytes == steps * 6 * plan_of(**flags).network.parameters * 4  # 2 (N - 1) N blocks of 1/N


def test_the_bytes_of_an_exchange_are_those_that_virtual_time_took(small_cifar: Path) -> None:
    """A ratio that the codec made, given to the simulator, gives the trained run's time; truncation's is known."""
    flags = {"schedule": "data-parallel-ring", "devices": 4, "cluster": "titan-xp-10gbe", "compress": "truncate:16"}
    plan = plan_of(**flags)
    assert trained(plan, small_cifar)[1][-1].exchanged.traffic.ratio == 2
    ends = [result.virtual_time_ps for result in trained(plan, small_cifar)[1]]
    for same in (plan, plan_of(**flags, compress_ratio=2.0)):
        assert list(simulate(same, SAMPLES).epoch_ends_ps) == ends


def test_weights_that_are_cut_off_stay_cut_off(small_cifar: Path) -> None:
    weights, _ = trained(plan_of(schedule="sync", devices=2, compress_weights="truncate:16", epochs=1), small_cifar)
    for name, layer in weights.items():
        assert not np.any(layer["weight"].view(np.uint32) & 0xFFFF), name
        assert np.any(layer["weight"])


SMALL = """
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


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("replicas") / "small.toml"
    path.write_text(SMALL)
    return str(path)


def with_loans(plan: Plan) -> Plan:
    """From every slice that has enough channels, some to each of the two devices to its left."""
    loans = tuple(
        Loan(part.layer, begin, end, device, store, (end - begin) * channel_bytes(part))
        for device, slices in enumerate(plan.mapping.devices)
        for part in slices
        for store, begin, end in ((device - 1, part.begin, part.begin + 1), (device - 2, part.end - 2, part.end))
        if store >= 0 and part.end - part.begin > 3
    )
    timing = Timing.of(plan.mapping, plan.cluster, loans)
    return dataclasses.replace(plan, timing=timing, steady=find_steady(timing, plan.batch))


@pytest.mark.parametrize("compress", ["none", "inceptionn:-10"])
def test_balanced_parameters_are_exchanged_where_they_are_stored(small: str, small_cifar: Path, compress: str) -> None:
    flags = {"cluster": small, "schedule": "sync", "replicas": 2, "devices": 5, "balancing": "none"}
    plan = with_loans(plan_of(**flags))
    exact, results = trained(plan, small_cifar)
    assert plan.timing.loans
    if compress == "none":  # the sums of a ring begin elsewhere, for rows lie otherwise
        assert furthest(exact, trained(plan_of(**flags), small_cifar)[0]) < 1e-6
        return
    lossy, compressed = trained(with_loans(plan_of(**flags, compress=compress)), small_cifar)
    assert 0 < furthest(lossy, exact) < 0.1
    assert compressed[-1].virtual_time_ps < results[-1].virtual_time_ps


def test_path_6_goes_through_the_codec(small: str, small_cifar: Path) -> None:
    """In a single chain: fewer bytes from the second mini-batch on, other weights, and no link busy for longer."""
    flags = {"cluster": small, "schedule": "sync", "devices": 5, "balancing": "none"}
    plan = with_loans(plan_of(**flags))
    exact, whole = trained(plan, small_cifar)
    lossy, compressed = trained(with_loans(plan_of(**flags, compress="truncate:16")), small_cifar)
    assert 0 < furthest(lossy, exact) < 0.1
    for before, after in zip(whole[-1].figures.links, compressed[-1].figures.links, strict=True):
        for path, count in before.path_bytes.items():
            # All mini-batches but the first of 24 samples: half of the bytes of 2 epochs' other 84.
            expected = count - count * 84 // (2 * 2 * SAMPLES) if path.value == 6 else count
            assert after.path_bytes[path] == pytest.approx(expected, abs=2)
    assert whole[-1].figures.links[-1].path_bytes  # something was compared
    assert compressed[-1].virtual_time_ps <= whole[-1].virtual_time_ps


@pytest.mark.parametrize("flags", [FLEETS[5], FLEETS[6], {**FLEETS[5], "groups": 2}], ids=str)
def test_where_exchange_is_slowest_it_sets_the_rate(flags: Flags) -> None:
    """A device's exchanges come one after another: so many mini-batches take as many exchanges, and little more."""
    steps = 40
    plan = plan_of(**{**flags, "cluster": "titan-xp-10gbe"}, batch=6, epochs=1)
    slowest = max(exchange_times(plan.timing, plan.data_parallel))
    assert slowest > 2 * plan.batch * plan.timing.interval_ps  # or the chain would set the rate
    ended_ps = simulate(plan, 6 * steps).epoch_ends_ps[0]
    assert steps * slowest <= ended_ps < (steps + 2) * slowest + plan.steady.fill_ps
    report = make_report(plan)
    assert report.period_ps == pytest.approx(slowest / plan.batch, rel=1e-6)
    assert report.bottleneck.slowest.name.startswith("exchange of gradients on device")
    assert simulate(plan, 6 * steps).exchange_share <= 1
    stale = max(lag for lags in plan.steady.lags for lag in lags.forward)
    assert stale <= 2 + plan.steady.fill_ps // slowest


@pytest.mark.parametrize("flags", FLEETS, ids=str)
def test_every_sample_has_one_replica(flags: Flags) -> None:
    of = plan_of(**flags).data_parallel
    shares = [of.places(SAMPLES, BATCH, replica) for replica in range(of.replicas)]
    assert sorted(np.concatenate(shares).tolist()) == list(range(SAMPLES))
    for share in shares:
        steps = share // BATCH
        assert set(steps) == {0, 1, 2}
        assert np.all(np.bincount(steps)[:2] == BATCH // of.replicas)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"replicas": 5}, "`batch` = 24: cannot be shared out evenly among 5 replicas; try 20 or 25"),
        ({"replicas": 4, "groups": 3}, "`groups` = 3: 4 replicas do not make so many groups of equal size"),
        ({"replicas": 8, "samples": 50}, "leaves 2 for the last mini-batch, fewer than 8 replicas; try 48 or 56"),
        ({"replicas": 8, "samples": 2}, "fewer than 8 replicas; try 8"),
        ({"schedule": "data-parallel-ring", "devices": 4, "replicas": 2}, "every one of 4 devices is a replica"),
        ({"schedule": "data-parallel-ring", "devices": 4, "exchange": "aggregator"}, "says 'ring'"),
        ({"compress": "gzip"}, "`compress` = 'gzip': there is no codec 'gzip'; known are none, inceptionn:E"),
        ({"compress": "inceptionn:3"}, "-127"),
        ({"compress_weights": "truncate:7"}, "16, 22"),
        ({"compress_ratio": 0.0}, "`compress_ratio` = 0.0"),
        ({"compress_ratio": 8.0}, "`compress_ratio` = 8: there is no codec; add `compress`, such as inceptionn:-10"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_told_in_a_line(flags: Flags, said: str) -> None:
    with pytest.raises(InputError) as error:
        plan_of(**flags)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_devices_and_replicas_share_the_ranks() -> None:
    config = load_config(None, {"replicas": 2, "batch": 8, "samples": 8})
    assert [make_plan(config, ranks).devices for ranks in (1, 2, 8)] == [1, 1, 4]


def test_a_cluster_without_a_network_exchanges_on_its_chain() -> None:
    assert isinstance(plan_of().cluster, Cluster)
    assert plan_of().cluster.network.topology == "chain"
    assert plan_of(cluster="titan-xp-10gbe").cluster.network.topology == "switch"


@pytest.mark.parametrize(
    ("ranks", "flags"),
    [
        (3, {"schedule": "data-parallel-ring", "devices": 4, "compress": "inceptionn:-10"}),
        (2, {"schedule": "fpdeep", "replicas": 2, "devices": 4, "exchange": "aggregator"}),
        (8, {"schedule": "data-parallel-ring", "devices": 6, "groups": 2}),
    ],
    ids=str,
)
def test_ranks_do_not_matter(ranks: int, flags: Flags, small_cifar: Path, tmp_path: Path, mpiexec: Any) -> None:
    """2, 3 and 8 ranks against one process: the same bits, the same time, the same bytes."""
    settings = {"data": str(small_cifar), "test_samples": 7, "network": "quick-cifar", "batch": BATCH, "epochs": 1}
    words = [f"--{key.replace('_', '-')}={value}" for key, value in {**settings, "samples": SAMPLES, **flags}.items()]
    mpiexec(ranks, ["-m", "emuchain", "train", *words, "--out", str(tmp_path / "ranks.h5")])
    weights, [result] = trained(plan_of(**{**flags, "epochs": 1}), small_cifar)
    with h5py.File(tmp_path / "ranks.h5") as file:
        found = {
            f"{layer}/{name}": data[()].tobytes()
            for layer, held in file["weights"].items()
            for name, data in held.items()
        }
        assert found == bits(weights)
        assert file["history/virtual_time_ps"][0] == result.virtual_time_ps
        assert file["exchange/made_bytes"][0] == result.exchanged.traffic.made_bytes
        assert file["exchange/histogram"][0].tolist() == result.exchanged.histogram.tolist()
        assert file["exchange/histogram"][0].sum() == plan_of().network.parameters
