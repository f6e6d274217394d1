"""`bench kernels`: every layer's FP, EB and PG against the multiply-add peak, and against PyTorch.

Each side runs on one thread. A round times ours, PyTorch's and the peak back to back; shares of the peak and ratios
are computed within each round, and then the median over the rounds. As usual, operations on padding zeros are counted,
the same on both sides.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from ..common import percent
from .figures import Pace, Sheet, as_ratio, geometric_mean, interleaved, median_ratio
from .shapes import BAR_SHARE, LISTS, PHASES, Shape
from .sides import OurLayer, PeerLayer

_PEAK_ROUNDS = 200_000  # a millisecond, beside which the call costs nothing
_ROUNDING = 1e-4  # of the largest value: far above any effect of the order of sums, far below any mistake

KERNEL_NOTES = (
    f"Peak: multiply-adds in registers, measured together with each phase. Bar: {BAR_SHARE:.0%} of the peak, for layers"
    " of 64 channels or more and 64 output pixels or more in the micro-batch. Ratio: PyTorch's time over ours, one"
    " thread each; at the peak: what it would be if ours took no longer than its multiply-adds. A network's first layer"
    " has no EB, here as in training."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One phase of one layer; medians over `rounds`. PyTorch's figures are None if it was not measured.

    `peak_ratio` is PyTorch's time over that of the phase exactly at the peak.
    """

    list: str
    layer: str
    network: str
    samples: int
    phase: str
    flop: int
    rounds: int
    seconds: float
    gflops: float
    peak_gflops: float
    peak_share: float
    has_bar: bool
    torch_seconds: float | None
    torch_gflops: float | None
    ratio: float | None
    peak_ratio: float | None


@dataclasses.dataclass(frozen=True)
class Summary:
    """One phase of a list: ratios to PyTorch over all layers, and the share of the peak over layers with a bar."""

    list: str
    phase: str
    layers: int
    ratio_geometric_mean: float | None
    ratio_minimum: float | None
    peak_ratio_geometric_mean: float | None
    bar_layers: int
    bar_share_minimum: float | None


def measure(lists: Sequence[str], pace: Pace, torch: ModuleType | None) -> Iterator[Row]:
    """Yield each row as soon as it is measured.

    Raises:
        ArithmeticError: our results differ from PyTorch's.
    """
    from ...kernels.llvm import FLOP_OF_ROUND, multiply_add

    def peak() -> None:
        multiply_add(_PEAK_ROUNDS)

    for name in lists:
        for shape in LISTS[name]:
            arrays = _arrays(shape)
            ours = OurLayer(shape, *arrays)
            peer = None if torch is None else PeerLayer(torch, shape, *arrays)
            for phase in shape.phases:
                if peer is not None:
                    _check(shape, phase, ours.results(phase), peer.results(phase))
                calls = [_call(ours, phase), peak]
                if peer is not None:
                    calls.insert(1, _call(peer, phase))
                timings = interleaved(calls, pace)
                peak_s = [seconds / (_PEAK_ROUNDS * FLOP_OF_ROUND) for seconds in timings.pop()]
                yield row_of(name, shape, phase, peak_s, *timings)


def _arrays(shape: Shape) -> tuple[NDArray[np.float32], ...]:
    """Return random x, w and dy."""
    random = np.random.Generator(np.random.Philox(key=1))
    sizes = (
        (shape.samples, shape.in_channels, *shape.size),
        (shape.out_channels, shape.in_channels, *shape.kernel),
        (shape.samples, shape.out_channels, *shape.output),
    )
    return tuple(random.standard_normal(size, np.float32) for size in sizes)


def _call(layer: OurLayer | PeerLayer, phase: str) -> Callable[[], object]:
    return {"FP": layer.forward, "EB": layer.error, "PG": layer.gradient}[phase]


def _check(shape: Shape, phase: str, ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    """Raise ArithmeticError if results differ from PyTorch's: speed with wrong results means nothing."""
    distance = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    if not distance < _ROUNDING:
        raise ArithmeticError(f"{shape.name}, {phase}: differs from PyTorch by {distance:.1e} of the largest value")


def row_of(
    name: str,
    shape: Shape,
    phase: str,
    peak_s: Sequence[float],
    ours_s: Sequence[float],
    torch_s: Sequence[float] | None = None,
) -> Row:
    """Return a row from each round's seconds: for one operation at the peak, and for the phase, ours and PyTorch's."""
    return Row(
        name,
        shape.name,
        shape.network,
        shape.samples,
        phase,
        shape.flop,
        len(ours_s),
        statistics.median(ours_s),
        shape.flop / statistics.median(ours_s) / 1e9,
        1 / statistics.median(peak_s) / 1e9,
        shape.flop * median_ratio(peak_s, ours_s),
        shape.has_bar,
        None if torch_s is None else statistics.median(torch_s),
        None if torch_s is None else shape.flop / statistics.median(torch_s) / 1e9,
        None if torch_s is None else median_ratio(torch_s, ours_s),
        None if torch_s is None else median_ratio(torch_s, peak_s) / shape.flop,
    )


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Return a summary of each phase of each list."""
    summaries = []
    for name in dict.fromkeys(row.list for row in rows):
        for phase in PHASES:
            mine = [row for row in rows if (row.list, row.phase) == (name, phase)]
            if not mine:
                continue
            ratios = [row.ratio for row in mine if row.ratio is not None]
            peak_ratios = [row.peak_ratio for row in mine if row.peak_ratio is not None]
            shares = [row.peak_share for row in mine if row.has_bar]
            summaries.append(
                Summary(
                    name,
                    phase,
                    len(mine),
                    geometric_mean(ratios) if ratios else None,
                    min(ratios, default=None),
                    geometric_mean(peak_ratios) if peak_ratios else None,
                    len(shares),
                    min(shares, default=None),
                )
            )
    return summaries


def kernel_answer(rows: Sequence[Row]) -> list[str]:
    """Return what the rows say together: how near the peak, and how fast beside PyTorch."""
    barred = [row for row in rows if row.has_bar]
    lines = [f"{len(rows)} phases of layers were measured"]
    if barred:
        met = sum(row.peak_share >= BAR_SHARE for row in barred)
        least = min(barred, key=lambda row: row.peak_share)
        lines.append(f"{met} of {len(barred)} with a bar reach {BAR_SHARE:.0%} of the peak")
        lines.append(f"least of the peak: {percent(least.peak_share)}, {least.phase} of {least.layer}")
    ratios = {row: row.ratio for row in rows if row.ratio is not None}
    if ratios:
        slowest = min(ratios, key=lambda row: ratios[row])
        lines.append(f"{as_ratio(geometric_mean(list(ratios.values())))} times as fast as PyTorch, the geometric mean")
        lines.append(f"least: {as_ratio(ratios[slowest])} times, {slowest.phase} of {slowest.layer}")
    return lines


def kernel_sheet(name: str, rows: Sequence[Row]) -> Sheet:
    """Return the table of one list's rows."""
    columns = ("network", "layer", "phase", "GFLOP/s", "peak", "of peak", "bar", "PyTorch", "ratio")
    cells = tuple(
        (
            row.network,
            row.layer,
            row.phase,
            f"{row.gflops:.1f}",
            f"{row.peak_gflops:.1f}",
            percent(row.peak_share),
            ("met" if row.peak_share >= BAR_SHARE else "missed") if row.has_bar else "-",
            "-" if row.torch_gflops is None else f"{row.torch_gflops:.1f}",
            as_ratio(row.ratio),
        )
        for row in rows
    )
    return Sheet(f"{name}: micro-batches of {rows[0].samples}, one thread", columns, cells, 3)


def summary_sheet(summaries: Sequence[Summary]) -> Sheet:
    """Return a table with a row for each list and phase."""
    means = "ratio, geometric mean", "at the peak", "ratio, least"
    columns = ("list", "phase", "layers", *means, "with a bar", "least of peak")
    cells = tuple(
        (
            row.list,
            row.phase,
            str(row.layers),
            as_ratio(row.ratio_geometric_mean),
            as_ratio(row.peak_ratio_geometric_mean),
            as_ratio(row.ratio_minimum),
            str(row.bar_layers),
            "-" if row.bar_share_minimum is None else percent(row.bar_share_minimum),
        )
        for row in summaries
    )
    return Sheet("Summary", columns, cells, 2)
