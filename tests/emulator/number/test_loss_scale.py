"""A loss scale that follows overflows."""

from __future__ import annotations

import pytest

from emuchain.emulator.number import LossScale


def test_it_halves_and_grows() -> None:
    scale, seen = LossScale(8), []
    for overflows in (False, False, True, True, True, True, True, False, False, False, False):
        scale = scale.after(overflows=overflows, grows_every=3)
        seen.append((scale.value, scale.good_updates))
    assert seen[:7] == [(8, 1), (8, 2), (4, 0), (2, 0), (1, 0), (1, 0), (1, 0)]
    assert seen[7:] == [(1, 1), (1, 2), (2, 0), (2, 1)]


def test_it_has_ends() -> None:
    assert LossScale(2**24).after(overflows=False, grows_every=1) == LossScale(2**24)
    assert LossScale(64, 3).after(overflows=True, grows_every=0) == LossScale(64, 3)
    for value in (0, 3, 2**25):
        with pytest.raises(ValueError, match="should be a power of two"):
            LossScale(value)
