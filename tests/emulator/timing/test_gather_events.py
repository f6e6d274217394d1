"""Replicas that share weights out, against an event simulation that shares no code with the
emulator: the same picoseconds and bytes.
"""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.schedule import Kind, SampleSpan
from emuchain.emulator.timing import StageClock
from emuchain.emulator.view import simulation_as_json

from .described import FORMATS
from .drawn import Case, Table, interconnects
from .gather_events import Order, Replicas, largest

SCHEDULES = ["sync", "gpipe", "1f1b-as", "fbp-as", "2bw", "pipedream"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Replicas of a chain of whole layers on unlike boards; a short mini-batch may come last."""
    sizes = st.integers(1, 9)
    layers: list[Table] = []
    for number in range(draw(st.integers(1, 4))):
        kernel = draw(st.sampled_from([1, 3]))
        window = {"kernel": kernel, "pad": kernel // 2}
        layers.append({"type": "conv", "name": f"c{number}", "channels": draw(sizes), **window})
        layers += draw(st.sampled_from([[], [{"type": "relu"}]]))
    layers += [{"type": "fc", "name": "last", "features": draw(sizes)}, {"type": "softmax"}]
    network = {"name": "drawn", "input": [draw(sizes), draw(sizes), 4], "layers": layers}
    weighted = sum("name" in layer for layer in layers)
    boards = [
        {"clock_mhz": draw(st.integers(50, 300)), "dsp": draw(st.integers(20, 300))}
        for _ in range(draw(st.integers(1, 2)))
    ]
    named = [
        {"name": f"b{number}", "on_chip_memory_kbit": 80_000, **board}
        for number, board in enumerate(boards)
    ]
    links = {
        "bandwidth_gbps": draw(st.sampled_from([0.05, 1, 100])),
        "latency_ns": draw(st.sampled_from([0, 40, 3000])),
    }
    cluster: Table = {"name": "drawn", "boards": named, "links": links}
    if draw(st.booleans()):
        cluster["network"] = draw(interconnects())
    replicas, size = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    batch, tail = replicas * size, draw(st.integers(0, replicas))
    keys = {
        "devices": draw(st.integers(1, min(3, weighted))),
        "replicas": replicas,
        "batch": batch,
        "samples": batch * draw(st.integers(1, 3)) + (replicas + tail if tail < batch else 0),
        "micro_batch": draw(st.integers(1, 3)),
        "schedule": draw(st.sampled_from(SCHEDULES)),
        "stages": "layers",
        "engines": "turns",
        "zero": 3,
        "precision": draw(formats([layer["name"] for layer in layers if "name" in layer])),
    }
    return Case(network, cluster, {**keys, "epochs": 1})


@st.composite
def formats(draw: st.DrawFn, names: list[str]) -> str:
    """Formats of maps by layer; weights stay in fp32, so that engines do."""
    forms = st.sampled_from(sorted({*FORMATS} - {"int32"}))
    words = draw(st.sampled_from(["fp32", "fp32 errors=mxfp4", "fp32 activations=bf16"])).split()
    for name in draw(st.sets(st.sampled_from(names))):
        kind = draw(st.sampled_from(["activations", "errors"]))
        words.append(f"layer.{name}.{kind}={draw(forms)}")
    return " ".join(words)


def order(plan: ChainPlan, replica: int) -> Order:
    """A replica's programs as text, and the samples of its micro-batches."""
    whole, config = plan.data_parallel, plan.config
    assert config.samples is not None
    own = len(whole.samples_of(replica, config.samples, config.batch))
    schedule = plan.schedule(own)
    programs = schedule.programs(range(plan.devices))
    texts = [[str(action) for action in programs[device]] for device in range(plan.devices)]
    return Order(texts, [batch.samples for batch in schedule.micro_batches])


def check(case: Case, plan: ChainPlan) -> Any:
    """Check times and memory; return what `emuchain simulate --json` prints."""
    simulation = emuchain.simulate(plan)
    shown = json.loads(json.dumps(simulation_as_json(simulation, None, epoch_images=1000)))
    orders = [order(plan, replica) for replica in range(plan.replicas)]
    events = Replicas(shown, case.network, case.cluster, orders)
    assert events.time_ps() == simulation.virtual_time_ps
    for device in shown["devices"]:
        if case.keys["schedule"] not in ("2bw", "pipedream"):  # which keep several versions
            shares, layer = largest(shown, case.network, device["device"])
            assert device["memory"]["lpram"] == shares + layer
    return shown


@hypothesis.given(cases())
@hypothesis.settings(max_examples=200)
def test_same_picoseconds(case: Case) -> None:
    try:
        plan = emuchain.plan(case.network, case.cluster, **case.keys)
    except InputError as error:
        assert "micro-batch" in str(error) or "`samples`" in str(error)
        hypothesis.reject()
    check(case, plan)


@pytest.mark.parametrize("left_out", [Kind.FORWARD, Kind.BACKWARD])
def test_gathers_that_are_left_out_differ(monkeypatch: pytest.MonkeyPatch, left_out: Kind) -> None:
    """Faults that are planted in the emulator's clock."""
    conv = {"type": "conv", "kernel": 1, "pad": 0}
    layers = [{**conv, "name": f"c{number}", "channels": 4} for number in range(3)]
    layers += [{"type": "fc", "name": "last", "features": 5}, {"type": "softmax"}]
    network = {"name": "drawn", "input": [3, 6, 4], "layers": layers}
    board = {"name": "b", "clock_mhz": 100, "dsp": 50, "on_chip_memory_kbit": 80_000}
    links = {"bandwidth_gbps": 1, "latency_ns": 40}
    keys = {"devices": 2, "replicas": 3, "batch": 12, "samples": 24, "micro_batch": 2, "epochs": 1}
    keys |= {"schedule": "1f1b-as", "stages": "layers", "engines": "turns", "zero": 3}
    case = Case(network, {"name": "drawn", "boards": [board], "links": links}, keys)
    plan = emuchain.plan(case.network, case.cluster, **case.keys)
    check(case, plan)
    whole = StageClock.layers

    def layers_of(clock: StageClock, kind: Kind, span: SampleSpan) -> list[tuple[int, int]]:
        held = whole(clock, kind, span)
        return [(0 if kind is left_out else values, work_ps) for values, work_ps in held]

    monkeypatch.setattr(StageClock, "layers", layers_of)
    with pytest.raises(AssertionError):
        check(case, plan)
