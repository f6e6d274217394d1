"""Numbers that an update left as they were."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import Floats, compiled, in_place, same_shape


def count_unmoved(before: Floats, after: Floats) -> int:
    """Return how many numbers of two C-contiguous arrays of one shape are equal.

    Raises:
        ValueError: the arrays are not such.
    """
    same_shape(before, after, "numbers before and after an update")
    return int(_count(in_place(before, "before").reshape(-1), in_place(after, "after").reshape(-1)))


def warm() -> None:
    """Compile the kernel."""
    count_unmoved(np.ones(2, np.float32), np.ones(2, np.float32))


@compiled
def _count(before: Any, after: Any) -> Any:
    count = 0
    for place in range(before.size):
        count += before[place] == after[place]
    return count
