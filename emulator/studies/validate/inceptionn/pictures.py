"""The figures of INCEPTIONN in the paper's form: 12, 13 and 15; 4, 5 and 14 if there are runs to draw."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

from .....comm.exchange import BINS, LEAST_EXPONENT
from ....common import InputError
from ....report import new_figure, save_figure, whole_ticks
from ..measure import NoEvidence
from . import training
from .evidence import EXCHANGES, NETWORKS, times
from .times import EXTRA_EPOCHS, SCALED, exchange_seconds, speedup

Draw = Callable[[pathlib.Path], None]
_WIDTH, _HEIGHT = 9, 4
_CODECS = (
    "none",
    *(f"truncate:{bits}" for bits in training.TRUNCATED),
    *(f"inceptionn:{e}" for e in training.EXPONENTS),
)


def draw_all(folder: pathlib.Path) -> list[pathlib.Path]:
    """Draw the figures that have evidence; return the paths.

    Raises:
        InputError: matplotlib is not installed, or a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`--pictures` {folder}: cannot be created: {error.strerror}") from None
    drawn = []
    for number, draw in _FIGURES.items():
        path = folder / f"fig{number}.png"
        try:
            draw(path)
        except NoEvidence:
            continue
        drawn.append(path)
    return drawn


def _bars(path: pathlib.Path, groups: Sequence[str], bars: dict[str, list[float]], label: str) -> None:
    """Draw a bar of each kind, side by side, for each group."""
    figure = new_figure(_WIDTH, _HEIGHT, "--pictures")
    axes = figure.subplots()
    for place, (name, heights) in enumerate(bars.items()):
        left = [group + (place - len(bars) / 2 + 0.5) * 0.8 / len(bars) for group in range(len(groups))]
        axes.bar(left, heights, 0.8 / len(bars), label=name)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(label)
    axes.margins(y=0.25)
    axes.legend(ncols=4, fontsize=8)
    save_figure(figure, path, f"`--pictures` {path}")


def draw_times(path: pathlib.Path) -> None:
    """Draw Fig. 12: training time of the four exchanges, over WA's, divided into computation and communication."""
    figure = new_figure(_WIDTH, _HEIGHT, "--pictures")
    axes = figure.subplots()
    labels = [f"{exchange}\n{name}" if exchange == "WA+C" else exchange for name in NETWORKS for exchange in EXCHANGES]
    found = [(times(name, exchange), times(name, "WA").total) for name in NETWORKS for exchange in EXCHANGES]
    computation = [(each.node + each.gradient_sum) / whole for each, whole in found]
    places = [5 * place + bar for place in range(len(NETWORKS)) for bar in range(len(EXCHANGES))]
    axes.bar(places, computation, label="computation")
    axes.bar(places, [each.communicate / whole for each, whole in found], bottom=computation, label="communication")
    axes.set_xticks(places, labels, fontsize=7)
    axes.set_ylabel("training time over WA")
    axes.set_ylim(0, 1.2)
    axes.legend(ncols=2)
    save_figure(figure, path, f"`--pictures` {path}")


def draw_speedups(path: pathlib.Path) -> None:
    """Draw Fig. 13: speed-up of INC+C with the same number of epochs, and with more."""
    bars = {
        "same epochs": [speedup(name) for name in NETWORKS],
        f"{EXTRA_EPOCHS} more epochs": [speedup(name, EXTRA_EPOCHS) for name in NETWORKS],
    }
    _bars(path, NETWORKS, bars, "speed-up of INC+C over WA")


def draw_scaling(path: pathlib.Path) -> None:
    """Draw Fig. 15: exchange time over the number of workers, over WA's with 4."""
    figure = new_figure(12, 3.4, "--pictures")
    for name, axes in zip(NETWORKS, figure.subplots(1, len(NETWORKS)), strict=True):
        whole = exchange_seconds(name, "WA", SCALED[0])
        for exchange in ("WA", "INC"):
            axes.plot(
                SCALED, [exchange_seconds(name, exchange, workers) / whole for workers in SCALED], "o-", label=exchange
            )
        axes.set(xlabel="workers", ylabel="exchange time over WA of 4", title=name, xticks=SCALED)
        axes.set_ylim(bottom=0)
        axes.legend()
    save_figure(figure, path, f"`--pictures` {path}")


def draw_truncation(path: pathlib.Path) -> None:
    """Draw Fig. 4: accuracy with bits truncated from weights, gradients, or both."""
    cut = [f"truncate:{bits}" for bits in training.TRUNCATED]
    groups = [f"{training.STAND_INS[name]}\n{bits} bits" for name in ("alexnet", "hdc") for bits in training.TRUNCATED]
    pairs = {"weights": ("none", "{}"), "gradients": ("{}", "none"), "both": ("{}", "{}")}
    bars = {
        what: [training.accuracy(name, g.format(c), w.format(c)) for name in ("alexnet", "hdc") for c in cut]
        for what, (g, w) in pairs.items()
    }
    _bars(path, groups, bars, "test accuracy / %")


def draw_gradients(path: pathlib.Path) -> None:
    """Draw Fig. 5: the magnitudes of gradients early, in the middle and at the end of training."""
    counts = training.stages("alexnet")
    figure = new_figure(_WIDTH, _HEIGHT, "--pictures")
    axes = figure.subplots()
    for stage, found in zip(("early", "middle", "final"), counts, strict=False):
        exponents = [LEAST_EXPONENT + place for place in range(BINS - 1)]
        axes.step(exponents, [100 * each / sum(found) for each in found[1:]], where="post", label=stage)
    axes.set(xlabel="exponent: values from 2^e on", ylabel="share / %", title=training.STAND_INS["alexnet"])
    whole_ticks(axes.xaxis)
    axes.legend()
    save_figure(figure, path, f"`--pictures` {path}")


def draw_codecs(path: pathlib.Path) -> None:
    """Draw Fig. 14 (b): accuracy after the same number of epochs."""
    bars = {codec: [training.accuracy(name, codec) for name in training.CUT] for codec in _CODECS}
    _bars(path, [training.STAND_INS[name] for name in training.CUT], bars, "test accuracy / %")


def draw_ratios(path: pathlib.Path) -> None:
    """Draw Fig. 14 (a): compression ratios."""
    cut = {f"truncate:{bits}": [32 / (32 - bits)] * len(NETWORKS) for bits in training.TRUNCATED}
    found = {f"2^{e}": [training.ratio(name, e) for name in NETWORKS] for e in training.EXPONENTS}
    _bars(path, [training.STAND_INS[name] for name in NETWORKS], {**cut, **found}, "compression ratio")


_FIGURES: dict[str, Draw] = {
    "4": draw_truncation,
    "5": draw_gradients,
    "12": draw_times,
    "13": draw_speedups,
    "14a": draw_ratios,
    "14b": draw_codecs,
    "15": draw_scaling,
}
