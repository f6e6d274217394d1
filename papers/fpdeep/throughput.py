"""Table 6 of FPDeep and its discussion in the text: operations a second, hours an epoch, operations a joule.

GOPS are those of convolutions on the devices that hold any, 14 of 15; hours are those of the steady rate. The rows of
CPUs, GPUs and earlier FPGAs are the paper's constants, with which our figures are compared.

Blind predictions fit the share of DSPs to one network's GOPS, a board's power to its GOPS over GOPS/J, and predict the
other networks' figures. Nothing of these rows is used. Beside each prediction stands a guess without the emulator: the
same GOPS and GOPS/J, and hours in proportion to the convolutions' operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...emulator.network import OPERATIONS_PER_MAC, TRAINING_OPERATIONS_PER_MAC
from ...emulator.timing import engine_loads
from ..claim import Measure, Measured, load_claims
from ..constants import in_force
from ..sensitivity import Blind
from .constants import DSP_SHARE
from .evidence import DEVICES, IMAGES, NETWORKS, convolutions, network, report, timing

_K80 = {"alexnet": "fpdeep-t6-k80-alexnet-gopsj", "vgg16": "fpdeep-t6-k80-vgg16-gopsj"}
_TITAN_X = "fpdeep-t6-titanx-alexnet-gopsj"
_EARLIER = {"alexnet": "fpdeep-t6-fpga43-alexnet-gops", "vgg16": "fpdeep-t6-fpga43-vgg16-gops"}
_STEPS = 12
_FIGURES = ("gops", "gopsj", "hours")


def published(claim: str) -> float:
    """Return a constant of the paper that is not a claim about FPDeep: a figure of other hardware."""
    return float(load_claims("fpdeep")[claim].value)


def _gops(name: str) -> Measured:
    return Measured(convolutions(name).gops_per_fpga, _beside(name, lambda form: convolutions(form).gops_per_fpga))


def _gop_per_j(name: str) -> Measured:
    return Measured(_energy(name), _beside(name, _energy))


def _hours(name: str) -> Measured:
    return Measured(report(name).epoch_hours(IMAGES), _beside(name, lambda form: report(form).epoch_hours(IMAGES)))


def _beside(name: str, measure: Callable[[str], float]) -> str:
    return f"Krizhevsky's: {measure('alexnet-krizhevsky'):.4g}" if name == "alexnet" else ""


def _energy(name: str) -> float:
    gop_per_j = convolutions(name).gop_per_j
    assert gop_per_j is not None, "vc709 says what the board draws"
    return gop_per_j


def _gpu_gains() -> list[float]:
    """Return operations a joule over those of the Titan X for AlexNet, and of the K80 for AlexNet and VGG-16."""
    return [_energy("alexnet") / published(_TITAN_X), *_k80_gains()]


def _k80_gains() -> list[float]:
    return [_energy(name) / published(row) for name, row in _K80.items()]


def _mean_gpu_gain() -> Measured:
    gains = _gpu_gains()
    return Measured(sum(gains) / len(gains), f"of {', '.join(f'{gain:.2f}' for gain in gains)}")


def _titan_x_gain() -> Measured:
    return Measured(_gpu_gains()[0])


def _k80_gain() -> Measured:
    return Measured(_k80_gains(), "AlexNet, VGG-16")


def _range_of_gains() -> Measured:
    return Measured([min(_gpu_gains()), max(_gpu_gains())])


def _earlier_fpga_gain() -> Measured:
    return Measured(_energy("alexnet") / published("fpdeep-t6-fpga43-alexnet-gopsj"))


def _earlier_fpga_speed() -> Measured:
    gains = [convolutions(name).gops_per_fpga / published(row) for name, row in _EARLIER.items()]
    return Measured(sum(gains) / len(gains), f"AlexNet {gains[0]:.2f}, VGG-16 {gains[1]:.2f}")


def _titan_x_speed() -> Measured:
    return Measured(convolutions("alexnet").gops_per_fpga / published("fpdeep-t6-titanx-alexnet-gops"))


def _tops() -> Measured:
    return Measured([convolutions(name).gops_per_fpga / 1000 for name in NETWORKS], "AlexNet, VGG-16, VGG-19")


def _passes() -> Measured:
    """Measure the multiply-accumulates of all engines for a sample over those of FP."""
    ratios = []
    for name in NETWORKS:
        macs = sum(server.part.macs for server in engine_loads(timing(name)))
        ratios.append(macs / network(name).macs)
    return Measured(
        ratios, f"operations are counted {TRAINING_OPERATIONS_PER_MAC // OPERATIONS_PER_MAC} times, as the paper does"
    )


def _outputs() -> Measured:
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
        with in_force({DSP_SHARE.key: share, "board.power_w": power_w}):
            for name in NETWORKS:
                if name != fitted_to:
                    for figure, predicted in _predicted(name).items():
                        guess = published(_row(fitted_to, figure))
                        if figure == "hours":
                            guess *= _macs(name) / _macs(fitted_to)
                        yield Blind(fitted_to, share, name, figure, published(_row(name, figure)), predicted, guess)


def _predicted(name: str) -> Mapping[str, float]:
    throughput = convolutions(name)
    assert throughput.gop_per_j is not None, "the power of all boards is in force"
    return dict(
        zip(_FIGURES, (throughput.gops_per_fpga, throughput.gop_per_j, report(name).epoch_hours(IMAGES)), strict=True)
    )


def _macs(name: str) -> int:
    """Return the multiply-accumulates of a network's convolutions."""
    return sum(layer.macs for layer in network(name).layers if layer.convolves)


def _fitted_share(name: str) -> float:
    """Return the share of DSPs with which a network's GOPS come out, by bisection; they rise with it."""
    low, high = 0.6, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        with in_force({DSP_SHARE.key: middle}):
            too_many = convolutions(name).gops_per_fpga > published(_row(name, "gops"))
        low, high = (low, middle) if too_many else (middle, high)
    return round((low + high) / 2, 4)


FUNCTIONS = {"gops": _gops, "gop_per_j": _gop_per_j, "hours": _hours}
MEASURES: dict[str, Measure] = {
    "fpdeep-abs-energy-gain": _mean_gpu_gain,
    "fpdeep-eff-titanx": _titan_x_gain,
    "fpdeep-eff-k80": _k80_gain,
    "fpdeep-eff-range-gpu": _range_of_gains,
    "fpdeep-eff-fpga43": _earlier_fpga_gain,
    "fpdeep-perf-5x-fpga": _earlier_fpga_speed,
    "fpdeep-perf-comparable-titanx": _titan_x_speed,
    "fpdeep-tops-per-fpga": _tops,
    "fpdeep-bp-triples-ops": _passes,
    "fpdeep-outputs-sim": _outputs,
}
