"""Blind predictions: constants fitted to one network's row of Table 6, and what they predict of the other two.

The share of DSPs is fitted to a network's GOPS, a board's power to its GOPS over GOPS/J. Nothing of the others' rows
is used. Beside each prediction stands a guess without the emulator: the same GOPS and GOPS/J, and hours in proportion
to the convolutions' operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..claim import load_claims
from ..constants import in_force
from ..sensitivity import Blind
from .constants import DSP_SHARE
from .evidence import IMAGES, NETWORKS, convolutions, report
from .evidence import network as load

_STEPS = 12
_FIGURES = ("gops", "gopsj", "hours")


def published(network: str, figure: str) -> float:
    """Return a figure of Table 6."""
    return float(load_claims("fpdeep")[f"fpdeep-t6-{network}-{figure}"].value)


def blind_predictions() -> Iterator[Blind]:
    """Yield the predictions of all pairs of networks."""
    for fitted_to in NETWORKS:
        share = _fitted_share(fitted_to)
        power_w = published(fitted_to, "gops") / published(fitted_to, "gopsj")
        with in_force({DSP_SHARE.key: share, "board.power_w": power_w}):
            for network in NETWORKS:
                if network != fitted_to:
                    for figure, predicted in _predicted(network).items():
                        guess = published(fitted_to, figure)
                        if figure == "hours":
                            guess *= _macs(network) / _macs(fitted_to)
                        yield Blind(fitted_to, share, network, figure, published(network, figure), predicted, guess)


def _predicted(network: str) -> Mapping[str, float]:
    throughput = convolutions(network)
    assert throughput.gop_per_j is not None, "the power of all boards is in force"
    return dict(
        zip(
            _FIGURES, (throughput.gops_per_fpga, throughput.gop_per_j, report(network).epoch_hours(IMAGES)), strict=True
        )
    )


def _macs(network: str) -> int:
    """Return the multiply-accumulates of a network's convolutions."""
    return sum(layer.macs for layer in load(network).layers if layer.convolves)


def _fitted_share(network: str) -> float:
    """Return the share of DSPs with which a network's GOPS come out, by bisection; they rise with it."""
    low, high = 0.6, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        with in_force({DSP_SHARE.key: middle}):
            too_many = convolutions(network).gops_per_fpga > published(network, "gops")
        low, high = (low, middle) if too_many else (middle, high)
    return round((low + high) / 2, 4)
