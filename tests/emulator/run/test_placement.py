"""Which ranks host which devices, and the memory that a run takes there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError, Room
from emuchain.emulator.config import load_config
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import ChainPlan, make_plan, training_data
from emuchain.emulator.run import check_needs, evaluate, needed_bytes, read_run_weights
from emuchain.emulator.run.placement import Placement
from emuchain.launch import SingleProcess

from ..counted import COUNTED

works = st.lists(st.integers(1, 50), min_size=1, max_size=9)


def least(work: list[int], ranks: int) -> int:
    """Return the work of the busiest rank under the best cut of the ring of devices, found by
    trying all.
    """
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
    """The busiest rank is within a tenth of the least; the same number of devices for each rank is
    kept where it is.
    """
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
    """Eight of nine parts of the work are on the first device and the three after it; the last ones
    go to rank 0.
    """
    placed = Placement.of([40, 20, 10, 10, 5, 2, 2, 1], 2)
    assert placed.hosts == (0, 1, 1, 1, 1, 0, 0, 0)
    assert placed.described(0) == "devices 0, 5-7"
    assert placed.described(1) == "devices 1-4"
    assert placed.described(2) == "no device"


@pytest.mark.parametrize("micro_batch", [1, 8])
def test_boards_whose_memory_binds_have_little_work(micro_batch: int) -> None:
    """VGG-16 on eight boards, at whose memory ports the time goes: four boards for each of two
    ranks would not do.
    """
    plan = emuchain.plan(
        network="vgg16-cifar", devices=8, batch=128, micro_batch=micro_batch, changes=COUNTED
    )
    work = plan.work
    assert sum(work[:4]) > 0.6 * sum(work)
    assert Placement.of(work, 2).most(work) < 0.55 * sum(work)


OneLine = Callable[..., str]
FC = {"type": "fc", "features": 1000}
SETTINGS = {"samples": 32, "test_samples": 4, "batch": 16, "devices": 1}
FIRST, LAST = 4 * 3072 * 1000, 4 * 1000 * 10  # bytes of the weights of both layers


def plan(ranks: int = 1, **settings: Any) -> ChainPlan:
    """Return a plan of 3072 inputs, 1000 units and 10 classes."""
    layers = [FC, {"type": "relu"}, {**FC, "features": 10}, {"type": "softmax"}]
    network = load_network({"name": "wide", "input": [3, 32, 32], "layers": layers})
    return make_plan(load_config(None, {**SETTINGS, **settings}), ranks, network=network)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 4 * FIRST + 0 * LAST),  # while it is made: drawn, packed, copied, and its gradient
        (
            {"optimizer": "adam"},
            4 * FIRST + 5 * LAST,
        ),  # weights, gradients, two moments; EB reads the last ones turned
        ({"replicas": 2}, 2 * (6 * FIRST + 7 * LAST)),  # and three arrays for the exchange, on both
    ],
)
def test_weights_and_what_is_kept_beside_them(settings: dict[str, Any], expected: int) -> None:
    made = plan(**settings)
    [needed] = needed_bytes(made, training_data(made), 1, gathers=False)
    activations = needed - expected
    assert 0 <= activations <= 2 * 4 * 32 * (3072 + 1000)


def test_weights_that_are_gathered_and_checkpoints_come_on_top() -> None:
    made = plan()
    data = training_data(made)
    [alone] = needed_bytes(made, data, 1, gathers=False)
    parameters = 3072 * 1000 + 1000 + 1000 * 10 + 10
    assert needed_bytes(made, data, 1, gathers=True) == [alone + 2 * 4 * parameters]
    kept = plan(checkpoint="x.ckpt")
    assert needed_bytes(kept, data, 1, gathers=False) == [alone + 2 * 2 * 4 * (3072 * 1000 + 1000)]


def test_each_rank_takes_what_its_devices_take() -> None:
    """Two replicas on two ranks: a chain each, and the images on both."""
    made = plan(2, replicas=2)
    data = training_data(made)
    both = needed_bytes(made, data, 2, gathers=False)
    [alone] = needed_bytes(made, data, 1, gathers=False)
    assert sum(both) == alone + data.train_images.nbytes  # type: ignore[attr-defined]
    assert both[1] == both[0] + 32 * 3072


def test_older_versions_are_counted() -> None:
    """PipeDream on three devices keeps three versions on the first, two on the second, one on the
    last.
    """
    settings = {"devices": 3, "stages": "layers", "samples": 320}
    layers = [{"type": "fc", "features": 64}, {"type": "relu"}] * 3 + [
        {**FC, "features": 10},
        {"type": "softmax"},
    ]
    network = load_network({"name": "deep", "input": [3, 32, 32], "layers": layers})

    def of(schedule: str) -> int:
        config = load_config(None, {**SETTINGS, **settings, "schedule": schedule})
        made = make_plan(config, 1, network=network)
        return needed_bytes(made, training_data(made), 1, gathers=False)[0]

    assert (
        of("pipedream") - of("gpipe") > 4 * 3072 * 64
    )  # at least another one of the first layer's


def test_too_little_room_is_refused_in_one_line(one_line: OneLine) -> None:
    made = plan()
    data = training_data(made)
    [needed] = needed_bytes(made, data, 1, gathers=False)
    enough, little = (
        Room(needed, "this machine has"),
        Room(needed - 1, "this container (its control group) has"),
    )
    own = Room(needed - 1, "this process may take (`ulimit -v`)")
    check_needs(made, data, SingleProcess(), gathers=False, rooms=(enough, None))
    for rooms, words in (((little, None), "control group"), ((enough, own), "ulimit -v")):
        with pytest.raises(InputError) as error:
            check_needs(made, data, SingleProcess(), gathers=False, rooms=rooms)
        line = one_line(error)
        assert line.startswith("`network` = 'wide': training takes at least 4")
        assert "of memory, for 3,083,010 parameters" in line
        assert words in line


def test_ranks_of_one_host_share_its_room() -> None:
    made = plan(2, replicas=2)
    data = training_data(made)
    needs = needed_bytes(made, data, 2, gathers=False)
    room = Room(sum(needs) - 1, "this machine has")
    apart: Any = SimpleNamespace(rank=0, size=2, on_this_host=[0])
    together: Any = SimpleNamespace(rank=0, size=2, on_this_host=[0, 1])
    check_needs(made, data, apart, gathers=False, rooms=(room, None))
    with pytest.raises(InputError, match="this machine has"):
        check_needs(made, data, together, gathers=False, rooms=(room, None))


def test_training_and_evaluating_are_refused_before_they_begin(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, one_line: OneLine
) -> None:
    emuchain.train(
        "quick-cifar", samples=16, test_samples=4, batch=16, out=str(tmp_path / "run.h5")
    )
    monkeypatch.setattr(
        "emuchain.emulator.run.placement.host_room", lambda: Room(1000, "this machine has")
    )
    with pytest.raises(
        InputError, match=r"training takes at least .*, but this machine has 1000 B"
    ):
        emuchain.train(
            "quick-cifar", samples=16, test_samples=4, batch=16, out=str(tmp_path / "other.h5")
        )
    assert not (tmp_path / "other.h5").exists()
    with pytest.raises(
        InputError, match=r"evaluating takes at least .*, but this machine has 1000 B"
    ):
        evaluate(read_run_weights(str(tmp_path / "run.h5")))
