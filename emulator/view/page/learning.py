"""Learning: how large gradients are and what the codec makes of them, or how large weights are."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import LEAST_EXPONENT, histogram
from ....kernels.codec import Inceptionn
from ....kernels.inceptionn import WIDTHS
from ...common import percent
from ..tables import exchange_table
from .parts import Chart, Key, Section, Table, power_of_two
from .source import Run, codec_ratio

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
        said += f"With {codec}, {percent(1 / ratio)} (1 / {ratio:.2f}) of the bytes of gradients crossed the network. "
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
    return Chart("histogram", "Distribution of gradients: share in % of each power of two", data, legend, is_wide=False)


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
    epochs = [
        {
            "epoch": int(epoch),
            "values": [int(exchange[f"width_{bits}"][i]) for bits in WIDTHS],
            "ratio": float(exchange["value_bytes"][i] / exchange["compressed_bytes"][i]),
        }
        for i, epoch in enumerate(exchange["epoch"])
    ]
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
        f"{counts.sum():,} weights after the last epoch. Gradients are recorded where replicas exchange them.",
        (Chart("histogram", "Distribution of weights: share in % of each power of two", data),),
        (Table("Every layer", columns, rows, ("layer",)),),
    )


def _curve(name: str, colour: str, counts: Counts) -> dict[str, Any]:
    """Return a histogram's shares by power of two, both signs together; zeros are left out, but count."""
    both = counts.sum(axis=0)
    return {"name": name, "colour": colour, "shares": [float(share) for share in both[1:] / max(1, both.sum())]}


def _error_bound(run: Run) -> int | None:
    """Return the exponent of INCEPTIONN's error bound, if that is the codec and the histogram reaches it."""
    codec = run.plan.config.compress if run.plan else None
    bound = codec.error_bound_exponent if isinstance(codec, Inceptionn) else LEAST_EXPONENT
    return bound if bound > LEAST_EXPONENT else None
