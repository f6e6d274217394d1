"""The resources that engines and buffers take: by hand, and what must hold for all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster import Resources
from emuchain.emulator.cluster.fpga import FF_PER_DSP, LUT_PER_DSP, engine_resources
from emuchain.emulator.mapping import Buffer
from emuchain.emulator.plan import bram_bytes, buffer_resources, lut_bytes, transceivers_used
from emuchain.kernels.number import FP32


def test_resources_by_hand() -> None:
    buffers = Buffer(bytes=8000, banks=10, lut=7)
    taken = engine_resources(100, 3) + buffer_resources(buffers)
    assert taken.dsp == 100
    assert taken.bram_banks == 10
    assert taken.lut == 100 * LUT_PER_DSP + 3 * FP32.multiplier_lut + 7
    assert taken.ff == 100 * FF_PER_DSP + 3 * FP32.multiplier_ff
    half = engine_resources(100, 3) + buffer_resources(buffers, beta=0.5)
    assert half.bram_banks == 5
    assert half.lut == taken.lut + 4000 * 8 // 64
    assert buffer_resources(buffers) == Resources(lut=7, bram_banks=10)


@given(st.integers(0, 10**9), st.floats(0.01, 1))
def test_beta_splits_bytes(size: int, beta: float) -> None:
    buffers = Buffer(size)
    assert bram_bytes(buffers, beta) + lut_bytes(buffers, beta) == size
    assert abs(bram_bytes(buffers, beta) - beta * size) < 1


def test_transceivers_for_a_neighbour() -> None:
    assert transceivers_used(150, 13.1) == 12
    assert transceivers_used(100, 25) == 4
