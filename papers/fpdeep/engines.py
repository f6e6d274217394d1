"""Engines (FPDeep, sections 5.3 to 5.5 and 6.3.3): tiles, cycles a pixel, PG; whole engines; data
paths.

The six data paths of FPDeep's section 5.1, and networks with branches (section 3.2, Fig. 3 (C)):
paths 1 to 4 are checked on all links between two devices that share a layer: 60 FPGAs, three
networks.

Whole convolution engines (sections 5.3 and 5.4 to the letter) are those of AlexNet on 15 boards
that have them. The number of CEs, P, is taken from the time of a row: the fewest with which a pixel
takes no more cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...emulator.cluster import Engine, board_keys, board_types, changeable_keys
from ...emulator.common import InputError
from ...emulator.mapping import (
    Cut,
    DataPath,
    Slice,
    Stream,
    channel_works,
    cut_channels,
    idle_share,
    partition,
    streams,
)
from ...emulator.network import Layer
from ...emulator.timing import Timing
from ..claim import Measured
from ..constants import kept
from .evidence import DEVICES, NETWORKS, cluster, layout, network, timing, vc709

_MANY = 60
_PATHS = [path for path in DataPath if not path.is_of_states]
_FORWARD = [path.value for path in _PATHS if path.is_forward]
_BACKWARD = [path.value for path in _PATHS if not path.is_forward]


def _shared_links() -> list[tuple[Slice, tuple[Stream, ...]]]:
    """Return the slice to the right and the streams of each link within a layer cut by input
    channels.
    """
    shared = []
    for name in NETWORKS:
        devices, links = timing(name, _MANY).mapping.devices, timing(name, _MANY).links
        for left, right, carried in zip(devices, devices[1:], links, strict=False):
            if left[-1].layer == right[0].layer and right[0].cut is Cut.ICP:
                shared.append((right[0], carried))
    return shared


def channels_on(number: int) -> Measured:
    """Count the links on which a path does not carry the inputs of devices further on, or the
    outputs, as it has to.
    """
    path, links = DataPath(number), _shared_links()
    is_of_inputs = path in (DataPath.ACTIVATIONS, DataPath.INPUT_ERRORS)
    wrong = 0
    for right, carried in links:
        if path is DataPath.INPUT_ERRORS and not right.layer.needs_errors:
            continue
        expected = right.layer.input[0] - right.begin if is_of_inputs else right.layer.channels
        wrong += [stream.channels for stream in carried if stream.path is path] != [expected]
    return Measured(wrong, f"links that carry something else, of {len(links)} within layers")


def number() -> Measured:
    """Count the data paths."""
    return Measured(len(_PATHS), f"{_FORWARD} run forwards, {_BACKWARD} backwards")


def pairs() -> Measured:
    """Return the data paths by their direction."""
    return Measured([_FORWARD, _BACKWARD])


def passing(name: str) -> Measured:
    """Measure the largest number of maps on path 1 of a link."""
    mapping = partition(network(name), cluster(), 6)
    maps = []
    for link in range(5):
        paths = [stream.path for stream in streams(mapping, link)]
        maps.append(paths.count(DataPath.ACTIVATIONS))
    return Measured(
        max(maps), f"{name} on 6 FPGAs, maps on path 1 of each link: {', '.join(map(str, maps))}"
    )


def extra_modules() -> Measured:
    """Return the modules that networks with branches need."""
    modules, names = set(), {"add": "add", "concat": "concatenate"}
    for name in ("resnet8-cifar", "inception-cifar"):
        for layer in network(name).layers:
            modules |= {
                names[step.operation.type] for step in layer.sfu if step.operation.type in names
            }
            modules |= {"bypass"} if layer.bypass else set()
    return Measured(sorted(modules), "in resnet8-cifar and inception-cifar")


def knobs() -> Measured:
    """Return what can be changed of a link."""
    named = ("link.bandwidth", "link.latency")
    keys = [key for key in changeable_keys() if key.startswith(named)]
    return Measured(keys, "keys of --what-if")


_PHASES = ("fp", "eb", "pg")


def _engines(*phases: str) -> Iterator[tuple[Slice, Engine]]:
    """Yield the slices of all convolutions with their engines for `phases`, three networks on 15
    FPGAs.
    """
    for name in NETWORKS:
        timed = timing(name)
        for parts, held in zip(timed.mapping.devices, timed.engines, strict=True):
            for part, engines in zip(parts, held, strict=True):
                if not part.layer.convolves:
                    continue
                for phase in phases:
                    engine = getattr(engines, phase)
                    if engine is not None:
                        yield part, engine


def _tile(layer: Layer) -> int:
    return layer.kernel[0] * layer.kernel[1]


def rounding() -> Measured:
    """Count the engines whose number of multipliers is not a multiple of K x K."""
    remainders = [engine.multipliers % _tile(part.layer) for part, engine in _engines(*_PHASES)]
    return Measured(sum(map(bool, remainders)), f"engines, of {len(remainders)}")


def macs_per_tile() -> Measured:
    """Measure a tile's multiply-accumulates in a cycle over K x K; below 1 where a row's last cycle
    is not full.
    """
    ratios = []
    for part, engine in _engines("fp"):
        tiles = engine.multipliers // _tile(part.layer)
        ratios.append(
            part.macs
            / (engine.sample_ps / cluster().board(0).period_ps)
            / tiles
            / _tile(part.layer)
        )
    return Measured([sum(ratios) / len(ratios), max(ratios)], "over K x K: mean, most")


def pixel_cycles(phase: str) -> Measured:
    """Measure the cycles of a pixel over OC / P, where P is the engine's tiles over its input
    channels.
    """
    ratios = []
    for part, engine in _engines(phase):
        columns = part.layer.output[2] if phase == "fp" else part.layer.input[2]
        parallel = engine.multipliers / _tile(part.layer) / len(part.in_channels)  # P
        ratios.append(
            engine.row_ps
            / cluster().board(0).period_ps
            / columns
            / (len(part.out_channels) / parallel)
        )
    return Measured(
        [sum(ratios) / len(ratios), max(ratios)], "over OC / P with P = tiles / S: mean, most"
    )


def pg_operations() -> Measured:
    """Measure PG's multiplier-cycles for a pair of channels over K x K x W x W."""
    ratios = []
    for name in NETWORKS:
        for layer in network(name).layers:
            if layer.convolves:
                _, rows, columns = layer.output
                pairs = layer.channels * layer.input[0]
                work = channel_works(layer)[-1].of_channels(cut_channels(layer)).macs
                ratios.append(work / (pairs * _tile(layer) * rows * columns))
    return Measured([min(ratios), max(ratios)], "least, most of all convolutions")


def pg_filters() -> Measured:
    """Measure the largest filter of PG."""
    layers = [layer for name in NETWORKS for layer in network(name).layers if layer.convolves]
    kernels = sorted({layer.kernel[0] for layer in layers})
    return Measured(
        max(layer.output[1] for layer in layers),
        f"FP's and EB's kernels: {', '.join(map(str, kernels))}",
    )


def pg_like() -> Measured:
    """Count the layers whose PG has other tiles than FP or EB."""
    layers = [layer for name in NETWORKS for layer in network(name).layers]
    differing = 0
    for layer in layers:
        tiles = {work.tile for work in channel_works(layer)}
        differing += len(tiles) != 1
    return Measured(differing, f"of {len(layers)} layers")


def modules() -> Measured:
    """List the modules that every device with convolutions has, and count the devices that lack
    one.
    """
    lacking = dict.fromkeys((*(phase.upper() for phase in _PHASES), "memory", "interconnect"), 0)
    count = 0
    for name in NETWORKS:
        timed = timing(name)
        for device, held in enumerate(layout(name).devices):
            parts = [number for number, part in enumerate(held.slices) if part.part.layer.convolves]
            if not parts:
                continue
            count += 1
            for phase in _PHASES:
                engines = (getattr(timed.engines[device][number], phase) for number in parts)
                lacking[phase.upper()] += not any(
                    engine is not None and engine.multipliers for engine in engines
                )
            memories = (held.slices[number].memory for number in parts)
            lacking["memory"] += not all(
                m.act_ram.bytes and m.lpram.bytes and m.lgb.bytes for m in memories
            )
            lacking["interconnect"] += not any(timed.links[max(0, device - 1) : device + 1])
    said = ", ".join(f"{module} on {many}" for module, many in lacking.items() if many)
    how = f"{count} FPGAs with convolutions, three networks on 15; lacking: {said or 'none'}"
    return Measured([module for module, many in lacking.items() if not many], how)


def transceivers() -> Measured:
    """Measure the most transceivers of any board."""
    boards = map(board_keys, board_types())
    counts = {board["name"]: board.get("transceivers", 0) for board in boards}
    best = max(counts, key=lambda name: counts[name])
    return Measured(counts[best], str(best))


_MOST = 100


class _Engine(NamedTuple):
    """FP or EB of a slice: its tiles, input and output channels, and the cycles of a pixel."""

    tiles: float
    inputs: int
    outputs: int
    pixel_cycles: float

    @property
    def engines(self) -> int:
        """P."""
        return -int(-self.outputs // self.pixel_cycles)


@kept
def _timing(name: str, devices: int) -> Timing:
    cluster = vc709(board__convolution_engines="whole")
    return Timing.of(partition(network(name), cluster, devices), cluster)


def _whole_engines(phase: str) -> Iterator[_Engine]:
    """Yield FP or EB of all slices of convolutions."""
    timing = _timing("alexnet", DEVICES)
    for device, (parts, held) in enumerate(
        zip(timing.mapping.devices, timing.engines, strict=True)
    ):
        period_ps = timing.cluster.board(device).period_ps
        for part, engines in zip(parts, held, strict=True):
            engine = engines.fp if phase == "fp" else engines.eb
            if engine is not None and part.layer.convolves:
                kernel, shape = (
                    part.layer.kernel,
                    part.layer.output if phase == "fp" else part.layer.input,
                )
                tiles, cycles = (
                    engine.multipliers / (kernel[0] * kernel[1]),
                    engine.row_ps / period_ps,
                )
                yield _Engine(
                    tiles, len(part.in_channels), len(part.out_channels), cycles / shape[2]
                )


def tiles_over_inputs(phase: str) -> Measured:
    """Measure an engine's tiles for each of P over S: least, most."""
    ratios = [engine.tiles / engine.engines / engine.inputs for engine in _whole_engines(phase)]
    return Measured(
        [min(ratios), max(ratios)], f"tiles over P S, of {len(ratios)} engines: least, most"
    )


def broadcast() -> Measured:
    """Measure the tiles of each of S CEs over P in EB."""
    ratios = [engine.tiles / engine.inputs / engine.engines for engine in _whole_engines("eb")]
    return Measured(
        [min(ratios), max(ratios)],
        f"tiles of each of S CEs over P, of {len(ratios)} engines: least, most",
    )


def rate() -> Measured:
    """Measure the output channels that a CE makes in a cycle; below 1 where P does not divide
    OC.
    """
    rates = [
        engine.outputs / engine.pixel_cycles / engine.engines for engine in _whole_engines("fp")
    ]
    return Measured(
        [sum(rates) / len(rates), max(rates)], "output channels of a CE in a cycle: mean, most"
    )


def whole() -> Measured:
    """Measure the share of FP engines with whole P, and how many boards the networks need for such
    engines.
    """
    counts = [engine.tiles / engine.inputs for engine in _whole_engines("fp")]
    idle = 100 * idle_share(
        _timing("alexnet", DEVICES).mapping, _timing("alexnet", DEVICES).cluster
    )
    fewest = ", ".join(f"{name} {_fewest_devices(name)}" for name in NETWORKS)
    return Measured(
        sum(count.is_integer() for count in counts) / len(counts),
        f"share of {len(counts)} FP engines with whole P, AlexNet on 15, idle {idle:.0f} %; fewest"
        f" FPGAs: {fewest}",
    )


def _fewest_devices(name: str) -> int | None:
    """Return the fewest boards on which a network's whole engines find room."""
    for devices in range(1, _MOST):
        try:
            _timing(name, devices)
        except InputError:
            continue
        return devices
    return None
