"""Layer parallelism and FPDeep's hybrid: a chain through which samples stream (FPDeep, sections 3.3 and 4.4).

Both are the chain that `emuchain simulate` runs, with its engines, links and schedule `fpdeep`: a mini-batch follows
the previous one without a gap, so an iteration takes `batch` intervals of the slowest server. They differ only in the
mapping: layer parallelism gives each device whole layers, hybrid parallelism cuts layers by channels too.
"""

from __future__ import annotations

import functools
import math

from ...cluster import Board
from ...common import InputError
from ...mapping import VALUE_BYTES, Mapping, Slice, allocate, cut_channels, partition
from ...network import Network
from ...plan import find_steady
from ...timing import Timing
from .outcome import Outcome
from .workload import Workload, parameter_bytes, weight_bytes


def hybrid_parallel(workload: Workload, devices: int) -> Outcome:
    """Return the outcome of an iteration with FPDeep's own mapping.

    Raises:
        InputError: there are more devices than channels, or a board has too few multipliers.
    """
    return _stream(workload, partition(workload.network, workload.cluster, devices))


def layer_parallel(workload: Workload, devices: int) -> Outcome:
    """Return the outcome of an iteration with the fastest mapping of consecutive whole layers.

    Raises:
        InputError: a board has too few multipliers.
    """
    return _stream(workload, whole_layers(workload, devices))


def whole_layers(workload: Workload, devices: int) -> Mapping:
    """Return the mapping of consecutive whole layers whose slowest engine is fastest, by dynamic programming.

    With layers 0 … k - 1 on devices 0 … d, the optimum is the minimum over all j < k of the slower of layers 0 … j - 1
    on devices 0 … d - 1 and layers j … k - 1 on device d.
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
    """Return the time of the slowest engine for a sample in ps; infinite if the board is too small."""
    try:
        engines = allocate(Mapping(network, (_whole(network, begin, end),)), 0, board)
    except InputError:
        return math.inf
    return max(engine.sample_ps for held in engines for engine in held.built)


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
    """Return the bytes of LPRAM, an equal LGB, and Act-RAM (FPDeep, section 5.2.2)."""
    parameters = activations = 0
    for part in slices:
        layer = part.layer
        parameters += VALUE_BYTES * len(part.weight_inputs) * len(part.out_channels) * math.prod(layer.kernel)
        parameters += parameter_bytes(layer) - weight_bytes(layer) if part.is_last else 0
        activations += VALUE_BYTES * len(part.in_channels) * math.prod(layer.input[1:])
    return 2 * parameters + in_flight * activations
