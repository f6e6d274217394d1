"""Learning: how all runs converge, and of one how large its gradients are and what the codec makes
of them.

Accuracy and loss are over epochs and over virtual time; of seeds the mean, with a band. Without
exchanged gradients, the section on them is one on weights.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import LEAST_EXPONENT, histogram
from ....kernels.codec import Inceptionn
from ....kernels.inceptionn import WIDTHS
from ...common import Mean, percent
from ..tables import epoch_rows, exchange_table
from .parts import (
    Chart,
    CurveMark,
    Key,
    Section,
    Table,
    finite,
    power_of_two,
    share_text,
    time_text,
    with_micro,
)
from .source import Group, Run, codec_ratio

_MEASURES = {"accuracy": "Accuracy", "loss": "Loss"}
_COLUMNS = [
    "epoch",
    "learning rate",
    "loss",
    "accuracy",
    "test loss",
    "test accuracy",
    "virtual time",
    "host time",
]


def convergence(groups: Sequence[Group]) -> Section | None:
    """Return the section; None if no run has finished an epoch. One run is drawn with its training
    curves.
    """
    shown = [(place, group) for place, group in enumerate(groups) if group.epochs]
    if not shown:
        return None
    charts = []
    is_alone = len(groups) == 1
    kinds = ("train", "test") if is_alone else ("test",)
    for measure, title in _MEASURES.items():
        for over, axis in (("epoch", "epochs"), ("virtual_time_ps", "virtual time")):
            curves = [
                _learning_curve(group, place, kind, measure, over)
                for place, group in shown
                for kind in kinds
            ]
            data = {"over": over, "measure": measure, "curves": curves}
            heading = title if is_alone else f"Test {title.lower()}"
            charts.append(Chart("curves", f"{heading} over {axis}", data, is_wide=False))
    tables = tuple(_history(group, is_alone) for _, group in shown)
    said = _said([group for _, group in shown])
    return Section("Convergence", said, tuple(charts), tables, legend=_keys(shown, is_alone))


def _learning_curve(group: Group, place: int, kind: str, measure: str, over: str) -> dict[str, Any]:
    """Return a curve's points, how it is drawn, and of several seeds its band."""
    mark, means = CurveMark.of(place), group.curve(f"{kind}_{measure}")
    curve: dict[str, Any] = {
        "run": group.name,
        "colour": mark.colour,
        "symbol": mark.symbol,
        "dashes": mark.dashes,
        "dashed": kind == "train",
        "kind": "training" if kind == "train" else "test",
    }
    curve["x"] = [round(mean.value) for mean in group.curve(over)]
    curve["y"] = [finite(mean.value) for mean in means]
    if group.has_seeds:
        curve["seeds"] = len(group.runs)
        curve["low"] = [finite(mean.value - mean.error) for mean in means]
        curve["high"] = [finite(mean.value + mean.error) for mean in means]
    return curve


def _keys(shown: Sequence[tuple[int, Group]], is_alone: bool) -> tuple[Key, ...]:
    if is_alone:
        seeds = _seeds(shown[0][1])
        return Key(f"test{seeds}", "run-0", "line"), Key(f"training{seeds}", "run-0", "dashes")
    return tuple(Key.of_curve(f"{group.name}{_seeds(group)}", place) for place, group in shown)


def _seeds(group: Group) -> str:
    return f", n = {len(group.runs)}" if group.has_seeds else ""


def _said(groups: Sequence[Group]) -> str:
    said = []
    if len(groups) == 1:
        losses = groups[0].curve("train_loss")
        first, last = _loss_text(losses[0], 3), _loss_text(losses[-1], 3)
        fell = f"The training loss went from {first} in the first epoch to {last} in the last. "
        said.append(fell if len(losses) > 1 else f"The training loss is {last} after one epoch. ")
    if any(group.has_seeds for group in groups):
        said.append("Lines are means over n seeds, bands ± their standard errors. ")
    for group in groups:
        most = max(run.results.epochs for run in group.runs)
        if group.epochs < most:
            said.append(
                f"Of {group.name}, {group.epochs} of {most} epochs are shown, which all seeds have"
                " finished. "
            )
    return (
        "".join(said) + "Virtual time is that of the emulated cluster; evaluation takes none of it."
    )


def _history(group: Group, is_alone: bool) -> Table:
    title = "Every epoch" if is_alone else f"Every epoch of {group.name}"
    if not group.has_seeds:
        rows = [
            [*row[:6], with_micro(row[6]), row[7]]
            for row in epoch_rows(group.first.results.history)
        ]
        return Table(title, _COLUMNS, rows)
    names = (
        "train_loss",
        "train_accuracy",
        "test_loss",
        "test_accuracy",
        "virtual_time_ps",
        "host_time_s",
    )
    curves = zip(*(group.curve(name) for name in names), strict=True)
    history = group.first.results.history
    rows = [
        [
            str(history["epoch"][place]),
            f"{history['learning_rate'][place]:g}",
            _loss_text(loss, 4),
            share_text(accuracy),
            _loss_text(test_loss, 4),
            share_text(test_accuracy),
            time_text(time_ps),
            f"{host_s.value:.1f} s",
        ]
        for place, (loss, accuracy, test_loss, test_accuracy, time_ps, host_s) in enumerate(curves)
    ]
    return Table(f"{title}: mean of {len(group.runs)} seeds ± standard error", _COLUMNS, rows)


def _loss_text(loss: Mean, digits: int) -> str:
    return f"{loss.value:.{digits}f}" if math.isinf(loss.error) else loss.shown(digits)


Counts = NDArray[np.int64]
"""By sign and bin, as `histogram` returns them: zeros, then one bin for each power of two."""


def gradients(run: Run) -> Section | None:
    """Return the section; None where the file has neither exchanged gradients nor weights."""
    exchange, ratio = run.results.exchange, codec_ratio(run.results)
    if ratio is None:
        return _weight_section(run)
    said, charts = "", []
    codec = str(run.results.config["compress"])
    if codec != "none":
        said += (
            f"With {codec}, {percent(1 / ratio)} (1 / {ratio:.2f}) of the bytes of gradients"
            " crossed the network. "
        )
    if "histogram" in exchange:
        charts.append(_distribution(run))
        said += _distribution_said(run)
    if any(exchange[f"width_{bits}"].any() for bits in WIDTHS):
        charts.append(_widths(run))
    shown = [bits for bits in WIDTHS if exchange[f"width_{bits}"].any()]
    exchanged = exchange_table(exchange, run.results.history["virtual_time_ps"], shown)
    table = Table("Exchange between replicas, every epoch", *exchanged)
    return Section("Gradients and codec", said, tuple(charts), (table,))


def _distribution(run: Run) -> Chart:
    counts, epochs = run.results.exchange["histogram"], run.results.exchange["epoch"]
    curves = [_curve(f"epoch {epochs[-1]}", "gradient-last", counts[-1])]
    if len(epochs) > 1:
        curves.insert(0, _curve(f"epoch {epochs[0]}", "gradient-first", counts[0]))
    data = {"curves": curves, "bound": _error_bound(run), "least": LEAST_EXPONENT, "of": "gradient"}
    legend = tuple(Key(curve["name"], curve["colour"]) for curve in curves)
    return Chart(
        "histogram",
        "Distribution of gradients: share in % of each power of two",
        data,
        legend,
        is_wide=False,
    )


def _distribution_said(run: Run) -> str:
    last, bound = run.results.exchange["histogram"][-1].sum(axis=0), _error_bound(run)
    values = max(1, last.sum())
    said = f"Of the last mini-batch's gradients, {percent(last[0] / values)} are 0"
    if bound is None:
        return f"{said}."
    small = percent(last[: 1 + bound - LEAST_EXPONENT].sum() / values)
    return f"{said}, and {small} are below the codec's error bound, {power_of_two(bound)}."


def _widths(run: Run) -> Chart:
    exchange = run.results.exchange
    epochs = []
    for i, epoch in enumerate(exchange["epoch"]):
        values = [int(exchange[f"width_{bits}"][i]) for bits in WIDTHS]
        ratio = float(exchange["value_bytes"][i] / exchange["compressed_bytes"][i])
        epochs.append({"epoch": int(epoch), "values": values, "ratio": ratio})
    legend = tuple(Key(f"{bits} bits", f"width-{bits}") for bits in WIDTHS)
    title = "Codec: share in % of values sent in each width, and the compression ratio"
    return Chart("widths", title, {"widths": list(WIDTHS), "epochs": epochs}, legend, is_wide=False)


def _weight_section(run: Run) -> Section | None:
    histograms = [histogram(weight.ravel()) for weight in run.results.weight_arrays.values()]
    if not histograms:
        return None
    counts = functools.reduce(operator.add, histograms)
    data = {
        "curves": [_curve("weights", "gradient-last", counts)],
        "bound": None,
        "least": LEAST_EXPONENT,
        "of": "weight",
    }
    rows = [
        [
            name,
            " × ".join(map(str, weight.shape)),
            f"{weight.size:,}",
            f"{float(np.sqrt(np.square(weight, dtype=np.float64).mean())):.5f}",
            f"{float(np.abs(weight).max()):.4f}",
        ]
        for name, weight in run.results.weight_arrays.items()
    ]
    columns = ["layer", "oc × ic × kh × kw", "weights", "root mean square", "largest"]
    return Section(
        "Weights",
        f"{counts.sum():,} weights after the last epoch. Gradients are recorded where replicas"
        " exchange them.",
        (Chart("histogram", "Distribution of weights: share in % of each power of two", data),),
        (Table("Every layer", columns, rows, ("layer",)),),
    )


def _curve(name: str, colour: str, counts: Counts) -> dict[str, Any]:
    """Return a histogram's shares by power of two, both signs together; zeros are left out, but
    count.
    """
    both = counts.sum(axis=0)
    return {
        "name": name,
        "colour": colour,
        "shares": [float(share) for share in both[1:] / max(1, both.sum())],
    }


def _error_bound(run: Run) -> int | None:
    """Return the exponent of INCEPTIONN's error bound, if that is the codec and the histogram
    reaches it.
    """
    codec = run.plan.config.compress if run.plan else None
    bound = codec.error_bound_exponent if isinstance(codec, Inceptionn) else LEAST_EXPONENT
    return bound if bound > LEAST_EXPONENT else None
