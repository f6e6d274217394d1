"""What an update left as it was."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.optimizers import count_unmoved


@given(st.integers(0, 3000), st.integers(0, 2**32))
def test_equal_numbers_are_counted(size: int, seed: int) -> None:
    before, after = np.random.default_rng(seed).integers(0, 3, (2, size)).astype(np.float32)
    assert count_unmoved(before, after) == np.count_nonzero(before == after)


def test_a_zero_has_no_sign_and_nan_has_moved() -> None:
    assert count_unmoved(np.float32([0, np.nan, 1]), np.float32([-0.0, np.nan, 1])) == 2
    with pytest.raises(ValueError, match="one shape"):
        count_unmoved(np.ones(2, np.float32), np.ones(3, np.float32))
