"""The quantisers' speed for each named format and rounding, beside ml_dtypes, PyTorch and
microxcaling.

Each side runs on one thread, interleaved, and rounds an array of its own in place. Ours counts what
saturates and what becomes zero, as training does, and draws its random numbers. Peers convert to
the narrow format and back, to nearest, and where there is a block, ml_dtypes converts its elements
alone, without scales. microxcaling keeps float32, as we do, in new memory. Peers are measured where
they are installed.
"""

from __future__ import annotations

import dataclasses
import importlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..kernels.number import BlockGrid, FloatGrid, Grid, Rounding, number_formats
from ..kernels.quantise import Draws, PhiloxStream, on_blocks, on_grid
from . import frame
from .frame import Call, Floats, Pace, Report, Sheet

PEERS = {"ml_dtypes": "ml_dtypes", "torch": "torch", "microxcaling": "mx"}
"""Packages, and the modules in them."""
NEED_TORCH = {"torch", "microxcaling"}
BARS = {"ml_dtypes": 3.0, "microxcaling": 10.0}
"""What our speed over theirs must reach."""
CHANNELS, COLUMNS = 64, 32
_TOLERANCE = (
    1e-3  # of all numbers; microxcaling's logarithm, of single precision, may miss a block's scale
)

_KINDS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    **dict.fromkeys(("fp8", "fp8-e4m3", "mxfp8", "mxfp8-e4m3"), "float8_e4m3fn"),
    **dict.fromkeys(("fp8-e5m2", "mxfp8-e5m2"), "float8_e5m2"),
    **dict.fromkeys(("mxfp6", "mxfp6-e2m3"), "float6_e2m3fn"),
    "mxfp6-e3m2": "float6_e3m2fn",
    **dict.fromkeys(("mxfp4", "nvfp4"), "float4_e2m1fn"),
}
"""A format's elements, as ml_dtypes calls them."""
_ELEMENTS = {
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "float6_e2m3fn": "fp6_e2m3",
    "float6_e3m2fn": "fp6_e3m2",
    "float4_e2m1fn": "fp4_e2m1",
    "": "int8",
}
"""An element, as microxcaling calls it."""

NOTES = (
    "GB of float32 read a second, one thread; medians. Ratio: our speed over theirs, round by"
    " round. Peers round to nearest alone; ml_dtypes converts the elements of blocks without their"
    f" scales. Bars: {BARS['ml_dtypes']:g} times ml_dtypes, {BARS['microxcaling']:g} times"
    " microxcaling. Not measured: {missing}."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A format under a rounding: GB of float32 read a second, and our speed over each peer's;
    medians.

    None: the peer is not installed, or has no such format or rounding.
    """

    format: str
    rounding: str
    gbps: float
    ml_dtypes_gbps: float | None = None
    ml_dtypes_ratio: float | None = None
    torch_gbps: float | None = None
    torch_ratio: float | None = None
    microxcaling_gbps: float | None = None
    microxcaling_ratio: float | None = None

    @property
    def meets_bar(self) -> bool | None:
        """Whether all ratios with a bar reach it; None without such ratios."""
        ratios = [(getattr(self, f"{peer}_ratio"), bar) for peer, bar in BARS.items()]
        measured = [ratio >= bar for ratio, bar in ratios if ratio is not None]
        return all(measured) if measured else None


def report(mebibytes: int, pace: Pace, *, no_torch: bool) -> Report:
    """Measure the quantisers on `mebibytes` of values, beside the peers that are installed; with
    `no_torch`, without those that need PyTorch.
    """
    host, peers = frame.describe_host(None), frame.peer_versions(PEERS)
    measured = [
        name for name, version in peers.items() if version and not (no_torch and name in NEED_TORCH)
    ]
    frame.tell("measuring quantisers …")
    rows = list(measure(mebibytes << 18, pace, measured))
    fields = {"peers": peers, "mebibytes": mebibytes, "runs": pace.rounds}
    fields["rows"] = [frame.fields_of(row, "meets_bar") for row in rows]
    notes = NOTES.format(
        missing=", ".join(name for name in peers if name not in measured) or "nothing"
    )
    return Report(host, fields, answer(rows), [sheet(rows, mebibytes)], notes)


def formats() -> dict[str, Grid]:
    """Return the named formats, each once: of those with one grid the first."""
    grids: dict[Grid, str] = {}
    for name, number in number_formats().items():
        if number.grid is not None:
            grids.setdefault(number.grid, name)
    return {name: grid for grid, name in grids.items()}


def measure(count: int, pace: Pace, peers: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each format and rounding of about `count` numbers, beside the named peers.

    Raises:
        ArithmeticError: our results differ from a peer's.
    """
    x = frame.random_numbers().standard_normal((-(-count // CHANNELS), CHANNELS), np.float32)
    for name, grid in formats().items():
        for rounding in Rounding:
            sides = {"": _ours(x, grid, rounding)}
            if rounding is Rounding.EVEN:
                sides |= {
                    peer: call
                    for peer in peers
                    if (call := _SIDES[peer](x, name, grid)) is not None
                }
            yield row_of(
                name,
                rounding,
                x.nbytes,
                dict(zip(sides, frame.interleaved([*sides.values()], pace), strict=True)),
            )


def row_of(name: str, rounding: Rounding, size: int, timings: dict[str, list[float]]) -> Row:
    """Return a row from each round's seconds for `size` bytes, by peer; ours by an empty name."""
    ours, figures = timings[""], {}
    for peer, seconds in timings.items():
        figures[f"{peer}_gbps".lstrip("_")] = size / statistics.median(seconds) / 1e9
        if peer:
            figures[f"{peer}_ratio"] = frame.median_ratio(seconds, ours)
    return Row(name, rounding.name.lower(), **figures)


def rounded(x: Floats, grid: Grid, rounding: Rounding, out: Floats | None = None) -> Floats:
    """Return numbers in a format, blocks along the channels, as training rounds them."""
    words = Draws(PhiloxStream(1, 2, 3, 4)) if rounding is Rounding.STOCHASTIC else None
    counts = np.zeros(2, np.int64)
    if isinstance(grid, FloatGrid):
        return on_grid(x, grid, rounding, words, out=out, counts=counts)
    row = COLUMNS * x.shape[-1]
    return on_blocks(x, grid, -1, rounding, words, tensor=row, out=out, counts=counts)


def _ours(x: Floats, grid: Grid, rounding: Rounding) -> Call:
    values = x.copy()
    return lambda: rounded(values, grid, rounding, values)


def _by_ml_dtypes(x: Floats, name: str, grid: Grid) -> Call | None:
    library: Any = importlib.import_module("ml_dtypes")
    kind = _KINDS.get(name)
    if kind is None:
        return None
    values, narrow = x.copy(), np.zeros(x.shape, getattr(library, kind, None) or kind)

    def convert() -> None:
        np.copyto(narrow, values, casting="unsafe")
        np.copyto(values, narrow, casting="unsafe")

    convert()
    _check(
        "ml_dtypes",
        name,
        rounded(x, grid.element if isinstance(grid, BlockGrid) else grid, Rounding.EVEN),
        values,
    )
    return convert


def _by_torch(x: Floats, name: str, grid: Grid) -> Call | None:
    torch: Any = frame.load_torch()
    kind = None if isinstance(grid, BlockGrid) else getattr(torch, _KINDS.get(name, ""), None)
    if kind is None:
        return None
    values, narrow = torch.from_numpy(x.copy()), torch.zeros(x.shape, dtype=kind)

    def convert() -> None:
        narrow.copy_(values)
        values.copy_(narrow)

    convert()
    _check("torch", name, rounded(x, grid, Rounding.EVEN), values.numpy())
    return convert


def _by_microxcaling(x: Floats, name: str, grid: Grid) -> Call | None:
    library: Any = importlib.import_module("mx.mx_ops")
    if not isinstance(grid, BlockGrid) or grid.scale is not None:
        return None
    values, element = frame.load_torch().from_numpy(x), _ELEMENTS[_KINDS.get(name, "")]

    def quantise() -> Any:
        return library._quantize_mx(
            values, 8, element, axes=[-1], block_size=grid.size, round="even"
        )

    floor = dataclasses.replace(grid, floor=True)
    _check("microxcaling", name, rounded(x, floor, Rounding.EVEN), quantise().numpy(), _TOLERANCE)
    return quantise


_SIDES: dict[str, Callable[[Floats, str, Grid], Call | None]] = {
    "ml_dtypes": _by_ml_dtypes,
    "torch": _by_torch,
    "microxcaling": _by_microxcaling,
}


def _check(peer: str, name: str, ours: Floats, theirs: Floats, tolerance: float = 0) -> None:
    """Raise ArithmeticError if more results differ than are allowed: speed with wrong results means
    nothing.
    """
    share = float(np.mean(ours != theirs))
    if share > tolerance:
        raise ArithmeticError(f"{name}: {share:.1e} of all numbers differ from those of {peer}")


def answer(rows: Sequence[Row]) -> list[str]:
    """Return the range of our speeds by rounding, and which bars are missed."""
    lines = [f"{len(rows)} formats and roundings were measured"]
    for rounding in dict.fromkeys(row.rounding for row in rows):
        speeds = [row.gbps for row in rows if row.rounding == rounding]
        lines.append(f"{rounding}: {min(speeds):.2f} to {max(speeds):.2f} GB/s")
    barred = [row for row in rows if row.meets_bar is not None]
    missed = [row.format for row in barred if not row.meets_bar]
    if barred:
        lines.append(f"bars missed: {'; '.join(missed)}" if missed else "all bars are met")
    return lines


def sheet(rows: Sequence[Row], mebibytes: int) -> Sheet:
    """Return a table with a row for each format and rounding."""
    return frame.sheet_of(
        f"Precision: {mebibytes} MiB of float32, maps of {CHANNELS} channels",
        2,
        rows,
        ("format", lambda row: row.format),
        ("rounding", lambda row: row.rounding),
        ("ours", lambda row: f"{row.gbps:.2f} GB/s"),
        *(column for peer in PEERS for column in _columns(peer)),
        (
            "bars",
            lambda row: "-" if row.meets_bar is None else "met" if row.meets_bar else "missed",
        ),
    )


def _columns(peer: str) -> tuple[tuple[str, Callable[[Row], str]], ...]:
    return (
        (peer, lambda row: frame.as_ratio(getattr(row, f"{peer}_gbps"))),
        ("ratio", lambda row: frame.as_ratio(getattr(row, f"{peer}_ratio"))),
    )
