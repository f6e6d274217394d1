"""The small transformer of `test_formats_of_attention_by_hand.py` with sums of blocks, and in bf16:
every weight is equal.

Sums of blocks are those of fractions within attention, and exact in fp64 elsewhere; what is rounded
again is written out here, as docs/numbers.md states it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

from emuchain.emulator.number import KINDS

from ...kernels.attention.summed_reference import BF16_SUMS, Summed, Words, in_blocks
from ...kernels.conv.exact import cut
from ...kernels.forms import BF16, E2M1, E4M3, Form
from .test_dots_by_hand import INT8, added
from .test_formats_of_attention_by_hand import HEADS, SIZE, TOKENS, WIDTH, Emulation, run_by_hand

F = np.float32
FORMS: dict[str, tuple[str, int, Form]] = {
    "mxint8": ("mxint8 accumulate=dot:32", 32, INT8),
    "mxint8 in eighths, by chance": (
        "mxint8 rounding=stochastic accumulate=dot:8",
        8,
        dataclasses.replace(INT8, by_chance=True),
    ),
    "mxfp4 by chance": (
        "mxfp4 rounding=stochastic loss_scale=16 accumulate=dot:16",
        16,
        dataclasses.replace(E2M1, block=32, by_chance=True),
    ),
    "fixed point": ("q2.6 accumulate=dot:32 loss_scale=16", 32, Form(7, 1, 127 / 64)),
    "fp8 by the last": ("fp8 accumulate=dot:8 scaling=delayed:history=1", 8, E4M3),
}


class SummedEmulation(Emulation):
    """The same, with other sums."""

    how: Summed
    tensors: ClassVar = {"qkv": 2, "p": 4, "head": 6}

    def _attention(self, head: int, inputs: np.ndarray, dy: np.ndarray, sample: int) -> Any:
        pairs = (
            self._words((HEADS, TOKENS, TOKENS), 3, 128 + KINDS.index(kind), sample)[head]
            for kind in ("activations", "errors")
        )
        ins = self._words((3 * WIDTH, TOKENS), 3, 192 + KINDS.index("activations"), sample)
        outs = self._words((WIDTH, TOKENS), 3, 192 + KINDS.index("errors"), sample)
        own = ins.reshape(HEADS, 3, SIZE, TOKENS)[head].swapaxes(1, 2)
        words = Words(*pairs, own, outs.reshape(HEADS, SIZE, TOKENS)[head].T)
        ones = np.ones((TOKENS, TOKENS), F)
        return self.how.run(inputs, dy, words, SIZE**-0.5, True, TOKENS, ones)


class DotEmulation(SummedEmulation):
    """Sums of blocks."""

    def __init__(self, plan: Any, size: int, form: Form) -> None:
        self.size, self.turned = size, dict[str, np.ndarray]()
        super().__init__(plan, form, form)
        pairs = (self._form(kind, "pairs") for kind in ("activations", "errors"))
        self.how = Summed(in_blocks(size), *pairs, again=True)

    def _round_weights(self, update: int) -> None:
        self.updates[0], tied = update, "head" not in self.masters
        for layer in self.layers:
            if layer.name not in self.masters:
                continue
            own, form = self.masters[layer.name], self._form("weights", layer.name)
            words = self._words(own.shape, layer.index, KINDS.index("weights"), update)
            rows, columns = form.round(own, words), form.round(own.T.copy(), words.T.copy()).T
            if layer.name == "wte" and tied:  # (features, symbols): the head sums features
                self.weights["wte"], self.weights["head"] = columns.copy(), columns.T.copy()
                self.turned["head"] = rows.T.copy()
            else:
                self.weights[layer.name], self.turned[layer.name] = rows, columns

    def _blocks(self, start: np.ndarray, a: Any, b: Any, places: list[range]) -> np.ndarray:
        """Add a (i, k) times b (k, j), block by block of k."""
        one, other = a.astype(np.float64), b.astype(np.float64)
        for some in places:
            own = slice(some.start, some.stop)
            start = added(start, one[:, own] @ other[own])
        return start

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        weight = self.weights[name].T
        start, places = np.zeros((len(x), weight.shape[1]), F), cut(len(weight), self.size)
        return self._blocks(start, x, weight, places) + self.biases.get(name, F(0))

    def _errors(self, name: str, dy: np.ndarray, begin: np.ndarray | None = None) -> np.ndarray:
        weight = self.turned[name]
        start = np.zeros((len(dy), weight.shape[1]), F) if begin is None else begin
        return self._blocks(start, dy, weight, cut(len(weight), self.size)[::-1])

    def _add_gradient(
        self, name: str, total: np.ndarray, dy: np.ndarray, inputs: np.ndarray, sample: int
    ) -> None:
        lines = []
        for kind, maps in (("errors", dy), ("activations", inputs)):
            own, form = maps.T.copy(), self.forms[kind]
            words = self._words(own.shape, self.tensors[name], 192 + KINDS.index(kind), sample)
            lines.append(form.round(own, words) if form.block else own)
        total[...] = self._blocks(total, lines[0], lines[1].T, cut(TOKENS, self.size))


class NarrowEmulation(SummedEmulation):
    """Sums in bf16."""

    how = Summed(BF16_SUMS, BF16, BF16)

    def _chain(self, total: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Add a (i, k) times b (k, j), rounded after each product."""
        for one, other in zip(a.T, b, strict=True):
            exact = np.outer(one.astype(np.float64), other.astype(np.float64)) + total
            total = exact.astype(F).astype(ml_dtypes.bfloat16).astype(F)
        return total

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        weight = self.weights[name].T
        start = np.zeros((len(x), weight.shape[1]), F)
        return self._chain(start, x, weight) + self.biases.get(name, F(0))

    def _errors(self, name: str, dy: np.ndarray, begin: np.ndarray | None = None) -> np.ndarray:
        weight = self.weights[name]
        start = np.zeros((len(dy), weight.shape[1]), F) if begin is None else begin
        return self._chain(start, dy[:, ::-1], weight[::-1])

    def _add_gradient(
        self, name: str, total: np.ndarray, dy: np.ndarray, inputs: np.ndarray, sample: int
    ) -> None:
        total[...] = self._chain(total, dy.T, inputs)


@pytest.mark.parametrize("tied", [None, "ICP", "OCP"])
@pytest.mark.parametrize("name", FORMS)
def test_sums_of_blocks(
    tmp_path: Any, plan_of: Any, trained: Any, name: str, tied: str | None
) -> None:
    precision, *form = FORMS[name]
    path = tmp_path, plan_of, trained, precision
    run_by_hand(*path, lambda plan: DotEmulation(plan, *form), tied=tied)


@pytest.mark.parametrize("sums", ["bf16"])
def test_narrow_sums(tmp_path: Any, plan_of: Any, trained: Any, sums: str) -> None:
    path = tmp_path, plan_of, trained, f"bf16 accumulate={sums}"
    run_by_hand(*path, lambda plan: NarrowEmulation(plan, BF16, BF16))
