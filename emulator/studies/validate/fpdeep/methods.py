"""The alternatives of FPDeep's section 3.3: Tables 4 and 5, Fig. 5, and the text's statements on each method."""

from __future__ import annotations

import itertools
import math
from functools import partial

from ....mapping import VALUE_BYTES, streams
from ... import Method, whole_layers
from ..measure import Measure, Measured
from .evidence import NETWORKS, comparison, layout, network

_METHODS = {"dp": Method.DP, "lp": Method.LP, "mp": Method.MP, "fpdeep": Method.HP}
_METRICS = {
    "parallel-opt": "most_devices",
    "flop-util": "flop_utilisation",
    "storage-req": "total_storage_bytes",
    "comm-footprint": "footprint_bytes",
    "comm-bandwidth": "bandwidth_gbps",
}


def _dimensions(method: Method) -> Measured:
    divided = method.dimensions
    return Measured(["Y" if each in divided else "N" for each in ("sample", "layer", "model")])


def _ranks(metric: str) -> dict[Method, int]:
    found = comparison()
    return found.ranks(found.common_devices)[_METRICS[metric]]


def _rank(method: Method, metric: str) -> Measured:
    return Measured(_ranks(metric)[method])


def _order(metric: str, *names: str) -> Measured:
    """Sort these methods, best first."""
    ranks = _ranks(metric)
    ordered = sorted(names, key=lambda name: -ranks[_METHODS[name]])
    return Measured([{"fpdeep": "FPDeep"}.get(name, name.upper()) for name in ordered])


def _more_bandwidth() -> Measured:
    """Sort LP's pipeline and DP's burst by the bandwidth averaged over the iteration, most first."""
    found = comparison()
    gbps = {
        name: sum(found.outcomes[method][devices].bandwidth_gbps for devices in found.common_devices)
        for name, method in (("LP", Method.LP), ("DP", Method.DP))
    }
    return Measured(sorted(gbps, key=lambda name: -gbps[name]))


def _most_devices(method: Method) -> Measured:
    return Measured(comparison().most_devices[method])


def _layers() -> Measured:
    layers = network("vgg16").layers
    return Measured([sum(layer.convolves for layer in layers), sum(not layer.convolves for layer in layers)])


def _copies() -> Measured:
    """Measure the least storage of a device over the parameters and the activations of its samples."""
    found = comparison()
    workload, least = found.workload, []
    for method in (Method.DP, Method.MP):
        for devices, outcome in found.outcomes[method].items():
            samples = workload.batch // devices if method is Method.DP else workload.batch
            least.append(min(outcome.storage_bytes) / (workload.parameter_bytes + samples * workload.activation_bytes))
    return Measured(min(least), "least storage of any FPGA over a copy of the model and all activations of its samples")


def _neighbours_only() -> Measured:
    mapping = whole_layers(comparison().workload, 16)
    paths = {stream.path.value for link in range(15) for stream in streams(mapping, link)}
    return Measured(sorted(paths), "data paths between neighbours, 16 FPGAs; there are no other links")


def _rises(what: str) -> Measured:
    layers = [layer for layer in network("vgg16").layers if layer.convolves]
    sizes = {
        "activations": [-layer.output[0] * layer.output[1] * layer.output[2] for layer in layers],
        "parameters": [layer.weight_shape[0] * layer.weight_shape[1] * 9 for layer in layers],
    }[what]
    wrong = sum(after < before for before, after in itertools.pairwise(sizes))
    return Measured(wrong, f"layers against the trend, of {len(layers)}; {abs(sizes[0])} to {abs(sizes[-1])}")


def _coarse_pipeline() -> Measured:
    """Measure activations that wait for PG in a pipeline of whole maps (Fig. 11(B)), over those in FPDeep's Act-RAMs.

    There each layer works on another sample: after FP of layer l of L, its inputs wait for the L - l layers behind it
    and the way back, with 2 (L - l) + 1 samples in all.
    """
    found = []
    for name in NETWORKS:
        held = sum(s.memory.act_ram.bytes for device in layout(name).devices for s in device.slices)
        layers = network(name).layers
        waiting = sum(
            (2 * behind + 1) * VALUE_BYTES * math.prod(layer.input) for behind, layer in enumerate(reversed(layers))
        )
        found.append(waiting / held)
    return Measured(found, "on 15 FPGAs: AlexNet, VGG-16, VGG-19")


def _ranked() -> dict[str, Measure]:
    return {
        f"fpdeep-t5-{name}-{metric}": partial(_rank, method, metric)
        for name, method in _METHODS.items()
        for metric in _METRICS
    }


MEASURES: dict[str, Measure] = {
    "fpdeep-t4-dp": partial(_dimensions, Method.DP),
    "fpdeep-t4-lp": partial(_dimensions, Method.LP),
    "fpdeep-t4-mp": partial(_dimensions, Method.MP),
    "fpdeep-t4-hp": partial(_dimensions, Method.HP),
    **_ranked(),
    "fpdeep-order-flop-util": partial(_order, "flop-util", *_METHODS),
    "fpdeep-order-storage": partial(_order, "storage-req", *_METHODS),
    "fpdeep-order-footprint": partial(_order, "comm-footprint", *_METHODS),
    "fpdeep-order-bandwidth": partial(_order, "comm-bandwidth", *_METHODS),
    "fpdeep-layer-order-link": _more_bandwidth,
    "fpdeep-dp-device-limit": partial(_most_devices, Method.DP),
    "fpdeep-lp-device-limit": partial(_most_devices, Method.LP),
    "fpdeep-mp-device-limit": partial(_most_devices, Method.MP),
    "fpdeep-vgg16-layers": _layers,
    "fpdeep-dp-copies-params": _copies,
    "fpdeep-lp-neighbour-only": _neighbours_only,
    "fpdeep-fig6-act-trend": partial(_rises, "activations"),
    "fpdeep-fig6-param-trend": partial(_rises, "parameters"),
    "fpdeep-fine-storage-less": _coarse_pipeline,
}
