"""`bench attention`: attention forward, and forward and backward, beside PyTorch's
scaled_dot_product_attention.

Ours is as training calls it: q, k and v of all heads side by side in one row, errors written as
they are. PyTorch has them head by head in memory of their own, which suits it best. Each side runs
on one thread; a round times both and the multiply-add peak back to back.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..emulator.common import percent
from . import frame
from .frame import Floats, Pace, Report, Sheet

Arrays = Callable[[], list[Any]]

NOTES = (
    "FP: forward; step: forward and backward. GFLOP/s count the products of rows and the keys that"
    " they see, 2 forward and 5 backward. Ratio: PyTorch's time over ours, one thread each,"
    " medians; its bar is for steps."
)


@dataclasses.dataclass(frozen=True)
class Heads:
    """Attention of a mini-batch in some heads of `size` channels."""

    batch: int
    tokens: int
    heads: int
    size: int
    causal: bool

    @property
    def name(self) -> str:
        """All sizes in one line."""
        kind = "causal" if self.causal else "full"
        return (
            f"{kind} attention of {self.batch} x {self.tokens} tokens, {self.heads} heads of"
            f" {self.size}"
        )

    def flop(self, phase: str) -> int:
        """Return the multiplications and additions of the products of tokens and the keys that they
        see.
        """
        pairs = self.tokens * (self.tokens + 1) // 2 if self.causal else self.tokens**2
        return 2 * (2 if phase == "FP" else 7) * self.batch * self.heads * self.size * pairs

    @property
    def bar(self) -> float:
        """What is asked of the ratio to PyTorch, forward and backward."""
        return 1.7 if self.causal and self.tokens >= 128 else 1.2


SHAPES = (
    Heads(1, 64, 4, 32, causal=True),
    Heads(16, 64, 4, 32, causal=True),
    Heads(16, 64, 4, 24, causal=True),
    *(Heads(1, tokens, 12, 64, causal) for tokens in (128, 512) for causal in (True, False)),
    Heads(4, 197, 6, 64, causal=False),
)
"""A small GPT with one sample and sixteen, GPT-2 small and BERT base, and ViT-S."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A phase of attention; medians over `rounds`. PyTorch's figures are None if it was not
    measured.
    """

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


def report(measured: Sequence[Heads], pace: Pace, torch: ModuleType | None) -> Report:
    """Measure attention of these shapes."""
    rows = frame.reported(
        measure(measured, pace, torch),
        lambda row: f"measured {row.phase} of {row.batch} x {row.tokens} tokens",
    )
    summaries = summarise(rows)
    said = {"answer": answer(summaries, rows), "sheets": [sheet(rows)], "notes": NOTES}
    return frame.report_of_layers(pace, torch, rows, summaries, **said)


def measure(measured: Sequence[Heads], pace: Pace, torch: ModuleType | None) -> Iterator[Row]:
    """Yield each row as soon as it is measured.

    Raises:
        ArithmeticError: our results differ from PyTorch's.
    """
    for heads in measured:
        random, shape = (
            frame.random_numbers(),
            (heads.batch, heads.tokens, heads.heads * heads.size),
        )
        x = random.standard_normal((*shape[:2], 3 * shape[2]), np.float32)
        dy = random.standard_normal(shape, np.float32)
        sides = [_ours(heads, x, dy)]
        if torch is not None:
            sides.append(_theirs(torch, heads, x, dy))
            _check(heads, *(step() for _, step in sides))
        for phase, calls in zip(("FP", "step"), zip(*sides, strict=True), strict=True):
            yield row_of(heads, phase, *frame.beside_peak(calls, pace))


def row_of(
    heads: Heads,
    phase: str,
    flop_s: Sequence[float],
    ours_s: Sequence[float],
    torch_s: Sequence[float] | None = None,
) -> Row:
    """Return a row from each round's seconds: of an operation at the peak, and of a phase on both
    sides.
    """
    flop = heads.flop(phase)
    return Row(
        **dataclasses.asdict(heads),
        phase=phase,
        peak_share=flop * frame.median_ratio(flop_s, ours_s),
        bar=heads.bar if phase == "step" else None,
        **frame.speeds(flop, flop_s, ours_s, torch_s),
    )


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Return a summary of each phase; none without PyTorch."""
    summaries = []
    for phase in dict.fromkeys(row.phase for row in rows):
        mine = [row for row in rows if row.phase == phase]
        ratios = [row.ratio for row in mine if row.ratio is not None]
        if ratios:
            below = sum(row.meets_bar is False for row in mine)
            summaries.append(
                Summary(phase, len(mine), statistics.geometric_mean(ratios), min(ratios), below)
            )
    return summaries


def _ours(heads: Heads, x: Floats, dy: Floats) -> tuple[Arrays, Arrays]:
    from ..kernels.attention import Attention, backward, forward

    attention = Attention(heads.heads, heads.size, heads.causal)

    def step() -> list[Floats]:
        y, kept = forward(x, attention)
        return [y, backward(x, kept, dy, attention)]

    return lambda: [*forward(x, attention)], step


def _theirs(torch: ModuleType, heads: Heads, x: Floats, dy: Floats) -> tuple[Arrays, Arrays]:
    by_head = heads.batch, heads.tokens, heads.heads, 3, heads.size
    parts = torch.from_numpy(x).reshape(by_head).permute(3, 0, 2, 1, 4)
    leaves = [part.contiguous().requires_grad_() for part in parts]
    errors = torch.from_numpy(dy).reshape(*by_head[:3], heads.size).transpose(1, 2).contiguous()
    attend = functools.partial(
        torch.nn.functional.scaled_dot_product_attention, is_causal=heads.causal
    )

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
    y, *errors = (value.numpy().transpose(0, 2, 1, 3) for value in theirs)
    expected = y.reshape(ours[0].shape), np.stack(errors, axis=3).reshape(ours[1].shape)
    frame.check_agreement(heads.name, ours, expected)


def answer(summaries: Sequence[Summary], rows: Sequence[Row]) -> list[str]:
    """Return how fast attention is beside PyTorch's, or else our speed alone."""
    if not summaries:
        fastest = max(rows, key=lambda row: row.gflops)
        share = percent(fastest.peak_share)
        return [
            f"shapes measured: {len(rows) // 2}; up to {fastest.gflops:.1f} GFLOP/s, {share} of the"
            " peak"
        ]
    names, lines = {"FP": "forward", "step": "forward and backward"}, []
    for summary in summaries:
        mean, least = (
            frame.as_ratio(summary.ratio_geometric_mean),
            frame.as_ratio(summary.ratio_minimum),
        )
        below = (
            f"; {summary.below_bar} of {summary.shapes} below their bars"
            if summary.phase == "step"
            else ""
        )
        lines.append(
            f"attention, {names[summary.phase]}: {mean} times as fast as PyTorch, the geometric"
            f" mean; least {least}{below}"
        )
    return lines


def sheet(rows: Sequence[Row]) -> Sheet:
    """Return the table of all rows."""
    return frame.sheet_of(
        "Attention, one thread",
        4,
        rows,
        ("mask", lambda row: "causal" if row.causal else "full"),
        ("tokens", lambda row: f"{row.batch} x {row.tokens}"),
        ("heads", lambda row: f"{row.heads} x {row.size}"),
        ("phase", lambda row: row.phase),
        ("time", lambda row: frame.as_ms(row.seconds)),
        ("GFLOP/s", lambda row: f"{row.gflops:.1f}"),
        ("of peak", lambda row: percent(row.peak_share)),
        ("PyTorch", lambda row: frame.as_ms(row.torch_seconds)),
        ("ratio", lambda row: frame.as_ratio(row.ratio)),
        ("bar", lambda row: frame.as_ratio(row.bar)),
    )
