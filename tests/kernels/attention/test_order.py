"""Every number of attention, bit for bit, against a reference that takes its products in the stated
order.
"""

import numpy as np
import pytest

from . import reference
from .helpers import CASES, Case, F, same_bits


def expected(case: Case) -> list[np.ndarray]:
    """What `Case.run` returns, head by head; zeros are +0."""
    x = case.x.reshape(case.samples, case.rows, case.heads, 3, case.size)
    dy = case.dy.reshape(case.samples, case.rows, case.heads, case.size)
    lengths = case.masks.get("lengths", [case.rows] * case.samples)
    kept = case.masks.get("kept", np.ones((case.samples, case.heads, case.rows, case.rows), F))
    y, dx, statistics = (
        np.empty_like(dy),
        np.empty_like(x),
        np.empty((case.samples, case.heads, 2, case.rows), F),
    )
    for n, h in np.ndindex(case.samples, case.heads):
        q, k, v = (np.ascontiguousarray(x[n, :, h, place]) for place in range(3))
        of = (
            q,
            k,
            v,
            np.ascontiguousarray(dy[n, :, h]),
            F(case.of_scores),
            case.causal,
            lengths[n],
            kept[n, h],
        )
        found = reference.attention(*of)
        y[n, :, h], statistics[n, h], dx[n, :, h, 0], dx[n, :, h, 1], dx[n, :, h, 2] = found
    return [y.reshape(case.dy.shape) + F(0), statistics, dx.reshape(case.x.shape) + F(0)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_number_takes_its_products_in_the_stated_order(case: Case) -> None:
    y, statistics, dx = case.run()
    assert same_bits([y, statistics + F(0), dx], expected(case))
