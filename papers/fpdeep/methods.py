"""The alternatives of FPDeep's section 3.3: Tables 4 and 5, Fig. 5, and the text's statements on
each method.

1D against 2D (FPDeep, section 4.2, Figs. 9 and 10): VGG-16's CONV-3 to CONV-5 on boards with ten
ports.
"""

from __future__ import annotations

import itertools
import math

from ...emulator.mapping import partition, streams
from ...emulator.studies import (
    Method,
    Ports,
    Topology,
    chain_topology,
    direct_topology,
    section,
    whole_layers,
)
from ...kernels.number import FP32
from ..claim import Measured
from ..constants import kept
from .evidence import DEVICES, NETWORKS, cluster, comparison, layout, mapping, network

PORTS = Ports(10, 13.1)
"""Ten ports (FPDeep, section 4.2); 13.1 Gb/s is the maximum of a Virtex-7's GTH (Xilinx DS183)."""
DEVICES_OF_FIG_9 = 8
SIZES_OF_FIG_10 = tuple(range(2, 17))


@kept
def pair(devices: int) -> tuple[Topology, Topology]:
    """Return the 1D and the 2D topology."""
    mapped = partition(section(network("vgg16"), "conv3_1", "conv5_3"), cluster(), devices)
    return chain_topology(mapped, cluster(), PORTS), direct_topology(mapped, cluster(), PORTS)


def bottleneck(dimensions: int) -> tuple[int, int]:
    """Return the degree of the bottleneck's device, and the ports of its links."""
    topology = pair(DEVICES_OF_FIG_9)[dimensions - 1]
    assert topology.bottleneck is not None, "there are links"
    return max(map(topology.degree, topology.bottleneck)), topology.link_ports(*topology.bottleneck)


def advantage(devices: int) -> float:
    """Return the rate of 1D's worst link over that of 2D's."""
    one, two = pair(devices)
    return one.worst_link_images_per_s / two.worst_link_images_per_s


def beyond_five() -> Measured:
    """Measure 1D's advantage with more than five FPGAs."""
    sizes = [devices for devices in SIZES_OF_FIG_10 if devices > 5]
    return Measured(
        [advantage(devices) for devices in sizes],
        f"1D over 2D with {sizes[0]} to {sizes[-1]} FPGAs",
    )


def at_four() -> Measured:
    """Measure 2D's advantage with four FPGAs."""
    advantages = ", ".join(f"{devices}: {advantage(devices):.2f}" for devices in SIZES_OF_FIG_10)
    return Measured(1 / advantage(4), f"2D over 1D; 1D over 2D with {advantages}")


def chain() -> Measured:
    """Measure the most links of any FPGA of a chain."""
    topology = chain_topology(mapping("vgg16"), cluster(), PORTS)
    return Measured(
        max(map(topology.degree, range(DEVICES))), "most links of any FPGA, VGG-16 on 15"
    )


_METHODS = {"dp": Method.DP, "lp": Method.LP, "mp": Method.MP, "fpdeep": Method.HP}
_METRICS = {
    "parallel-opt": "most_devices",
    "flop-util": "flop_utilisation",
    "storage-req": "total_storage_bytes",
    "comm-footprint": "footprint_bytes",
    "comm-bandwidth": "bandwidth_gbps",
}


def dimensions(method: str) -> Measured:
    """Return the dimensions that a method divides."""
    divided = _METHODS[method].dimensions
    return Measured(
        ["Y" if dimension in divided else "N" for dimension in ("sample", "layer", "model")]
    )


def _ranks(metric: str) -> dict[Method, int]:
    compared = comparison()
    return compared.ranks(compared.common_devices)[_METRICS[metric]]


def rank(method: str, metric: str) -> Measured:
    """Measure a method's place by a metric."""
    return Measured(_ranks(metric)[_METHODS[method]])


def order(metric: str, *names: str) -> Measured:
    """Sort these methods, best first."""
    ranks = _ranks(metric)
    ordered = sorted(names, key=lambda name: -ranks[_METHODS[name]])
    return Measured([{"fpdeep": "FPDeep"}.get(name, name.upper()) for name in ordered])


def more_bandwidth() -> Measured:
    """Sort LP's pipeline and DP's burst by the bandwidth averaged over the iteration, most
    first.
    """
    compared = comparison()

    def gbps(method: Method) -> float:
        outcomes = compared.outcomes[method]
        return sum(outcomes[devices].bandwidth_gbps for devices in compared.common_devices)

    most_first = sorted((Method.LP, Method.DP), key=gbps, reverse=True)
    return Measured([method.name for method in most_first])


def most_devices(method: str) -> Measured:
    """Measure the most devices that a method can use."""
    return Measured(comparison().most_devices[_METHODS[method]])


def layers() -> Measured:
    """Count VGG-16's convolutions and its other layers."""
    layers = network("vgg16").layers
    convolutions = sum(layer.convolves for layer in layers)
    return Measured([convolutions, len(layers) - convolutions])


def copies() -> Measured:
    """Measure the least storage of a device over the parameters and the activations of its
    samples.
    """
    compared = comparison()
    workload, least = compared.workload, []
    for method in (Method.DP, Method.MP):
        for devices, outcome in compared.outcomes[method].items():
            samples = workload.batch // devices if method is Method.DP else workload.batch
            least.append(
                min(outcome.storage_bytes)
                / (workload.parameter_bytes + samples * workload.activation_bytes)
            )
    return Measured(
        min(least),
        "least storage of any FPGA over a copy of the model and all activations of its samples",
    )


def neighbours_only() -> Measured:
    """Return the data paths between neighbours."""
    mapping = whole_layers(comparison().workload, 16)
    paths = {stream.path.value for link in range(15) for stream in streams(mapping, link)}
    return Measured(
        sorted(paths), "data paths between neighbours, 16 FPGAs; there are no other links"
    )


def against_trend(what: str) -> Measured:
    """Count VGG-16's convolutions that go against a trend."""
    layers = [layer for layer in network("vgg16").layers if layer.convolves]
    if what == "activations":  # fall towards the output, and parameters grow
        sizes = [-math.prod(layer.output) for layer in layers]
    else:
        sizes = [layer.weight_shape[0] * layer.weight_shape[1] * 9 for layer in layers]
    wrong = sum(after < before for before, after in itertools.pairwise(sizes))
    return Measured(
        wrong, f"layers against the trend, of {len(layers)}; {abs(sizes[0])} to {abs(sizes[-1])}"
    )


def coarse_pipeline() -> Measured:
    """Measure activations that wait for PG in a pipeline of whole maps (Fig. 11(B)), over those in
    FPDeep's Act-RAMs.

    There each layer works on another sample: after FP of layer l of L, its inputs wait for the L -
    l layers behind it and the way back, with 2 (L - l) + 1 samples in all.
    """
    ratios = []
    for name in NETWORKS:
        held = sum(s.memory.act_ram.bytes for device in layout(name).devices for s in device.slices)
        layers = network(name).layers
        waiting = sum(
            (2 * behind + 1) * FP32.bytes_of(math.prod(layer.input))
            for behind, layer in enumerate(reversed(layers))
        )
        ratios.append(waiting / held)
    return Measured(ratios, "on 15 FPGAs: AlexNet, VGG-16, VGG-19")
