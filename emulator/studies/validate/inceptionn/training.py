"""Training under compression: Figs. 4, 5, 13 and 14, Table III; from measured runs (runs.py).

ImageNet is out of reach, so the convolutional networks have small stand-ins on CIFAR-10. Accuracies are those with the
default codec, whose errors stay below the bound; widths and ratios are those of the paper's plain rule by range.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial

from .....comm.exchange import BINS, LEAST_EXPONENT
from ..measure import Measure, Measured, NoEvidence
from .evidence import NETWORKS
from .runs import runs_of

STAND_INS = {"alexnet": "quick-cifar", "hdc": "hdc", "resnet50": "resnet8-cifar", "vgg16": "vgg11-cifar"}
CUT = ("alexnet", "hdc", "resnet50")
"""Networks that were also trained with truncated gradients and weights."""
EXPONENTS = (-10, -8, -6)
TRUNCATED = (16, 22, 24)
WITHIN = 0.005
"""Accuracies that differ by up to half a point count as equal."""
_NAMES = ", ".join(STAND_INS.values())


def accuracy(name: str, gradients: str = "none", weights: str = "none") -> float:
    """Return the mean accuracy over the seeds in percent, after the same number of epochs."""
    return 100 * statistics.mean(run.accuracy for run in runs_of(STAND_INS[name], gradients, weights))


def loss(name: str, gradients: str = "none", weights: str = "none") -> float:
    """Return the accuracy lost against no codec in points, over the seeds run with and without."""
    plain = {run.seed: run.accuracy for run in runs_of(STAND_INS[name])}
    lossy = [run for run in runs_of(STAND_INS[name], gradients, weights) if run.seed in plain]
    if not lossy:
        raise NoEvidence(f"No seed of {STAND_INS[name]} was run with and without a codec.")
    return 100 * statistics.mean(plain[run.seed] - run.accuracy for run in lossy)


def widths(name: str, exponent: int, codec: str = "inceptionn-range") -> list[float]:
    """Return the shares of values of 2, 10, 18 and 34 bits in percent, the mean over epochs and seeds."""
    epochs = [shares for run in runs_of(STAND_INS[name], f"{codec}:{exponent}") for shares in run.widths]
    if not epochs:
        raise NoEvidence(f"The runs of {STAND_INS[name]} with {codec}:{exponent} have no widths.")
    return [100 * statistics.mean(shares) for shares in zip(*epochs, strict=True)]


def plain_widths(name: str, exponent: int) -> list[float]:
    """Return `widths` under the rule by range for gradients of training without a codec, before they are summed."""
    histograms = [histogram for run in runs_of(STAND_INS[name]) for histogram in run.histograms]
    if not histograms:
        raise NoEvidence(f"The runs of {STAND_INS[name]} have no histograms.")
    smallest, middle = (1 + each - LEAST_EXPONENT for each in (exponent, -(-exponent // 2)))
    epochs = [[sum(both) for both in zip(*signs, strict=True)] for signs in histograms]
    parts = [(counts[:smallest], counts[smallest:middle], counts[middle:-1], counts[-1:]) for counts in epochs]
    shares = [[100 * sum(part) / sum(map(sum, of)) for part in of] for of in parts]
    return [statistics.mean(of) for of in zip(*shares, strict=True)]


def ratio(name: str, exponent: int, codec: str = "inceptionn-range") -> float:
    """Return the compression ratio: 32 bits over the mean of 2, 10, 18 and 34 bits."""
    return 3200 / sum(share * bits for share, bits in zip(widths(name, exponent, codec), (2, 10, 18, 34), strict=True))


def extra_epochs(name: str) -> int:
    """Return the extra epochs until a bound of 2^-10 is within half a point of no codec, in means over the seeds.

    If it never is, return one more than were tried.
    """
    wanted = accuracy(name) / 100 - WITHIN
    found = runs_of(STAND_INS[name], "inceptionn:-10")
    after = zip(*(run.test_accuracy[run.epochs - 1 :] for run in found), strict=False)
    more = [statistics.mean(accuracies) >= wanted for accuracies in after]
    return more.index(True) if True in more else len(more)


def stages(name: str) -> list[list[int]]:
    """Return histograms of gradients, both signs together, early, midway and at the end of training without a codec."""
    found = runs_of(STAND_INS[name])[0].histograms
    if not found:
        raise NoEvidence(f"The runs of {STAND_INS[name]} have no histograms.")
    chosen = (found[0], found[len(found) // 2], found[-1])
    return [[sum(both) for both in zip(*signs, strict=True)] for signs in chosen]


def _shown(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {round(value, 1) + 0:.1f}" for name, value in found.items())  # no -0.0


def _table_3(name: str, exponent: int) -> Measured:
    by_bound, plain = (
        ", ".join(f"{share:.1f}" for share in shares)
        for shares in (widths(name, exponent, "inceptionn"), plain_widths(name, exponent))
    )
    how = f"{STAND_INS[name]}; by the bound {by_bound}; by the range, of training without a codec {plain}"
    return Measured(widths(name, exponent), how)


def _weights_or_gradients() -> Measured:
    """Measure by how many points of accuracy truncated weights lose more than truncated gradients."""
    found = {
        f"{STAND_INS[name]} {bits}b": loss(name, weights=f"truncate:{bits}") - loss(name, f"truncate:{bits}")
        for name in ("alexnet", "hdc")
        for bits in TRUNCATED
    }
    return Measured(list(found.values()), f"points more: {_shown(found)}")


def _weights_of_complex() -> Measured:
    return Measured(loss("alexnet", weights="truncate:24"), f"points, 24 bits of weights, {STAND_INS['alexnet']}")


def _range() -> Measured:
    """Count the gradients of magnitude 1 or more."""
    counts = stages("alexnet")
    small = ", ".join(f"{100 * (1 - sum(each[BINS - 11 :]) / sum(each)):.1f}" for each in counts)
    how = f"gradients of 1 and more, early, middle, final; below 2^-10: {small} %"
    return Measured([each[BINS - 1] for each in counts], how)


def _extra_epochs() -> Measured:
    found = {STAND_INS[name]: extra_epochs(name) for name in NETWORKS}
    return Measured(list(found.values()), f"until within half a point: {_shown(found)}")


def _drop() -> Measured:
    found = {STAND_INS[name]: loss(name, "inceptionn:-10") for name in NETWORKS}
    return Measured(max(found.values()), f"points at 2^-10: {_shown(found)}")


def _stand_truncation() -> Measured:
    """Find the networks that lose no more than 5 points under any truncation of gradients."""
    lost = {name: max(loss(name, f"truncate:{bits}") for bits in TRUNCATED) for name in CUT}
    return Measured([name for name in CUT if lost[name] <= 5], f"stand it; points lost: {_shown(lost)}")


def _loss_at_6() -> Measured:
    found = {STAND_INS[name]: loss(name, "inceptionn:-6") for name in NETWORKS}
    return Measured(list(found.values()), f"points: {_shown(found)}")


def _ratios(exponent: int, codec: str = "inceptionn-range") -> list[float]:
    return [ratio(name, exponent, codec) for name in NETWORKS]


def _by_bound(exponent: int) -> str:
    return f"{_NAMES}; by the bound {', '.join(f'{each:.1f}' for each in _ratios(exponent, 'inceptionn'))}"


def _largest_ratio() -> Measured:
    return Measured(max(max(_ratios(exponent)) for exponent in EXPONENTS), "of 2^-10, 2^-8, 2^-6 and four networks")


def _ratios_at_6() -> Measured:
    return Measured(_ratios(-6), _by_bound(-6))


def _ratio_range() -> Measured:
    found = _ratios(-10)
    return Measured([min(found), max(found)], _by_bound(-10))


def _ratio_rises() -> Measured:
    rows = [[ratio(name, exponent) for exponent in EXPONENTS] for name in NETWORKS]
    return Measured(sum(row != sorted(row) for row in rows), f"networks whose ratio falls, of {len(NETWORKS)}")


def _two_bits() -> Measured:
    return Measured([widths(name, -6)[0] for name in NETWORKS], _NAMES)


def _two_bits_range() -> Measured:
    shares = [widths(name, -10)[0] for name in NETWORKS]
    return Measured([min(shares), max(shares)], _NAMES)


MEASURES: dict[str, Measure] = {
    "inceptionn-fig4-trunc-g-vs-w": _weights_or_gradients,
    "inceptionn-fig4-w-complex": _weights_of_complex,
    "inceptionn-fig5-range": _range,
    "inceptionn-acc-extra-epochs": _extra_epochs,
    "inceptionn-acc-drop-without": _drop,
    "inceptionn-fig14-trunc-hdc-only": _stand_truncation,
    "inceptionn-fig14-inc-max": _largest_ratio,
    "inceptionn-fig14-inc-2-6": _ratios_at_6,
    "inceptionn-fig14-acc-2-6": _loss_at_6,
    "inceptionn-fig14-ratio-bound": _ratio_rises,
    **{
        f"inceptionn-t3-{name}-eb{-exponent}": partial(_table_3, name, exponent)
        for name in NETWORKS
        for exponent in EXPONENTS
    },
    "inceptionn-t3-2bit-90": _two_bits,
    "inceptionn-t3-2bit-range": _two_bits_range,
    "inceptionn-ratio-2-10": _ratio_range,
}
