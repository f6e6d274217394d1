"""What an update waits for from other devices has one account: timelines of a whole chain, devices,
explorations.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.timing import timeline_of

from .drawn import tied_chains

SCHEDULES = {
    "turns": ["gpipe", "sync", "1f1b-as", "1f1b-so"],
    "split": ["gpipe", "1f1b-as"],
    "shared": ["fbp-as"],
}


@st.composite
def plans(draw: st.DrawFn, engines: str) -> ChainPlan:
    """A chain with tied weights, and maybe a norm of gradients, on boards that take actions as a
    whole.
    """
    case = draw(tied_chains())
    keys: dict[str, Any] = {
        **case.keys,
        "schedule": draw(st.sampled_from(SCHEDULES[engines])),
        "engines": engines,
    }
    keys |= {
        "transport": draw(st.sampled_from(["hidden", "stored"])),
        "micro_batch": draw(st.integers(1, 2)),
    }
    keys |= {"epochs": 2, "samples": draw(st.integers(1, 9))}
    if draw(st.booleans()):
        keys["clip_norm"] = 1.0
    try:
        return emuchain.plan(case.network, case.cluster, **keys)
    except InputError:
        hypothesis.assume(False)
        raise


def updated_by_course(plan: ChainPlan) -> list[int]:
    """When the last update of each epoch is made, by timelines of the whole chain."""
    boards, ends = plan.timing.action_boards(), list[int]()
    for epoch in range(2):
        samples, waits = plan.config.samples or 0, plan.timing.update_waits()
        timeline = timeline_of(
            plan.schedule(samples), plan.timing.loads, boards, epoch * samples, waits
        )
        came_ps = (ps for board in boards for ps in board.updated_ps.values())
        ends.append(max([timed.end_ps for timed in timeline.timed] + list(came_ps)))
    return ends


@hypothesis.given(st.sampled_from(["turns", "split"]).flatmap(plans))
@hypothesis.settings(max_examples=60)
def test_devices_and_courses_update_at_the_same_time(plan: ChainPlan) -> None:
    """Devices learn of one another by messages alone, a timeline knows all of a chain."""
    assert list(emuchain.simulate(plan).epoch_ends_ps) == updated_by_course(plan)


@hypothesis.given(plans("shared"))
@hypothesis.settings(max_examples=40)
def test_a_shared_pool_waits_for_its_updates(plan: ChainPlan) -> None:
    """Mini-batches after the first began before the gradients of tied weights had come, and ended
    in an assertion.
    """
    assert list(emuchain.simulate(plan).epoch_ends_ps) == updated_by_course(plan)


TIED = {
    "name": "tied",
    "input": [50, 4, 1],
    "layers": [
        {"type": "embedding", "features": 16, "name": "table"},
        {"type": "conv", "channels": 64, "kernel": 1},
        {"type": "conv", "channels": 16, "kernel": 1},
        {"type": "conv", "channels": 50, "kernel": 1, "tied": "table", "bias": False},
        {"type": "last-step"},
        {"type": "softmax"},
    ],
}


@pytest.mark.parametrize("engines", ["turns", "shared"])
@pytest.mark.parametrize(
    ("clip_norm", "passed"), [(None, 4 + 4 + 2), (1.0, 2 * (4 + 4))], ids=["tied", "clipped"]
)
def test_waits_take_time(engines: str, clip_norm: float | None, passed: int) -> None:
    """Two mini-batches over two links, of 1 us and of 1 ms: F and B pass them, then the embedding's
    gradients do.

    The head's gradients have passed before B of the first stage ends, which begins the next
    mini-batch at once; the last stage waits for the embedding's, at the end. With a norm all wait
    for the last stage, and the whole sum comes back over two links.
    """
    ends = []
    for latency_ns in (1000, 1_000_000):
        keys: dict[str, Any] = {"batch": 4, "micro_batch": 2, "samples": 8, "clip_norm": clip_norm}
        keys |= {
            "schedule": SCHEDULES[engines][0],
            "engines": engines,
            "changes": {"link.latency_ns": latency_ns},
        }
        plan = emuchain.plan(TIED, "u280", devices=3, **keys)
        assert plan.timing.tied[0].last == 2
        ends.append(emuchain.simulate(plan).virtual_time_ps)
    assert ends[1] - ends[0] == pytest.approx(passed * 999_000_000, rel=0.01)
