"""Sums of blocks and in narrow formats: every bit against the reference, and whatever samples,
heads and later rows there are.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from emuchain.kernels.attention import Operand, SummedAttention, SumRounding, backward, forward
from emuchain.kernels.conv import Sums
from emuchain.kernels.number import BlockGrid, Rounding, number_format
from emuchain.kernels.quantise import Draws, PhiloxStream

from ..forms import BF16, E2M1, E4M3, Form
from .helpers import Case, same_bits
from .summed_reference import BF16_SUMS, Summed, Words, in_blocks

SEED, FIRST, NUMBERS = 7, 1003, np.array([3, 2**40])
INT8, INT4 = Form(6, 0, 127 / 64, block=32), Form(3, 0, 7 / 8, block=8)
ALL = 1 << 20
"""Form's name, its own, sums, and those of the reference."""
FORMS: dict[str, tuple[str, Form | None, dict[str, Any], Any]] = {
    "mxint8": ("mxint8", INT8, {"dot": 32}, in_blocks(32)),
    "mxint8 in eighths": ("mxint8", INT8, {"dot": 8}, in_blocks(8)),
    "blocks of 8 by chance": (
        "int4@8",
        dataclasses.replace(INT4, by_chance=True),
        {"dot": 8},
        in_blocks(8),
    ),
    "mxfp4 by chance": (
        "mxfp4",
        dataclasses.replace(E2M1, block=32, by_chance=True),
        {"dot": 16},
        in_blocks(16),
    ),
    "mxfp8": ("mxfp8", dataclasses.replace(E4M3, block=32), {"dot": 32}, in_blocks(32)),
    "fixed point": ("q2.6", Form(7, 1, 127 / 64), {"dot": 16}, in_blocks(16)),
    "int32": ("q2.6", Form(7, 1, 127 / 64), {"sums": Sums.INT32}, in_blocks(ALL)),
    "bf16": ("bf16", BF16, {"sums": Sums.BF16}, BF16_SUMS),
}
CASES = [
    Case(1, 1, 1, 1),
    Case(2, 9, 2, 12),
    Case(1, 67, 1, 5, scale=1.0),
    Case(1, 40, 1, 12, drops=True),
    Case(2, 37, 2, 12, causal=False, ragged=True),
]


@dataclasses.dataclass
class Run:
    """A case in a form: its numbers are on the form's grid, in blocks of channels."""

    case: Case
    name: str

    def __post_init__(self) -> None:
        self.format, self.form, keys, self.total = FORMS[self.name]
        case = self.case
        self.attention = SummedAttention(case.heads, case.size, case.causal, case.scale, **keys)
        grid = number_format(self.format).grid
        assert grid is not None and self.form is not None
        self.grid, self.dot = grid, bool(self.attention.dot)
        zeros = np.zeros(case.x.shape, np.uint32)
        self.x = self.form.round(case.x, zeros)
        self.dy = self.form.round(case.dy, zeros[..., : case.dy.shape[2]])

    @property
    def rounding(self) -> Rounding:
        assert self.form is not None
        return Rounding.STOCHASTIC if self.form.by_chance else Rounding.EVEN

    def _words(self, purpose: int, shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape[1:]))
        words = [PhiloxStream(SEED, 5, purpose, int(n)).words(FIRST, size) for n in NUMBERS]
        return np.stack(words[: shape[0]]).reshape(shape)

    def _operand(self, purpose: int) -> Operand:
        stream = PhiloxStream(SEED, 5, purpose, 0)
        words = Draws(stream, FIRST, numbers=NUMBERS[: self.case.samples])
        return Operand(self.grid, self.rounding, words, np.zeros(2, np.int64))

    def _again(self, purpose: int, shape: tuple[int, ...]) -> SumRounding | None:
        if not isinstance(self.grid, BlockGrid):
            return None
        return SumRounding(self.grid, self.rounding, self._words(purpose, shape))

    def made(self) -> list[np.ndarray]:
        shares, errors = self._operand(0), self._operand(2)
        again = {"of_inputs": self._again(192, self.x.shape)} if self.dot else {}
        masks = {**self.case.masks, "shares": shares, **again}
        y, statistics = forward(self.x, self.attention, **masks)
        again |= {"of_errors": self._again(194, self.dy.shape)} if self.dot else {}
        masks = {**self.case.masks, "shares": shares, "score_errors": errors, **again}
        return [y, statistics, backward(self.x, statistics, self.dy, self.attention, **masks)]

    def expected(self) -> list[np.ndarray]:
        case, rows = self.case, self.case.rows
        parts = case.samples, rows, case.heads, 3, case.size
        x, x_words = self.x.reshape(parts), self._words(192, self.x.shape).reshape(parts)
        dy, dy_words = (
            array.reshape(*parts[:3], case.size)
            for array in (self.dy, self._words(194, self.dy.shape))
        )
        pairs = [self._words(purpose, (*parts[:1], case.heads, rows, rows)) for purpose in (0, 2)]
        masks = case.masks
        lengths = masks.get("lengths", [rows] * case.samples)
        kept = masks.get("kept", np.ones(pairs[0].shape, np.float32))
        y, dx = np.empty_like(dy), np.empty_like(x)
        statistics = np.empty((case.samples, case.heads, 2, rows), np.float32)
        how = Summed(self.total, self.form, self.form, again=self.dot)
        for n, h in np.ndindex(case.samples, case.heads):
            inputs = (array[n, :, h].swapaxes(0, 1) for array in (x, x_words))
            own, own_words = map(np.ascontiguousarray, inputs)
            words = Words(pairs[0][n, h], pairs[1][n, h], own_words, dy_words[n, :, h])
            key = case.of_scores, case.causal, int(lengths[n]), kept[n, h]
            made = how.run(own, np.ascontiguousarray(dy[n, :, h]), words, *key)
            y[n, :, h], statistics[n, h], *errors = made
            dx[n, :, h] = np.stack(errors, 1)
        return [y.reshape(self.dy.shape) + 0, statistics, dx.reshape(self.x.shape) + 0]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_number_is_the_reference_s(case: Case, name: str) -> None:
    run = Run(case, name)
    y, statistics, dx = run.made()
    expected = run.expected()
    assert same_bits([statistics + np.float32(0)], expected[1:2])
    assert same_bits([y], expected[:1])
    assert same_bits([dx], expected[2:])


@pytest.mark.parametrize("name", ["mxint8 in eighths", "blocks of 8 by chance", "bf16"])
def test_no_row_sees_a_later_one(name: str) -> None:
    """Neither a number of later rows, nor their scale; and errors of a row see none before it."""
    run = Run(Case(2, 67, 2, 12), name)
    y, statistics, dx = run.made()
    run.x[:, 50:] *= 1024
    others = run.made()
    assert same_bits([y[:, :50], statistics[..., :50]], [others[0][:, :50], others[1][..., :50]])
    run.x[:, 50:] /= 1024
    run.dy[:, :50] *= 1024
    assert same_bits([dx[:, 50:]], [run.made()[2][:, 50:]])


def test_samples_together_or_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(Case(2, 40, 2, 12, drops=True), "mxfp4 by chance")
    together = run.made()
    monkeypatch.setattr("emuchain.kernels.attention.summed._MOST_PAIRS", 1)
    assert same_bits(run.made(), together)


def test_rows_alone_are_refused() -> None:
    attention, x = SummedAttention(1, 1, True, dot=8), np.ones((1, 4, 3), np.float32)
    y, statistics = forward(x, attention)
    with pytest.raises(ValueError, match="all 4 are needed"):
        attention.forward(x, y, statistics, rows=(0, 2))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("rows", "keys", "heads"), [(9, 9, 2), (67, 40, 1), (12, 5, 1)])
def test_another_sequence_has_the_bits_of_one(name: str, rows: int, keys: int, heads: int) -> None:
    """Queries see as many keys of their own sequence, and their words are the same."""
    run = Run(Case(2, rows, heads, 12, causal=False), name)

    def crossed(within: Any) -> Any:
        parts = within.reshape(2, rows, heads, 3, 12)
        some = parts[:, :keys, :, 1], parts[:, :keys, :, 2], parts[:, :, :, 0]
        return np.concatenate(some, 1).reshape(2, 2 * keys + rows, -1)

    shares, errors = run._operand(0), run._operand(2)
    lengths = {"lengths": np.full(2, keys)}
    made = []
    for lay, own in ((lambda x: x, lengths), (crossed, {})):
        attention = run.attention if own else dataclasses.replace(run.attention, keys=keys)
        x, again, of_errors = lay(run.x), {}, {}
        inputs, outputs = run._again(192, run.x.shape), run._again(194, run.dy.shape)
        if run.dot and inputs is not None:
            again = {"of_inputs": inputs._replace(words=lay(inputs.words))}
            of_errors = {"of_errors": outputs}
        masks = {**own, "shares": shares, **again}
        y, statistics = forward(x, attention, **masks)
        dx = backward(x, statistics, run.dy, attention, score_errors=errors, **masks, **of_errors)
        made.append((y, statistics, dx if not own else crossed(dx)))
    assert all(same_bits(one, other) for one, other in zip(*made, strict=True))
