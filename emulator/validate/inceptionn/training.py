"""Training under compression: Figs. 4, 5, 13 and 14, Table III; from measured runs (runs.py).

ImageNet is out of reach, so the convolutional networks have small stand-ins on CIFAR-10.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

from ..measure import Measure, Measured
from .evidence import NETWORKS
from .runs import Run, Target, runs_of

STAND_INS = {"alexnet": "alexnet-cifar", "hdc": "hdc", "resnet50": "resnet8-cifar", "vgg16": "vgg16-cifar"}
EXPONENTS = (-10, -8, -6)
TRUNCATED = (16, 22, 24)


def final_accuracy(runs: Sequence[Run]) -> float:
    """In percent, the mean over the seeds, of the best epoch."""
    return 100 * statistics.mean(max(run.test_accuracy) for run in runs)


def _accuracy(name: str, codec: str = "none", on: Target = "gradients") -> float:
    return final_accuracy(runs_of(STAND_INS[name], codec, on))


def loss_points(name: str, codec: str, on: Target = "gradients") -> float:
    """Accuracy lost against no codec, in points."""
    return _accuracy(name) - _accuracy(name, codec, on)


def widths(name: str, exponent: int) -> list[float]:
    """Shares of values of 2, 10, 18 and 34 bits, in percent, the mean over stages and seeds."""
    stages = [stage.widths for run in runs_of(STAND_INS[name], f"inceptionn:{exponent}") for stage in run.stages]
    return [100 * statistics.mean(shares) for shares in zip(*stages, strict=True)]


def ratio(name: str, exponent: int) -> float:
    """Compression ratio: 32 bits over the mean of 2, 10, 18, 34."""
    return 3200 / sum(share * bits for share, bits in zip(widths(name, exponent), (2, 10, 18, 34), strict=True))


def extra_epochs(name: str) -> float:
    """Epochs more that INC at 2^-10 takes to the best accuracy of no codec, less half a point; mean over the seeds."""
    wanted = _accuracy(name) / 100 - 0.005
    needed = []
    for codec in ("none", "inceptionn:-10"):
        runs = runs_of(STAND_INS[name], codec)
        reached = [[a >= wanted for a in run.test_accuracy] for run in runs]
        needed.append(statistics.mean(r.index(True) + 1 if True in r else len(r) + 1 for r in reached))
    return needed[1] - needed[0]


def _named(name: str) -> str:
    return STAND_INS[name]


def _table_3(name: str, exponent: int) -> Measured:
    found = widths(name, exponent)
    return Measured(found, f"{_named(name)}, ratio {ratio(name, exponent):.1f}")


def _weights_or_gradients() -> Measured:
    """How much more accuracy truncated weights lose than truncated gradients, in points."""
    found = {
        f"{name} {bits}b": loss_points(name, f"truncate:{bits}", "weights")
        - loss_points(name, f"truncate:{bits}", "gradients")
        for name in ("alexnet", "hdc")
        for bits in TRUNCATED
    }
    return Measured(list(found.values()), f"points more: {', '.join(found)}")


def _weights_of_complex() -> Measured:
    return Measured(
        loss_points("alexnet", "truncate:24", "weights"), f"points, {_named('alexnet')}, 24 bits of weights"
    )


def _largest() -> Measured:
    runs = runs_of(STAND_INS["alexnet"], "none")
    return Measured(max(run.largest_gradient or 0 for run in runs), f"largest of {_named('alexnet')}")


def _extra_epochs() -> Measured:
    found = [extra_epochs(name) for name in NETWORKS]
    return Measured(found, f"{', '.join(map(_named, NETWORKS))}; to within half a point")


def _drop() -> Measured:
    found = [loss_points(name, "inceptionn:-10") for name in NETWORKS]
    return Measured(max(found), f"points at 2^-10, the most of {', '.join(f'{each:.2f}' for each in found)}")


def _truncation_fails() -> Measured:
    """Networks that lose over 5 points under any truncation of gradients."""
    lost = {name: max(loss_points(name, f"truncate:{bits}") for bits in TRUNCATED) for name in NETWORKS}
    how = ", ".join(f"{_named(name)} {points:.1f}" for name, points in lost.items())
    return Measured([name for name in NETWORKS if lost[name] <= 5], f"networks that stand it; points lost: {how}")


def _loss_at_6() -> Measured:
    return Measured([loss_points(name, "inceptionn:-6") for name in NETWORKS], "points at 2^-6")


def _ratios(exponent: int) -> list[float]:
    return [ratio(name, exponent) for name in NETWORKS]


def _largest_ratio() -> Measured:
    return Measured(max(max(_ratios(exponent)) for exponent in EXPONENTS), "of 2^-10, 2^-8, 2^-6 and four networks")


def _ratio_range() -> Measured:
    found = _ratios(-10)
    return Measured(
        [min(found), max(found)], f"{', '.join(map(_named, NETWORKS))}: {', '.join(f'{r:.1f}' for r in found)}"
    )


def _ratio_rises() -> Measured:
    rows = [[ratio(name, exponent) for exponent in EXPONENTS] for name in NETWORKS]
    return Measured(sum(row != sorted(row) for row in rows), f"networks whose ratio falls, of {len(NETWORKS)}")


def _two_bits(exponent: int, both: bool) -> Measured:
    shares = [widths(name, exponent)[0] for name in NETWORKS]
    return Measured([min(shares), max(shares)] if both else shares, ", ".join(map(_named, NETWORKS)))


MEASURES: dict[str, Measure] = {
    "inceptionn-fig4-trunc-g-vs-w": _weights_or_gradients,
    "inceptionn-fig4-w-complex": _weights_of_complex,
    "inceptionn-fig5-range": _largest,
    "inceptionn-acc-extra-epochs": _extra_epochs,
    "inceptionn-acc-drop-without": _drop,
    "inceptionn-fig14-trunc-hdc-only": _truncation_fails,
    "inceptionn-fig14-inc-max": _largest_ratio,
    "inceptionn-fig14-inc-2-6": lambda: Measured(_ratios(-6), ", ".join(map(_named, NETWORKS))),
    "inceptionn-fig14-acc-2-6": _loss_at_6,
    "inceptionn-fig14-ratio-bound": _ratio_rises,
    **{
        f"inceptionn-t3-{name}-eb{-exponent}": partial(_table_3, name, exponent)
        for name in NETWORKS
        for exponent in EXPONENTS
    },
    "inceptionn-t3-2bit-90": partial(_two_bits, -6, False),
    "inceptionn-t3-2bit-range": partial(_two_bits, -10, True),
    "inceptionn-ratio-2-10": _ratio_range,
}
