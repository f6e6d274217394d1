"""How stages lie on devices: each on one, as one of its chunks; in a V, the last is on the first
device.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.schedule import Fold

FOLDS = st.builds(Fold, st.integers(1, 9), st.integers(1, 5), st.booleans())


@given(FOLDS)
def test_each_stage_is_a_chunk_of_one_device(fold: Fold) -> None:
    stages = [stage for device in range(fold.devices) for stage in fold.stages(device)]
    assert sorted(stages) == list(range(fold.count))
    for stage in stages:
        assert fold.stage(fold.device(stage), fold.chunk(stage)) == stage


@given(FOLDS)
def test_a_link_joins_the_devices_of_two_stages(fold: Fold) -> None:
    for stage in range(fold.count - 1):
        here, there = fold.device(stage), fold.device(stage + 1)
        link = fold.link(stage)
        assert (link is None) == (here == there)
        if fold.in_v:
            assert abs(here - there) == (link is not None) and link in (None, min(here, there))


@pytest.mark.parametrize(
    ("fold", "stages", "links"),
    [
        (Fold(3), [[0], [1], [2]], [0, 1]),
        (Fold(3, 2), [[0, 3], [1, 4], [2, 5]], [0, 1, 2, 0, 1]),
        (Fold(3, 2, in_v=True), [[0, 5], [1, 4], [2, 3]], [0, 1, None, 1, 0]),
        (Fold(2, 3, in_v=True), [[0, 3, 4], [1, 2, 5]], [0, None, 0, None, 0]),
    ],
)
def test_by_hand(fold: Fold, stages: list[list[int]], links: list[int | None]) -> None:
    assert [fold.stages(device) for device in range(fold.devices)] == stages
    assert [fold.link(stage) for stage in range(fold.count - 1)] == links
