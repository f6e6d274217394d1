"""Cuts between layers against all there are: none has a faster slowest stage."""

from __future__ import annotations

import itertools

import pytest

from emuchain.emulator.mapping import LayerCut, cut_layers

TIMES, LINKS = [5, 3, 8, 1, 9, 2, 4], [7, 2, 30, 1, 3, 9, 0]
RATES = [1, 2, 1]


def cost(device: int, begin: int, end: int) -> float:
    """A stage that also takes as long as the message before it."""
    return max(sum(TIMES[begin:end]) * RATES[device], LINKS[begin - 1] if begin else 0)


def slowest(ends: tuple[int, ...]) -> float:
    return max(cost(device, *pair) for device, pair in enumerate(itertools.pairwise((0, *ends))))


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_no_cut_is_faster(devices: int) -> None:
    inner = itertools.combinations(range(1, len(TIMES)), devices - 1)
    tried = [(*ends, len(TIMES)) for ends in inner]
    found = cut_layers(len(TIMES), devices, cost)
    assert found.ends in tried
    assert found.slowest == slowest(found.ends) == min(map(slowest, tried))


@pytest.mark.parametrize(("times", "ends"), [([4, 1, 1, 1], (1, 2, 4)), ([1, 1, 1, 4], (1, 3, 4))])
def test_of_equal_cuts_the_one_with_the_earliest_ends(
    times: list[int], ends: tuple[int, ...]
) -> None:
    assert cut_layers(4, 3, lambda _, begin, end: sum(times[begin:end])) == LayerCut(ends, 4)
