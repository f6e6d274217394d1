"""The six data paths of FPDeep's section 5.1, and networks with branches (section 3.2, Fig. 3 (C)).

Paths 1 to 4 are checked on all links between two devices that share a layer: 60 FPGAs, three networks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....cluster import changeable_keys
from ....mapping import Cut, DataPath, Slice, Stream, partition, streams
from ..measure import Measure, Measured
from .evidence import NETWORKS, cluster, network, timing

_MANY = 60
_PAPERS = [path for path in DataPath if not path.is_of_states]
"""All but those of recurrent layers, which the paper does not have."""
_FORWARD, _BACKWARD = ([path.value for path in _PAPERS if path.is_forward is forward] for forward in (True, False))


def _shared_links() -> list[tuple[Slice, tuple[Stream, ...]]]:
    """Return the slice to the right and the streams of each link within a layer cut by input channels."""
    found = []
    for name in NETWORKS:
        devices, links = timing(name, _MANY).mapping.devices, timing(name, _MANY).links
        for left, right, carried in zip(devices, devices[1:], links, strict=False):
            if left[-1].layer == right[0].layer and right[0].cut is Cut.ICP:
                found.append((right[0], carried))
    return found


def _against(path: DataPath, channels: Callable[[Slice], int]) -> Measured:
    """Count the links on which `path` does not carry the expected number of channels."""
    links = _shared_links()
    wrong = 0
    for right, carried in links:
        if path is DataPath.INPUT_ERRORS and not right.layer.needs_errors:
            continue
        wrong += [stream.channels for stream in carried if stream.path is path] != [channels(right)]
    return Measured(wrong, f"links that carry something else, of {len(links)} within layers")


def _beyond(right: Slice) -> int:
    """Return the number of input channels that devices further on convolve."""
    return right.layer.input[0] - right.begin


def _outputs(right: Slice) -> int:
    return right.layer.channels


def _number() -> Measured:
    return Measured(len(_PAPERS), f"{_FORWARD} run forwards, {_BACKWARD} backwards")


def _pairs() -> Measured:
    return Measured([_FORWARD, _BACKWARD])


def _passing(name: str) -> Measured:
    """Measure the largest number of maps on path 1 of a link."""
    found = partition(network(name), cluster(), 6)
    maps = [sum(stream.path is DataPath.ACTIVATIONS for stream in streams(found, link)) for link in range(5)]
    return Measured(max(maps), f"{name} on 6 FPGAs, maps on path 1 of each link: {', '.join(map(str, maps))}")


def _extra_modules() -> Measured:
    found, names = set(), {"add": "add", "concat": "concatenate"}
    for name in ("resnet8-cifar", "inception-cifar"):
        for layer in network(name).layers:
            found |= {names[step.operation.type] for step in layer.sfu if step.operation.type in names}
            found |= {"bypass"} if layer.bypass else set()
    return Measured(sorted(found), "in resnet8-cifar and inception-cifar")


def _knobs() -> Measured:
    named = ("bandwidth", "latency")
    found = [key for key in changeable_keys() if key.startswith(tuple(f"link.{knob}" for knob in named))]
    return Measured(found, "keys of --what-if")


MEASURES: dict[str, Measure] = {
    "fpdeep-six-datapaths": _number,
    "fpdeep-interconnect-pairs": _pairs,
    "fpdeep-datapath-1": partial(_against, DataPath.ACTIVATIONS, _beyond),
    "fpdeep-datapath-2": partial(_against, DataPath.PARTIAL_ACTIVATIONS, _outputs),
    "fpdeep-datapath-3": partial(_against, DataPath.OUTPUT_ERRORS, _outputs),
    "fpdeep-datapath-4": partial(_against, DataPath.INPUT_ERRORS, _beyond),
    "fpdeep-resnet-mapping": partial(_passing, "resnet8-cifar"),
    "fpdeep-inception-mapping": partial(_passing, "inception-cifar"),
    "fpdeep-ext-modules": _extra_modules,
    "fpdeep-sim-params": _knobs,
}
