"""`bench attention`: attention forward, and forward and backward, beside PyTorch's scaled_dot_product_attention.

Ours is as training calls it: q, k and v of all heads side by side in one row, errors written as they are. PyTorch has
them head by head in memory of their own, which suits it best. Each side runs on one thread; a round times both and the
multiply-add peak back to back. Ratios are taken within a round, then the median over the rounds.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import percent
from .figures import Pace, Sheet, as_ratio, geometric_mean, interleaved, median_ratio
from .shapes import Heads

_PEAK_ROUNDS = 200_000
_ROUNDING = 1e-4  # of the largest value: far above any effect of the order of sums, far below any mistake

Floats = NDArray[np.float32]
Call = Callable[[], list[Any]]

ATTENTION_NOTES = (
    "FP: forward; step: forward and backward. GFLOP/s count the products of rows and the keys that they see, 2 forward"
    " and 5 backward. Ratio: PyTorch's time over ours, one thread each, medians; its bar is for steps."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A phase of attention; medians over `rounds`. PyTorch's figures are None if it was not measured."""

    batch: int
    tokens: int
    heads: int
    size: int
    causal: bool
    phase: str
    rounds: int
    seconds: float
    gflops: float
    peak_gflops: float
    peak_share: float
    torch_seconds: float | None
    ratio: float | None
    bar: float | None

    @property
    def meets_bar(self) -> bool | None:
        """Whether the ratio reaches its bar; None without one of them."""
        return None if self.ratio is None or self.bar is None else self.ratio >= self.bar


@dataclasses.dataclass(frozen=True)
class Summary:
    """All rows of a phase: ratios to PyTorch, and how many are below their bars."""

    phase: str
    shapes: int
    ratio_geometric_mean: float
    ratio_minimum: float
    below_bar: int


def measure(measured: Sequence[Heads], pace: Pace, torch: ModuleType | None) -> Iterator[Row]:
    """Yield each row as soon as it is measured.

    Raises:
        ArithmeticError: our results differ from PyTorch's.
    """
    from ...kernels.llvm import FLOP_OF_ROUND, multiply_add

    for heads in measured:
        random = np.random.Generator(np.random.Philox(key=1))
        shape = heads.batch, heads.tokens, heads.heads * heads.size
        x, dy = (
            random.standard_normal((*shape[:2], 3 * shape[2]), np.float32),
            random.standard_normal(shape, np.float32),
        )
        sides = [_ours(heads, x, dy)]
        if torch is not None:
            sides.append(_theirs(torch, heads, x, dy))
            _check(heads, *(step() for _, step in sides))
        for phase, calls in zip(("FP", "step"), zip(*sides, strict=True), strict=True):
            *seconds, peak_s = interleaved([*calls, functools.partial(multiply_add, _PEAK_ROUNDS)], pace)
            flop_s = [one / (_PEAK_ROUNDS * FLOP_OF_ROUND) for one in peak_s]
            yield row_of(heads, phase, flop_s, *seconds)


def row_of(
    heads: Heads,
    phase: str,
    flop_s: Sequence[float],
    ours_s: Sequence[float],
    torch_s: Sequence[float] | None = None,
) -> Row:
    """Return a row from each round's seconds: of an operation at the peak, and of a phase on both sides."""
    flop = heads.flop(phase)
    return Row(
        **dataclasses.asdict(heads),
        phase=phase,
        rounds=len(ours_s),
        seconds=statistics.median(ours_s),
        gflops=flop / statistics.median(ours_s) / 1e9,
        peak_gflops=1 / statistics.median(flop_s) / 1e9,
        peak_share=flop * median_ratio(flop_s, ours_s),
        torch_seconds=None if torch_s is None else statistics.median(torch_s),
        ratio=None if torch_s is None else median_ratio(torch_s, ours_s),
        bar=heads.bar if phase == "step" else None,
    )


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Return a summary of each phase; none without PyTorch."""
    summaries = []
    for phase in dict.fromkeys(row.phase for row in rows):
        mine = [row for row in rows if row.phase == phase]
        ratios = [row.ratio for row in mine if row.ratio is not None]
        if ratios:
            below = sum(row.meets_bar is False for row in mine)
            summaries.append(Summary(phase, len(mine), geometric_mean(ratios), min(ratios), below))
    return summaries


def _ours(heads: Heads, x: Floats, dy: Floats) -> tuple[Call, Call]:
    from ...kernels.attention import Attention, backward, forward

    attention = Attention(heads.heads, heads.size, heads.causal)

    def step() -> list[Floats]:
        y, kept = forward(x, attention)
        return [y, backward(x, kept, dy, attention)]

    return lambda: [*forward(x, attention)], step


def _theirs(torch: ModuleType, heads: Heads, x: Floats, dy: Floats) -> tuple[Call, Call]:
    by_head = heads.batch, heads.tokens, heads.heads, 3, heads.size
    parts = torch.from_numpy(x).reshape(by_head).permute(3, 0, 2, 1, 4)
    leaves = [part.contiguous().requires_grad_() for part in parts]
    errors = torch.from_numpy(dy).reshape(*by_head[:3], heads.size).transpose(1, 2).contiguous()
    attend = functools.partial(torch.nn.functional.scaled_dot_product_attention, is_causal=heads.causal)

    def forward() -> list[Any]:
        with torch.no_grad():
            return [attend(*leaves)]

    def step() -> list[Any]:
        for leaf in leaves:
            leaf.grad = None
        y = attend(*leaves)
        y.backward(errors)
        return [y.detach(), *(leaf.grad for leaf in leaves)]

    return forward, step


def _check(heads: Heads, ours: list[Floats], theirs: list[Any]) -> None:
    """Raise ArithmeticError if results differ from PyTorch's: speed with wrong results means nothing."""
    y, *errors = (value.numpy().transpose(0, 2, 1, 3) for value in theirs)
    expected = y.reshape(ours[0].shape), np.stack(errors, axis=3).reshape(ours[1].shape)
    for mine, other in zip(ours, expected, strict=True):
        distance = float(np.abs(mine - other).max() / np.abs(other).max())
        if not distance < _ROUNDING:
            raise ArithmeticError(f"{heads.name}: differs from PyTorch by {distance:.1e} of the largest value")


def attention_answer(summaries: Sequence[Summary], rows: Sequence[Row]) -> list[str]:
    """Return how fast attention is beside PyTorch's, or else our speed alone."""
    if not summaries:
        fastest = max(rows, key=lambda row: row.gflops)
        share = percent(fastest.peak_share)
        return [f"shapes measured: {len(rows) // 2}; up to {fastest.gflops:.1f} GFLOP/s, {share} of the peak"]
    names = {"FP": "forward", "step": "forward and backward"}
    return [
        f"attention, {names[summary.phase]}: {as_ratio(summary.ratio_geometric_mean)} times as fast as PyTorch, the"
        f" geometric mean; least {as_ratio(summary.ratio_minimum)}"
        + (f"; {summary.below_bar} of {summary.shapes} below their bars" if summary.phase == "step" else "")
        for summary in summaries
    ]


def attention_sheet(rows: Sequence[Row]) -> Sheet:
    """Return the table of all rows."""
    cells = tuple(
        (
            "causal" if row.causal else "full",
            f"{row.batch} x {row.tokens}",
            f"{row.heads} x {row.size}",
            row.phase,
            f"{1e3 * row.seconds:.2f} ms",
            f"{row.gflops:.1f}",
            percent(row.peak_share),
            "-" if row.torch_seconds is None else f"{1e3 * row.torch_seconds:.2f} ms",
            as_ratio(row.ratio),
            as_ratio(row.bar),
        )
        for row in rows
    )
    columns = "mask", "tokens", "heads", "phase", "time", "GFLOP/s", "of peak", "PyTorch", "ratio", "bar"
    return Sheet("Attention, one thread", columns, cells, 4)
