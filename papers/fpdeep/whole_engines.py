"""Whole convolution engines (FPDeep, sections 5.3 and 5.4 to the letter): AlexNet on 15 boards that have them.

The number of CEs, P, is taken from the time of a row: the fewest with which a pixel takes no more cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...emulator.common import InputError
from ...emulator.mapping import idle_share, partition
from ...emulator.timing import Timing
from ..claim import Measure, Measured
from ..constants import cluster_of, kept
from .evidence import DEVICES, NETWORKS, network

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
    cluster = cluster_of("vc709", board__convolution_engines="whole")
    return Timing.of(partition(network(name), cluster, devices), cluster)


def _engines(phase: str) -> Iterator[_Engine]:
    """Yield FP or EB of all slices of convolutions."""
    timing = _timing("alexnet", DEVICES)
    for device, (parts, held) in enumerate(zip(timing.mapping.devices, timing.engines, strict=True)):
        period_ps = timing.cluster.board(device).period_ps
        for part, engines in zip(parts, held, strict=True):
            engine = engines.fp if phase == "fp" else engines.eb
            if engine is not None and part.layer.convolves:
                kernel, shape = part.layer.kernel, part.layer.output if phase == "fp" else part.layer.input
                tiles, cycles = engine.multipliers / (kernel[0] * kernel[1]), engine.row_ps / period_ps
                yield _Engine(tiles, len(part.in_channels), len(part.out_channels), cycles / shape[2])


def _tiles_over_inputs(phase: str) -> Measured:
    """Measure an engine's tiles for each of P over S: least, most."""
    ratios = [engine.tiles / engine.engines / engine.inputs for engine in _engines(phase)]
    return Measured([min(ratios), max(ratios)], f"tiles over P S, of {len(ratios)} engines: least, most")


def _broadcast() -> Measured:
    ratios = [engine.tiles / engine.inputs / engine.engines for engine in _engines("eb")]
    return Measured([min(ratios), max(ratios)], f"tiles of each of S CEs over P, of {len(ratios)} engines: least, most")


def _rate() -> Measured:
    """Measure the output channels that a CE makes in a cycle; below 1 where P does not divide OC."""
    rates = [engine.outputs / engine.pixel_cycles / engine.engines for engine in _engines("fp")]
    return Measured([sum(rates) / len(rates), max(rates)], "output channels of a CE in a cycle: mean, most")


def _whole() -> Measured:
    """Measure the share of FP engines with whole P, and how many boards the networks need for such engines."""
    counts = [engine.tiles / engine.inputs for engine in _engines("fp")]
    idle = 100 * idle_share(_timing("alexnet", DEVICES).mapping, _timing("alexnet", DEVICES).cluster)
    fewest = ", ".join(f"{name} {_fewest_devices(name)}" for name in NETWORKS)
    return Measured(
        sum(count.is_integer() for count in counts) / len(counts),
        f"share of {len(counts)} FP engines with whole P, AlexNet on 15, idle {idle:.0f} %; fewest FPGAs: {fewest}",
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


FUNCTIONS = {"tiles_over_inputs": _tiles_over_inputs}
MEASURES: dict[str, Measure] = {
    "fpdeep-fp-num-ce": _whole,
    "fpdeep-fp-ce-rate": _rate,
    "fpdeep-eb-broadcast": _broadcast,
}
