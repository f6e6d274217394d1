"""`bench kernels`: every layer's FP, EB and PG against the multiply-add peak, and against PyTorch.

Each side runs on one thread. A round times ours, PyTorch's and the peak back to back. As usual,
operations on padding zeros are counted, the same on both sides.

The time of our phases includes copying the maps into their frame (FP: inputs; EB: output errors; PG
takes the frame that FP has kept), the memory of its result, and the convolution, onto zeros. It
excludes packing the weights and turning them for EB, which training does once for each update and
not for each micro-batch. PyTorch's layout is that of plain training: contiguous NCHW maps and (oc,
ic, kh, kw) weights, float32. FP is `conv2d` without a bias; EB and PG are the function that
PyTorch's backward pass calls, asked for the errors or the gradients alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..emulator.common import percent
from ..kernels import Arena
from ..kernels.conv import Convolution
from . import frame
from .frame import Floats, Pace, Report, Sheet

PHASES = ("FP", "EB", "PG")

_BAR_CHANNELS, _BAR_PIXELS = 64, 64
BAR_SHARE = 0.85

Phases = dict[str, Callable[[], Any]]

NOTES = (
    f"Peak: multiply-adds in registers, measured together with each phase. Bar: {BAR_SHARE:.0%} of"
    " the peak, for layers of 64 channels or more and 64 output pixels or more in the micro-batch."
    " Ratio: PyTorch's time over ours, one thread each; at the peak: what it would be if ours took"
    " no longer than its multiply-adds. A network's first layer has no EB, here as in training."
)


@dataclasses.dataclass(frozen=True)
class Shape:
    """A convolution of a micro-batch; sizes are (rows, columns)."""

    network: str
    samples: int
    in_channels: int
    out_channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    is_first: bool

    @property
    def name(self) -> str:
        """Channels and input size; kernel, stride and pad too, unless they are 3x3, 1 and 1."""
        (rows, columns), (down, across) = self.size, self.kernel
        text = f"{self.in_channels}->{self.out_channels} @{rows}x{columns}"
        if (self.kernel, self.stride, self.pad) != ((3, 3), (1, 1), (1, 1)):
            text += f" {down}x{across} stride {self.stride[0]} pad {self.pad[0]}"
        return text

    @property
    def output(self) -> tuple[int, int]:
        """Size of the output."""
        rows, columns = (
            (size + 2 * pad - kernel) // stride + 1
            for size, kernel, stride, pad in zip(
                self.size, self.kernel, self.stride, self.pad, strict=True
            )
        )
        return rows, columns

    @property
    def flop(self) -> int:
        """Multiplications and additions of any one phase, including those on padding zeros."""
        (rows, columns), (down, across) = self.output, self.kernel
        return (
            2 * self.samples * self.out_channels * rows * columns * self.in_channels * down * across
        )

    @property
    def phases(self) -> tuple[str, ...]:
        """All phases, but no EB in the first layer: the errors of images are not needed, so no side
        computes them.
        """
        return ("FP", "PG") if self.is_first else PHASES

    @property
    def has_bar(self) -> bool:
        """Whether the layer is large enough to be held to BAR_SHARE of the peak."""
        rows, columns = self.output
        return (
            min(self.in_channels, self.out_channels) >= _BAR_CHANNELS
            and self.samples * rows * columns >= _BAR_PIXELS
        )


def _vgg16(samples: int, sizes: tuple[int, int, int, int, int]) -> Iterator[Shape]:
    """Yield the distinct convolutions of VGG-16 (Simonyan and Zisserman, 2015), whose blocks have
    these input sizes.
    """
    a, b, c, d, e = sizes
    layers = [(3, 64, a), (64, 64, a), (64, 128, b), (128, 128, b), (128, 256, c), (256, 256, c)]
    layers += [(256, 512, d), (512, 512, d), (512, 512, e)]
    for ic, oc, size in layers:
        yield Shape(
            "vgg16", samples, ic, oc, (size, size), (3, 3), (1, 1), (1, 1), is_first=ic == 3
        )


def _alexnet(samples: int) -> Iterator[Shape]:
    """Yield the convolutions of AlexNet (Krizhevsky et al., 2012) without channel groups."""
    layers = [(3, 96, 227, 11, 4, 0), (96, 256, 27, 5, 1, 2)]
    layers += [(256, 384, 13, 3, 1, 1), (384, 384, 13, 3, 1, 1), (384, 256, 13, 3, 1, 1)]
    for ic, oc, size, kernel, stride, pad in layers:
        yield Shape(
            "alexnet",
            samples,
            ic,
            oc,
            (size, size),
            (kernel,) * 2,
            (stride,) * 2,
            (pad,) * 2,
            is_first=ic == 3,
        )


LISTS: dict[str, tuple[Shape, ...]] = {
    "vgg-cifar-1": tuple(_vgg16(1, (32, 16, 8, 4, 2))),
    "vgg-cifar-16": tuple(_vgg16(16, (32, 16, 8, 4, 2))),
    "imagenet-1": (*_vgg16(1, (224, 112, 56, 28, 14)), *_alexnet(1)),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One phase of one layer; medians over `rounds`. PyTorch's figures are None if it was not
    measured.

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
    """One phase of a list: ratios to PyTorch over all layers, and the share of the peak over layers
    with a bar.
    """

    list: str
    phase: str
    layers: int
    ratio_geometric_mean: float | None
    ratio_minimum: float | None
    peak_ratio_geometric_mean: float | None
    bar_layers: int
    bar_share_minimum: float | None


def report(lists: Sequence[str], pace: Pace, torch: ModuleType | None) -> Report:
    """Measure the layers of some lists."""
    rows = frame.reported(
        measure(lists, pace, torch),
        lambda row: f"{row.list}: measured {row.phase} of {row.layer} of {row.network}",
    )
    summaries = summarise(rows)
    by_list = itertools.groupby(rows, key=lambda row: row.list)
    sheets = [summary_sheet(summaries), *(sheet(name, list(group)) for name, group in by_list)]
    return frame.report_of_layers(
        pace, torch, rows, summaries, answer=answer(rows), sheets=sheets, notes=NOTES
    )


def measure(lists: Sequence[str], pace: Pace, torch: ModuleType | None) -> Iterator[Row]:
    """Yield each row as soon as it is measured.

    Raises:
        ArithmeticError: our results differ from PyTorch's.
    """
    for name in lists:
        for shape in LISTS[name]:
            arrays = _arrays(shape)
            ours, results = _ours(shape, *arrays)
            theirs = None if torch is None else _theirs(torch, shape, *arrays)
            for phase in shape.phases:
                calls = [ours[phase]]
                if theirs is not None:
                    calls.append(theirs[phase])
                    expected = theirs[phase]().numpy()
                    frame.check_agreement(f"{shape.name}, {phase}", [results[phase]()], [expected])
                yield row_of(name, shape, phase, *frame.beside_peak(calls, pace))


def _arrays(shape: Shape) -> tuple[Floats, ...]:
    """Return random x, w and dy."""
    random = frame.random_numbers()
    sizes = (
        (shape.samples, shape.in_channels, *shape.size),
        (shape.out_channels, shape.in_channels, *shape.kernel),
        (shape.samples, shape.out_channels, *shape.output),
    )
    return tuple(random.standard_normal(size, np.float32) for size in sizes)


def row_of(
    name: str,
    shape: Shape,
    phase: str,
    peak_s: Sequence[float],
    ours_s: Sequence[float],
    torch_s: Sequence[float] | None = None,
) -> Row:
    """Return a row from each round's seconds: for one operation at the peak, and for the phase,
    ours and PyTorch's.
    """
    return Row(
        list=name,
        layer=shape.name,
        network=shape.network,
        samples=shape.samples,
        phase=phase,
        flop=shape.flop,
        peak_share=shape.flop * frame.median_ratio(peak_s, ours_s),
        has_bar=shape.has_bar,
        torch_gflops=None if torch_s is None else shape.flop / statistics.median(torch_s) / 1e9,
        peak_ratio=None if torch_s is None else frame.median_ratio(torch_s, peak_s) / shape.flop,
        **frame.speeds(shape.flop, peak_s, ours_s, torch_s),
    )


def _ours(shape: Shape, x: Floats, w: Floats, dy: Floats) -> tuple[Phases, Phases]:
    """Return our phases, and what they return in PyTorch's order.

    That is the order of the arrays: maps (n, channels, rows, columns), weights (oc, ic, kh, kw).
    """
    conv = Convolution(
        shape.in_channels, shape.out_channels, shape.size, shape.kernel, shape.stride, shape.pad
    )
    arena = Arena()

    def channels_last(maps: Floats) -> Floats:
        n, channels, rows, columns = maps.shape
        kept = arena.take((n, rows, columns, channels))
        kept[...] = maps.transpose(0, 2, 3, 1)
        return kept

    def framed() -> Floats:
        padded = arena.take(conv.frame_shape(len(inputs)))
        conv.frame(inputs, padded)
        return padded

    def forward() -> Floats:
        y = arena.take(errors.shape)
        conv.forward(y, framed(), packed, fresh=True)
        return y

    def error() -> Floats:
        padded = arena.take(conv.error_frame_shape(len(errors)))
        conv.error_frame(errors, padded)
        dx = arena.take(inputs.shape)
        conv.error(dx, padded, turned, fresh=True)
        return dx

    def gradient() -> Floats:
        conv.gradient(packed_gradient, kept, errors, fresh=True)
        return packed_gradient

    inputs, errors, packed = channels_last(x), channels_last(dy), conv.pack(w)
    turned, packed_gradient = arena.take((conv.turned_size,)), arena.take((conv.packed_size,))
    conv.turn(packed, turned)
    kept = framed()
    results = {
        "FP": lambda: forward().transpose(0, 3, 1, 2),
        "EB": lambda: error().transpose(0, 3, 1, 2),
        "PG": lambda: conv.unpack(gradient()),
    }
    return {"FP": forward, "EB": error, "PG": gradient}, results


def _theirs(torch: ModuleType, shape: Shape, x: Floats, w: Floats, dy: Floats) -> Phases:
    inputs, weights, errors = (
        torch.from_numpy(np.ascontiguousarray(array)) for array in (x, w, dy)
    )
    where = shape.stride, shape.pad, (1, 1), False, (0, 0), 1

    def forward() -> Any:
        with torch.no_grad():
            return torch.nn.functional.conv2d(
                inputs, weights, stride=shape.stride, padding=shape.pad
            )

    def backward(index: int) -> Any:
        wanted = [index == place for place in range(3)]
        with torch.no_grad():
            return torch.ops.aten.convolution_backward(
                errors, inputs, weights, None, *where, wanted
            )[index]

    return {"FP": forward, "EB": lambda: backward(0), "PG": lambda: backward(1)}


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
                    statistics.geometric_mean(ratios) if ratios else None,
                    min(ratios, default=None),
                    statistics.geometric_mean(peak_ratios) if peak_ratios else None,
                    len(shares),
                    min(shares, default=None),
                )
            )
    return summaries


def answer(rows: Sequence[Row]) -> list[str]:
    """Return what the rows say together: how near the peak, and how fast beside PyTorch."""
    barred = [row for row in rows if row.has_bar]
    lines = [f"{len(rows)} phases of layers were measured"]
    if barred:
        met = sum(row.peak_share >= BAR_SHARE for row in barred)
        least = min(barred, key=lambda row: row.peak_share)
        lines.append(f"{met} of {len(barred)} with a bar reach {BAR_SHARE:.0%} of the peak")
        lines.append(
            f"least of the peak: {percent(least.peak_share)}, {least.phase} of {least.layer}"
        )
    ratios = {row: row.ratio for row in rows if row.ratio is not None}
    if ratios:
        slowest = min(ratios, key=lambda row: ratios[row])
        mean = frame.as_ratio(statistics.geometric_mean(ratios.values()))
        lines.append(f"{mean} times as fast as PyTorch, the geometric mean")
        lines.append(
            f"least: {frame.as_ratio(ratios[slowest])} times, {slowest.phase} of {slowest.layer}"
        )
    return lines


def sheet(name: str, rows: Sequence[Row]) -> Sheet:
    """Return the table of one list's rows."""
    return frame.sheet_of(
        f"{name}: micro-batches of {rows[0].samples}, one thread",
        3,
        rows,
        ("network", lambda row: row.network),
        ("layer", lambda row: row.layer),
        ("phase", lambda row: row.phase),
        ("GFLOP/s", lambda row: f"{row.gflops:.1f}"),
        ("peak", lambda row: f"{row.peak_gflops:.1f}"),
        ("of peak", lambda row: percent(row.peak_share)),
        (
            "bar",
            lambda row: (
                ("met" if row.peak_share >= BAR_SHARE else "missed") if row.has_bar else "-"
            ),
        ),
        ("PyTorch", lambda row: "-" if row.torch_gflops is None else f"{row.torch_gflops:.1f}"),
        ("ratio", lambda row: frame.as_ratio(row.ratio)),
    )


def summary_sheet(summaries: Sequence[Summary]) -> Sheet:
    """Return a table with a row for each list and phase."""
    return frame.sheet_of(
        "Summary",
        2,
        summaries,
        ("list", lambda row: row.list),
        ("phase", lambda row: row.phase),
        ("layers", lambda row: str(row.layers)),
        ("ratio, geometric mean", lambda row: frame.as_ratio(row.ratio_geometric_mean)),
        ("at the peak", lambda row: frame.as_ratio(row.peak_ratio_geometric_mean)),
        ("ratio, least", lambda row: frame.as_ratio(row.ratio_minimum)),
        ("with a bar", lambda row: str(row.bar_layers)),
        (
            "least of peak",
            lambda row: "-" if row.bar_share_minimum is None else percent(row.bar_share_minimum),
        ),
    )
