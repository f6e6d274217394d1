"""Table III of BaPipe: throughput over that of data parallelism, for VGG-16, ResNet-50 and GNMT-8
on 4 and 8 GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..claim import Measured, figures
from ..constants import kept
from . import gpus
from .gpus import GPUS
from .layers import ChainLayer


class Row(NamedTuple):
    """What a row of BaPipe or GPipe says: schedule, micro-batches, and the samples of each."""

    schedule: str
    micro_batches: int
    batch: int


def _rows(method: str) -> dict[tuple[str, int], Row]:
    """Return Table III's rows of a method by network and GPUs."""
    return {(network, gpus): Row(*row) for network, gpus, *row in figures("bapipe", method)}


BAPIPE, GPIPE = _rows("bapipe"), _rows("gpipe")
PIPELINED = ("vgg16", "gnmt8")


def _over_dp(network: str, devices: int, samples_per_ps: float) -> float:
    return samples_per_ps / gpus.dp_samples_per_ps(network, devices)


@kept
def pipeline_speedup(network: str, devices: int, row: Row) -> float:
    """Return the speed-up of a row's pipeline over DP; 0 if it does not fit."""
    candidate = gpus.pipeline(network, devices, *row)
    return (
        _over_dp(network, devices, row.micro_batches * row.batch / candidate.time_ps)
        if candidate.time_ps
        else 0
    )


@kept
def bapipe_speedup(network: str, devices: int) -> float:
    """Return BaPipe's speed-up: that of the pipeline, or 1 where DP is faster."""
    return max(1.0, pipeline_speedup(network, devices, BAPIPE[network, devices]))


@kept
def gpipe_speedup(network: str, devices: int) -> float:
    """Return GPipe's speed-up, on BaPipe's stages; where BaPipe takes DP, so does GPipe."""
    if (network, devices) not in GPIPE:
        return bapipe_speedup(network, devices)
    return pipeline_speedup(network, devices, GPIPE[network, devices])


@kept
def pipedream_speedup(network: str, devices: int, batch: int | None = None) -> float:
    """Return PipeDream's speed-up; by default with the batch of the baseline."""
    return _over_dp(
        network,
        devices,
        gpus.pipedream_samples_per_ps(network, devices, batch or gpus.base(network)),
    )


def bound(devices: int, micro_batches: int | None = None) -> float:
    """Return the speed-up of VGG-16 that no pipeline exceeds: equal stages, free messages, and DP
    as published.
    """
    ideal = (
        devices / gpus.work_ps(gpus.layers_of("vgg16")) / gpus.dp_samples_per_ps("vgg16", devices)
    )
    return ideal if micro_batches is None else ideal * micro_batches / (micro_batches + devices - 1)


def stages_of(network: str, devices: int) -> list[Sequence[ChainLayer]]:
    """Return BaPipe's stages."""
    return gpus.parts(network, devices, *BAPIPE[network, devices])


def _stages(network: str, devices: int) -> str:
    return ", ".join(part[-1].name for part in stages_of(network, devices))


def bapipe(network: str, devices: int) -> Measured:
    """Measure a row of BaPipe."""
    row = BAPIPE[network, devices]
    how = f"stages end in {_stages(network, devices)}"
    if network == "resnet50":
        how = f"DP; the pipeline has {pipeline_speedup(network, devices, row):.2f}"
    elif network == "vgg16":
        most, bubble = bound(devices), bound(devices, row.micro_batches)
        how += (
            f"; no pipeline exceeds {bubble:.2f} with M = {row.micro_batches}, {most:.2f} with"
            " any M"
        )
    return Measured(bapipe_speedup(network, devices), how)


def gpipe(network: str, devices: int) -> Measured:
    """Measure a row of GPipe."""
    how = "BaPipe's stages" if network in PIPELINED else "as BaPipe, whose partition it uses"
    return Measured(gpipe_speedup(network, devices), how)


def pipedream(network: str, devices: int, batch: int | None = None) -> Measured:
    """Measure a row of PipeDream."""
    batch = batch or gpus.base(network)
    layers = gpus.layers_of(network)
    replicated = gpus.pipedream_parts(network, devices, batch)
    stages = ", ".join(f"{count} x to {layers[end - 1].name}" for _, end, count in replicated)
    return Measured(pipedream_speedup(network, devices, batch), f"GPUs of each stage: {stages}")


def order() -> Measured:
    """Measure BaPipe's speed-up over the better of PipeDream's and GPipe's."""
    ratios = {
        f"{network} on {devices}": (
            bapipe_speedup(network, devices)
            / max(pipedream_speedup(network, devices), gpipe_speedup(network, devices))
        )
        for network, devices in BAPIPE
    }
    return Measured(list(ratios.values()), f"over the better of both: {', '.join(ratios)}")


def most_over_dp() -> Measured:
    """Measure BaPipe's largest speed-up over DP."""
    speedups = {
        f"{network} on {devices}": bapipe_speedup(network, devices) for network, devices in BAPIPE
    }
    return Measured(max(speedups.values()), f"{max(speedups, key=lambda row: speedups[row])}")


def most_over_pipelines() -> Measured:
    """Measure BaPipe's largest speed-up over another pipeline."""
    ratios = [
        bapipe_speedup(*row) / other_speedup(*row)
        for row in BAPIPE
        for other_speedup in (pipedream_speedup, gpipe_speedup)
    ]
    return Measured(max(ratios), "over PipeDream or GPipe")


def traffic() -> Measured:
    """Measure the bytes of features and errors of a pipeline over those of gradients in DP, of all
    links.
    """
    ratios, samples = [], gpus.base("resnet50")
    for devices in GPUS:
        stages = stages_of("resnet50", devices)
        # Twice: features go forwards, and as many errors backwards.
        messages = 2 * devices * samples * sum(part[-1].sent_bytes for part in stages[:-1])
        ratios.append(messages / (devices * gpus.ring_bytes(gpus.layers_of("resnet50"), devices)))
    return Measured(ratios, f"all links, as many samples: 4 and 8 GPUs, {samples} samples a GPU")


def schedules() -> Measured:
    """Choose the schedule of each row, as the explorer does: the faster one that fits, with the
    row's M and B.
    """
    chosen, said = [], []
    for (network, devices), row in BAPIPE.items():
        if network not in PIPELINED:
            continue
        tried = [
            gpus.pipeline(network, devices, name, *row[1:]) for name in ("1f1b-so", "1f1b-sno")
        ]
        chosen.append(min(tried, key=lambda candidate: candidate.rank).name)
        over_dp = [
            (
                f"{_over_dp(network, devices, row.micro_batches * row.batch / candidate.time_ps):.2f}"
                if candidate.time_ps
                else "-"
            )
            for candidate in tried
        ]
        said.append(f"{network} on {devices} {' and '.join(over_dp)}")
    return Measured(chosen, f"speed-ups with 1F1B-SO and 1F1B-SNO: {', '.join(said)}")


_COLUMNS = {"gpipe": gpipe, "bapipe": bapipe}
