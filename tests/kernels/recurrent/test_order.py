"""Every number of LSTM and GRU, bit for bit, against a reference that takes its products in the
stated order.
"""

import dataclasses

import numpy as np
import pytest

from . import reference
from .helpers import Case, F, same_bits


def expected(case: Case) -> list[np.ndarray]:
    """What `Case.run` returns, sample by sample; what lies after the end of a sample is 0."""
    x, h0, c0, dy, dh, dc = case.data
    weights, p = case.weights, case.projection
    lengths = case.lengths if case.ragged else [case.steps] * case.samples
    grads = [np.zeros_like(array) for array in (*weights, *([] if p is None else [p]))]
    y, dx = np.zeros_like(dy), np.zeros_like(x)
    states = []
    for n, length in enumerate(lengths):
        here = slice(0, length)
        if case.gates == 4:
            found = reference.lstm(
                x[n, here],
                *weights,
                h0[n],
                c0[n],
                p,
                dy[n, here],
                dh[n],
                dc[n],
                grads if len(grads) == 5 else [*grads, None],
                case.reverse,
            )
            y[n, here], h, c, dx[n, here], dh0, dc0 = found
            states.append((h, c, dh0, dc0))
        else:
            found = reference.gru(
                x[n, here], *weights, h0[n], dy[n, here], dh[n], grads, case.linear, case.reverse
            )
            y[n, here], h, dx[n, here], dh0 = found
            states.append((h, dh0))
    kept = [np.array(state) for state in zip(*states, strict=True)]
    half = len(kept) // 2
    return [y, *kept[:half], dx, *grads[:4], *kept[half:], *grads[4:]]


LSTM = Case(4, 3, 4, 5, 7)
GRU = Case(3, 3, 4, 5, 7)
CASES = [
    LSTM,
    dataclasses.replace(LSTM, outputs=3),
    dataclasses.replace(LSTM, reverse=True),
    dataclasses.replace(LSTM, ragged=True),
    dataclasses.replace(LSTM, ragged=True, reverse=True, outputs=2),
    Case(4, 1, 2, 1, 1),
    Case(4, 8, 3, 35, 33),
    Case(4, 20, 2, 17, 64),
    Case(4, 1, 3, 200, 70),
    Case(4, 2, 20, 272, 33),
    Case(4, 4, 3, 35, 33),
    Case(4, 4, 2, 270, 70),
    Case(4, 4, 2, 17, 100, outputs=50),
    Case(4, 20, 14, 17, 33),
    Case(4, 3, 4, 17, 1),
    Case(4, 2, 8, 20, 13),
    Case(4, 1, 1, 64, 7),
    GRU,
    dataclasses.replace(GRU, linear=False),
    dataclasses.replace(GRU, reverse=True),
    dataclasses.replace(GRU, ragged=True),
    dataclasses.replace(GRU, ragged=True, reverse=True, linear=False),
    Case(3, 1, 2, 1, 1),
    Case(3, 8, 3, 35, 33),
    Case(3, 20, 2, 17, 64),
    Case(3, 5, 3, 17, 64, linear=False),
    Case(3, 1, 3, 200, 70),
    Case(3, 2, 20, 64, 70),
    Case(3, 3, 4, 17, 1),
    Case(3, 2, 8, 20, 25),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_number_takes_its_products_in_the_stated_order(case: Case) -> None:
    assert same_bits(case.run(), expected(case))


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_activations_are_the_stated_operations(name: str) -> None:
    from emuchain.kernels import recurrent

    x = np.concatenate([np.linspace(-45, 45, 20_001), np.logspace(-30, 1, 1001)]).astype(F)
    assert getattr(recurrent, name)(x).tobytes() == getattr(reference, name)(x).tobytes()


def test_no_bit_depends_on_the_number_of_samples() -> None:
    for case in (Case(4, 9, 3, 20, 40), Case(3, 9, 3, 20, 40)):
        whole = case.run()
        for n in range(case.samples):
            alone = _Some(**vars(case), first=n).run()
            assert same_bits([a[n : n + 1] for a in whole[:2]], alone[:2])
            dx = 2 + (case.gates == 4)
            assert same_bits([whole[dx][n : n + 1]], [alone[dx]])


@dataclasses.dataclass(frozen=True)
class _Some(Case):
    """One sample of a case."""

    first: int = 0

    @property
    def data(self) -> tuple[np.ndarray, ...]:
        return tuple(array[self.first : self.first + 1] for array in super().data)
