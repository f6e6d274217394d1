"""Cycles of a product on PEs, against the paper's cases and PEs that are counted one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster import PeArray
from emuchain.emulator.common import InputError
from emuchain.emulator.timing.pair import (
    Cell,
    RecurrentWork,
    mvm_cycles,
    pe_words,
    step_cycles,
    unheld_bytes,
    unsplit_cycles,
)


@pytest.mark.parametrize(
    ("outputs", "inputs", "pes", "cycles", "unsplit"),
    [
        (1024, 1024, 256, 4096, 4096),
        (1024, 1024, 768, 1536, 2048),
        (2048, 640, 192, 7040, 7040),
        (640, 2048, 192, 6827, 8192),
        (1, 5, 8, 1, 5),
        (1280, 1280, 384, 4267, 5120),
        (640, 512, 192, 1707, 2048),
    ],
)
def test_cycles(outputs: int, inputs: int, pes: int, cycles: int, unsplit: int) -> None:
    assert mvm_cycles(outputs, inputs, pes) == cycles
    assert unsplit_cycles(outputs, inputs, pes) == unsplit


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_pes_one_by_one(outputs: int, inputs: int, pes: int) -> None:
    """Deal outputs to PEs in rounds; in the last one as many PEs as there are share each."""
    loads, left = [0] * pes, outputs
    while left >= pes:
        loads = [load + inputs for load in loads]
        left -= pes
    if left:
        each = min(pes // left, 2) if outputs // pes == 1 else pes // left
        parts = [len(range(part, inputs, each)) for part in range(each)]
        for place in range(left * each):
            loads[place] += parts[place % each]
    assert sum(loads) == outputs * inputs
    assert mvm_cycles(outputs, inputs, pes) == max(loads)
    assert mvm_cycles(outputs, inputs, pes) <= unsplit_cycles(outputs, inputs, pes)


def test_a_step_with_a_projection() -> None:
    """RNN-T's encoder on 768 PEs: its projection takes all units, each with a quarter of the
    inputs.
    """
    work = RecurrentWork("encoder", Cell.LSTM, 640, 2048, 10, projection=640)
    array = PeArray(16, 12, 9216)
    forward, backward = (step_cycles(work, array, backward=each) for each in (False, True))
    assert (forward.recurrent, forward.projection) == (7040, mvm_cycles(640, 512, 192))
    assert (backward.recurrent, backward.projection) == (6827, mvm_cycles(2048, 160, 192))
    assert forward.total == 7040 + 1707 + 204
    assert pe_words(work, array) == -(-(2048 * 640 + 2048 * 640 // 4) // 192)


def test_memory_of_pes() -> None:
    work = RecurrentWork("lstm", Cell.LSTM, 8, 1024, 1)
    assert unheld_bytes(work, PeArray(16, 16, 4096)) == 0
    assert unheld_bytes(work, PeArray(16, 16, 4095)) == 4 * 1024
    assert unheld_bytes(RecurrentWork("wide", Cell.LSTM, 1025, 1024, 1), PeArray(16, 16, 4096)) == 0
    assert (
        unheld_bytes(
            RecurrentWork("wide", Cell.LSTM, 1025, 1024, 1), PeArray(16, 16, 4096), inputs_too=True
        )
        == 16384
    )


def test_gates_need_units() -> None:
    with pytest.raises(InputError, match="`mvm_units` = 3: the lstm layer x has 4 gates"):
        step_cycles(
            RecurrentWork("x", Cell.LSTM, 1, 1, 1), PeArray(1, 1, 9, units=3), backward=False
        )
