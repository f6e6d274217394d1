"""The coarse phase: whole layers to whole boards, against all groupings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.mapping import coarse, coarse_shares
from emuchain.emulator.mapping.coarse import Group

FIGURES = st.lists(st.integers(1, 50), min_size=1, max_size=6)


def share(group: Group, work: list[int], capacity: list[int]) -> float:
    """Work over capacity."""
    return sum(work[layer] for layer in group.layers) / sum(
        capacity[device] for device in group.devices
    )


def groupings(layers: int, devices: int) -> Iterator[list[Group]]:
    """All of them, from the last group to the first."""
    if not layers or not devices:
        if layers == devices:
            yield []
        return
    several_layers = [(layer, devices - 1) for layer in range(layers)]
    several_devices = [(layers - 1, device) for device in range(devices - 1)]
    for layer, device in several_layers + several_devices:
        for before in groupings(layer, device):
            yield [*before, Group(range(layer, layers), range(device, devices))]


@given(FIGURES, FIGURES)
def test_no_grouping_has_a_smaller_largest_share(work: list[int], capacity: list[int]) -> None:
    found = coarse(work, capacity)
    assert [layer for group in found for layer in group.layers] == list(range(len(work)))
    assert [device for group in found for device in group.devices] == list(range(len(capacity)))
    assert all(1 in (len(group.layers), len(group.devices)) for group in found)
    best = min(
        max(share(group, work, capacity) for group in grouping)
        for grouping in groupings(len(work), len(capacity))
    )
    assert max(share(group, work, capacity) for group in found) == pytest.approx(best, rel=1e-12)


def test_by_hand() -> None:
    """Two small layers on one board; the large one takes the two others, of which one does twice as
    much.
    """
    assert coarse([2, 3, 12], [1, 1, 2]) == (
        Group(range(2), range(1)),
        Group(range(2, 3), range(1, 3)),
    )
    assert coarse_shares([2, 3, 12], [1, 1, 2]) == [5, 4, 4]
    assert coarse_shares([6], [1, 2]) == [2, 2]
    assert coarse_shares([6, 4], [2]) == [5]
