"""Memory in huge pages: arrays lie side by side on cache lines, apart from one another, and keep
what is written.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels import ALIGNMENT
from emuchain.kernels.memory import PAGE, Slabs, in_huge_pages

SIZES = st.integers(0, 300) | st.integers(0, 3 * PAGE)


@given(st.lists(SIZES, max_size=12))
def test_arrays_of_slabs_do_not_overlap(sizes: list[int]) -> None:
    slabs = Slabs()
    arrays = [slabs.take(size) for size in sizes]
    for number, (array, size) in enumerate(zip(arrays, sizes, strict=True)):
        assert array.nbytes == size
        assert size == 0 or array.ctypes.data % ALIGNMENT == 0
        array.fill(number)
    for number, array in enumerate(arrays):
        assert np.all(array == number)


def test_small_arrays_share_a_page() -> None:
    slabs = Slabs()
    places = [slabs.take(1000).ctypes.data // PAGE for _ in range(100)]
    assert len(set(places)) == 1


def test_memory_begins_on_a_huge_page() -> None:
    memory = in_huge_pages(3 * PAGE - 5)
    assert memory.nbytes == 3 * PAGE - 5
    assert memory.ctypes.data % PAGE == 0
    memory[...] = 7
    assert memory[-1] == 7
