"""The four methods: costs by hand, properties of any network, and ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Cluster, Fpga, Link
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Mapping, Slice, allocate, cut_channels
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import simulate
from emuchain.emulator.studies import (
    Method,
    Outcome,
    Workload,
    compare_methods,
    section,
    whole_layers,
)
from emuchain.emulator.studies.comparison import rank

FEW = settings(max_examples=25)


def network(shape: tuple[int, int, int], *operations: dict[str, Any]) -> Network:
    """A network of these operations and softmax."""
    return load_network({"name": "n", "input": shape, "layers": [*operations, {"type": "softmax"}]})


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """One to four convolutions and a fully connected layer."""
    channels = st.sampled_from([2, 3, 5, 16, 18])
    shape = draw(channels), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    convolutions = [
        {"type": "conv", "channels": draw(channels), "kernel": 3, "pad": 1}
        for _ in range(draw(st.integers(1, 4)))
    ]
    return network(shape, *convolutions, {"type": "fc", "features": draw(channels)})


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to three boards, alike or not."""
    board = st.builds(
        Fpga,
        st.just("b"),
        st.integers(1, 9).map(lambda n: 1000 * n),
        st.integers(150, 2000),
        st.just(1),
    )
    return Cluster(
        "c",
        tuple(draw(st.lists(board, min_size=1, max_size=3))),
        Link(draw(st.integers(1, 10**6)), 1000),
    )


# By hand: the network and the boards of docs/time-model.md. conv1 has 6 parameters and 6 inputs,
# fc1 has 18 and 8; a value is 4 bytes, a byte takes 2.5 ns, a hop 100 ns, a cycle 10 ns. All
# multiply-accumulates of a sample: 80.

MINI = network(
    (1, 2, 3), {"type": "conv", "channels": 2, "kernel": [1, 2]}, {"type": "fc", "features": 2}
)
PAIR = Cluster("pair", (Fpga("mini", 10_000, 4, 1000),), Link(3200, 100_000))
FOUR = Workload(MINI, PAIR, 4)
ROOMY = Workload(MINI, Cluster("roomy", (Fpga("b", 10_000, 100, 1000),), Link(3200, 100_000)), 4)


def test_data_parallel_by_hand() -> None:
    # Each device: two samples of 4 + 4 (FP, PG of conv1) + 4 + 4 + 4 (fc1) cycles, all multipliers
    # busy: 400 ns. Device 0 takes 96 bytes of gradients and sends as many of parameters, each 240 +
    # 100 ns.
    outcome = Method.DP.run(FOUR, 2)
    assert outcome == Outcome(2, 1_080_000, 4 * 80 / (2 * 4 * 108), (2 * 96 + 2 * 56,) * 2, 192)
    assert outcome.bandwidth_gbps == pytest.approx(192 * 8 / 1080)


def test_data_parallel_on_one_device_sends_nothing() -> None:
    assert Method.DP.run(FOUR, 1) == Outcome(1, 800_000, 1.0, (2 * 96 + 4 * 56,), 0)


def test_model_parallel_by_hand() -> None:
    # One output channel each: conv1 2 + 2 cycles, fc1 2 + 2 + 2, so 400 ns for four samples.
    # Outputs and parameters that a device lacks: 64 + 12 bytes (190 ns) and 16 + 36 bytes (130 ns),
    # two hops each. Sums of the input errors of fc1: 128 bytes (320 ns), there and back.
    footprint = (128 + 24) + (32 + 72) + 2 * 128
    expected = Outcome(2, 1_640_000, 4 * 80 / (2 * 4 * 164), (96 + 48 + 4 * 56,) * 2, footprint)
    assert Method.MP.run(FOUR, 2) == expected


@pytest.mark.parametrize("heads", [{"heads": 4}, {"heads": 8, "kv_heads": 4}], ids=str)
def test_model_parallel_shares_heads(heads: dict[str, int]) -> None:
    """Attention of many tokens, which takes nearly all the time, takes half of it on two
    devices.
    """
    attention = {"type": "attention", **heads}
    net = network(
        (48, 400, 1), attention, {"type": "global-average-pool"}, {"type": "fc", "features": 2}
    )
    workload = Workload(net, Cluster("pair", (Fpga("b", 10_000, 4, 1000),), Link(10**9, 1)), 2)
    one, two = (Method.MP.run(workload, devices).iteration_ps for devices in (1, 2))
    assert one / 2 <= two < one / 2 * 1.01


@pytest.mark.parametrize("method", [Method.LP, Method.HP])
def test_pipelines_by_hand(method: Method) -> None:
    # One layer each, a sample every 160 ns. On device 0 a sample's gradients follow 680 ns after
    # its start, so five are in flight; on device 1 240 ns after it, so two. 32 bytes each way for a
    # sample.
    expected = Outcome(
        2, 640_000, 4 * 80 / (2 * 4 * 64), (2 * 24 + 5 * 24, 2 * 72 + 2 * 32), 4 * 64
    )
    assert method.run(FOUR, 2) == expected


# Properties of any network


@FEW
@given(networks(), clusters(), st.integers(1, 6), st.integers(1, 4))
def test_no_method_computes_more_than_its_multipliers_can(
    net: Network, cluster: Cluster, batch: int, devices: int
) -> None:
    workload = Workload(net, cluster, batch)
    for method in Method:
        if devices <= method.most_devices(workload):
            outcome = method.run(workload, devices)
            assert 0 < outcome.flop_utilisation <= 1
            assert len(outcome.storage_bytes) == outcome.devices == devices
            assert (outcome.footprint_bytes > 0) == (devices > 1)


@FEW
@given(networks(), clusters(), st.integers(2, 5))
def test_whole_layers_are_cut_as_well_as_can_be(
    net: Network, cluster: Cluster, devices: int
) -> None:
    devices = min(devices, len(net.layers))
    slices = [Slice(layer, 0, cut_channels(layer)) for layer in net.layers]

    def slowest_ps(mapping: Mapping) -> int:
        return max(
            engine.sample_ps
            for device in range(devices)
            for held in allocate(mapping, device, cluster.board(device))
            for engine in held.built
        )

    found = whole_layers(Workload(net, cluster, 1), devices)
    assert list(itertools.chain(*found.devices)) == slices
    every = []
    for inner in itertools.combinations(range(1, len(slices)), devices - 1):
        bounds = itertools.pairwise((0, *inner, len(slices)))
        every.append(Mapping(net, tuple(tuple(slices[begin:end]) for begin, end in bounds)))
    assert slowest_ps(found) == min(map(slowest_ps, every))


@pytest.mark.parametrize("name", ["vgg16-cifar", "resnet8-cifar", "inception-cifar"])
@pytest.mark.parametrize("devices", [2, 9])
def test_the_hybrid_footprint_is_what_the_simulated_links_carry(
    plan_of: Callable[..., ChainPlan], name: str, devices: int
) -> None:
    plan = plan_of(network=name, devices=devices, batch=8, samples=8, memory="ignored")
    carried = sum(sum(link.path_bytes.values()) for link in simulate(plan, 8).usage.links)
    assert (
        Method.HP.run(Workload(plan.network, plan.cluster, 8), devices).footprint_bytes == carried
    )


@pytest.mark.parametrize("name", ["vgg16-cifar", "resnet8-cifar", "inception-cifar"])
@pytest.mark.parametrize("method", [Method.DP, Method.MP])
def test_more_devices_send_more_and_store_no_more_each(method: Method, name: str) -> None:
    workload = Workload(load_network(name), PAIR_OF_LARGE, 32)
    found = [method.run(workload, devices) for devices in (1, 2, 8)]
    footprints = [outcome.footprint_bytes for outcome in found]
    assert footprints == sorted(set(footprints))
    largest = [outcome.largest_storage_bytes for outcome in found]
    assert largest == sorted(largest, reverse=True)


PAIR_OF_LARGE = Cluster("large", (Fpga("large", 5000, 3600, 1000),), Link(150_000, 1_000_000))


def test_only_data_parallelism_sends_as_much_whatever_the_batch() -> None:
    net = load_network("vgg16-cifar")
    for method in Method:
        small, large = (
            method.run(Workload(net, PAIR_OF_LARGE, batch), 4).footprint_bytes for batch in (8, 16)
        )
        assert (small == large) == (method is Method.DP)


# Limits and ranks


def test_how_many_devices_a_method_can_use() -> None:
    workload = Workload(load_network("vgg16"), PAIR_OF_LARGE, 128)
    most = {method: method.most_devices(workload) for method in Method}
    assert (most[Method.DP], most[Method.LP], most[Method.MP]) == (128, 16, 64)
    assert most[Method.HP] > 1000


def test_a_method_is_left_out_beyond_its_most_devices() -> None:
    comparison = compare_methods(
        ROOMY, [1, 2, 3, 4]
    )  # four samples, two layers, two output channels of each, 2 + 2 to cut
    assert {method.name: list(found) for method, found in comparison.outcomes.items()} == {
        "DP": [1, 2, 3, 4],
        "LP": [1, 2],
        "MP": [1, 2],
        "HP": [1, 2, 3, 4],
    }
    assert comparison.common_devices == (2,)


def test_too_many_devices_for_every_method() -> None:
    with pytest.raises(InputError, match=r"`devices` = 5: must be 1 to 4"):
        compare_methods(FOUR, [5])


def test_ranks() -> None:
    values = {Method.DP: 3.0, Method.LP: 1.0, Method.MP: 3.0, Method.HP: 2.0}
    assert list(rank(values, more_is_better=True).values()) == [3, 1, 3, 2]
    assert list(rank(values, more_is_better=False).values()) == [1, 4, 1, 3]


def test_ranks_of_an_iteration_by_hand() -> None:
    # From the outcomes above. Storage: 608, 376, 736, 376; footprint: 192, 256, 512, 256; time:
    # 1080, 640, 1720, 640.
    found = {key: list(by.values()) for key, by in compare_methods(FOUR, [2]).ranks([2]).items()}
    assert found["flop_utilisation"] == [2, 3, 1, 3]
    assert found["total_storage_bytes"] == [2, 3, 1, 3]
    assert found["footprint_bytes"] == [4, 2, 1, 2]
    assert found["bandwidth_gbps"] == [4, 1, 3, 1]


def test_what_each_method_divides() -> None:
    divided = {method.name: sorted(method.dimensions) for method in Method}
    assert divided == {"DP": ["sample"], "LP": ["layer"], "MP": ["model"], "HP": ["layer", "model"]}


# Sections


def test_a_section_is_a_network_of_its_own() -> None:
    whole = load_network("vgg16")
    part = section(whole, "conv3_1", "conv5_3")
    assert [layer.name for layer in part.layers] == [layer.name for layer in whole.layers[4:13]]
    assert [layer.index for layer in part.layers] == list(range(9))
    assert part.input == (128, 56, 56)
    assert part.macs == sum(layer.macs for layer in whole.layers[4:13])


@pytest.mark.parametrize(
    "names", [("conv3_1", "conv9_9"), ("none", "conv3_1"), ("conv3_2", "conv3_1")]
)
def test_unknown_or_reversed_section(names: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=r"`layers` = "):
        section(load_network("vgg16"), *names)


def test_a_section_does_not_cut_a_shortcut() -> None:
    whole = load_network("resnet8-cifar")
    names = [layer.name for layer in whole.layers]
    crossed = next(layer.name for layer in whole.layers if len(layer.takes) > 1)
    with pytest.raises(InputError, match="branch"):
        section(whole, crossed, names[-1])
    # In a section that may begin there, what reads its entry reads its images.
    begin = next(
        index for index, layer in enumerate(whole.layers) if index > 0 and len(layer.takes) == 1
    )
    part = section(whole, names[begin], names[-1])
    outcome = Method.HP.run(Workload(part, PAIR_OF_LARGE, 8), 3)
    assert 0 < outcome.flop_utilisation < 1
    known = {0} | {
        tensor.number
        for layer in part.layers
        for tensor in (layer.makes, *(s.makes for s in layer.sfu))
    }
    assert {tensor.number for layer in part.layers for tensor in layer.takes} <= known
