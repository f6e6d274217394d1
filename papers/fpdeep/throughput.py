"""The pipeline and its throughput: no flush, stale weights, no effect of latency and batch (FPDeep,
sections 1, 4.3 and 4.4); Table 6 and its discussion: operations a second, hours an epoch,
operations a joule.

GOPS are those of convolutions on the devices that hold any, 14 of 15; hours are those of the steady
rate. The rows of CPUs, GPUs and earlier FPGAs are the paper's constants, with which our figures are
compared.

Blind predictions fit the share of DSPs to one network's GOPS, a board's power to its GOPS over
GOPS/J, and predict the other networks' figures. Nothing of these rows is used. Beside each
prediction stands a guess without the emulator: the same GOPS and GOPS/J, and hours in proportion to
the convolutions' operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...emulator.network import OPERATIONS_PER_MAC, TRAINING_OPERATIONS_PER_MAC
from ...emulator.plan import ChainPlan, find_steady
from ...emulator.run import simulate, steady_period_ps
from ...emulator.schedule import Kind
from ...emulator.studies import Method
from ...emulator.timing import engine_loads
from ...kernels.number import FP32
from ..claim import Measured, load_claims
from ..constants import in_force
from ..sensitivity import Blind
from .evidence import (
    BALANCED,
    DEVICES,
    IMAGES,
    NETWORKS,
    cluster,
    comparison,
    convolutions,
    layout,
    network,
    plan,
    report,
    timing,
)

_NETWORK = "vgg16-cifar"
_MINI_BATCH, _FPGAS = 1000, 100
"""FPDeep, section 4.4."""


def simulated_period_ps(planned: ChainPlan, samples: int) -> float:
    """Return the simulated time between samples in ps, from the ends of two runs of different
    length.
    """
    # The difference of two runs leaves out how long the pipeline fills and drains.
    short, long = (simulate(planned, count).epoch_ends_ps[-1] for count in (samples, 3 * samples))
    return (long - short) / (2 * samples)


def latency() -> Measured:
    """Measure the time of a sample with slower links."""
    periods = [
        simulated_period_ps(plan(_NETWORK, latency_ns=latency), 256)
        for latency in (0, 1000, 50_000)
    ]
    return Measured(
        [period / periods[0] for period in periods],
        f"{_NETWORK}: time per sample with 0, 1, 50 us over with 0",
    )


def batch() -> Measured:
    """Measure the time of a sample with smaller mini-batches."""
    periods = [simulated_period_ps(plan(_NETWORK, batch=batch), 128) for batch in (64, 8, 1)]
    return Measured(
        [period / periods[0] for period in periods],
        f"{_NETWORK}: time per sample with batch 64, 8, 1 over 64",
    )


def stages() -> Measured:
    """Count the tiles that convolve at the same time."""
    tiles = []
    for name in NETWORKS:
        tiles.append(
            sum(
                load.engine.multipliers // (load.part.layer.kernel[0] * load.part.layer.kernel[1])
                for load in engine_loads(timing(name))
                if load.part.layer.convolves
            )
        )
    return Measured(
        tiles, "tiles that convolve at the same time on 15 FPGAs: AlexNet, VGG-16, VGG-19"
    )


def old_weights() -> Measured:
    """Count the samples of a mini-batch whose FP uses weights one update late, on the device with
    most of them.
    """
    counts = []
    for name in NETWORKS:
        steady = find_steady(timing(name, _FPGAS), _MINI_BATCH)
        counts.append(max(device.stale_samples for device in steady.staleness))
    return Measured(
        counts, f"of {_MINI_BATCH} on {_FPGAS} FPGAs, most of any FPGA: AlexNet, VGG-16, VGG-19"
    )


def flush() -> Measured:
    """Measure the time of a sample with a flush at each update over that without."""
    drained, steady = (
        steady_period_ps(plan(_NETWORK, schedule=schedule)) for schedule in ("sync", "fpdeep")
    )
    return Measured(
        drained / steady,
        f"{_NETWORK}, batch 64: time per sample with a flush at each update over without",
    )


def local() -> Measured:
    """Measure the share of parameters that are updated on another device than the one that makes
    their gradients.
    """
    shares = []
    for name, devices in (*((name, DEVICES) for name in NETWORKS), BALANCED):
        away = sum(block.parameter_bytes for block in layout(name, devices).balancing.blocks)
        shares.append(away / FP32.bytes_of(network(name).parameters))
    how = (
        f"share updated elsewhere: three networks on {DEVICES} FPGAs; {BALANCED[0]} on"
        f" {BALANCED[1]}"
    )
    return Measured(shares, how)


def updates() -> Measured:
    """Count the updates on each device for each mini-batch."""
    planned = plan(_NETWORK, batch=16)
    programs = planned.schedule(64).programs(range(DEVICES)).values()
    updates = sum(action.kind is Kind.UPDATE for program in programs for action in program)
    return Measured(updates / DEVICES / 4, "4 mini-batches of 16 samples")


def unit() -> Measured:
    """Find the unit of a message, a row or a map, on the first link of VGG-16."""
    streams = timing("vgg16").links[0]
    return Measured(
        "row" if all(stream.rows > 1 for stream in streams) else "map", "times are those of rows"
    )


def utilisation() -> Measured:
    """Measure RealFlops / MaxFlops of the comparison over that from the report's idle shares and
    multipliers.
    """
    busy = sum(
        load.share(report("vgg16").period_ps) * load.engine.multipliers
        for device in report("vgg16").devices
        for load in device.engines
    )
    board = cluster().board(0)
    able = DEVICES * board.multipliers
    how = (
        f"all that engines may take; {100 * busy / DEVICES / (board.limits['dsp'] or 1):.1f} % of"
        " the boards' DSPs"
    )
    return Measured(comparison().outcomes[Method.HP][DEVICES].flop_utilisation / (busy / able), how)


def bandwidth() -> Measured:
    """Measure footprint over time of an iteration, over the sum of the demands on all links."""
    demands = sum(link.demand(report("vgg16").period_ps) for link in report("vgg16").links)
    return Measured(
        comparison().outcomes[Method.HP][DEVICES].bandwidth_gbps / demands, "VGG-16 on 15 FPGAs"
    )


_K80 = {"alexnet": "fpdeep-t6-k80-alexnet-gopsj", "vgg16": "fpdeep-t6-k80-vgg16-gopsj"}
_TITAN_X = "fpdeep-t6-titanx-alexnet-gopsj"
_STEPS = 12
_FIGURES = ("gops", "gopsj", "hours")


def published(claim: str) -> float:
    """Return a constant of the paper that is not a claim about FPDeep: a figure of other
    hardware.
    """
    return float(load_claims("fpdeep")[claim].value)


def gops(name: str) -> Measured:
    """Measure the operations a second of an FPGA."""
    return Measured(
        convolutions(name).gops_per_fpga,
        _beside(name, lambda form: convolutions(form).gops_per_fpga),
    )


def gop_per_j(name: str) -> Measured:
    """Measure the operations a joule."""
    return Measured(energy(name), _beside(name, energy))


def hours(name: str) -> Measured:
    """Measure the hours of an epoch."""
    return Measured(
        report(name).epoch_hours(IMAGES),
        _beside(name, lambda form: report(form).epoch_hours(IMAGES)),
    )


def _beside(name: str, measure: Callable[[str], float]) -> str:
    return f"Krizhevsky's: {measure('alexnet-krizhevsky'):.4g}" if name == "alexnet" else ""


def energy(name: str) -> float:
    """Return the operations a joule of a network's convolutions, in GOP."""
    gop_per_j = convolutions(name).gop_per_j
    assert gop_per_j is not None, "vc709 says what the board draws"
    return gop_per_j


def gpu_gains() -> list[float]:
    """Return operations a joule over those of the Titan X for AlexNet, and of the K80 for AlexNet
    and VGG-16.
    """
    return [
        energy("alexnet") / published(_TITAN_X),
        *(energy(name) / published(row) for name, row in _K80.items()),
    ]


def passes() -> Measured:
    """Measure the multiply-accumulates of all engines for a sample over those of FP."""
    ratios = []
    for name in NETWORKS:
        macs = sum(server.part.macs for server in engine_loads(timing(name)))
        ratios.append(macs / network(name).macs)
    return Measured(
        ratios,
        f"operations are counted {TRAINING_OPERATIONS_PER_MAC // OPERATIONS_PER_MAC} times, as the"
        " paper does",
    )


def outputs() -> Measured:
    """Return which figures a report has."""
    state = report("vgg16", DEVICES)
    figures = {
        "throughput": state.images_per_s,
        "bandwidth demand": state.highest_demand_gbps,
        "idle stages": state.mean_idle_share,
    }
    return Measured([name for name, figure in figures.items() if figure > 0])


def _row(name: str, figure: str) -> str:
    """Return the id of a network's row of Table 6."""
    return f"fpdeep-t6-{name}-{figure}"


def blind_predictions() -> Iterator[Blind]:
    """Yield the predictions of all pairs of networks."""
    for fitted_to in NETWORKS:
        share = _fitted_share(fitted_to)
        power_w = published(_row(fitted_to, "gops")) / published(_row(fitted_to, "gopsj"))
        with in_force({"board.dsp_share": share, "board.power_w": power_w}):
            for name in NETWORKS:
                if name != fitted_to:
                    for figure, predicted in _predicted(name).items():
                        guess = published(_row(fitted_to, figure))
                        if figure == "hours":
                            guess *= _macs(name) / _macs(fitted_to)
                        yield Blind(
                            fitted_to,
                            share,
                            name,
                            figure,
                            published(_row(name, figure)),
                            predicted,
                            guess,
                        )


def _predicted(name: str) -> Mapping[str, float]:
    throughput = convolutions(name)
    assert throughput.gop_per_j is not None, "the power of all boards is in force"
    return dict(
        zip(
            _FIGURES,
            (throughput.gops_per_fpga, throughput.gop_per_j, report(name).epoch_hours(IMAGES)),
            strict=True,
        )
    )


def _macs(name: str) -> int:
    """Return the multiply-accumulates of a network's convolutions."""
    return sum(layer.macs for layer in network(name).layers if layer.convolves)


def _fitted_share(name: str) -> float:
    """Return the share of DSPs with which a network's GOPS come out, by bisection; they rise with
    it.
    """
    low, high = 0.6, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        with in_force({"board.dsp_share": middle}):
            too_many = convolutions(name).gops_per_fpga > published(_row(name, "gops"))
        low, high = (low, middle) if too_many else (middle, high)
    return round((low + high) / 2, 4)
