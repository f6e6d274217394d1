"""`scripts/codec-patterns`: blocks of all kinds hold, and a codec that breaks a promise is
found.
"""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

ZERO, TINY, SMALL, ONE, INFINITE = 0, 0x2000_0000, 0x3B00_0000, 0x3F80_0000, 0x7F80_0000
NEGATIVE = 0x8000_0000


@pytest.fixture
def patterns(load: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with fewer patterns at a time."""
    script: ModuleType = load("codec-patterns")
    monkeypatch.setattr(script, "BITS", 12)
    return script


@pytest.mark.parametrize(
    "first", [ZERO, TINY, SMALL, ONE, INFINITE, ZERO | NEGATIVE, SMALL | NEGATIVE, ONE | NEGATIVE]
)
@pytest.mark.parametrize("exponent", [-10, -6, -20, 0])
def test_blocks_hold(patterns: ModuleType, first: int, exponent: int) -> None:
    counts, error = patterns.check(first, exponent)
    assert counts.sum() == 1 << 12
    assert 0 <= error < 2.0**exponent
    assert (counts[3] == 1 << 12) == (first & ~NEGATIVE >= ONE)


@pytest.mark.parametrize(
    ("first", "breaks", "message"),
    [
        (SMALL, lambda back: back * np.float32(2), "an error of"),
        (SMALL, lambda back: -back, "a sign|an error of"),
        (ONE, lambda back: np.nextafter(back, np.float32(0)), "changed"),
    ],
)
def test_a_broken_codec_is_found(
    patterns: ModuleType, monkeypatch: pytest.MonkeyPatch, first: int, breaks: Any, message: str
) -> None:
    whole = patterns.decompress
    monkeypatch.setattr(patterns, "decompress", lambda buffer, count: breaks(whole(buffer, count)))
    with pytest.raises(AssertionError, match=message):
        patterns.check(first, -10)


def test_least_widths(patterns: ModuleType) -> None:
    """Below the bound nothing is kept; 1/4 is a fraction of 7 bits, 2^-8 + 2^-9 of 15, 1/3 + 2^-14
    of neither.
    """
    sizes = np.array([0.0, 2.0**-11, 0.25, 2.0**-8 + 2.0**-9, 1 / 3 + 2.0**-14])
    assert patterns.least_widths(sizes, 2.0**-10).tolist() == [2, 1, 2, 0]
    assert patterns.least_widths(sizes, 2.0**-20).tolist() == [1, 1, 2, 1]
