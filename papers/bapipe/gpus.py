"""The cluster of GPUs: times in proportion to multiply-accumulates and bytes, and one constant
between the two.

A GPU does every multiply-accumulate at the same rate, B takes twice as long as F. A ring of all
GPUs reduces gradients; a neighbour gets features and errors over the same links. The ratio of
computation to links is BaPipe's own: with DP on four GPUs half the batch of VGG-16 has 0.62 of the
throughput, which is an all-reduce of 101 samples' computation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ...comm import Interconnect
from ...emulator.cluster import Link
from ...emulator.explore import Candidate, Wires, data_parallel, pipelined
from ...emulator.profile import LayerProfile, LayerTimes, Profile, ProfileStages
from ...emulator.schedule import Machine, Shape, StageCosts, pipeline_kind
from ...emulator.timing import time_shape
from ..claim import constant
from ..constants import in_use, kept
from .layers import ChainLayer, Replicated, gnmt, pipedream_stages, zoo_layers

ALL_REDUCE_SAMPLES = constant("bapipe", "gpus.all_reduce_samples")
FEATURE_MBYTES = constant("bapipe", "gpus.feature_mbytes")
RESNET_BATCH = constant("bapipe", "gpus.resnet50_batch")
MEMORY_BYTES = 16 * 2**30
"""Of a V100 (section IV-A)."""
GPUS = (4, 8)
BASE = 64
"""B of the rows of DP that all others are compared with; that of ResNet-50 is not printed: see
`base`.
"""
FEATURE_BATCH = 32
"""The batch of `FEATURE_MBYTES`."""
_GPU = "V100"
_PS_PER_MMAC = 100  # of F; only ratios of times are compared
_MANY = 32


@kept
def layers_of(network: str) -> tuple[ChainLayer, ...]:
    """Return a network of Table III."""
    return gnmt(8) if network == "gnmt8" else zoo_layers(network)


def base(network: str) -> int:
    """Return the samples of a GPU in the row of DP that a network's others are compared with."""
    return round(in_use(RESNET_BATCH)) if network == "resnet50" else BASE


def forward_ps(layers: Sequence[ChainLayer], samples: int = 1) -> float:
    """Return the time of F."""
    return _PS_PER_MMAC * samples * sum(layer.macs for layer in layers) / 1e6


def work_ps(layers: Sequence[ChainLayer], samples: int = 1) -> float:
    """Return the time of F and B."""
    # B is twice F: the errors of the inputs, and the gradients.
    return 3 * forward_ps(layers, samples)


def stage_work_ps(layers: Sequence[ChainLayer], samples: int = 1) -> Callable[[int, int], float]:
    """Return the time of F and B of layers begin … end-1, as a function of both."""
    before = [0.0, *itertools.accumulate(work_ps([layer], samples) for layer in layers)]
    return lambda begin, end: before[end] - before[begin]


def ring_bytes(layers: Sequence[ChainLayer], devices: int) -> float:
    """Return the bytes that a link carries in an all-reduce of the gradients by a ring."""
    # 2 (p - 1) steps, in each of which a link carries a p-th of the gradients.
    return 2 * (devices - 1) / devices * sum(layer.parameter_bytes for layer in layers)


def link_bytes_per_ps() -> float:
    """Return the bandwidth of a link in one direction."""
    vgg16 = layers_of("vgg16")
    return ring_bytes(vgg16, 4) / (in_use(ALL_REDUCE_SAMPLES) * work_ps(vgg16))


def all_reduce_ps(layers: Sequence[ChainLayer], devices: int) -> float:
    """Return the time of an all-reduce of the gradients by a ring."""
    return ring_bytes(layers, devices) / link_bytes_per_ps()


def all_reduce_samples(share: float, batch: int = BASE) -> float:
    """Return the all-reduce in samples' computation, where half the batch has a share of the
    throughput.
    """
    # With a samples' time for the all-reduce, share = (b/2 / (b/2 + a)) / (b / (b + a)), which is
    # (b + a) / (b + 2 a).
    return batch * (1 - share) / (2 * share - 1)


def message_ps(layer: ChainLayer, batch: int) -> float:
    """Return the time of the features behind a layer on a link, or of their errors."""
    return batch * layer.sent_bytes / link_bytes_per_ps()


@kept
def _wires(devices: int) -> Wires:
    """Return the links between neighbours; the ring for gradients has the same."""
    # A byte a picosecond is 8e12 bit/s.
    mbps = round(8e6 * link_bytes_per_ps())
    return Wires((Link(mbps, 0),) * (devices - 1), Interconnect(mbps, 0))


@kept
def _stages(network: str, devices: int, batch: int) -> ProfileStages:
    """Return a network's profile on GPUs, for micro-batches of `batch`."""
    profiles = []
    for layer in layers_of(network):
        forward = round(forward_ps([layer], batch))
        feature_bytes = layer.kept_bytes + round(
            layer.lstm_layers * in_use(FEATURE_MBYTES) * 1e6 / FEATURE_BATCH
        )
        times = {(_GPU, batch): LayerTimes(forward, 2 * forward)}
        profiles.append(
            LayerProfile(layer.name, times, layer.sent_bytes, feature_bytes, layer.parameter_bytes)
        )
    profile = Profile(network, tuple(profiles), {_GPU: MEMORY_BYTES})
    return ProfileStages(profile, (_GPU,) * devices, batch)


@kept
def dp_samples_per_ps(network: str, devices: int, batch: int | None = None) -> float:
    """Return the throughput of data parallelism, whose all-reduce follows B; by default that of the
    baseline's row.
    """
    batch = batch or base(network)
    candidate = data_parallel(_stages(network, devices, batch), _wires(devices), devices)
    assert candidate.time_ps is not None
    return devices * batch / candidate.time_ps


@kept
def pipeline(
    network: str, devices: int, schedule: str, micro_batches: int, batch: int
) -> Candidate:
    """Return a schedule on BaPipe's stages of whole layers, on the timeline engine; they fit into
    16 GiB.
    """
    stages, wires = _stages(network, devices, batch), _wires(devices)
    candidate = pipelined(
        pipeline_kind(schedule), Machine(), stages, wires, micro_batches, whole_layers=True
    )
    assert candidate is not None
    return candidate


def parts(
    network: str, devices: int, schedule: str, micro_batches: int, batch: int
) -> list[Sequence[ChainLayer]]:
    """Return the layers of each of BaPipe's stages."""
    partition, layers = (
        pipeline(network, devices, schedule, micro_batches, batch).partition,
        layers_of(network),
    )
    assert partition is not None
    ends = map(_stages(network, devices, batch).layer_of, partition.cut.ends)
    return [layers[begin:end] for begin, end in itertools.pairwise((0, *ends))]


def _costs(
    layers: Sequence[ChainLayer], batch: int, devices: int = 1, more_ps: float = 0
) -> StageCosts:
    """Return the costs of a stage whose batches several devices share; `more_ps` is added to B."""
    forward = forward_ps(layers, batch) / devices
    return StageCosts(
        round(forward),
        round(2 * forward + more_ps),
        transfer_ps=round(message_ps(layers[-1], batch)),
    )


@kept
def pipedream_parts(network: str, devices: int, batch: int) -> tuple[Replicated, ...]:
    """Return PipeDream's stages."""
    layers = layers_of(network)
    work_ps = stage_work_ps(layers, batch)

    def stage_ps(begin: int, end: int, count: int) -> float:
        return (work_ps(begin, end) + all_reduce_ps(layers[begin:end], count)) / count

    return pipedream_stages(
        layers, devices, stage_ps, [2 * message_ps(layer, batch) for layer in layers]
    )


@kept
def pipedream_samples_per_ps(network: str, devices: int, batch: int) -> float:
    """Return PipeDream's throughput in the steady state: 1F1B without a flush, on the timeline
    engine.

    A replicated stage does its devices' batches side by side, and reduces gradients after each.
    """
    stages = pipedream_parts(network, devices, batch)
    if len(stages) == 1:
        return dp_samples_per_ps(network, devices, batch)
    layers, forwards, behind = layers_of(network), [0], 0
    costs: list[StageCosts] = []
    for begin, end, count in reversed(stages):
        part = layers[begin:end]
        costs.insert(0, _costs(part, batch, count, all_reduce_ps(part, count) / count))
        behind += count
        noam = -(-behind // count)  # PipeDream's batches in flight, for each device of the stage
        forwards.insert(0, max(forwards[0], count * noam))
    ends = []
    # The difference of two lengths leaves out how long the pipeline fills and drains.
    for count in (_MANY, 2 * _MANY):
        shape = Shape(len(costs), count, costs, Machine(), warm_ups=tuple(forwards[:-1]))
        ends.append(time_shape(pipeline_kind("1f1b-sno"), shape).makespan_ps)
    return _MANY * batch / (ends[1] - ends[0])
