"""Four ways to train: what each divides among devices (FPDeep, Table 4 and sections 3.3 and 4.4),
and what an iteration of it takes, stores and sends.

Layer parallelism and FPDeep's hybrid are the chain that `emuchain simulate` runs, through which
samples stream, with its engines, links and schedule `fpdeep`: a mini-batch follows the previous one
without a gap, so an iteration takes `batch` intervals of the slowest server. They differ only in
the mapping: layer parallelism gives each device whole layers, hybrid parallelism cuts layers by
channels too.

    data    every device has all layers, and a share of the samples     | device 0: L1 L2 L3 of samples 0-3
    layer   every device has some layers, and all samples               | device 0: L1 of all; device 1: L2 L3
    model   every device has some channels of all layers                | device 0: half of L1, half of L2, ...
    hybrid  layers, and channels where a layer is too large for one     | device 0: L1, a third of L2; device 1: ...
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable

from ...kernels.number import FP32
from ..cluster import Board, Cluster
from ..common import InputError, gbps
from ..mapping import Mapping, Slice, allocate, cut_channels, engines_in_turn, partition
from ..network import Layer, Network
from ..plan import find_steady
from ..timing import Timing


def weight_bytes(layer: Layer) -> int:
    """Return the bytes of a layer's weights."""
    return FP32.bytes_of(layer.weights)


def parameter_bytes(layer: Layer) -> int:
    """Return the bytes of a layer's weights, biases, and normalisation parameters."""
    return FP32.bytes_of(layer.parameters)


def input_bytes(layer: Layer) -> int:
    """Return the bytes of one sample's input activations."""
    return FP32.bytes_of(math.prod(layer.input))


def output_bytes(layer: Layer) -> int:
    """Return the bytes of one sample's outputs after pooling, without maps that the SFU joins from
    other branches.
    """
    return FP32.bytes_of(min(math.prod(layer.output), math.prod(layer.feeds)))


@dataclasses.dataclass(frozen=True)
class Workload:
    """A mini-batch of `batch` samples of a network, on boards and links of a cluster."""

    network: Network
    cluster: Cluster
    batch: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the mini-batch in FP, EB and PG; errors of the images are not
        computed.
        """
        return self.batch * sum(layer.training_macs for layer in self.network.layers)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameters of all layers."""
        return sum(map(parameter_bytes, self.network.layers))

    @property
    def activation_bytes(self) -> int:
        """Bytes of one sample's maps that layers read, which PG needs again after FP; each map
        once.
        """
        maps = {layer.reads for layer in self.network.layers}
        return FP32.bytes_of(sum(math.prod(tensor.shape) for tensor in maps))

    def utilisation(self, devices: int, iteration_ps: int) -> float:
        """Return RealFlops / MaxFlops (FPDeep, section 3.3): useful work over the capacity of all
        multipliers.
        """
        boards = map(self.cluster.board, range(devices))
        return self.macs / sum(
            board.multipliers * iteration_ps / board.period_ps for board in boards
        )

    def transfer_ps(self, count: int, hops: int = 1) -> int:
        """Return the time in ps of `count` bytes at a link's full bandwidth, plus the latency of
        `hops` links.
        """
        link = self.cluster.link
        return link.transfer_ps(count) + hops * link.latency_ps


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The metrics of one method on `devices` devices.

    - FLOP utilisation: useful multiply-accumulates over those that all multipliers could do in the
      iteration
    - storage: "model parameters and temporal activations must be stored": parameters, their
      gradients, and the inputs of layers that wait for PG, in bytes for each device
    - communication footprint: "the entire communication data throughput of one mini-batch SGD
      iteration": bytes that devices send each other
    - communication bandwidth: "the communication footprint divided by the time of one mini-batch
      SGD iteration"
    """

    devices: int
    iteration_ps: int
    flop_utilisation: float
    storage_bytes: tuple[int, ...]
    footprint_bytes: int

    @property
    def total_storage_bytes(self) -> int:
        """Bytes stored on all devices."""
        return sum(self.storage_bytes)

    @property
    def largest_storage_bytes(self) -> int:
        """Bytes stored on the device that needs most."""
        return max(self.storage_bytes)

    @property
    def bandwidth_gbps(self) -> float:
        """The average over the iteration, summed over all devices."""
        return gbps(self.footprint_bytes, self.iteration_ps)


def data_parallel(workload: Workload, devices: int) -> Outcome:
    """Return the outcome of an iteration: batch / devices samples on each device, one more on the
    first ones.

    "Each FPGA executes all layers of the CNN … in sequential order, a layer at a time": FP of all
    its samples layer by layer, then EB and PG backwards, each with all multipliers of the board.
    Switching engines between layers costs nothing, nor do loads and stores off chip; both favour
    this method ("the FPGA needs to be reconfigured repeatedly").

    "Each FPGA must keep its own copy of the DNN model's parameters. Also, all temporal activations
    must be maintained in local memory": those of all its samples, since a layer ends before the
    next begins.

    "It only synchronizes the model's parameters after all workers finished their jobs", in a
    "centralized burst":
    device 0 takes the gradients of all others through its link, and then sends the parameters to
    each.

    Source: FPDeep, sections 1, 3.3.

    Raises:
        InputError: a board has too few multipliers.
    """
    layers, cluster = workload.network.layers, workload.cluster
    samples = [
        workload.batch // devices + (device < workload.batch % devices) for device in range(devices)
    ]
    parameters = workload.parameter_bytes
    compute_ps = 0
    for board in {cluster.board(device) for device in range(devices)}:
        engines = [engines_in_turn(Slice(layer, 0, cut_channels(layer)), board) for layer in layers]
        most = max(count for device, count in enumerate(samples) if cluster.board(device) == board)
        compute_ps = max(compute_ps, most * sum(held.sample_ps_in_turn for held in engines))
    others = devices - 1
    synchronise_ps = 2 * workload.transfer_ps(others * parameters) if others else 0
    iteration_ps = compute_ps + synchronise_ps
    return Outcome(
        devices,
        iteration_ps,
        workload.utilisation(devices, iteration_ps),
        tuple(2 * parameters + count * workload.activation_bytes for count in samples),
        2 * others * parameters,
    )


def model_parallel(workload: Workload, devices: int) -> Outcome:
    """Return the outcome of an iteration: channels / devices of each layer on each device, one more
    on the first ones.

    The mini-batch goes through a layer at a time. All devices then gather its outputs, which they
    need as inputs of the next layer; backwards, each device has partial sums of every input error
    from its output channels, and "all intermediate results from all devices must be added up and
    then broadcast to every device". "It needs an additional layer for synchronization among
    different channels": devices wait for it.

    Devices form a chain. Gathering sends a map once over every link, and the ends wait for all
    channels but their own. Summing and broadcasting sends a map twice: sums run to one end and
    results back, at the same time.

    "For DP and MP, each FPGA must keep its own copy of the DNN model's parameters", and MP needs
    "to both synchronize parameters globally and synchronize activations among channels": gradients
    and updates are shared out by channels, and the new parameters are gathered. (By section 2.2,
    the same method distributes weights; parameters would then be stored once and not be gathered.)
    "All temporal activations" are those of the whole mini-batch.

    Source: FPDeep, sections 2.2, 3.3.

    Raises:
        InputError: a board has too few multipliers.
    """
    layers, batch, others = workload.network.layers, workload.batch, devices - 1
    iteration_ps = footprint = 0
    for layer in layers:
        shares = [_share(layer, devices, device) for device in range(devices)]
        iteration_ps += batch * max(
            _sample_ps(workload, device, layer, share) for device, share in enumerate(shares)
        )
        if others:
            gathered = batch * output_bytes(layer) + parameter_bytes(layer)
            lacked = _part(gathered, layer.channels - shares[-1].channels, layer)
            summed = batch * input_bytes(layer) if layer.needs_errors else 0
            iteration_ps += workload.transfer_ps(
                lacked, 2 * others
            )  # outputs, and later parameters
            iteration_ps += workload.transfer_ps(summed, 2 * others) if summed else 0
            footprint += others * (gathered + 2 * summed)
    own = []
    for device in range(devices):
        parts = (
            _part(parameter_bytes(layer), _share(layer, devices, device).channels, layer)
            for layer in layers
        )
        own.append(sum(parts))
    return Outcome(
        devices,
        iteration_ps,
        workload.utilisation(devices, iteration_ps),
        tuple(
            workload.parameter_bytes + gradients + batch * workload.activation_bytes
            for gradients in own
        ),
        footprint,
    )


def _share(layer: Layer, devices: int, device: int) -> Layer:
    """Return a device's part of a layer: a layer with fewer output channels."""
    channels = layer.channels // devices + (device < layer.channels % devices)
    makes = dataclasses.replace(layer.makes, shape=(channels, *layer.output[1:]))
    return dataclasses.replace(
        layer, operation=layer.operation.with_channels(channels), makes=makes
    )


def _part(count: int, channels: int, layer: Layer) -> int:
    """Return the share of `count` bytes that belongs to `channels` of a layer's output channels,
    rounded up.
    """
    return -(-count * channels // layer.channels)


def _sample_ps(workload: Workload, device: int, layer: Layer, share: Layer) -> int:
    """Return the time of FP, EB and PG of one sample, one after another, in ps.

    Each unit of a recurrent layer needs all units' states; heads of attention are whole.
    """
    board, operation = workload.cluster.board(device), layer.operation
    if operation.recurs:
        own = Slice(layer, 0, share.channels)
    elif operation.looks_back:
        own = Slice(layer, 0, _part(cut_channels(layer), share.channels, layer))
    else:
        own = Slice(share, 0, cut_channels(share))
    return engines_in_turn(own, board).sample_ps_in_turn


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
    """Return the mapping of consecutive whole layers whose slowest engine is fastest, by dynamic
    programming.

    With layers 0 … k - 1 on devices 0 … d, the optimum is the minimum over all j < k of the slower
    of layers 0 … j - 1 on devices 0 … d - 1 and layers j … k - 1 on device d.
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
                (max(before[begin], group_ps(begin, end, board)), begin)
                for begin in range(device, end)
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
    """Return the time of the slowest engine for a sample in ps; infinite if the board is too
    small.
    """
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
    sample_bytes = sum(stream.sample_bytes for link in timing.links for stream in link)
    return Outcome(
        devices,
        iteration_ps,
        workload.utilisation(devices, iteration_ps),
        tuple(_storage_bytes(*held) for held in zip(mapping.devices, in_flight, strict=True)),
        workload.batch * sample_bytes,
    )


def _storage_bytes(slices: tuple[Slice, ...], in_flight: int) -> int:
    """Return the bytes of LPRAM, an equal LGB, and Act-RAM (FPDeep, section 5.2.2)."""
    parameters = activations = 0
    for part in slices:
        layer = part.layer
        parameters += FP32.bytes_of(
            len(part.weight_inputs) * len(part.out_channels) * math.prod(layer.kernel)
        )
        parameters += FP32.bytes_of(part.sfu_parameters)
        activations += FP32.bytes_of(len(part.in_channels) * math.prod(layer.input[1:]))
    return 2 * parameters + in_flight * activations


class Method(enum.Enum):
    """A way to divide training among devices."""

    DP = "data parallel"
    LP = "layer parallel"
    MP = "model parallel"
    HP = "hybrid parallel"

    @property
    def dimensions(self) -> frozenset[str]:
        """The dimensions divided: sample, layer, or model (channels); FPDeep, Table 4."""
        return _DIMENSIONS[self]

    def most_devices(self, workload: Workload) -> int:
        """Return the number of devices that can have work: one for each sample, layer, output
        channel of the narrowest layer, or channel of all layers that the hybrid method can cut."""
        layers = workload.network.layers
        if self is Method.DP:
            return workload.batch
        if self is Method.LP:
            return len(layers)
        if self is Method.MP:
            return min(layer.operation.pieces(layer.output) for layer in layers)
        return sum(map(cut_channels, layers))

    def run(self, workload: Workload, devices: int) -> Outcome:
        """Return the outcome of an iteration on `devices` devices, at most `most_devices`.

        Raises:
            InputError: a board has too few multipliers.
        """
        return _RUNS[self](workload, devices)


_DIMENSIONS = {
    Method.DP: frozenset({"sample"}),
    Method.LP: frozenset({"layer"}),
    Method.MP: frozenset({"model"}),
    Method.HP: frozenset({"layer", "model"}),
}
_RUNS: dict[Method, Callable[[Workload, int], Outcome]] = {
    Method.DP: data_parallel,
    Method.LP: layer_parallel,
    Method.MP: model_parallel,
    Method.HP: hybrid_parallel,
}
