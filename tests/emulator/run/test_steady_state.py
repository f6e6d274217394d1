"""The steady state: worked out by hand, and what must hold whatever the boards and links."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Cluster, Fpga, Link, load_cluster
from emuchain.emulator.config import Config
from emuchain.emulator.mapping import partition
from emuchain.emulator.network import TRAINING_OPERATIONS_PER_MAC, Network, Phase, load_network
from emuchain.emulator.plan import ChainPlan, find_steady
from emuchain.emulator.run import busy_shares, simulate, steady_actions, steady_state
from emuchain.emulator.timing import Timing, engine_loads, find_bottleneck, link_loads

FEW = settings(max_examples=25)
NS = 1000


def conv(channels: int, kernel: list[int], pad: int = 0) -> dict[str, Any]:
    return {"type": "conv", "channels": channels, "kernel": kernel, "pad": pad}


def fc(features: int) -> dict[str, Any]:
    return {"type": "fc", "features": features}


def network_of(shape: list[int], *layers: dict[str, Any]) -> Network:
    return load_network({"name": "n", "input": shape, "layers": [*layers, {"type": "softmax"}]})


MINI = network_of([1, 2, 3], conv(2, [1, 2]), fc(2))
NETWORKS = [
    MINI,
    network_of([3, 6, 6], conv(18, [3, 3], 1), {"type": "relu"}, conv(5, [3, 3]), fc(4)),
    network_of([2, 5, 4], conv(4, [3, 2]), conv(6, [3, 3])),
    network_of([4, 3, 3], fc(8), fc(3)),
]


def plan_on(network: Network, cluster: Cluster, **keys: object) -> ChainPlan:
    """The plan of a network on a cluster that no file describes."""
    config = Config.model_validate(keys)
    mapping = partition(network, cluster, config.devices or 1)
    timing = Timing.of(mapping, cluster)
    return ChainPlan(config, network, cluster, mapping, timing, find_steady(timing, config.batch))


@st.composite
def plans(draw: st.DrawFn, schedule: str | None = None) -> ChainPlan:
    """A network on a chain of unlike boards, some of which say what they draw."""
    boards = tuple(
        Fpga(
            "b",
            draw(st.integers(1, 20)) * 500,
            draw(st.integers(120, 900)),
            1000,
            draw(st.none() | st.just(25.0)),
        )
        for _ in range(draw(st.integers(1, 3)))
    )
    cluster = Cluster(
        "c",
        boards,
        Link(draw(st.sampled_from([5, 300, 10_000, 150_000])), draw(st.integers(0, 10**7))),
    )
    return plan_on(
        draw(st.sampled_from(NETWORKS)),
        cluster,
        devices=draw(st.integers(1, 3)),
        batch=draw(st.integers(1, 6)),
        schedule=schedule or draw(st.sampled_from(["sync", "fpdeep"])),
    )


def with_bandwidth(plan: ChainPlan, mbps: int) -> ChainPlan:
    """The plan with other links, and cut for them."""
    cluster = dataclasses.replace(
        plan.cluster, link=dataclasses.replace(plan.cluster.link, bandwidth_mbps=mbps)
    )
    return plan_on(
        plan.network, cluster, **plan.config.model_dump(include={"devices", "batch", "schedule"})
    )


def as_cut(plan: ChainPlan, mbps: int) -> ChainPlan:
    """The plan with other links, and its own cut."""
    cluster = with_bandwidth(plan, mbps).cluster
    timing = Timing.of(plan.mapping, cluster)
    steady = find_steady(timing, plan.config.batch)
    return dataclasses.replace(plan, cluster=cluster, timing=timing, steady=steady)


def test_by_hand() -> None:
    """The example of docs/time-model.md: EB and PG of the second layer take 160 ns, 16 cycles of
    one multiplier.
    """
    board = Fpga("mini", 10 * NS, 4, 1000, 3.0)
    steady = steady_state(
        plan_on(MINI, Cluster("pair", (board,), Link(3200, 100 * NS)), devices=2, batch=2)
    )
    assert steady.period_ps == 160 * NS
    assert steady.images_per_s == pytest.approx(6.25e6)
    assert steady.epoch_hours(3600 * 6_250_000) == pytest.approx(1)
    # 16 multiply-accumulates in each phase of each layer, the first one's EB counted as FPDeep
    # counts it
    assert dataclasses.astuple(steady.all_layers) == pytest.approx(
        (2, 6 * 32, 6 * 32 / 160 / 2, 6 * 32 / 160 / 6)
    )
    assert steady.convolutions is not None
    assert dataclasses.astuple(steady.convolutions) == pytest.approx(
        (1, 6 * 16, 6 * 16 / 160, 6 * 16 / 160 / 3)
    )
    shares = [
        [(load.phase.value, load.share(steady.period_ps)) for load in device.engines]
        for device in steady.devices
    ]
    assert shares == [[("FP", 0.5), ("PG", 0.5)], [("FP", 0.5), ("EB", 1.0), ("PG", 1.0)]]
    assert [device.idle_share for device in steady.devices] == [0.5, 0.25]
    assert [device.holds_convolutions for device in steady.devices] == [True, False]
    assert steady.mean_idle_share == 0.5
    assert [link.demand(steady.period_ps) for link in steady.links] == pytest.approx(
        [32 * 8 / 160] * 2
    )
    assert steady.fill_ps == 680 * NS
    assert steady.fill_samples == 680 / 160
    found = steady.bottleneck
    assert found.slowest.name == "EB of fc1[0:2] ICP on device 1"
    assert found.behind.name == "PG of fc1[0:2] ICP on device 1"
    assert (found.ties, found.times_ps["engines"], found.times_ps["links"]) == (
        1,
        160 * NS,
        80 * NS,
    )


def test_a_link_holds_the_chain_back() -> None:
    """At a tenth of the bandwidth its 32 bytes take 800 ns: five times what the slowest engines
    do.
    """
    board = Fpga("mini", 10 * NS, 4, 1000)
    steady = steady_state(
        plan_on(MINI, Cluster("pair", (board,), Link(320, 0)), devices=2, batch=2)
    )
    assert steady.bottleneck.slowest.name == "link 0 -> 1 (path 1)"
    assert steady.bottleneck.behind.name == "link 1 -> 0 (path 4)"
    assert (steady.period_ps, steady.bottleneck.ties, steady.bottleneck.times_ps["engines"]) == (
        800 * NS,
        1,
        160 * NS,
    )
    assert steady.highest_demand_gbps == pytest.approx(0.32)
    assert steady.all_layers.gop_per_j is None


@FEW
@given(plans(schedule="fpdeep"))
def test_the_slowest_load_sets_the_interval(plan: ChainPlan) -> None:
    found = find_bottleneck(plan.timing)
    times = [load.sample_ps for load in [*engine_loads(plan.timing), *link_loads(plan.timing)]]
    assert found.slowest.sample_ps == max(times) == plan.timing.interval_ps
    assert found.behind.sample_ps == sorted(times)[-2]
    assert max(found.times_ps["engines"], found.times_ps["links"]) == plan.timing.interval_ps
    assert times.count(max(times)) == found.ties + 1
    assert steady_state(plan).period_ps == plan.timing.interval_ps


@FEW
@given(plans())
def test_idle_and_busy_are_all(plan: ChainPlan) -> None:
    """Multipliers times cycles are multiply-accumulates and idle ones, of engines and devices."""
    steady = steady_state(plan)
    for device in steady.devices:
        cycles = steady.period_ps / plan.cluster.board(device.device).period_ps
        for load in device.engines:
            assert 0 <= 1 - load.share(steady.period_ps) < 1
            could = load.engine.multipliers * cycles
            assert load.macs == pytest.approx(load.share(steady.period_ps) * could)
        could = cycles * sum(load.engine.multipliers for load in device.engines)
        assert sum(load.macs for load in device.engines) == pytest.approx(
            (1 - device.idle_share) * could
        )
        assert (
            min(1 - load.share(steady.period_ps) for load in device.engines)
            <= device.idle_share + 1e-12
        )
    macs = [
        sum(
            load.macs
            for device in steady.devices
            for load in device.engines
            if load.phase is Phase.FP
        )
    ]
    assert macs == [plan.network.macs]


_TOKENS, _WIDE = 1024, 768
_BLOCKS = 12 * (_WIDE * 3 * _WIDE + _WIDE * _WIDE + 2 * _WIDE * 4 * _WIDE) * _TOKENS
_SCORES = 12 * 2 * _WIDE * _TOKENS * (_TOKENS + 1) // 2
_HEAD = 50257 * _WIDE * _TOKENS
_ALL_DSPS = {"board.multipliers": "one-per-dsp", "board.dsp_share": 1, "board.shell_dsp": 0}
UNLIKE: dict[str, tuple[dict[str, Any], int | None]] = {
    "attention": (
        # With so many multipliers, whole tiles leave few idle.
        {"network": "gpt2", "cluster": "u280", "devices": 24, "changes": _ALL_DSPS},
        3 * (_BLOCKS + _HEAD)
        + 7 * _SCORES // 2,  # EB computes the scores again, and the errors of p, q, k and v
    ),
    "frozen layers": (
        {"network": "vgg16-cifar", "devices": 5, "freeze": ("conv1_1:conv3_3",)},
        None,
    ),
    "states": ({"network": "hdc", "devices": 4}, None),
}


@pytest.mark.parametrize(("keys", "products"), UNLIKE.values(), ids=UNLIKE)
def test_idle_where_fp_eb_and_pg_differ(
    plan_of: Callable[..., ChainPlan], keys: Any, products: int | None
) -> None:
    """Attention's EB has 5/2 of FP's products, states an EB without errors of inputs, frozen layers
    no PG.
    """
    plan = plan_of(**keys)
    steady, busy, could = steady_state(plan), 0.0, 0.0
    for device in steady.devices:
        multipliers = sum(load.engine.multipliers for load in device.engines)
        of_device = multipliers * steady.period_ps / plan.cluster.board(device.device).period_ps
        busy, could = busy + (1 - device.idle_share) * of_device, could + of_device
    layers = plan.network.layers
    by_phase = (
        layer.macs + layer.has_eb * layer.eb_macs + layer.has_pg * layer.macs for layer in layers
    )
    assert busy == pytest.approx(sum(by_phase), rel=1e-3)
    if products is not None:
        assert busy == pytest.approx(products, rel=1e-5)
        assert steady.mean_idle_share == pytest.approx(1 - products / could, abs=1e-5)
        assert 0.001 < steady.mean_idle_share < 0.0014


@FEW
@given(plans())
def test_operations_are_rate_times_time(plan: ChainPlan) -> None:
    steady = steady_state(plan)
    image_s = steady.period_ps * 1e-12
    total = steady.all_layers
    assert total.operations_per_image == TRAINING_OPERATIONS_PER_MAC * plan.network.macs
    assert total.gops_per_fpga * total.devices * 1e9 * image_s == pytest.approx(
        total.operations_per_image
    )
    assert sum(device.gops for device in steady.devices) == pytest.approx(
        total.gops_per_fpga * total.devices
    )
    assert (steady.convolutions is None) == all(
        not layer.convolves for layer in plan.network.layers
    )
    powers = [plan.cluster.board(device).power_w for device in range(plan.devices)]
    assert (total.gop_per_j is None) == (None in powers)
    if total.gop_per_j is not None:
        assert total.gop_per_j * 25 == pytest.approx(total.gops_per_fpga)
    assert steady.epoch_hours(7) * 3600 * steady.images_per_s == pytest.approx(7)


@FEW
@given(plans(), st.integers(1, 12))
def test_demand_times_time_is_what_a_run_sends(plan: ChainPlan, samples: int) -> None:
    steady, sent = steady_state(plan), simulate(plan, samples).usage.links
    for link, counted in zip(steady.links, sent, strict=True):
        assert link.hop == (counted.sender, counted.receiver)
        demanded = link.demand(steady.period_ps) / 8 * 1e9 * (steady.period_ps * 1e-12) * samples
        assert demanded == pytest.approx(sum(counted.path_bytes.values()))
        assert link.demand(steady.period_ps) <= link.capacity * (1 + 1e-12)
        assert link.capacity == plan.cluster.link.bandwidth_gbps


BANDWIDTHS = st.lists(st.integers(1, 200_000), min_size=2, max_size=4)


@FEW
@given(plans(), BANDWIDTHS)
def test_more_bandwidth_never_slows_a_cut_down(plan: ChainPlan, bandwidths: list[int]) -> None:
    """Resources serve rows in an order that no time changes, and each row leaves earlier or at the
    same time: whatever the schedule, for a run as for the period.
    """
    as_cuts = [as_cut(plan, mbps) for mbps in sorted(bandwidths)]
    for times in (
        [steady_state(faster).period_ps for faster in as_cuts],
        [simulate(faster, 2 * plan.config.batch).epoch_ends_ps[0] for faster in as_cuts],
    ):
        assert all(before >= after for before, after in itertools.pairwise(times))


@FEW
@given(plans(), BANDWIDTHS)
def test_more_bandwidth_never_slows_a_chain_down(plan: ChainPlan, bandwidths: list[int]) -> None:
    """Cuts are chosen by their slowest resource, whose time is the period where the chain never
    drains.
    """
    faster = [with_bandwidth(plan, mbps) for mbps in sorted(bandwidths)]
    intervals = [plan.timing.interval_ps for plan in faster]
    assert all(before >= after for before, after in itertools.pairwise(intervals))
    if not plan.config.schedule.drains:
        assert [steady_state(plan).period_ps for plan in faster] == intervals


def test_a_faster_link_may_slow_down_a_chain_that_drains() -> None:
    """It brings a cut whose slowest resource is faster, and whose mini-batch of one sample, from
    its first row to its update, takes 10 ps longer; in the former cut it would be faster, too.
    """
    board = Fpga("b", 5500, 207, 1000)
    keys = {"devices": 2, "batch": 1, "schedule": "sync"}
    slow = plan_on(NETWORKS[2], Cluster("c", (board,), Link(11_970, 0)), **keys)
    fast = with_bandwidth(slow, 18_425)
    assert slow.mapping != fast.mapping
    assert (slow.timing.interval_ps, fast.timing.interval_ps) == (96_243, 66_000)
    assert steady_state(slow).period_ps == 313_486
    assert steady_state(fast).period_ps == 313_496
    assert steady_state(as_cut(slow, 18_425)).period_ps < 313_486


@FEW
@given(plans(schedule="fpdeep"), st.integers(1, 12))
def test_a_run_takes_filling_and_a_period_for_each_further_sample(
    plan: ChainPlan, samples: int
) -> None:
    """And the last update, which every device makes in a cycle for each output channel of a
    slice.
    """
    steady = steady_state(plan)
    ends = [simulate(plan, count).epoch_ends_ps[0] for count in (1, samples)]
    assert ends[1] - ends[0] == (samples - 1) * steady.period_ps
    longest_update = max(
        len(load.part.out_channels) for device in steady.devices for load in device.engines
    )
    slowest_clock = max(board.period_ps for board in plan.cluster.boards)
    assert 0 < ends[0] - steady.fill_ps <= longest_update * slowest_clock


@FEW
@given(plans(schedule="sync"), st.integers(2, 5))
def test_a_sync_run_takes_a_batch_of_periods_for_each_further_mini_batch(
    plan: ChainPlan, steps: int
) -> None:
    """Over two mini-batches, since in some chains these alternate between two durations."""
    steady, batch = steady_state(plan), plan.config.batch
    ends = [simulate(plan, count * batch).epoch_ends_ps[0] for count in (steps, steps + 2)]
    assert ends[1] - ends[0] == pytest.approx(2 * batch * steady.period_ps)
    assert steady.period_ps >= plan.timing.interval_ps


def test_a_network_with_shortcuts() -> None:
    """A shortcut's maps take streams of paths 1 and 4 and count with them; the name has each path
    once.
    """
    plan = plan_on(load_network("resnet8-cifar"), load_cluster("vc709"), devices=6, batch=2)
    steady = steady_state(plan)
    loads = steady.links
    assert any(len(load.streams) > len({stream.path for stream in load.streams}) for load in loads)
    assert all(re.search(r" \((path [14]|paths (1, 2|3, 4))\)$", load.name) for load in loads)
    for link, counted in zip(steady.links, simulate(plan, 3).usage.links, strict=True):
        assert link.sample_bytes * 3 == sum(counted.path_bytes.values())


@pytest.mark.parametrize(("latency_ns", "in_flight"), [(100, 5), (16_050, 204), (10**9, 256)])
def test_a_pipeline_of_more_samples_than_fit_a_few_mini_batches(
    latency_ns: int, in_flight: int
) -> None:
    """The first one's PG ends at 680 - 2 · 100 ns and two latencies: a sample enters every 160 ns
    until then, or for as many mini-batches as are looked at."""
    board = Fpga("mini", 10 * NS, 4, 1000)
    plan = plan_on(MINI, Cluster("pair", (board,), Link(3200, latency_ns * NS)), devices=2, batch=1)
    assert plan.steady.fill_ps == (480 + 2 * latency_ns) * NS
    assert plan.steady.in_flight[0] == in_flight


def test_stages_of_a_device_share_its_links(plan_of: Callable[..., ChainPlan]) -> None:
    """Two devices with two stages each: stages 1 and 2 are on different devices, and so are 0 and
    1, and 2 and 3.
    """
    plan = plan_of(
        network="quick-cifar",
        devices=2,
        schedule="interleaved",
        chunks=2,
        micro_batch=8,
        engines="turns",
    )
    _, usage = steady_actions(plan)
    shares = {use.name: use.share for use in busy_shares(plan, usage)}
    by_stage = {(link.sender, link.receiver): link.utilisation for link in usage.links}
    assert shares.keys() == {"device 0", "device 1", "link 0 -> 1", "link 1 -> 0"}
    assert shares["link 0 -> 1"] == pytest.approx(by_stage[0, 1] + by_stage[2, 1] + by_stage[2, 3])
    assert shares["device 1"] == pytest.approx(
        sum(sum(usage.devices[stage].busy.values()) for stage in (1, 3))
    )
