"""1D against 2D: traffic by hand, properties of any mapping, and VGG-16's CONV-3 to CONV-5."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Cluster, Fpga, Link, load_cluster
from emuchain.emulator.mapping import Mapping, Slice, partition
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.studies import (
    Ports,
    Topology,
    chain_topology,
    direct_topology,
    other_topologies,
    section,
)

CLUSTER = Cluster(
    "c", (Fpga("b", 10_000, 400, 1000),), Link(10**9, 0)
)  # the mapping is that of engines alone
TEN = Ports(10, 1.0)


def network(shape: tuple[int, int, int], *channels: int) -> Network:
    """Convolutions with 1x1 kernels."""
    convolutions = [{"type": "conv", "channels": count, "kernel": 1} for count in channels]
    layers = [*convolutions, {"type": "fc", "features": 2}, {"type": "softmax"}]
    return section(
        load_network({"name": "n", "input": shape, "layers": layers}),
        "conv1",
        f"conv{len(channels)}",
    )


def both(
    mapping: Mapping, cluster: Cluster = CLUSTER, ports: Ports = TEN
) -> tuple[Topology, Topology]:
    """1D and 2D."""
    return chain_topology(mapping, cluster, ports), direct_topology(mapping, cluster, ports)


def spread(devices: int) -> Mapping:
    """A layer of 18 inputs of 1x4 on the first device, one of 24 over all devices, and one of 4 on
    the last.

    A channel of a sample is 16 bytes.
    """
    net = network((18, 1, 4), 24, 4, 2)
    first, second, third = net.layers
    share = 24 // devices
    held = [[Slice(second, share * device, share * (device + 1))] for device in range(devices)]
    held[0].insert(0, Slice(first, 0, 18))
    held[-1].append(Slice(third, 0, 4))
    return Mapping(net, tuple(map(tuple, held)))


def test_traffic_by_hand() -> None:
    one, two = both(spread(3))
    # Chain: 16 and then 8 input channels go on, and their errors come back; 4 partial outputs and
    # output errors.
    assert one.traffic == {(0, 1): 320, (1, 0): 320, (1, 2): 192, (2, 1): 192}
    # Direct: device 0 has the inputs, device 2 completes the outputs.
    assert two.traffic == {
        (0, 1): 128,
        (1, 0): 128,
        (0, 2): 192,
        (2, 0): 192,
        (1, 2): 64,
        (2, 1): 64,
    }


def test_other_topologies_by_hand() -> None:
    """Nothing is sent past a neighbour, so links carry what a chain's do; a port carries what goes
    to both sides.
    """
    found = other_topologies(spread(3), CLUSTER, TEN)
    assert list(found) == ["ring", "switch", "torus"]
    carried = {(0, 1): 320, (1, 0): 320, (1, 2): 192, (2, 1): 192}
    assert found["ring"].traffic == found["torus"].traffic == {**carried, (0, 2): 0, (2, 0): 0}
    assert [found["ring"].degree(device) for device in range(3)] == [2, 2, 2]
    assert found["ring"].worst_link_images_per_s == pytest.approx(5e9 / (8 * 320))
    ports = {(0, 3): 320, (3, 0): 320, (1, 3): 512, (3, 1): 512, (2, 3): 192, (3, 2): 192}
    assert found["switch"].traffic == ports
    assert found["switch"].bottleneck in ((1, 3), (3, 1)) and found["switch"].link_ports(1, 3) == 10
    assert found["switch"].worst_link_images_per_s == pytest.approx(10e9 / (8 * 512))
    assert (
        other_topologies(spread(8), CLUSTER, TEN)["torus"].degree(3) == 3
    )  # 2 x 4: one link across two lines


def test_errors_of_the_images_are_not_sent() -> None:
    net = network((18, 1, 4), 4)
    mapping = Mapping(
        net, tuple((Slice(net.layers[0], 6 * device, 6 * device + 6),) for device in range(3))
    )
    one, two = both(mapping)
    assert one.traffic == {(0, 1): 192 + 64, (1, 0): 64, (1, 2): 96 + 64, (2, 1): 64}
    assert two.traffic == {(0, 1): 96, (0, 2): 96 + 64, (2, 0): 64, (1, 2): 64, (2, 1): 64}
    assert two.bottleneck == (0, 2)


def test_2d_is_better_where_degrees_are_low_and_1d_where_they_are_high() -> None:
    # Three devices with 10 ports each have 5 for each link in both topologies.
    one, two = both(spread(3))
    assert [one.degree(device) for device in range(3)] == [1, 2, 1]
    assert [two.degree(device) for device in range(3)] == [2, 2, 2]
    assert one.worst_link_images_per_s == pytest.approx(5e9 / (8 * 320))
    assert two.worst_link_images_per_s == pytest.approx(5e9 / (8 * 192))
    # Of eight, the first and the last have seven links of one port each; one carries 3 input and 4
    # output channels.
    one, two = both(spread(8))
    assert two.degree(0) == two.degree(7) == 7
    assert {two.degree(device) for device in range(1, 7)} == {2}
    assert two.worst_link_images_per_s == pytest.approx(1e9 / (8 * 112))
    assert one.worst_link_images_per_s == pytest.approx(5e9 / (8 * (21 + 4) * 16))
    assert one.worst_link_images_per_s > two.worst_link_images_per_s


def test_throughput_is_that_of_the_slower_of_engines_and_worst_link() -> None:
    slow, fast = (chain_topology(spread(3), CLUSTER, Ports(10, gbps)) for gbps in (1e-6, 1e6))
    assert slow.images_per_s == slow.worst_link_images_per_s < slow.compute_images_per_s
    assert fast.images_per_s == fast.compute_images_per_s < fast.worst_link_images_per_s


def test_a_board_with_more_links_than_ports_has_no_throughput() -> None:
    assert direct_topology(spread(8), CLUSTER, Ports(6, 1.0)).images_per_s == 0


def test_one_device_has_no_links() -> None:
    net = network((18, 1, 4), 4)
    for found in both(Mapping(net, ((Slice(net.layers[0], 0, 18),),))):
        assert found.bottleneck is None
        assert found.images_per_s == found.compute_images_per_s


@settings(max_examples=40)
@given(
    st.integers(1, 20),
    st.lists(st.sampled_from([2, 5, 16, 18, 24]), min_size=1, max_size=4),
    st.integers(1, 9),
)
def test_properties_of_any_mapping(inputs: int, channels: list[int], devices: int) -> None:
    net = network((inputs, 2, 3), *channels)
    one, two = both(partition(net, CLUSTER, min(devices, inputs)))
    assert all(abs(sender - receiver) == 1 for sender, receiver in one.traffic)
    assert all(one.degree(device) <= 2 for device in range(devices))
    # Direct links relay nothing and reach every device.
    assert sum(two.traffic.values()) <= sum(one.traffic.values())
    assert all(two.degree(device) > 0 for device in range(two.devices)) or two.devices == 1


@pytest.mark.parametrize("name", ["resnet8-cifar", "inception-cifar"])
@pytest.mark.parametrize("devices", [2, 5, 12])
def test_what_passes_by_in_1d_goes_directly_in_2d(name: str, devices: int) -> None:
    one, two = both(partition(load_network(name), CLUSTER, devices))
    assert 0 < sum(two.traffic.values()) <= sum(one.traffic.values())
    assert {device for pair in two.traffic for device in pair} == set(range(devices))


def test_vgg16_conv3_to_conv5() -> None:
    net, cluster = section(load_network("vgg16"), "conv3_1", "conv5_3"), load_cluster("vc709")
    pairs = {devices: both(partition(net, cluster, devices), cluster) for devices in range(2, 17)}
    for devices, (one, two) in pairs.items():
        assert max(map(one.degree, range(devices))) == min(2, devices - 1)
        if devices > 2:
            assert one.bottleneck is not None
            assert one.link_ports(*one.bottleneck) == 5
        if devices <= 4:  # no layer is on three devices yet, so 2D needs the same links as 1D
            assert two.worst_link_images_per_s >= one.worst_link_images_per_s
        if devices > 8:
            assert two.worst_link_images_per_s < one.worst_link_images_per_s
    assert max(map(pairs[16][1].degree, range(16))) >= 5
