"""Boards that die: times by hand, training as simulation, and the weights of a run that is started
again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import Segment, fault_costs, segments_of, simulate
from emuchain.emulator.run.state.checkpoint_file import CheckpointReader

from ..counted import COUNTED
from .test_checkpoint import comparable, run
from .test_faults import FOUR, TOY

SAMPLES = 48
SMALL = {
    "name": "small",
    "input": [3, 32, 32],
    "layers": [
        {"type": "conv", "channels": 6, "kernel": 3, "stride": 2},
        {"type": "batch-norm"},
        {"type": "max-pool", "kernel": 3, "stride": 2},
        {"type": "conv", "channels": 8, "kernel": 3, "stride": 2},
        {"type": "relu"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
KEYS: dict[str, Any] = {
    "network": SMALL,
    "devices": 4,
    "samples": SAMPLES,
    "test_samples": 8,
    "batch": 8,
    "micro_batch": 3,
    "epochs": 2,
    "checkpoint_every": 2,
    "seed": 4,
}
"""Six mini-batches in three legs, twice."""

PlanWith = Callable[..., ChainPlan]


@pytest.fixture
def plan_with(tmp_path: Path) -> PlanWith:
    """Makes a plan with a file of faults, given by its text."""

    def plan(text: str, **keys: Any) -> ChainPlan:
        file = tmp_path / "faults.toml"
        file.write_text(f"[faults]\n{text}")
        return emuchain.plan(**{**KEYS, **keys}, faults=str(file))

    return plan


def dies(board: int, at_ps: float, detect_us: float = 30, reload_us: float = 70) -> str:
    """The table of a death."""
    at_us = round(at_ps) * 1e-6
    return (
        f"[[faults.deaths]]\nboard = {board}\nat_us = {at_us!r}\ndetect_us = {detect_us}\nreload_us"
        f" = {reload_us}\n"
    )


def steps_ps(history: Any) -> list[int]:
    """When each mini-batch of a run ended."""
    return [time_ps for epoch in history for time_ps in epoch.steps.virtual_time_ps.tolist()]


@pytest.mark.parametrize(("dead", "left_ns"), [(2, 700), (0, 700), (1, 900)])
def test_by_hand(tmp_path: Path, dead: int, left_ns: int) -> None:
    """Two boards take 700 ns for a sample of the toy; past a dead one, 100 ns more on the way there
    and back.
    """
    (tmp_path / "toy.toml").write_text(TOY)
    (tmp_path / "four.toml").write_text(FOUR)
    keys: dict[str, Any] = {
        "network": str(tmp_path / "toy.toml"),
        "cluster": str(tmp_path / "four.toml"),
    }
    keys |= {"samples": 3, "batch": 1, "schedule": "sync", "checkpoint_every": 1, "devices": 3}
    three_ps = emuchain.simulate(**{**keys, "samples": 1}).virtual_time_ps
    file = tmp_path / "faults.toml"
    for done, since_ps in (
        (0, three_ps - 1000),
        (1, 0),
        (1, three_ps // 2),
        (2, 0),
        (2, three_ps - 1000),
    ):
        at_ps = done * three_ps + since_ps
        file.write_text(dies(dead, at_ps, detect_us=0.5, reload_us=2))
        found = emuchain.simulate(**keys, faults=str(file))
        assert found.virtual_time_ps == at_ps + 2_500_000 + (3 - done) * left_ns * 1000
        [death] = [segment.death for segment in found.segments if segment.death is not None]
        assert (death.lost_ps, death.at) == (since_ps, (0, done))
    file.write_text(dies(dead, 3 * three_ps))  # as the last row arrives
    assert emuchain.simulate(**keys, faults=str(file)).virtual_time_ps == 3 * three_ps


SCHEDULES: dict[str, dict[str, Any]] = {
    "sync": {"schedule": "sync"},
    "fpdeep": {"schedule": "fpdeep"},
    "turns": {"schedule": "1f1b-so", "engines": "turns"},
    "shared": {"schedule": "zero-bubble", "engines": "shared"},
    "interleaved": {"schedule": "interleaved", "engines": "turns"},
    "2bw": {"schedule": "2bw", "engines": "split", "transport": "stored"},
    "adam": {"schedule": "fpdeep", "optimizer": "adam"},
    "one board is left": {"schedule": "sync", "devices": 2},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_training_takes_the_time_of_simulation(
    trained: Any, plan_with: PlanWith, bits: Any, name: str
) -> None:
    keys = SCHEDULES[name]
    without_ps = simulate(plan_with("", **keys), SAMPLES).virtual_time_ps
    plan = plan_with(dies(1, 0.4 * without_ps), **keys)
    alone, done = simulate(plan, SAMPLES), trained(plan)
    assert [epoch.virtual_time_ps for epoch in done.history] == [*alone.epoch_ends_ps]
    before, after = alone.segments
    assert (before.plan.devices, after.plan.devices) == (plan.devices, plan.devices - 1)
    assert before.death is not None
    assert before.death.at == after.begin
    # No mini-batch is missing or done twice; those that were lost are done again after the reload.
    ends_ps, first = steps_ps(done.history), 6 * after.begin.epoch + after.begin.step
    assert len(ends_ps) == 12
    assert ends_ps == sorted(ends_ps)
    assert ends_ps[first - 1] <= before.death.fault.at_ps < after.start_ps < ends_ps[first]
    assert after.start_ps == before.death.fault.at_ps + 100_000_000
    if name in ("sync", "adam"):
        assert bits(done.weights) == bits(
            trained(plan_with(dies(1, 0.4 * without_ps), **keys, micro_batch=2)).weights
        )


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_it_ends_with_the_weights_of_a_run_that_is_started_again(
    plan_with: PlanWith, bits: Any, tmp_path: Path, optimizer: str
) -> None:
    """By hand: four boards up to the last checkpoint before the last one's death; from there,
    three.
    """
    file, keys = tmp_path / "run.ckpt", {"schedule": "sync", "optimizer": optimizer}
    whole = run(plan_with("", **keys))
    ends_ps = [step.virtual_time_ps for step in whole.steps]
    at_ps = (
        ends_ps[8] + ends_ps[9]
    ) // 2  # in the second leg of the second epoch: the first one is the 4th checkpoint
    hurt = run(plan_with(dies(3, at_ps), **keys))

    before = run(plan_with("", **keys), target=file, last=4)
    after = run(plan_with("", **keys, devices=3), start=file, same=False)
    assert bits(hurt.weights) == bits(after.weights) == bits(whole.weights)
    assert [step.tally for step in hurt.steps] == [
        step.tally for step in (*before.steps, *after.steps)
    ]
    reached_ps = CheckpointReader(file).text["virtual_time_ps"]
    assert ends_ps[7] < reached_ps < at_ps  # updates come after the last loss of a mini-batch
    away_ps = at_ps - reached_ps + 100_000_000
    later_ps = [step.virtual_time_ps + away_ps for step in after.steps]
    assert [step.virtual_time_ps for step in hurt.steps] == ends_ps[:8] + later_ps


@pytest.mark.parametrize("name", ["sync", "fpdeep", "turns", "shared"])
def test_a_stopped_run_goes_on_bit_for_bit(
    plan_with: PlanWith, bits: Any, tmp_path: Path, name: str
) -> None:
    """Whether it stopped before, at or after a death; two boards die."""
    keys, file = SCHEDULES[name], tmp_path / "run.ckpt"
    whole_ps = simulate(plan_with("", **keys), SAMPLES).virtual_time_ps
    faults = dies(0, 0.3 * whole_ps) + dies(3, 0.7 * whole_ps + 100_000_000)
    faults += "[[faults.boards]]\nboard = 2\nfactor = 3\nfrom_sample = 30\nto_sample = 60\n"
    faults += "[[faults.flips]]\nof = 'weights'\nrate = 1e-6\nhighest_bit = 22\n"
    plan = plan_with(faults, **keys)
    assert [segment.plan.devices for segment in segments_of(plan, SAMPLES)] == [4, 3, 2]
    whole = run(plan)
    assert [epoch.virtual_time_ps for epoch in whole.history] == [
        *simulate(plan, SAMPLES).epoch_ends_ps
    ]
    for last in range(1, 6) if name == "sync" else (2, 4):
        before = run(plan, target=file, last=last)
        after = run(plan, start=file)
        assert [*before.steps, *after.steps] == whole.steps
        assert [comparable(result) for result in after.history] == [
            comparable(result) for result in whole.history
        ]
        assert after.history[-1].usage == whole.history[-1].usage
        assert bits(after.weights) == bits(whole.weights)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(0, 1.6), st.integers(0, 300), st.integers(0, 300)),
        max_size=3,
        unique_by=lambda death: death[0],
    )
)
def test_deaths_of_any_number_at_any_time(
    plan_with: PlanWith, deaths: list[tuple[int, float, int, int]]
) -> None:
    without = simulate(plan_with("", schedule="sync"), SAMPLES)
    whole_ps = without.virtual_time_ps
    plan = plan_with(
        "".join(dies(of, part * whole_ps, *more) for of, part, *more in deaths), schedule="sync"
    )
    segments = segments_of(plan, SAMPLES)
    found = simulate(plan, SAMPLES)
    assert covered(segments) == [(number, step) for number in range(2) for step in (0, 2, 4)]
    for segment in segments[:-1]:
        assert segment.death is not None
        assert 0 <= segment.death.lost_ps <= segment.death.fault.at_ps
        assert (
            segment.death.back_ps
            >= segment.death.fault.at_ps
            + segment.death.fault.detect_ps
            + segment.death.fault.reload_ps
        )
    inside = sum(segment.death is not None for segment in segments)
    assert segments[-1].plan.devices == 4 - inside
    assert found.virtual_time_ps > segments[-1].start_ps
    assert inside or found.virtual_time_ps == whole_ps


def covered(segments: tuple[Segment, ...]) -> list[tuple[int, int]]:
    """The legs of all segments, by epoch and first mini-batch."""
    return [(number, leg.first) for segment in segments for number, leg in segment.legs()]


def test_boards_that_die_in_the_reload_of_another(plan_with: PlanWith) -> None:
    whole_ps = simulate(plan_with("", schedule="sync"), SAMPLES).virtual_time_ps
    at_ps = whole_ps // 2
    first, between, last = segments_of(
        plan_with(dies(1, at_ps) + dies(2, at_ps + 90_000_000), schedule="sync"), SAMPLES
    )
    assert first.death is not None
    assert between.death is not None
    assert between.legs() == []
    assert between.death.lost_ps == 0
    assert first.death.at == between.death.at == last.begin
    assert last.start_ps == at_ps + 190_000_000
    same = segments_of(plan_with(dies(1, at_ps) + dies(2, at_ps), schedule="sync"), SAMPLES)
    assert same[-1].start_ps == at_ps + 100_000_000


def test_what_is_hurt_besides_keeps_its_board(plan_with: PlanWith) -> None:
    """Board 3 is the third one when board 1 has died; the link between boards 0 and 2 is links 0
    and 1.
    """
    slow = "[[faults.boards]]\nboard = 3\nfactor = 2\n[[faults.boards]]\nboard = 1\nfactor = 5\n"
    late = "[[faults.links]]\nlink = 1\nlatency_ns = 700\n[[faults.links]]\nlink = 2\nloss = 0.1\n"
    flips = (
        "[[faults.flips]]\nof = 'messages'\nlink = 2\nrate = 0.1\n[[faults.flips]]\nof ="
        " 'weights'\nrate = 0.1\n"
    )
    [rest] = plan_with(dies(1, 1e6) + slow + late + flips).survivors
    assert [fault.board for fault in rest.faults.boards] == [2]
    assert [(fault.link, fault.latency_ps, fault.loss) for fault in rest.faults.links] == [
        (0, 700_000, 0),
        (1, 0, 0.1),
    ]
    assert [(fault.of, fault.board, fault.link) for fault in rest.faults.flips] == [
        ("messages", None, 1),
        ("weights", None, None),
    ]
    assert not rest.faults.deaths


def test_links_are_joined_past_the_dead(tmp_path: Path) -> None:
    boards = "".join(
        f'[[boards]]\nname = "b{n}"\nclock_mhz = {100 + n}\ndsp = 400\non_chip_memory_kbit ='
        " 80000\n"
        for n in range(4)
    )
    links = "".join(
        f"[[links]]\nbandwidth_gbps = {gbps}\nlatency_ns = {ns}\n"
        for gbps, ns in ((40, 10), (8, 20), (24, 30))
    )
    (tmp_path / "four.toml").write_text(f'name = "four"\n{boards}{links}')
    (tmp_path / "faults.toml").write_text(dies(1, 1e6) + dies(2, 2e6))
    plan = emuchain.plan(
        **KEYS, cluster=str(tmp_path / "four.toml"), faults=str(tmp_path / "faults.toml")
    )
    three, two = (rest.cluster for rest in plan.survivors)
    assert [board.name for board in three.boards] == ["b0", "b2", "b3"]
    assert [(three.link_at(n).bandwidth_mbps, three.link_at(n).latency_ps) for n in (0, 1)] == [
        (8000, 30_000),
        (24000, 30_000),
    ]
    assert (two.link_at(0).bandwidth_mbps, two.link_at(0).latency_ps) == (8000, 60_000)


def test_costs(plan_with: PlanWith) -> None:
    """Deaths count as one fault; alone, none of the others is there, before and after.

    Multipliers are counted, so that the third board makes the small network faster.
    """
    plan_with = functools.partial(plan_with, changes=COUNTED)
    without_ps = simulate(plan_with("", schedule="sync"), SAMPLES).virtual_time_ps
    slow = "[[faults.boards]]\nboard = 2\nfactor = 2\n"
    death = dies(1, 0.6 * without_ps)
    plan = plan_with(death + slow, schedule="sync")
    costs = fault_costs(plan, SAMPLES, simulate(plan, SAMPLES).virtual_time_ps)
    assert costs.without_ps == without_ps
    alone = dict(costs.each)
    assert [*alone] == ["board 2 2 times slower, the whole run", str(plan.faults.deaths[0])]
    assert alone["board 2 2 times slower, the whole run"] == (
        simulate(plan_with(slow, schedule="sync"), SAMPLES).virtual_time_ps - without_ps
    )
    only = plan_with(death, schedule="sync")
    assert [*alone.values()][1] == simulate(only, SAMPLES).virtual_time_ps - without_ps
    [found] = costs.deaths
    assert found.fault.board == 1
    # The shares of a death: work that is lost, the time until the chain is loaded, and that fewer
    # boards are slower.
    slower_ps = simulate(only, SAMPLES).virtual_time_ps - without_ps - found.lost_ps - 100_000_000
    assert slower_ps > 0


@pytest.mark.parametrize(
    ("text", "keys", "said"),
    [
        (
            dies(4, 1e6),
            {},
            "`faults.deaths[0].board` = 4: there is no such board; this run has boards 0 to 3",
        ),
        (dies(1, 1e6) + dies(1, 2e6), {}, "board 1 dies twice"),
        (dies(0, 1e6) + dies(1, 2e6), {"devices": 2}, "no board is left"),
        (dies(1, 1e6), {"replicas": 2}, "here are 2 replicas; should be `replicas` = 1"),
        (dies(1, 1e6), {"schedule": "data-parallel-ring"}, "here are 4 replicas"),
        ("[[faults.deaths]]\nboard = 1\n", {}, "`faults.deaths[0].at_us` is missing"),
        ("[[faults.deaths]]\nboard = 1\nat_us = -1\n", {}, "`faults.deaths[0].at_us` = -1"),
        (
            "[[faults.deaths]]\nboard = 1\nat_us = 1\nreload_us = nan\n",
            {},
            "`faults.deaths[0].reload_us` = nan",
        ),
    ],
)
def test_what_cannot_die(plan_with: PlanWith, text: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        plan_with(text, **keys)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_finished_run_is_timed_again(tmp_path: Path) -> None:
    faults, out = tmp_path / "faults.toml", tmp_path / "run.h5"
    whole_ps = emuchain.simulate(
        **{key: value for key, value in KEYS.items() if key != "test_samples"}
    ).virtual_time_ps
    faults.write_text(dies(1, 0.8 * whole_ps))
    results = emuchain.train(**KEYS, faults=str(faults), out=str(out))
    assert results.virtual_time_ps > whole_ps + 100_000_000
    again = emuchain.retime(str(out), changes={"link.latency_ns": 4000})
    assert not again.notes
    assert again.own_ends_ps == (*results.history["virtual_time_ps"].tolist(),)
    assert again.simulation.virtual_time_ps > results.virtual_time_ps
    assert len(again.simulation.segments) == 2


def test_what_shows_one_cut_refuses(plan_with: PlanWith, tmp_path: Path) -> None:
    plan = plan_with(dies(1, 1e6))
    with pytest.raises(InputError, match=r"`faults.deaths`: a trace shows one cut"):
        emuchain.simulate(plan, trace=str(tmp_path / "trace.json"))
    file = tmp_path / "run.ckpt"
    keys = {**KEYS, "epochs": 1, "faults": str(tmp_path / "faults.toml"), "schedule": "sync"}
    emuchain.train(**keys, checkpoint=str(file))
    with pytest.raises(InputError, match="which numbers the boards that die"):
        emuchain.train(resume=str(file), devices=3, epochs=2)
