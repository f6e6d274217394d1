"""A vocabulary-parallel loss in narrow formats: the same bits wherever the classifier is cut, and
every weight as worked out number by number.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.number import KINDS
from emuchain.kernels.layers import vocabulary_loss

from ...kernels.forms import BF16, E4M3, Form
from .gpt import Table
from .test_formats_of_attention_by_hand import F
from .test_formats_of_recurrent_by_hand import LAYERS, Recurrent, compare, keys_of
from .test_vocabulary_parallel import CASES, head_cuts

PRECISIONS = {
    "bf16": "bf16 loss_scale=64",
    "by chance": "activations=mxfp8 weights=bf16 errors=fp8 rounding=stochastic loss_scale=64",
    "blocks": "bf16 errors=int6@4 rounding=stochastic loss_scale=64",
    "sums of blocks": "int8@8 accumulate=dot:8 loss_scale=64",
    "sums of blocks by chance": "int8@8 errors=int6@8 accumulate=dot:8 rounding=stochastic",
    "sums without blocks": "q2.8 errors=q1.9 accumulate=dot:8 loss_scale=64",
    "bf16 sums": "bf16 accumulate=bf16",
    "whole numbers": "q2.8 errors=q1.9 accumulate=int32 loss_scale=64",
    "scales by mini-batches before": "int8 scaling=delayed:history=2 rounding=stochastic",
}
APART = "sums of blocks", "sums of blocks by chance"
"""Blocks that the ends of a tied table have along two directions."""
KEYS: list[Table] = [
    {"devices": 3, "micro_batch": 1},
    {"devices": 8, "micro_batch": 4},
    {"devices": 3, "schedule": "interleaved", "micro_batch": 4, "engines": "turns"},
]
ONCE = {"epochs": 1, "progress": "none"}


@pytest.mark.parametrize("form", PRECISIONS)
@pytest.mark.parametrize("name", CASES)
def test_bits_do_not_depend_on_the_cut(bits: Any, name: str, form: str) -> None:
    if name == "tied tokens" and form in APART:
        pytest.skip("one table has no blocks along two directions")
    keys = {**CASES[name], **ONCE, "precision": PRECISIONS[form]}
    one = emuchain.train(**keys, devices=1, micro_batch=16)
    for mapped in KEYS:
        made = emuchain.train(**{**keys, **mapped})
        assert bits(made.weights) == bits(one.weights)
        assert made.history["test_loss"].tolist() == one.history["test_loss"].tolist()
        simulated = emuchain.simulate(emuchain.plan(**{**keys, **mapped}))
        assert made.virtual_time_ps == simulated.virtual_time_ps


def test_the_classifier_is_cut() -> None:
    keys = {**CASES["tokens"], "precision": PRECISIONS["by chance"]}
    assert len(head_cuts(emuchain.plan(**keys, devices=8))) > 2


class Vocabulary(Recurrent):
    """A network whose head makes the errors of each channel by itself; it is cut by outputs, so its
    weights have blocks of inputs.
    """

    def _round_weights(self, update: int) -> None:
        super()._round_weights(update)
        own, head = self.masters["head"], self.layers[2]
        words = self._words(own.shape, head.index, KINDS.index("weights"), update)
        self.weights["head"] = self._form("weights", "head").round(own, words)

    def _loss_errors(self, logits: np.ndarray, label: np.ndarray) -> np.ndarray:
        targets, errors = label.astype(np.int64), np.zeros_like(logits)
        state = np.zeros((len(logits), vocabulary_loss.STATE), F)
        vocabulary_loss.begin(state)
        vocabulary_loss.fold(logits, targets, 0, state)
        sums = np.ascontiguousarray(state[:, : vocabulary_loss.SUMS])
        steps = np.full(len(logits), len(logits), F)
        vocabulary_loss.errors(logits, targets, 0, sums, steps, errors)
        return errors


INT8 = Form(7, 0, 127 / 128, block=8)


@pytest.mark.parametrize(
    ("precision", "form", "ends"),
    [
        ("bf16", BF16, (5, 17)),
        ("fp8 loss_scale=256", E4M3, (5, 17)),
        ("fp8 scaling=delayed:history=2", E4M3, (5, 17)),
        ("bf16 rounding=stochastic", dataclasses.replace(BF16, by_chance=True), (5, 17)),
        ("int8@8", INT8, (8, 24)),
        ("int8@8 rounding=stochastic", dataclasses.replace(INT8, by_chance=True), (8, 16)),
    ],
)
def test_every_weight(
    tmp_path: Path, plan_of: Any, trained: Any, precision: str, form: Form, ends: tuple[int, int]
) -> None:
    keys = keys_of(tmp_path, LAYERS["gru"], precision, vocabulary_parallel=True)
    cut = "wte r head[:{0}] | head[{0}:{1}] | head[{1}:]".format(*ends)
    plan = plan_of(**keys, cut=cut, devices=3, micro_batch=2)
    compare(plan, Vocabulary(plan, form, form), trained)


def test_sums_travel_in_fp32() -> None:
    """Two numbers of a row, which its errors need, either way; activations are narrow."""
    plan = emuchain.plan(**CASES["tokens"], precision="bf16", devices=8)
    within = [
        links
        for links, right in zip(plan.timing.links, plan.mapping.devices[1:], strict=True)
        if right[0].layer.name == "head" and not right[0].is_first
    ]
    assert within
    for streams in within:
        assert [stream.row_bytes for stream in streams] == [2 * 4, 4 * 2, 4 * 2, 4 * 4]


def test_what_is_refused() -> None:
    for precision, said in {
        "nvfp4": "nvfp4 has a scale of all logits of a row",
        "q2.14 accumulate=int32": "int32 cannot hold; should be at most 0",
    }.items():
        with pytest.raises(InputError, match=said):
            emuchain.plan(**{**CASES["images"], "precision": precision}, devices=2)


def test_a_cut_within_a_block(tmp_path: Path, plan_of: Any, one_line: Any) -> None:
    keys = keys_of(tmp_path, LAYERS["gru"], "int8@8", vocabulary_parallel=True)
    with pytest.raises(InputError, match="at channel 5, within a block of 8 logits") as refused:
        plan_of(**keys, cut="wte r head[:5] | head[5:]")
    one_line(refused)
