"""BaPipe's equation (1): the time of a stage if a uniform network is cut at any place over unequal devices."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def ideal(whole: Sequence[int | Fraction]) -> tuple[Fraction, tuple[Fraction, ...]]:
    """Return T = 1 / sum(1 / T_n), and the shares l_n / L = T / T_n of the network that the devices get.

    `whole` are T_n, the times of the whole network on each device.
    """
    time = 1 / sum((1 / Fraction(each) for each in whole), Fraction(0))
    return time, tuple(time / each for each in whole)
