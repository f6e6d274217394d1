"""Layer parallelism and FPDeep's hybrid: a chain through which samples stream (FPDeep, sections 3.3 and 4.4).

Both are the chain that `emuchain simulate` runs, with its engines, links and schedule `fpdeep`: a mini-batch follows
the one before it at once, so an iteration takes `batch` intervals of the slowest server. They differ in the mapping
alone: layer parallelism gives each device whole layers, hybrid parallelism cuts layers by channels too.
"""

from __future__ import annotations

import functools
import math

from ...cluster.board import Board
from ...common.errors import InputError
from ...mapping.engines import allocate
from ...mapping.partition import partition
from ...mapping.slices import Mapping, Slice, cut_channels
from ...mapping.traffic import VALUE_BYTES
from ...network.layers import Network
from ...plan.steady import find_steady
from ...timing.timing import Timing
from .outcome import Outcome
from .workload import Workload, parameter_bytes, weight_bytes


def hybrid_parallel(workload: Workload, devices: int) -> Outcome:
    """An iteration of FPDeep's own mapping.

    Raises:
        InputError: more devices than channels, or a board has too few multipliers.
    """
    return _stream(workload, partition(workload.network, workload.cluster, devices))


def layer_parallel(workload: Workload, devices: int) -> Outcome:
    """An iteration of the fastest cut into consecutive whole layers.

    Raises:
        InputError: a board has too few multipliers.
    """
    return _stream(workload, whole_layers(workload, devices))


def whole_layers(workload: Workload, devices: int) -> Mapping:
    """The mapping of consecutive whole layers whose slowest engine is as fast as may be, by dynamic programming.

    With layers 0 … k - 1 on devices 0 … d, the least slowest time is that over all j < k of the slower one of layers
    0 … j - 1 on one device fewer and layers j … k - 1 on device d.
    """
    network, cluster = workload.network, workload.cluster
    layers = len(network.layers)
    group_ps = functools.cache(functools.partial(_group_ps, network))
    best = [0.0] + [math.inf] * layers
    begins = []
    for device in range(devices):
        board, before = cluster.board(device), best
        best, starts = [math.inf] * (layers + 1), [device] * (layers + 1)
        for end in range(device + 1, layers + 1):
            best[end], starts[end] = min(
                (max(before[begin], group_ps(begin, end, board)), begin) for begin in range(device, end)
            )
        begins.append(starts)
    groups: list[tuple[Slice, ...]] = []
    end = layers
    for starts in reversed(begins):
        groups.append(_whole(network, starts[end], end))
        end = starts[end]
    return Mapping(network, tuple(reversed(groups)))


def _whole(network: Network, begin: int, end: int) -> tuple[Slice, ...]:
    return tuple(Slice(layer, 0, cut_channels(layer)) for layer in network.layers[begin:end])


def _group_ps(network: Network, begin: int, end: int, board: Board) -> float:
    """What the slowest engine takes for a sample; infinite where the board is too small."""
    try:
        engines = allocate(Mapping(network, (_whole(network, begin, end),)), 0, board)
    except InputError:
        return math.inf
    return max(engine.sample_cycles * board.period_ps for held in engines for engine in held.built)


def _stream(workload: Workload, mapping: Mapping) -> Outcome:
    timing = Timing.of(mapping, workload.cluster)
    devices = len(mapping.devices)
    iteration_ps = workload.batch * timing.interval_ps
    in_flight = find_steady(timing, workload.batch).in_flight
    return Outcome(
        devices,
        iteration_ps,
        workload.utilisation(devices, iteration_ps),
        tuple(_storage_bytes(*held) for held in zip(mapping.devices, in_flight, strict=True)),
        workload.batch * sum(stream.sample_bytes for link in timing.links for stream in link),
    )


def _storage_bytes(slices: tuple[Slice, ...], in_flight: int) -> int:
    """LPRAM, as much for LGB, and Act-RAM (FPDeep, section 5.2.2)."""
    parameters = activations = 0
    for part in slices:
        layer = part.layer
        parameters += VALUE_BYTES * len(part.in_channels) * len(part.out_channels) * math.prod(layer.kernel)
        parameters += parameter_bytes(layer) - weight_bytes(layer) if part.is_last else 0
        activations += VALUE_BYTES * len(part.in_channels) * math.prod(layer.input[1:])
    return 2 * parameters + in_flight * activations
