"""The INCEPTIONN codec's speed, compared with memcpy, zfp with the same error bound, and blosc2,
which is lossless.

Each side runs on one thread, interleaved: a round of compression, or of decompression, runs all
sides back to back. Every side allocates its result, as it does for its users; memcpy has warm
memory. Peers are measured where they are installed (the extra `bench`).
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..emulator.common import percent
from ..kernels.codec import Inceptionn
from . import frame
from .frame import Call, Floats, Pace, Report, Sheet

ZERO_SHARE = 0.85
LEAST_GBPS = 3.0
PEERS = ("zfpy", "blosc2")

NOTES = (
    "GB of float32 a second, one thread; medians. Size: float32's over the compressed one. Error:"
    " the largest. Ratio: our speed over theirs, round by round. Bar: the lowest ratio required,"
    " both ways; for ours, GB/s."
)


@dataclasses.dataclass(frozen=True)
class Side:
    """A codec on the values that all sides share; `bar` is what our speed over its must reach, or
    None for ours.
    """

    name: str
    bar: float | None
    size: int
    error: float
    compress: Call
    decompress: Call


@dataclasses.dataclass(frozen=True)
class Row:
    """A side's speed in GB of float32 per second, and ours over it; medians.

    `size_ratio`: float32's size over the compressed one; `error`: the greatest absolute error after
    decompression.
    """

    name: str
    size_ratio: float
    error: float
    compress_gbps: float
    compress_ratio: float
    decompress_gbps: float
    decompress_ratio: float
    bar: float | None

    @property
    def meets_bar(self) -> bool:
        """Whether both ratios reach `bar`; for ourselves, whether both speeds reach LEAST_GBPS."""
        if self.bar is None:
            return min(self.compress_gbps, self.decompress_gbps) >= LEAST_GBPS
        return min(self.compress_ratio, self.decompress_ratio) >= self.bar


def gradients(count: int, bound: float) -> Floats:
    """Return `count` independent Laplace numbers, ZERO_SHARE of them below `bound` in magnitude."""
    return (
        frame.random_numbers()
        .laplace(0, -bound / math.log(1 - ZERO_SHARE), count)
        .astype(np.float32)
    )


def report(mebibytes: int, exponent: int, pace: Pace) -> Report:
    """Measure the codec with an error bound of 2^exponent on `mebibytes` of values."""
    host, peers = (
        frame.describe_host(None),
        frame.peer_versions(dict(zip(PEERS, PEERS, strict=True))),
    )
    frame.tell("measuring codecs …")
    rows = measure(mebibytes << 18, exponent, pace)
    fields = {"peers": peers, "mebibytes": mebibytes, "bound": exponent, "runs": pace.rounds}
    fields["rows"] = [frame.fields_of(row, "meets_bar") for row in rows]
    missing = [name for name, version in peers.items() if version is None]
    absent = (
        f" Not installed, so not measured: {', '.join(missing)} (`pip install 'emuchain[bench]'`)."
    )
    notes = NOTES + (absent if missing else "")
    return Report(host, fields, answer(rows), [sheet(rows, mebibytes, exponent)], notes)


def measure(count: int, error_bound_exponent: int, pace: Pace) -> list[Row]:
    """Return a row for our codec, memcpy, and each installed peer.

    Raises:
        ArithmeticError: a side's error exceeds its bound.
    """
    x = gradients(count, 2.0**error_bound_exponent)
    sides = [_ours(x, error_bound_exponent), _memcpy(x)]
    if frame.is_installed("zfpy"):
        sides.append(_zfp(x, 2.0**error_bound_exponent))
    if frame.is_installed("blosc2"):
        sides += [_blosc2(x, codec) for codec in ("BLOSCLZ", "LZ4")]
    compressing = frame.interleaved([side.compress for side in sides], pace)
    decompressing = frame.interleaved([side.decompress for side in sides], pace)
    return [
        row_of(side, x.nbytes, (compressing[0], mine), (decompressing[0], back))
        for side, mine, back in zip(sides, compressing, decompressing, strict=True)
    ]


def row_of(
    side: Side,
    size: int,
    compressing: tuple[list[float], list[float]],
    decompressing: tuple[list[float], list[float]],
) -> Row:
    """Return a side's row from the seconds of each round, ours and the side's, for `size` bytes of
    float32.
    """
    gbps = [size / statistics.median(theirs) / 1e9 for _, theirs in (compressing, decompressing)]
    ratio = [frame.median_ratio(theirs, ours) for ours, theirs in (compressing, decompressing)]
    return Row(
        side.name, size / side.size, side.error, gbps[0], ratio[0], gbps[1], ratio[1], side.bar
    )


def _ours(x: Floats, exponent: int) -> Side:
    codec = Inceptionn(exponent)
    buffer = codec.compress(x)
    error = _error(str(codec), x, codec.decompress(buffer, x.size), 2.0**exponent)
    return Side(
        str(codec),
        None,
        buffer.size,
        error,
        lambda: codec.compress(x),
        lambda: codec.decompress(buffer, x.size),
    )


def _memcpy(x: Floats) -> Side:
    out = np.zeros_like(x)

    def copy() -> None:
        np.copyto(out, x)

    return Side("memcpy", 0.25, x.nbytes, 0, copy, copy)


def _zfp(x: Floats, bound: float) -> Side:
    zfpy: Any = importlib.import_module("zfpy")

    def compress() -> bytes:
        made: bytes = zfpy.compress_numpy(x, tolerance=bound)
        return made

    buffer = compress()
    # zfp aims at the bound, but rounding in its transform lets a few values in millions exceed it.
    error = _error("zfp", x, zfpy.decompress_numpy(buffer), 2 * bound)
    return Side(
        "zfp, same bound", 10, len(buffer), error, compress, lambda: zfpy.decompress_numpy(buffer)
    )


def _blosc2(x: Floats, codec: str) -> Side:
    """Return one of blosc2's fastest codecs, at its fastest level, behind its usual filter."""
    blosc2: Any = importlib.import_module("blosc2")
    how = {
        "codec": blosc2.Codec[codec],
        "clevel": 1,
        "filters": [blosc2.Filter.SHUFFLE],
        "typesize": x.itemsize,
    }

    def compress() -> bytes:
        made: bytes = blosc2.compress2(x, nthreads=1, **how)
        return made

    def decompress() -> bytes:
        made: bytes = blosc2.decompress2(buffer, nthreads=1)
        return made

    buffer = compress()
    error = _error("blosc2", x, np.frombuffer(decompress(), np.float32), 0)
    return Side(f"blosc2, {codec.lower()}", 1, len(buffer), error, compress, decompress)


def _error(name: str, x: Floats, y: Floats, most: float) -> float:
    """Return the greatest error; raise ArithmeticError if it exceeds `most`: speed with wrong
    results means nothing.
    """
    error = float(np.abs(x - y).max())
    if error > most:
        raise ArithmeticError(
            f"{name}: a value comes back with an error of {error:.1e}, more than {most:.1e}"
        )
    return error


def answer(rows: Sequence[Row]) -> list[str]:
    """Return our speed, and which bars are missed."""
    ours = rows[0]
    missed = [row.name for row in rows if not row.meets_bar]
    return [
        (
            f"{ours.name}: {ours.compress_gbps:.2f} GB/s to compress, {ours.decompress_gbps:.2f}"
            " GB/s to decompress"
        ),
        f"sizes fall to 1/{ours.size_ratio:.2f}; the greatest error is {ours.error:.1e}",
        f"bars missed: {'; '.join(missed)}" if missed else "all bars are met",
    ]


def sheet(rows: Sequence[Row], mebibytes: int, exponent: int) -> Sheet:
    """Return a table with a row for each side."""
    return frame.sheet_of(
        f"Codec: {mebibytes} MiB of float32, {percent(ZERO_SHARE)} of them below 2^{exponent}",
        1,
        rows,
        ("side", lambda row: row.name),
        ("size", lambda row: frame.as_ratio(row.size_ratio)),
        ("error", lambda row: f"{row.error:.1e}"),
        ("compress", lambda row: f"{row.compress_gbps:.2f} GB/s"),
        ("ratio", lambda row: frame.as_ratio(row.compress_ratio)),
        ("decompress", lambda row: f"{row.decompress_gbps:.2f} GB/s"),
        ("ratio", lambda row: frame.as_ratio(row.decompress_ratio)),
        ("bar", lambda row: f"{row.bar:g}" if row.bar is not None else f"{LEAST_GBPS:g} GB/s"),
        ("verdict", lambda row: "met" if row.meets_bar else "missed"),
    )
