"""Reading in the background: the bits of reading at once, and errors where they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.data import LazyImages, ReadAhead, Reading, lazy, load_data
from emuchain.emulator.data.reading import Preparation

SAMPLES = 60
IMAGES: Any = (
    load_data("shapes", reading=Reading(crop=(28,), augment=("crop", "flip")))
    .first(SAMPLES)
    .train_images
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 25), min_size=1, max_size=8),
    st.integers(1, 9),
    st.sampled_from([None, 0, 4]),
)
def test_spans_of_any_size(sizes: list[int], block: int, epoch: int | None) -> None:
    reader = ReadAhead(IMAGES)
    reader._block = block
    order = np.random.default_rng(sum(sizes)).permutation(SAMPLES)
    expected = IMAGES.read(order, epoch)
    begin = 0
    for size in sizes:
        span = slice(begin, min(begin + size, SAMPLES))
        if span.start == span.stop:
            break
        out = np.zeros((span.stop - span.start, 3, 28, 28), np.uint8)
        reader.take(order, epoch, span, out)
        assert out.tobytes() == expected[span].tobytes()
        begin = span.stop


def test_another_epoch_another_order_and_going_back() -> None:
    reader, order = ReadAhead(IMAGES), np.arange(SAMPLES)
    out = np.zeros((10, 3, 28, 28), np.uint8)
    for order_now, epoch, span in (
        (order, 0, slice(40, 50)),
        (order, 0, slice(0, 10)),
        (order, 1, slice(0, 10)),
        (order[::-1].copy(), 1, slice(0, 10)),
        (order, None, slice(50, 60)),
    ):
        reader.take(order_now, epoch, span, out)
        assert out.tobytes() == IMAGES.read(order_now[span], epoch).tobytes()


class Counted:
    """Pictures of one pixel, which say what was read; one of them is broken."""

    channels, sizes = 1, {(1, 1): "a pixel"}

    def __init__(self, broken: int | None = None) -> None:
        self.broken, self.seen = broken, list[int]()

    def __len__(self) -> int:
        return 10_000

    def picture(self, number: int) -> np.ndarray:
        if number == self.broken:
            raise InputError(f"{number}: broken")
        self.seen.append(number)
        return np.full((1, 1, 1), number % 256, np.uint8)


def lazily(pictures: Counted) -> LazyImages:
    return LazyImages(pictures, Preparation(), (1, 1), np.arange(len(pictures)))


def test_no_more_than_some_blocks_are_read_and_each_sample_once() -> None:
    pictures = Counted()
    reader, order, out = (
        ReadAhead(lazily(pictures)),
        np.arange(10_000),
        np.zeros((7, 1, 1, 1), np.uint8),
    )
    for begin in range(0, 700, 7):
        reader.take(order, 0, slice(begin, begin + 7), out)
        assert len(reader._blocks) <= lazy._AHEAD + 2
    reader._threads.shutdown()
    assert sorted(pictures.seen) == [*range(len(pictures.seen))]
    assert 700 <= len(pictures.seen) <= 700 + (lazy._AHEAD + 2) * lazy._BLOCK


def test_an_image_that_is_broken_ends_the_run_when_it_is_needed() -> None:
    reader, order, out = (
        ReadAhead(lazily(Counted(broken=100))),
        np.arange(10_000),
        np.zeros((10, 1, 1, 1), np.uint8),
    )
    reader.take(order, 0, slice(0, 10), out)
    assert out.ravel().tolist() == [*range(10)]
    with pytest.raises(InputError, match="100: broken"):
        reader.take(order, 0, slice(95, 105), out)


def test_a_large_image_is_a_block_of_its_own(tmp_path: Path) -> None:
    images = LazyImages(Counted(), Preparation(), (5000, 5000), np.arange(3))
    assert ReadAhead(images)._block == 1
