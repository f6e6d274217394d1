"""The small recurrent networks of `test_formats_of_recurrent_by_hand.py` with sums of blocks, in
bf16, and in whole numbers: every weight is equal.

What is rounded again is written out here, as docs/numbers.md states it. Sums of blocks are exact in
fp64; what is added to them is rounded once, as a fraction where fp64 does not hold it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from emuchain.emulator.number import KINDS
from emuchain.kernels.quantise import PhiloxStream

from ...kernels.forms import BF16, E2M1, E4M3, Form
from ...kernels.recurrent import reference
from .test_dots_by_hand import INT8, added
from .test_formats_of_recurrent_by_hand import LAYERS, SEED, TOKENS, F, Recurrent, compare, keys_of
from .test_formats_of_vocabulary import Vocabulary
from .test_sums_of_attention_by_hand import DotEmulation, NarrowEmulation

FIXED = Form(7, 1, 127 / 64)
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
    "fixed point": ("q2.6 accumulate=dot:32 loss_scale=16", 32, FIXED),
    "fp8 by the last": ("fp8 accumulate=dot:8 scaling=delayed:history=1", 8, E4M3),
}


class Blocks(reference.Blocks):
    """Sums of blocks in fp64."""

    def _sum(
        self, start: np.ndarray, a: np.ndarray, b: np.ndarray, places: Sequence[Sequence[int]]
    ) -> np.ndarray:
        one, other = a.astype(np.float64), b.astype(np.float64)
        for some in places:
            start = added(start, one[[*some]] @ other[[*some]])
        return start


class DotRecurrent(Recurrent, DotEmulation):
    """Sums of blocks."""

    tensors: ClassVar = {"head": 3}

    def __init__(self, plan: Any, size: int, form: Form) -> None:
        self.size, self.turned = size, dict[str, np.ndarray]()
        super().__init__(plan, form, form)

    def _round_weights(self, update: int) -> None:
        super()._round_weights(update)
        form, own, head = self._form("weights", "head"), self.masters["head"], self.layers[2]
        words = self._words(own.shape, head.index, KINDS.index("weights"), update)
        self.weights["head"] = form.round(own, words)
        self.turned["head"] = form.round(own.T.copy(), words.T.copy()).T
        of_arrays = self._words_of_arrays(update)
        for name in self.masters.keys() & {"w", "r", "p"}:
            gates, form = 1 if name == "p" else self.gates, self._form("weights", name)
            turned, words = (
                array.reshape(gates, -1, array.shape[1]).swapaxes(1, 2).copy()
                for array in (self.masters[name], of_arrays[name])
            )
            made = form.round(turned, words).swapaxes(1, 2)
            self.turned[name] = np.ascontiguousarray(made.reshape(self.masters[name].shape))

    def _sums(self, sample: int) -> dict[str, Any]:
        def again(kind: str, first: int, lines: np.ndarray) -> np.ndarray:
            form = self.forms[kind]
            if not form.block:
                return lines
            stream = PhiloxStream(SEED, 2, 192 + KINDS.index(kind), sample)
            return form.round(lines, stream.words(first * TOKENS, lines.size).reshape(lines.shape))

        return {"sums": Blocks(self.size, again), "turned": self.turned}


class NarrowRecurrent(Recurrent, NarrowEmulation):
    """Sums in bf16."""

    def _sums(self, sample: int) -> dict[str, Any]:
        return {"sums": reference.Bf16Sums()}


class WholeRecurrent(Recurrent):
    """Whole numbers: sums are exact until a mini-batch is over."""

    def _sums(self, sample: int) -> dict[str, Any]:
        return {"sums": reference.Exact()}

    def _exact(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(F)

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return self._exact(x, self.weights[name].T) + self.biases[name]

    def _errors(self, name: str, dy: np.ndarray, begin: np.ndarray | None = None) -> np.ndarray:
        return self._exact(dy, self.weights[name])


class DotVocabulary(DotRecurrent):
    """The same with a head that makes the errors of each channel by itself."""

    _loss_errors = Vocabulary._loss_errors


CUTS = {"lstm": "wte r[:32] | r[32:] | head", "gru": "wte | r[:32] | r[32:] head"}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kind", LAYERS)
def test_sums_of_blocks(tmp_path: Any, plan_of: Any, trained: Any, kind: str, name: str) -> None:
    precision, *form = FORMS[name]
    keys = keys_of(tmp_path, LAYERS[kind], precision)
    plan = plan_of(
        **keys, micro_batch=2, **({"cut": CUTS[kind]} if kind in CUTS else {"devices": 2})
    )
    compare(plan, DotRecurrent(plan, *form), trained)


@pytest.mark.parametrize("kind", LAYERS)
def test_sums_in_bf16(tmp_path: Any, plan_of: Any, trained: Any, kind: str) -> None:
    plan = plan_of(**keys_of(tmp_path, LAYERS[kind], "bf16 accumulate=bf16"), devices=3)
    compare(plan, NarrowRecurrent(plan, BF16, BF16), trained)


@pytest.mark.parametrize("kind", LAYERS)
def test_whole_numbers(tmp_path: Any, plan_of: Any, trained: Any, kind: str) -> None:
    """Sums of few products are exact in fp32, too."""
    precision = "q2.6 accumulate=int32 loss_scale=16"
    plan = plan_of(**keys_of(tmp_path, LAYERS[kind], precision), devices=3, micro_batch=2)
    compare(plan, WholeRecurrent(plan, FIXED, FIXED), trained)


@pytest.mark.parametrize("name", ["mxint8 in eighths, by chance", "fixed point"])
def test_a_loss_of_parts(tmp_path: Any, plan_of: Any, trained: Any, name: str) -> None:
    precision, *form = FORMS[name]
    keys = keys_of(tmp_path, LAYERS["gru"], precision, vocabulary_parallel=True)
    plan = plan_of(**keys, micro_batch=2, devices=3)
    compare(plan, DotVocabulary(plan, *form), trained)
