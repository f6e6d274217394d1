"""The pipeline (FPDeep, sections 1, 4.3 and 4.4): no flush, stale weights, no effect of latency and batch."""

from __future__ import annotations

from ...emulator.plan import ChainPlan, find_steady
from ...emulator.run import simulate, steady_period_ps
from ...emulator.schedule import Kind
from ...emulator.studies import Method
from ...emulator.timing import engine_loads
from ...kernels.number import FP32
from ..claim import Measure, Measured
from .evidence import BALANCED, DEVICES, NETWORKS, cluster, comparison, layout, network, plan, report, timing

_NETWORK = "vgg16-cifar"
_MINI_BATCH, _FPGAS = 1000, 100
"""FPDeep, section 4.4."""


def simulated_period_ps(planned: ChainPlan, samples: int) -> float:
    """Return the simulated time between samples in ps, from the ends of two runs of different length."""
    short, long = (simulate(planned, count).epoch_ends_ps[-1] for count in (samples, 3 * samples))
    return (long - short) / (2 * samples)


def _latency() -> Measured:
    periods = [simulated_period_ps(plan(_NETWORK, latency_ns=latency), 256) for latency in (0, 1000, 50_000)]
    return Measured(
        [period / periods[0] for period in periods], f"{_NETWORK}: time per sample with 0, 1, 50 us over with 0"
    )


def _batch() -> Measured:
    periods = [simulated_period_ps(plan(_NETWORK, batch=batch), 128) for batch in (64, 8, 1)]
    return Measured(
        [period / periods[0] for period in periods], f"{_NETWORK}: time per sample with batch 64, 8, 1 over 64"
    )


def _stages() -> Measured:
    """Count the tiles that convolve at the same time."""
    tiles = [
        sum(
            load.engine.multipliers // (load.part.layer.kernel[0] * load.part.layer.kernel[1])
            for load in engine_loads(timing(name))
            if load.part.layer.convolves
        )
        for name in NETWORKS
    ]
    return Measured(tiles, "tiles that convolve at the same time on 15 FPGAs: AlexNet, VGG-16, VGG-19")


def _old_weights() -> Measured:
    """Count the samples of a mini-batch whose FP uses weights one update late, on the device with most of them."""
    counts = []
    for name in NETWORKS:
        steady = find_steady(timing(name, _FPGAS), _MINI_BATCH)
        counts.append(max(device.stale_samples for device in steady.staleness))
    return Measured(counts, f"of {_MINI_BATCH} on {_FPGAS} FPGAs, most of any FPGA: AlexNet, VGG-16, VGG-19")


def _flush() -> Measured:
    drained, steady = (steady_period_ps(plan(_NETWORK, schedule=schedule)) for schedule in ("sync", "fpdeep"))
    return Measured(drained / steady, f"{_NETWORK}, batch 64: time per sample with a flush at each update over without")


def _local() -> Measured:
    """Measure the share of parameters that are updated on another device than the one that makes their gradients."""
    shares = []
    for name, devices in (*((name, DEVICES) for name in NETWORKS), BALANCED):
        away = sum(block.parameter_bytes for block in layout(name, devices).balancing.blocks)
        shares.append(away / FP32.bytes_of(network(name).parameters))
    how = f"share updated elsewhere: three networks on {DEVICES} FPGAs; {BALANCED[0]} on {BALANCED[1]}"
    return Measured(shares, how)


def _updates() -> Measured:
    """Count the updates on each device for each mini-batch."""
    planned = plan(_NETWORK, batch=16)
    programs = planned.schedule(64).programs(range(DEVICES)).values()
    updates = sum(action.kind is Kind.UPDATE for program in programs for action in program)
    return Measured(updates / DEVICES / 4, "4 mini-batches of 16 samples")


def _unit() -> Measured:
    """Find the unit of a message, a row or a map, on the first link of VGG-16."""
    streams = timing("vgg16").links[0]
    return Measured("row" if all(stream.rows > 1 for stream in streams) else "map", "times are those of rows")


def _utilisation() -> Measured:
    """Measure RealFlops / MaxFlops of the comparison over that from the report's idle shares and multipliers."""
    busy = sum(
        (1 - use.idle_share) * use.load.engine.multipliers
        for device in report("vgg16").devices
        for use in device.engines
    )
    board = cluster().board(0)
    able = DEVICES * board.multipliers
    how = f"all that engines may take; {100 * busy / DEVICES / (board.limits['dsp'] or 1):.1f} % of the boards' DSPs"
    return Measured(comparison().outcomes[Method.HP][DEVICES].flop_utilisation / (busy / able), how)


def _bandwidth() -> Measured:
    """Measure footprint over time of an iteration, over the sum of the demands on all links."""
    demands = sum(link.demand_gbps for link in report("vgg16").links)
    return Measured(comparison().outcomes[Method.HP][DEVICES].bandwidth_gbps / demands, "VGG-16 on 15 FPGAs")


MEASURES: dict[str, Measure] = {
    "fpdeep-latency-no-effect": _latency,
    "fpdeep-batch-arbitrary": _batch,
    "fpdeep-pipeline-stage-count": _stages,
    "fpdeep-pipeline-unit": _unit,
    "fpdeep-unaligned-samples": _old_weights,
    "fpdeep-update-local": _local,
    "fpdeep-no-bubble-vs-gpipe": _flush,
    "fpdeep-lgb-timing": _updates,
    "fpdeep-metric-flop-util": _utilisation,
    "fpdeep-metric-comm-bw": _bandwidth,
}
