"""The figures of INCEPTIONN in the paper's form: 12, 13 and 15; 4, 5 and 14 if there are runs to
draw.

Bars of training are means over seeds, with their standard errors where there are several seeds.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence

from ...comm.exchange import BINS, LEAST_EXPONENT
from ...emulator.common import Mean
from ...emulator.view import new_figure, save_figure, whole_ticks
from ..claim import NoEvidence
from ..pictures import Draw
from . import training
from .evidence import EXCHANGES, NETWORKS, times
from .runs import accuracy
from .times import EXTRA_EPOCHS, SCALED, exchange_seconds, speedup

_WIDTH, _HEIGHT = 9, 4
_CODECS = (
    "none",
    *map("truncate:{}".format, training.TRUNCATED),
    *map("inceptionn:{}".format, training.EXPONENTS),
)


def _bars(
    path: pathlib.Path, groups: Sequence[str], bars: dict[str, list[Mean]], label: str
) -> None:
    """Draw a bar of each kind, side by side, for each group; with its standard error, if that is
    known.
    """
    figure = new_figure(_WIDTH, _HEIGHT, "--pictures")
    axes = figure.subplots()
    for place, (name, means) in enumerate(bars.items()):
        left = [
            group + (place - len(bars) / 2 + 0.5) * 0.8 / len(bars) for group in range(len(groups))
        ]
        errors = [mean.error if 0 < mean.error < math.inf else math.nan for mean in means]
        axes.bar(
            left,
            [mean.value for mean in means],
            0.8 / len(bars),
            yerr=errors,
            capsize=2,
            label=name,
        )
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(label)
    axes.margins(y=0.25)
    axes.legend(ncols=4, fontsize=8)
    save_figure(figure, path, "--pictures")


def draw_times(path: pathlib.Path) -> None:
    """Draw Fig. 12: training time of the four exchanges, over WA's, divided into computation and
    communication.
    """
    figure = new_figure(_WIDTH, _HEIGHT, "--pictures")
    axes = figure.subplots()
    labels = [
        f"{exchange}\n{name}" if exchange == "WA+C" else exchange
        for name in NETWORKS
        for exchange in EXCHANGES
    ]
    pairs = [
        (times(name, exchange), times(name, "WA").total)
        for name in NETWORKS
        for exchange in EXCHANGES
    ]
    computation = [(parts.node + parts.gradient_sum) / whole for parts, whole in pairs]
    places = [5 * place + bar for place in range(len(NETWORKS)) for bar in range(len(EXCHANGES))]
    axes.bar(places, computation, label="computation")
    axes.bar(
        places,
        [parts.communicate / whole for parts, whole in pairs],
        bottom=computation,
        label="communication",
    )
    axes.set_xticks(places, labels, fontsize=7)
    axes.set_ylabel("training time over WA")
    axes.set_ylim(0, 1.2)
    axes.legend(ncols=2)
    save_figure(figure, path, "--pictures")


def draw_speedups(path: pathlib.Path) -> None:
    """Draw Fig. 13: speed-up of INC+C with the same number of epochs, and with more; accuracies of
    the stand-ins.
    """
    bars = {}
    for label, extra in {"same epochs": 0, f"{EXTRA_EPOCHS} more epochs": EXTRA_EPOCHS}.items():
        bars[label] = [Mean(speedup(name, extra), 0) for name in NETWORKS]
    _bars(
        path,
        [f"{name}\n{_accuracies(name)}" for name in NETWORKS],
        bars,
        "speed-up of INC+C over WA",
    )


def _accuracies(name: str) -> str:
    """Return a stand-in's accuracies without a codec, and with a bound of 2^-10 after more
    epochs.
    """
    network = training.STAND_INS[name]
    try:
        lossy = accuracy(network, "inceptionn:-10", later=training.MORE_EPOCHS)
        return f"{network}: {accuracy(network)} %\nINC+C: {lossy} %"
    except NoEvidence:
        return ""


def draw_scaling(path: pathlib.Path) -> None:
    """Draw Fig. 15: exchange time over the number of workers, over WA's with 4."""
    figure = new_figure(12, 3.4, "--pictures")
    for name, axes in zip(NETWORKS, figure.subplots(1, len(NETWORKS)), strict=True):
        whole = exchange_seconds(name, "WA", SCALED[0])
        for exchange in ("WA", "INC"):
            axes.plot(
                SCALED,
                [exchange_seconds(name, exchange, workers) / whole for workers in SCALED],
                "o-",
                label=exchange,
            )
        axes.set(xlabel="workers", ylabel="exchange time over WA of 4", title=name, xticks=SCALED)
        axes.set_ylim(bottom=0)
        axes.legend()
    save_figure(figure, path, "--pictures")


def draw_truncation(path: pathlib.Path) -> None:
    """Draw Fig. 4: accuracy with bits truncated from weights, gradients, or both."""
    cut = [f"truncate:{bits}" for bits in training.TRUNCATED]
    groups = [
        f"{training.STAND_INS[name]}\n{bits} bits"
        for name in ("alexnet", "hdc")
        for bits in training.TRUNCATED
    ]
    pairs = {"weights": ("none", "{}"), "gradients": ("{}", "none"), "both": ("{}", "{}")}
    bars = {}
    for what, (g, w) in pairs.items():
        bars[what] = [
            accuracy(training.STAND_INS[name], g.format(c), w.format(c))
            for name in ("alexnet", "hdc")
            for c in cut
        ]
    _bars(path, groups, bars, "test accuracy / %")


def draw_gradients(path: pathlib.Path) -> None:
    """Draw Fig. 5: the magnitudes of gradients early, in the middle and at the end of training."""
    counts = training.stages("alexnet")
    figure = new_figure(_WIDTH, _HEIGHT, "--pictures")
    axes = figure.subplots()
    for stage, histogram in zip(("early", "middle", "final"), counts, strict=False):
        exponents = [LEAST_EXPONENT + place for place in range(BINS - 1)]
        axes.step(
            exponents,
            [100 * bin_count / sum(histogram) for bin_count in histogram[1:]],
            where="post",
            label=stage,
        )
    axes.set(
        xlabel="exponent: values from 2^e on",
        ylabel="share / %",
        title=training.STAND_INS["alexnet"],
    )
    whole_ticks(axes.xaxis)
    axes.legend()
    save_figure(figure, path, "--pictures")


def draw_codecs(path: pathlib.Path) -> None:
    """Draw Fig. 14 (b): accuracy after the same number of epochs."""
    networks = [training.STAND_INS[name] for name in training.CUT]
    bars = {}
    for codec in _CODECS:
        bars[codec] = [accuracy(name, codec) for name in networks]
    _bars(path, networks, bars, "test accuracy / %")


def draw_ratios(path: pathlib.Path) -> None:
    """Draw Fig. 14 (a): compression ratios of the networks that learn with each bound."""
    rows, missing = training.by_network(
        lambda name: [training.ratio_over_seeds(name, e) for e in training.EXPONENTS]
    )
    if not rows:
        raise NoEvidence(" ".join(missing))
    cut = {
        f"truncate:{bits}": [Mean(32 / (32 - bits), 0)] * len(rows) for bits in training.TRUNCATED
    }
    by_exponent = map(list, zip(*rows.values(), strict=True))
    ratios = dict(zip(map("2^{}".format, training.EXPONENTS), by_exponent, strict=True))
    _bars(path, list(rows), {**cut, **ratios}, "compression ratio")


FIGURES: dict[str, Draw] = {
    "fig4": draw_truncation,
    "fig5": draw_gradients,
    "fig12": draw_times,
    "fig13": draw_speedups,
    "fig14a": draw_ratios,
    "fig14b": draw_codecs,
    "fig15": draw_scaling,
}
