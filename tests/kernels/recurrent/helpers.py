"""Layers with random weights, and what both sides of a comparison return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emuchain.kernels import recurrent

F = np.float32


@dataclass(frozen=True)
class Case:
    """A layer and its data."""

    gates: int
    samples: int
    steps: int
    inputs: int
    hidden: int
    outputs: int = 0
    linear: bool = True
    reverse: bool = False
    ragged: bool = False
    seed: int = 0

    @property
    def width(self) -> int:
        return self.outputs or self.hidden

    def random(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        rows, scale = self.gates * self.hidden, 1 / np.sqrt(self.hidden)
        shapes = (rows, self.inputs), (rows, self.width), (rows,), (rows,)
        return tuple((scale * self.random().standard_normal(shape)).astype(F) for shape in shapes)

    @property
    def projection(self) -> np.ndarray | None:
        return (
            self.random().standard_normal((self.outputs, self.hidden), F) if self.outputs else None
        )

    @property
    def lengths(self) -> np.ndarray | None:
        return self.random().integers(0, self.steps + 1, self.samples) if self.ragged else None

    @property
    def data(self) -> tuple[np.ndarray, ...]:
        """x, h0, c0, dy, dh, dc."""
        n, t = self.samples, self.steps
        shapes = (n, t, self.inputs), (n, self.width), (n, self.hidden), (n, t, self.width)
        return tuple(self.random().standard_normal(shape, F) for shape in (*shapes, *shapes[1:3]))

    def run(self) -> list[np.ndarray]:
        """Outputs, states, and all gradients of the kernels."""
        x, h0, c0, dy, dh, dc = self.data
        keys = {"lengths": self.lengths, "reverse": self.reverse}
        if self.gates == 4:
            y, h, c, saved = recurrent.lstm_forward(
                x, *self.weights, h0, c0, self.projection, **keys
            )
            found = recurrent.lstm_backward(saved, dy, dh=dh, dc=dc)
            return [y, h, c, *(array for array in found if array is not None)]
        y, h, saved = recurrent.gru_forward(x, *self.weights, h0, self.linear, **keys)
        return [y, h, *recurrent.gru_backward(saved, dy, dh=dh)]


def same_bits(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    """Whether arrays agree bit for bit; zeros of both signs are one."""
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and (a + F(0)).tobytes() == (b + F(0)).tobytes()
        for a, b in zip(ours, theirs, strict=True)
    )
