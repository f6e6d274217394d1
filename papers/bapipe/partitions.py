"""BaPipe's framework and its balanced partition (sections III and III-B), measured on the explorer and on cuts."""

from __future__ import annotations

import functools
import itertools

from ...emulator.cluster import KBIT, load_cluster
from ...emulator.explore import Demand, ideal, partition
from ...emulator.mapping import LayerCut, cut_layers, whole_layers
from ...emulator.network import load_network
from ...emulator.profile import BoardStages, board_stage
from ..claim import Measure, Measured
from . import gpus
from .boards import NUMBER, pipeline
from .layers import pipedream_stages, zoo_layers
from .speedups import stages_of

EQUATION_1 = (10, 10, 20, 20)
"""Times of the network on each accelerator."""
_UNIFORM_LAYERS = 48


def _equation_1() -> Measured:
    """Measure the fastest cut of many equal layers over unequal accelerators."""
    by_equation = float(ideal(EQUATION_1)[0])
    how = f"T_n = {EQUATION_1}, {_UNIFORM_LAYERS} equal layers; the explorer's ideal {by_equation:.4f}"
    return Measured([_uniform_cut().slowest, by_equation], how)


@functools.cache
def _uniform_cut() -> LayerCut:
    layers = _UNIFORM_LAYERS
    return cut_layers(layers, 4, lambda device, begin, end: (end - begin) * EQUATION_1[device] / layers)


def _shares() -> Measured:
    ends = _uniform_cut().ends
    shares = [(end - begin) / _UNIFORM_LAYERS for begin, end in itertools.pairwise((0, *ends))]
    return Measured(shares, f"of the layers; by the explorer {', '.join(map(str, ideal(EQUATION_1)[1]))}")


def _profile() -> Measured:
    """Return what the profile of a layer has on a board."""
    [part], board = whole_layers(load_network("vgg16"), 3, 4), load_cluster("u280").board(0)
    costs = board_stage([part], board, 1, 1, number=NUMBER).costs
    said = {
        "FP time": costs.forward_ps,
        "BP time": costs.backward_ps,
        "weight size": costs.parameter_bytes,
        "feature size": costs.feature_bytes,
    }
    return Measured([name for name, value in said.items() if value > 0], f"{part.layer.name} of VGG-16 on {board.name}")


def _explored(**keys: float) -> list[str]:
    """Return the steps by which the explorer cuts VGG-16 over four U280, with other values of some keys."""
    changes = {key.replace("__", "."): value for key, value in keys.items()}
    cluster = load_cluster("u280", changes)
    boards = (cluster.board(0),) * 4
    stages = BoardStages(load_network("vgg16"), boards, 1, NUMBER)
    cut = partition(stages, (cluster.slowest_link,) * 3, Demand((4, 3, 2, 1)))
    return [f"{step.name}: {step.reason}" for step in cut.steps]


def _inputs() -> Measured:
    """Name the hardware constraints of which another value changes what the explorer says."""
    board, now = load_cluster("u280").board(0), _explored()
    assert board.off_chip_gbytes_per_s is not None
    steps_by_key = {
        "compute": _explored(board__clock_mhz=100),
        "memory bandwidth": _explored(board__off_chip_gbytes_per_s=board.off_chip_gbytes_per_s / 100),
        "memory capacity": _explored(board__on_chip_memory_kbit=board.on_chip_memory_bytes // KBIT),
        "link bandwidth": _explored(link__bandwidth_gbps=1),
    }
    return Measured(
        [name for name, steps in steps_by_key.items() if steps != now], "of which another value changes a cut"
    )


def _steps() -> Measured:
    """Return the explorer's steps, where links do not limit and where they do."""
    names = [[step.partition(":")[0] for step in _explored(link__bandwidth_gbps=gbps)] for gbps in (1000, 1)]
    return Measured(names, "VGG-16 on four U280, links of 1,000 and of 1 Gb/s")


def _three_parts() -> Measured:
    """Name the parts of an exploration that it has: times of layers, a schedule, a cut."""
    candidate = pipeline("4vcu118")
    said = {
        "profile": candidate.partition is not None and candidate.partition.steps[0].name == "profile",
        "schedule": candidate.timeline is not None,
        "partition": candidate.partition is not None and len(candidate.partition.costs) == 4,
    }
    return Measured([name for name, there in said.items() if there], "of a candidate of the explorer's")


def _threshold() -> Measured:
    """Measure the largest features across a cut over those that a link takes in T, the slowest stage or link."""
    shares = []
    for network in ("vgg16", "resnet50"):
        for devices in gpus.GPUS:
            cut = stages_of(network, devices)
            slowest = max(gpus.work_ps(part) for part in cut)
            longest = max(part[-1].sent_bytes for part in cut[:-1]) / gpus.link_bytes_per_ps()
            shares.append(longest / max(slowest, _least_ps(network, devices)))
    return Measured(shares, "largest features across a cut, over a_th: VGG-16 and ResNet-50 on 4 and 8 GPUs")


def _least_ps(network: str, devices: int) -> float:
    """Return the least time of the slowest stage or link, whatever the cut."""
    layers = gpus.layers_of(network)
    work_ps = gpus.stage_work_ps(layers)

    def slowest_ps(_device: int, begin: int, end: int) -> float:
        return max(work_ps(begin, end), gpus.message_ps(layers[begin - 1], 1) if begin else 0)

    return cut_layers(len(layers), devices, slowest_ps).slowest


def _pipedream() -> Measured:
    """Measure PipeDream's slowest stage over that of the best of all partitions, tried one by one."""
    layers = zoo_layers("vgg16")[8:]
    links = [2 * gpus.message_ps(layer, 64) for layer in layers]

    def stage(begin: int, end: int, count: int) -> float:
        ring = gpus.all_reduce_ps(layers[begin:end], count)
        return (gpus.work_ps(layers[begin:end], 64) + ring) / count

    def best(begin: int, count: int) -> float:
        times = [stage(begin, len(layers), count)]
        for end in range(begin + 1, len(layers)):
            for here in range(1, count):
                times.append(max(stage(begin, end, here), links[end - 1], best(end, count - here)))
        return min(times)

    stages = pipedream_stages(layers, 4, stage, links)
    ours = max(
        [stage(*part) for part in stages] + [links[part.end - 1] for part in stages[:-1]],
    )
    return Measured(ours / best(0, 4), "VGG-16 from conv4_2 on, 4 GPUs, over all partitions tried one by one")


MEASURES: dict[str, Measure] = {
    "bapipe-frameworks-inputs": _inputs,
    "bapipe-three-parts": _three_parts,
    "bapipe-partition-order": _steps,
    "bapipe-profile-outputs": _profile,
    "bapipe-eq1-ideal-time": _equation_1,
    "bapipe-eq-ln-share": _shares,
    "bapipe-ath": _threshold,
    "bapipe-pipedream-dp": _pipedream,
}
