"""Random attention, what the kernels return for it, and the same by PyTorch in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from emuchain.kernels.attention import Attention, Operand, backward, forward

F = np.float32


@dataclasses.dataclass(frozen=True)
class Case:
    """Attention and its data; `sharp` multiplies the scores, `ragged` draws lengths, `drops` a mask
    of dropout.
    """

    samples: int
    rows: int
    heads: int
    size: int
    causal: bool = True
    sharp: float = 1.0
    ragged: bool = False
    drops: bool = False
    scale: float | None = None

    @property
    def attention(self) -> Attention:
        return Attention(self.heads, self.size, self.causal, self.scale)

    @property
    def of_scores(self) -> float:
        """By what products of queries and keys are multiplied."""
        return self.size**-0.5 if self.scale is None else self.scale

    @property
    def x(self) -> np.ndarray:
        x = np.random.default_rng(1).standard_normal(
            (self.samples, self.rows, 3 * self.heads * self.size), F
        )
        x.reshape(self.samples, self.rows, self.heads, 3, self.size)[:, :, :, 0] *= F(self.sharp)
        return x

    @property
    def dy(self) -> np.ndarray:
        return np.random.default_rng(2).standard_normal(
            (self.samples, self.rows, self.heads * self.size), F
        )

    @property
    def masks(self) -> dict[str, Any]:
        random, masks = np.random.default_rng(3), {}
        if self.ragged:
            masks["lengths"] = random.integers(1, self.rows + 1, self.samples)
        if self.drops:
            shape = self.samples, self.heads, self.rows, self.rows
            masks["kept"] = np.where(random.random(shape) < 0.25, 0, 1 / 0.75).astype(F)
        return masks

    def run(
        self, shares: Operand | None = None, score_errors: Operand | None = None
    ) -> list[np.ndarray]:
        """Outputs, statistics, and the errors of the inputs."""
        masks = {**self.masks, "shares": shares}
        y, statistics = forward(self.x, self.attention, **masks)
        back = {**masks, "score_errors": score_errors}
        return [y, statistics, backward(self.x, statistics, self.dy, self.attention, **back)]


CASES = [
    Case(1, 1, 1, 1),
    Case(2, 1, 3, 5, causal=False),
    Case(2, 5, 2, 7),
    Case(1, 16, 1, 16),
    Case(1, 17, 2, 3, causal=False),
    Case(2, 64, 2, 24),
    Case(1, 65, 1, 33),
    Case(1, 100, 3, 20, causal=False),
    Case(1, 197, 1, 64, causal=False),
    Case(1, 131, 1, 80),
    Case(1, 150, 1, 130, causal=False),
    Case(1, 70, 2, 16, sharp=60.0),
    Case(1, 70, 2, 16, sharp=60.0, causal=False),
    Case(3, 90, 2, 12, causal=False, ragged=True),
    Case(1, 80, 2, 8, drops=True),
    Case(2, 40, 1, 8, causal=False, ragged=True, drops=True),
    Case(1, 70, 2, 16, scale=1.0),
    Case(2, 40, 1, 8, causal=False, ragged=True, scale=0.05),
]


def same_bits(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    """Whether arrays agree bit for bit, signs of zeros too."""
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True)
    )
