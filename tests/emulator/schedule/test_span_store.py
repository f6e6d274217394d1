"""Act-RAM: what is put in by some spans comes out by others, and is dropped after that."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.device.memories import ActRam
from emuchain.emulator.schedule import MicroBatch, SampleSpan
from emuchain.kernels import Arena

CUTS = st.sets(st.integers(1, 7), max_size=3)


def spans(of: MicroBatch, cuts: set[int]) -> list[SampleSpan]:
    places = [0, *sorted(cut for cut in cuts if cut < of.samples), of.samples]
    return [SampleSpan(of, begin, end) for begin, end in itertools.pairwise(places)]


@given(st.integers(1, 8), CUTS, CUTS, st.booleans())
def test_what_is_put_in_comes_out(
    samples: int, there: set[int], back: set[int], in_room: bool
) -> None:
    ram, of = ActRam(Arena()), MicroBatch(3, 0, 20, 20 + samples)
    maps = np.arange(samples * 6, dtype=np.float32).reshape(samples, 2, 3)
    places = np.arange(samples, dtype=np.uint8)
    for span in spans(of, there):
        part = slice(span.begin, span.end)
        if in_room:
            ram.room(span, (2, 3))[...] = maps[part]
        else:
            ram.put(span, maps[part], places[part])
    assert len(ram) == 1
    for span in spans(of, back):
        part = slice(span.begin, span.end)
        expected = [maps[part]] if in_room else [maps[part], places[part]]
        found = ram.read(span)
        assert [array.dtype for array in found] == [array.dtype for array in expected]
        assert all((a == b).all() for a, b in zip(found, expected, strict=True))
    assert len(ram) == 0


def test_a_whole_micro_batch_is_not_copied() -> None:
    ram, whole, maps = ActRam(Arena()), MicroBatch(0, 0, 0, 4).whole, np.zeros((4, 2), np.float32)
    ram.put(whole, maps)
    [found] = ram.read(whole)
    assert found is maps
