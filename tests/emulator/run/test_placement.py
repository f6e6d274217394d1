"""Which devices a rank has: all ranks work, neighbours stay together, and no cut of the ring has a less busy rank."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.run.placement import Placement

works = st.lists(st.integers(1, 50), min_size=1, max_size=9)


def least(work: list[int], ranks: int) -> int:
    """Return the work of the busiest rank under the best cut of the ring of devices, found by trying all."""
    count = len(work)
    if ranks >= count:
        return max(work)
    found = []
    for cuts in itertools.combinations(range(count), ranks):
        spans = zip(cuts, [*cuts[1:], cuts[0] + count], strict=True)
        found.append(max(sum(work[place % count] for place in range(*span)) for span in spans))
    return min(found)


@given(works, st.integers(1, 10))
def test_no_cut_of_the_ring_is_much_better(work: list[int], ranks: int) -> None:
    """The busiest rank is within a tenth of the least; the same number of devices for each rank is kept where it is."""
    placed = Placement.of(work, ranks)
    at_least = least(work, ranks) if ranks > 1 else sum(work)
    assert at_least <= placed.most(work) <= 1.1 * at_least


@given(works, st.integers(1, 10))
def test_every_rank_has_devices_in_a_row(work: list[int], ranks: int) -> None:
    """Around the ring each rank has one run of devices, and rank 0 the first device."""
    hosts = Placement.of(work, ranks).hosts
    used = min(ranks, len(work))
    assert hosts[0] == 0
    assert sorted(set(hosts)) == list(range(used))
    changes = sum(one != other for one, other in zip(hosts, [*hosts[1:], hosts[0]], strict=True))
    assert changes == (used if used > 1 else 0)


def test_devices_with_equal_work_are_dealt_evenly() -> None:
    """As many for each rank, from the first on."""
    assert Placement.of([3] * 7, 3).hosts == (0, 0, 0, 1, 1, 2, 2)
    assert Placement.of([5] * 2, 4).hosts == (0, 1)


def test_one_heavy_device_has_the_lightest_beside_it() -> None:
    """Eight of nine parts of the work are on the first device and the three after it; the last ones go to rank 0."""
    placed = Placement.of([40, 20, 10, 10, 5, 2, 2, 1], 2)
    assert placed.hosts == (0, 1, 1, 1, 1, 0, 0, 0)
    assert placed.described(0) == "devices 0, 5-7"
    assert placed.described(1) == "devices 1-4"
    assert placed.described(2) == "no device"


@pytest.mark.parametrize("micro_batch", [1, 8])
def test_boards_whose_memory_binds_have_little_work(micro_batch: int) -> None:
    """VGG-16 on eight boards, at whose memory ports the time goes: four boards for each of two ranks would not do."""
    plan = emuchain.plan(network="vgg16-cifar", devices=8, batch=128, micro_batch=micro_batch)
    work = plan.work
    assert sum(work[:4]) > 0.6 * sum(work)
    assert Placement.of(work, 2).most(work) < 0.55 * sum(work)
