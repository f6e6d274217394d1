"""Boards that take actions as a whole: their traces and charts, with times worked out by hand or by
the engine.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.plan import ChainPlan, training_data
from emuchain.emulator.run import train
from emuchain.emulator.schedule import Machine, StageCosts
from emuchain.emulator.timing import Timeline, run_timeline
from emuchain.emulator.view import ActionRun, RunSamples, Window, gantt, write_trace
from emuchain.launch import SingleProcess

from ...run.test_stages import NETWORK

Event = dict[str, Any]
SAMPLES = 24
MACHINES: dict[str, dict[str, Any]] = {
    "turns": {"engines": "turns", "schedule": "1f1b-so"},
    "hidden": {"engines": "turns", "transport": "hidden", "schedule": "1f1b-as"},
    "split": {"engines": "split", "transport": "stored", "schedule": "sync"},
    "shared": {"engines": "shared", "schedule": "fbp-as"},
    "three kinds": {"engines": "turns", "schedule": "zero-bubble"},
    "versions": {"engines": "turns", "schedule": "pipedream"},
    "chunks": {"engines": "turns", "schedule": "interleaved", "devices": 2},
    "shared chunks": {"engines": "shared", "schedule": "interleaved", "devices": 2},
    "spans": {"engines": "turns", "schedule": "fpdeep", "batch": 12},
    "replicas": {"engines": "turns", "schedule": "sync", "replicas": 2, "devices": 2},
}
ON_THE_ENGINE = [name for name in MACHINES if name not in ("spans", "replicas")]


def planned(case: str, **keys: Any) -> ChainPlan:
    given = {
        "devices": 3,
        "batch": 24,
        "micro_batch": 4,
        "samples": SAMPLES,
        **MACHINES[case],
        **keys,
    }
    return emuchain.plan(NETWORK, **given)


def traced(plan: ChainPlan, folder: Path, **keys: Any) -> list[Event]:
    emuchain.simulate(plan, trace=folder / "run.json", **keys)
    return json.loads((folder / "run.json").read_text())["traceEvents"]


def named(events: list[Event]) -> dict[tuple[int, int | None], str]:
    """The names of processes and threads."""
    return {
        (e["pid"], e.get("tid")): e["args"]["name"]
        for e in events
        if e["name"] in ("process_name", "thread_name")
    }


def slices(events: list[Event]) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Start and end of each slice, by its thread, its name, and its epoch."""
    threads = named(events)
    found = {}
    for e in events:
        if e["ph"] == "X":
            lane = f"{e['pid'] - 1} {threads[e['pid'], e['tid']]}"
            found[lane, e["name"], e["args"]["epoch"]] = e["args"]["start_ps"], e["args"]["end_ps"]
    return found


def transfers_ps(plan: ChainPlan, stage: int) -> tuple[int, int]:
    """Time of features and errors of a micro-batch on the link behind a stage, from the bytes of
    its streams.
    """
    assert plan.stages is not None
    mbps, streams = plan.cluster.link_at(stage).bandwidth_mbps, plan.timing.links[stage]
    counts = (
        sum(s.sample_bytes for s in streams if s.path.is_forward is forward)
        for forward in (True, False)
    )
    features, errors = (-(-8_000_000 * plan.stages.samples * count // mbps) for count in counts)
    return features, errors


def test_gpipe_on_two_boards_by_hand(tmp_path: Path) -> None:
    """Two micro-batches: each message leaves when its action is done and its link is free, and B
    follows all of F.
    """
    plan = planned("turns", schedule="gpipe", devices=2, batch=8, samples=8)
    assert plan.stages is not None
    (f0, b0), (f1, b1) = (
        (c.forward_ps, c.backward_ps) for c in (plan.stages.costs(0, 4), plan.stages.costs(1, 4))
    )
    (there, back), late = transfers_ps(plan, 0), plan.cluster.link.latency_ps
    second_left = max(2 * f0, f0 + there) + there
    f0_on_1 = f0 + there + late
    f1_on_1 = max(f0_on_1 + f1, second_left + late)
    b0_on_1 = f1_on_1 + f1
    b0_back = b0_on_1 + b1
    b1_back = max(b0_on_1 + 2 * b1, b0_back + back)
    b0_on_0 = b0_back + back + late
    b1_on_0 = max(b0_on_0 + b0, b1_back + back + late)
    assert slices(traced(plan, tmp_path)) == {
        ("0 F, B", "F0 of stage 0", 1): (0, f0),
        ("0 F, B", "F1 of stage 0", 1): (f0, 2 * f0),
        ("0 link 0 -> 1", "F0 of stage 0", 1): (f0, f0 + there),
        ("0 link 0 -> 1", "F1 of stage 0", 1): (second_left - there, second_left),
        ("1 F, B", "F0 of stage 1", 1): (f0_on_1, f0_on_1 + f1),
        ("1 F, B", "F1 of stage 1", 1): (f1_on_1, f1_on_1 + f1),
        ("1 F, B", "B0 of stage 1", 1): (b0_on_1, b0_back),
        ("1 F, B", "B1 of stage 1", 1): (b0_back, b0_back + b1),
        ("1 link 1 -> 0", "B0 of stage 1", 1): (b0_back, b0_back + back),
        ("1 link 1 -> 0", "B1 of stage 1", 1): (b1_back, b1_back + back),
        ("0 F, B", "B0 of stage 0", 1): (b0_on_0, b0_on_0 + b0),
        ("0 F, B", "B1 of stage 0", 1): (b1_on_0, b1_on_0 + b0),
    }


def test_arguments_by_hand(tmp_path: Path) -> None:
    """Sample 29 is number 5 of the second epoch's 24, so in its second micro-batch, samples 28 to
    31 of the run.
    """
    plan = planned("turns", epochs=2, batch=12)
    events = traced(plan, tmp_path, trace_samples=(29, 29))
    threads = named(events)
    assert [name for (_, tid), name in threads.items() if tid is None] == [
        f"device {n} (VC709)" for n in range(3)
    ]
    found = {
        threads[e["pid"], e["tid"]]: e["args"]
        for e in events
        if e["ph"] == "X" and e["name"] == "F1 of stage 1"
    }
    same = {
        "epoch": 2,
        "mini_batch": 0,
        "micro_batch": 1,
        "stage": 1,
        "first_sample": 28,
        "last_sample": 31,
        "version": 0,
    }
    assert list(found) == ["F, B", "link 1 -> 2"]
    for args in found.values():
        assert {key: args[key] for key in same} == same
    sent = sum(stream.sample_bytes for stream in plan.timing.links[1] if stream.path.is_forward)
    assert found["link 1 -> 2"]["bytes"] == 4 * sent and "bytes" not in found["F, B"]


def on_the_engine(plan: ChainPlan) -> Timeline:
    """The timeline of an epoch by the timeline engine, from the stages' costs and the bytes between
    them.
    """
    assert plan.stages is not None
    size, last, costs = plan.stages.samples, plan.stage_count - 1, list[StageCosts]()
    for stage in range(plan.stage_count):
        right, left = transfers_ps(plan, stage) if stage < last else (0, 0)
        costs.append(
            dataclasses.replace(plan.stages.costs(stage, size), transfer_ps=right, errors_ps=left)
        )
    machine: Machine = dataclasses.replace(
        plan.stages.machine, latency_ps=plan.cluster.link.latency_ps
    )
    return run_timeline(plan.schedule(SAMPLES), costs, machine)


@pytest.mark.parametrize("case", ON_THE_ENGINE)
def test_slices_are_the_actions_of_the_timeline_engine(case: str, tmp_path: Path) -> None:
    plan = planned(case)
    timeline, found = on_the_engine(plan), slices(traced(plan, tmp_path))
    assert plan.stages is not None
    turns, split = (
        plan.stages.machine.engines.value == "turns",
        plan.stages.machine.backward.value == "split",
    )
    together = "F, B, W" if split else "F, B"
    wanted = {}
    for each in timeline.timed:
        name = f"{each.step.kind.value}{each.step.micro_batch} of stage {each.step.stage}"
        wanted[f"{each.device} {together if turns else each.step.kind.value}", name, 1] = (
            each.start_ps,
            each.end_ps,
        )
    for sent in timeline.sent:
        name = f"{sent.step.kind.value}{sent.step.micro_batch} of stage {sent.step.stage}"
        wanted[f"{sent.sender} link {sent.sender} -> {sent.receiver}", name, 1] = (
            sent.start_ps,
            sent.end_ps,
        )
    assert found == wanted


@pytest.mark.parametrize("case", MACHINES)
def test_arrows_lead_to_the_action_that_takes_the_message(case: str, tmp_path: Path) -> None:
    plan = planned(case)
    events = traced(plan, tmp_path)
    at = {(e["pid"], e["tid"], e["ts"]): e for e in events if e["ph"] == "X" and e["dur"]}
    starts, ends = (
        {e["id"]: at[e["pid"], e["tid"], e["ts"]] for e in events if e["ph"] == kind}
        for kind in "sf"
    )
    assert starts.keys() == ends.keys() and starts
    for number, sent in starts.items():
        taken = ends[number]
        assert (sent["cat"], sent["args"]["micro_batch"]) == (
            taken["cat"],
            taken["args"]["micro_batch"],
        )
        assert taken["args"]["stage"] - sent["args"]["stage"] == (1 if sent["cat"] == "F" else -1)
        assert taken["ts"] >= sent["ts"]
        assert sent["args"]["first_sample"] <= taken["args"]["last_sample"]
    boundaries = plan.stage_count - 1
    assert case == "spans" or len(starts) == 2 * boundaries * SAMPLES // (
        4 * plan.data_parallel.replicas
    )


@pytest.mark.parametrize("case", MACHINES)
def test_nothing_overlaps_and_all_work_is_there(case: str, tmp_path: Path) -> None:
    plan = planned(case, epochs=2)
    events = traced(plan, tmp_path)
    tracks, samples = collections.defaultdict(list), collections.Counter[tuple[str, int]]()
    threads = named(events)
    for e in events:
        if e["ph"] == "X":
            tracks[e["pid"], e["tid"]].append((e["args"]["start_ps"], e["args"]["end_ps"]))
            if threads[e["pid"], e["tid"]][0] in "FBW":
                samples[e["cat"], e["args"]["stage"]] += (
                    e["args"]["last_sample"] + 1 - e["args"]["first_sample"]
                )
    assert len(tracks) == len([name for (_, tid), name in threads.items() if tid is not None])
    for spans in tracks.values():
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(sorted(spans)))
    own = 2 * SAMPLES // plan.data_parallel.replicas
    assert set(samples.values()) == {own}
    assert {stage for _, stage in samples} == set(range(plan.stage_count))


@pytest.mark.parametrize("case", ["turns", "shared", "chunks", "spans", "replicas"])
def test_traces_of_training_and_simulation_are_the_same(
    case: str, small_cifar: Path, tmp_path: Path
) -> None:
    plan = emuchain.plan(
        "quick-cifar",
        **{"devices": 2, "batch": 24, "micro_batch": 4, "epochs": 2, **MACHINES[case]},
        **{"data": str(small_cifar), "samples": 48, "test_samples": 4},
    )
    run = ActionRun(RunSamples.of(plan, 48), Window(10, 60 // plan.data_parallel.replicas))
    recorder, paths = run.recorder(), [tmp_path / "trained.json", tmp_path / "simulated.json"]
    train(plan, training_data(plan), SingleProcess(), gather_weights=False, observer=recorder)
    write_trace(paths[0], run.timeline([recorder]))
    recorder = run.recorder()
    emuchain.simulate(plan, observer=recorder)
    write_trace(paths[1], run.timeline([recorder]))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert '"ph": "X"' in paths[0].read_text()


def test_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        emuchain.InputError, match="`trace_level` = 'row': these boards take actions as a whole"
    ):
        emuchain.simulate(planned("turns"), trace=tmp_path / "run.json", trace_level="row")


def test_a_chart_by_hand() -> None:
    """GPipe, where a micro-batch's F and B take nearly all of the time: each column has the mark of
    the longest.
    """
    plan = planned("turns", schedule="gpipe", devices=1, batch=8, samples=8)
    assert plan.stages is not None
    costs = plan.stages.costs(0, 4)
    run = ActionRun(RunSamples.of(plan, 8), Window(0, 7))
    recorder = run.recorder()
    emuchain.simulate(plan, observer=recorder)
    lines = gantt(run.chart([recorder], Window(0, 7), all_lanes=False), 9 + 60)
    whole = 2 * (costs.forward_ps + costs.backward_ps)
    edges = [column * whole / 60 for column in range(61)]
    marks = ""
    for begin, end in itertools.pairwise(edges):
        middle = (begin + end) / 2
        bounds = [costs.forward_ps, 2 * costs.forward_ps, 2 * costs.forward_ps + costs.backward_ps]
        marks += "01ab"[sum(middle >= bound for bound in bounds)]
    assert lines[1] == f"device 0 {marks}"
    assert lines[2].endswith("marks: F 0-9, B a-z by micro-batch in turn; dot: busy for under half")


def test_all_lanes_have_links_and_exchanges(capsys: Any) -> None:
    plan = planned("replicas")
    run = ActionRun(RunSamples.of(plan, SAMPLES), Window(0, 11))
    recorder = run.recorder()
    emuchain.simulate(plan, observer=recorder)
    chart = run.chart([recorder], Window(0, 11), all_lanes=True)
    assert [line.title.strip() for line in chart.lines] == [
        *("device 0 (VC709)", "F, B", "link 0 -> 1", "exchange of gradients"),
        *("device 1 (VC709)", "F, B", "link 1 -> 0", "exchange of gradients"),
    ]
    assert all(line.spans for line in chart.lines if line.spans is not None)
