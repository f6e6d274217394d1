"""O and L: the bits of `sync` wherever an order has them, the same time in both clocks, less memory
for time on the link to the host.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import emuchain
from emuchain import InputError
from emuchain.emulator.schedule import (
    EditedKind,
    EpochShape,
    Kind,
    edited_kind,
    parse_csv,
    schedules,
    to_text,
)
from emuchain.emulator.timing import timeline_of

from ..schedule.chains import with_drawn_moves, with_drawn_r
from .test_edited import check_same, timing_only
from .test_recompute import NETWORK

HOST = {"board.host_gbytes_per_s": 0.05}
KEYS: dict[str, Any] = {
    "network": NETWORK,
    "samples": 32,
    "test_samples": 8,
    "batch": 16,
    "micro_batch": 4,
    "epochs": 2,
    "engines": "turns",
    "changes": HOST,
}
GPT = {"network": "char-gpt", "samples": 16, "epochs": 1}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    # name: the schedule in which O and L are drawn, and keys
    "one board": ("gpipe", {"devices": 1}),
    "W apart": ("zero-bubble", {"devices": 3, "transport": "hidden"}),
    "a loop": ("interleaved", {"devices": 2}),
    "eight boards": ("1f1b-so", {"devices": 8}),
    "engines of their own": ("fbp-as", {"devices": 2, "engines": "split", "transport": "stored"}),
    "attention, tied weights": ("1f1b-sno", {"devices": 2, **GPT}),
    "shortcuts": ("gpipe", {"network": "resnet8-cifar", "devices": 3, "epochs": 1}),
    "some layers recomputed in B": ("gpipe", {"devices": 2, "recompute": "c2"}),
    "replicas": ("gpipe", {"devices": 2, "replicas": 2, "batch": 32}),
}


def drawn_order(name: str, devices: int, seed: int, r: float = 0.0) -> EditedKind:
    """Return an order of four micro-batches with O and L of some, as if it came from a file."""
    kind, chance = schedules()[name], random.Random(seed)
    one = kind.generate(EpochShape(devices, 4, 4, 1, chunks=kind.chunks))
    return edited_kind("drawn.txt", to_text(with_drawn_moves(with_drawn_r(one, chance, r), chance)))


def of_csv(name: str, rows: str) -> EditedKind:
    return edited_kind(name, to_text(parse_csv(rows)))


@pytest.mark.parametrize("name", RUNS)
def test_bits_are_those_of_sync(name: str) -> None:
    drawn, own = RUNS[name]
    keys = {**KEYS, **own}
    others = "engines", "transport", "recompute"
    plain = {key: value for key, value in keys.items() if key not in others}
    synced = emuchain.train(**{**plain, "schedule": "sync"})
    order = drawn_order(drawn, keys["devices"], 1, 0.0 if "recompute" in own else 0.3)
    run = emuchain.train(**keys, schedule=order)
    check_same(run, synced)
    simulated = emuchain.simulate(**timing_only(keys), schedule=order)
    assert simulated.virtual_time_ps == run.history["virtual_time_ps"][-1]


@pytest.mark.parametrize("engines", ["turns", "split"])
@pytest.mark.parametrize("seed", range(3))
def test_both_clocks_agree(seed: int, engines: str) -> None:
    """The clocks of stages, which learn of messages as they come, and the timeline of the chain."""
    order = drawn_order("gpipe" if seed else "1f1b-so", 3, seed, 0.3)
    keys = {"devices": 3, "engines": engines, "transport": "stored", "schedule": order}
    keys |= {"batch": 16, "micro_batch": 4, "changes": {"board.host_gbytes_per_s": 1}}
    plan = emuchain.plan("vgg16-cifar", **keys)
    schedule = order.schedule_of(EpochShape(3, 16, 16, 4))
    timed = timeline_of(schedule, plan.timing.loads, plan.timing.action_boards()).timed
    run = emuchain.simulate("vgg16-cifar", **keys, samples=16)
    assert max(action.end_ps for action in timed) == run.virtual_time_ps
    moved = [action for action in timed if action.step.kind is Kind.OFFLOAD]
    assert moved
    for action in moved:
        size = plan.stages.feature_bytes(action.step.stage, 4)
        whole = size.whole if order.recomputes else size.kept
        assert action.end_ps - action.start_ps == whole * 1000


def test_less_memory_for_time_on_the_link() -> None:
    keys: dict[str, Any] = {"devices": 1, "engines": "turns", "batch": 16, "micro_batch": 4}
    plain = of_csv("plain.csv", "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n")
    moved = of_csv("moved.csv", "0F0,0O0,0F1,0O1,0F2,0F3,0B2,0L0,0B3,0L1,0B0,0B1\n")
    times = {}
    for order, rates in ((plain, (1,)), (moved, (1, 16))):
        for rate in rates:
            values = {**keys, "schedule": order, "changes": {"board.host_gbytes_per_s": rate}}
            plan = emuchain.plan("vgg16-cifar", **values)
            run = emuchain.simulate("vgg16-cifar", **values, samples=16)
            times[order.name, rate] = run.virtual_time_ps
            count = 4 if order is plain else 2
            assert plan.stages.kept_samples == (4 * count,)
    assert times["plain.csv", 1] < times["moved.csv", 16] < times["moved.csv", 1]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no link": ({"changes": None}, "O and L go over the link to the host; should have `host_gbyte"),
    "rows": ({"engines": None}, "has O and L: boards that stream rows keep what B needs"),
    "a shared pool": ({"engines": "shared"}, "has O and L: needs `engines` = 'turns' or 'split'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, one_line: Callable[..., str]) -> None:
    keys, message = BAD[name]
    order = of_csv("moved.csv", "0F0,0O0,0F1,0L0,0B0,0B1\n")
    usual = {"engines": "turns", "schedule": order, "devices": 1, "changes": HOST}
    with pytest.raises(InputError) as error:
        emuchain.plan("quick-cifar", **{**usual, "batch": 4, "micro_batch": 2, **keys})
    assert message in one_line(error)
