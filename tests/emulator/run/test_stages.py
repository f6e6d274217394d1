"""Boards that take actions as a whole: times equal those of the timeline engine, and bits stay what
they are.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.faults import Begun, BoardFault, Faults, LinkFault
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import Weights
from emuchain.emulator.schedule import Fold, StageCosts, schedules
from emuchain.emulator.timing import FaultyTiming, run_timeline, timeline_of

NETWORK = {
    "name": "stages",
    "input": [3, 16, 16],
    "layers": [
        {"type": "conv", "channels": 8, "kernel": 3, "pad": 1},
        {"type": "relu"},
        {"type": "conv", "channels": 8, "kernel": 3, "pad": 1},
        {"type": "max-pool", "kernel": 2},
        {"type": "conv", "channels": 16, "kernel": 3, "pad": 1},
        {"type": "relu"},
        {"type": "conv", "channels": 16, "kernel": 3, "pad": 1},
        {"type": "max-pool", "kernel": 2},
        {"type": "fc", "features": 20},
        {"type": "relu"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
MACHINES = [*itertools.product(("turns", "split"), ("stored", "hidden"), ("layers", "channels"))]
ON_A_CHAIN = [
    name for name, kind in schedules().items() if not kind.replicates and kind.offload is None
]
DRAINING = [name for name in ON_A_CHAIN if schedules()[name].drains]


def planned(**keys: Any) -> ChainPlan:
    return emuchain.plan(NETWORK, **{"devices": 4, "batch": 24, "micro_batch": 4, **keys})


def on_the_engine(plan: ChainPlan, samples: int) -> int:
    """The time of an epoch by the timeline engine, from the stages' costs and the bytes between
    them.
    """
    assert plan.stages is not None
    size, costs = plan.stages.samples, list[StageCosts]()
    for stage in range(plan.stage_count):
        streams = plan.timing.links[stage] if stage + 1 < plan.stage_count else ()
        mbps = plan.cluster.link_at(stage).bandwidth_mbps
        right, left = (
            -(
                -8_000_000
                * size
                * sum(each.sample_bytes for each in streams if each.path.is_forward == forward)
                // mbps
            )
            for forward in (True, False)
        )
        costs.append(
            dataclasses.replace(plan.stages.costs(stage, size), transfer_ps=right, errors_ps=left)
        )
    machine = dataclasses.replace(plan.stages.machine, latency_ps=plan.cluster.link.latency_ps)
    return max(each.end_ps for each in run_timeline(plan.schedule(samples), costs, machine).timed)


@pytest.mark.parametrize("schedule", ON_A_CHAIN)
@pytest.mark.parametrize(("engines", "transport", "stages"), MACHINES)
def test_times_are_those_of_the_timeline_engine(
    schedule: str, engines: str, transport: str, stages: str
) -> None:
    """The chain hands times on from device to device; the engine works off events in order of
    time.
    """
    kind = schedules()[schedule]
    samples = (
        24 if kind.drains or not kind.aligned else 72
    )  # the engine takes no spans of micro-batches
    devices = (
        3 if kind.chunks > 1 else 4
    )  # on two, messages of both directions of interleaved would share a link
    plan = planned(
        schedule=schedule,
        engines=engines,
        transport=transport,
        stages=stages,
        samples=samples,
        devices=devices,
    )
    assert emuchain.simulate(plan).virtual_time_ps == on_the_engine(plan, samples)


def test_the_time_is_known_by_hand() -> None:
    """Two stages, one micro-batch: F, a message, F and B, a message, B."""
    plan = planned(
        devices=2, batch=4, samples=4, engines="turns", transport="stored", stages="layers"
    )
    assert plan.stages is not None
    first, second = (plan.stages.costs(stage, 4) for stage in range(2))
    [sent] = {each.sample_bytes for each in plan.timing.links[0]}
    message_ps = (
        -(-8_000_000 * 4 * sent // plan.cluster.link.bandwidth_mbps) + plan.cluster.link.latency_ps
    )
    by_hand = first.work_ps + message_ps + second.work_ps + message_ps
    assert emuchain.simulate(plan).virtual_time_ps == by_hand


@pytest.mark.parametrize("schedule", [name for name in DRAINING if name != "interleaved"])
@pytest.mark.parametrize(
    ("engines", "transport"), [*itertools.product(("turns", "split"), ("stored", "hidden"))]
)
def test_unlike_links_and_a_short_micro_batch(schedule: str, engines: str, transport: str) -> None:
    """The clocks of stages ask their board action by action, the timeline takes events in order of
    time.
    """
    cluster = board()
    cluster["boards"] *= 4
    cluster["links"] = [{"bandwidth_gbps": 1 + link, "latency_ns": 500 * link} for link in range(3)]
    keys: dict[str, Any] = {"devices": 4, "batch": 24, "micro_batch": 5, "samples": 70}
    plan = emuchain.plan(
        NETWORK, cluster, schedule=schedule, engines=engines, transport=transport, **keys
    )
    faults = Faults(
        (BoardFault(board=1, factor=1.5, from_sample=9),),
        (LinkFault(link=1, factor=3, latency_ns=40),),
    )
    plan = dataclasses.replace(plan, faults=faults)
    boards, faulty = plan.timing.action_boards(), FaultyTiming(faults, 0, 0, Fold(4), Begun())
    for each in boards:
        faulty.board(each)
    timeline = timeline_of(plan.schedule(70), plan.timing.loads, boards)
    assert emuchain.simulate(plan).virtual_time_ps == max(timed.end_ps for timed in timeline.timed)


def test_a_pool_behind_unlike_links_by_hand() -> None:
    """A mini-batch of one micro-batch, then a short one: works and messages come one after
    another.
    """
    cluster = board()
    cluster["boards"] *= 3
    cluster["links"] = [
        {"bandwidth_gbps": gbps, "latency_ns": ns} for gbps, ns in ((1, 300), (4, 70))
    ]
    keys: dict[str, Any] = {
        "devices": 3,
        "schedule": "sync",
        "engines": "shared",
        "transport": "stored",
    }
    plan = emuchain.plan(NETWORK, cluster, batch=4, micro_batch=4, samples=7, **keys)
    assert plan.stages is not None
    by_hand = 0
    for samples in (4, 3):
        by_hand += sum(plan.stages.costs(stage, samples).work_ps for stage in range(3))
        for link, (gbps, ns) in enumerate(((1, 300), (4, 70))):
            for forward in (True, False):
                size = samples * sum(
                    each.sample_bytes
                    for each in plan.timing.links[link]
                    if each.path.is_forward == forward
                )
                by_hand += -(-8000 * size // gbps) + 1000 * ns
    assert emuchain.simulate(plan).virtual_time_ps == by_hand


@pytest.mark.parametrize(("engines", "matters"), [("turns", True), ("split", False)])
def test_micro_batches_matter_only_where_actions_are_taken_as_a_whole(
    engines: str, matters: bool
) -> None:
    times = {
        emuchain.simulate(
            planned(schedule="1f1b-so", engines=engines, samples=48, micro_batch=size)
        ).virtual_time_ps
        for size in (1, 4, 12)
    }
    assert (len(times) > 1) == matters


@pytest.mark.parametrize("schedule", [name for name in ON_A_CHAIN if schedules()[name].aligned])
def test_a_shared_pool_loses_no_work(schedule: str) -> None:
    """Alone it is never idle, and so as fast as turns; on a chain no device ends before its work is
    done.
    """
    keys: dict[str, Any] = {"schedule": schedule, "transport": "hidden", "samples": 48}
    shared, turns = (
        emuchain.simulate(planned(engines=each, devices=1, **keys)) for each in ("shared", "turns")
    )
    assert shared.virtual_time_ps == turns.virtual_time_ps
    chain = planned(engines="shared", devices=4, **keys)
    assert chain.stages is not None
    work = [12 * chain.stages.costs(stage, 4).work_ps for stage in range(chain.stage_count)]
    by_device = [sum(work[device :: chain.devices]) for device in range(chain.devices)]
    assert emuchain.simulate(chain).virtual_time_ps > max(by_device)


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("schedule", DRAINING)
def test_weights_are_those_of_sync(weights_of_sync: Weights, schedule: str, devices: int) -> None:
    machine = {1: ("split", "streamed"), 2: ("turns", "stored"), 4: ("shared", "hidden")}[devices]
    found = trained(schedule=schedule, devices=devices, engines=machine[0], transport=machine[1])
    assert all(
        np.array_equal(found[layer][name], weights_of_sync[layer][name])
        for layer, name in names(found)
    )
    assert names(found) == names(weights_of_sync)


def trained(**keys: Any) -> Weights:
    keys = {"samples": 48, "test_samples": 1, "batch": 16, "micro_batch": 4, **keys}
    return emuchain.train("quick-cifar", **keys).weights


def names(weights: Weights) -> set[tuple[str, str]]:
    return {(layer, name) for layer, arrays in weights.items() for name in arrays}


@pytest.fixture(scope="module")
def weights_of_sync() -> Weights:
    return trained(schedule="sync", devices=1)


@pytest.mark.parametrize(
    ("schedule", "keys"),
    [
        ("1f1b-so", {"engines": "turns"}),
        ("fbp-as", {"engines": "shared"}),
        ("zero-bubble", {"engines": "shared", "micro_batch": 5}),
        ("interleaved", {"engines": "turns", "transport": "hidden", "devices": 2}),
        ("pipedream", {"engines": "split", "transport": "stored"}),
        ("zero-bubble", {"engines": "turns", "stages": "layers"}),
    ],
)
def test_training_takes_the_time_of_the_simulation(schedule: str, keys: dict[str, Any]) -> None:
    settings: dict[str, Any] = {
        "devices": 3,
        "samples": 32,
        "batch": 16,
        "micro_batch": 4,
        "epochs": 2,
        **keys,
    }
    simulated = emuchain.simulate("quick-cifar", schedule=schedule, **settings)
    found = emuchain.train("quick-cifar", schedule=schedule, test_samples=1, **settings)
    assert found.history["virtual_time_ps"].tolist() == list(simulated.epoch_ends_ps)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"engines": "turns", "transport": "streamed"},
            "`transport` = 'streamed': rows leave engines that are split",
        ),
        (
            {"stages": "layers", "devices": 7},
            "`devices` = 7: must be 1 to 6 with `stages` = 'layers'",
        ),
        ({"engines": "turns", "devices": 10**12}, "`devices` = 1000000000000: must be 1 to "),
        (
            {"schedule": "gpipe", "warm_up": "N-i+1"},
            "`warm_up` = 'N-i+1': schedule gpipe has a fixed order",
        ),
        (
            {"schedule": "gpipe", "chunks": 2},
            "`chunks` = 2: schedule gpipe has one stage on each device",
        ),
        (
            {"engines": "shared"},
            "`schedule` = 'fpdeep': splits micro-batches where its weights change",
        ),
        (
            {"engines": "shared", "replicas": 2, "schedule": "sync"},
            "`replicas` = 2: shared engines",
        ),
    ],
)
def test_what_cannot_be_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(emuchain.InputError, match=re.escape(words)):
        emuchain.simulate(
            NETWORK, **{"devices": 2, "batch": 24, "micro_batch": 4, "samples": 24, **keys}
        )


def test_samples_that_see_old_weights() -> None:
    assert [planned(schedule=name).stale_samples for name in ("sync", "pipedream")] == [
        [0] * 4,
        [24, 24, 24, 0],
    ]


def board(**keys: Any) -> dict[str, Any]:
    boards = [
        {"name": "board", "clock_mhz": 100, "dsp": 100, "on_chip_memory_kbit": 100_000, **keys}
    ]
    return {"name": "chain", "boards": boards, "links": {"bandwidth_gbps": 10, "latency_ns": 0}}


def test_boards_that_take_turns_need_no_engine_for_each_slice() -> None:
    keys: dict[str, Any] = {
        "schedule": "gpipe",
        "devices": 2,
        "batch": 8,
        "micro_batch": 4,
        "samples": 8,
    }
    with pytest.raises(emuchain.InputError, match="which gives its engines 30 multipliers"):
        emuchain.plan(NETWORK, board(dsp=30), **keys)
    assert emuchain.simulate(NETWORK, board(dsp=30), engines="turns", **keys).virtual_time_ps > 0


def test_a_simulation_keeps_micro_batches_and_not_mini_batches(capsys: Any, tmp_path: Path) -> None:
    """What keeps the features of a micro-batch need not have room for those of a mini-batch."""
    cluster = tmp_path / "small.toml"
    keys = [
        "--devices",
        "3",
        "--engines",
        "turns",
        "--schedule",
        "1f1b-so",
        "--micro-batch",
        "4",
        "--samples",
        "1024",
    ]
    text = (
        'name = "small"\nboards = [{{ name = "s", clock_mhz = 100, dsp = 2000, on_chip_memory_kbit'
        " = {} }}]\n"
    )
    cluster.write_text(text.format(40_000) + "links = { bandwidth_gbps = 10, latency_ns = 0 }\n")
    for batch, fits in (("4", True), ("1024", False)):
        found = ["simulate", "quick-cifar", "--cluster", str(cluster), "--batch", "1024", *keys]
        found[found.index("--micro-batch") + 1] = batch
        with pytest.raises(SystemExit) as ended:
            main(found)
        assert (not ended.value.code) == fits
    assert "bytes on chip" in capsys.readouterr().err
