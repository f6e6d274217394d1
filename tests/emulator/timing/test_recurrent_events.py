"""Recurrent networks in the emulator and in the discrete-event simulation, which shares no code
with it.

The simulation is written after docs/time-model.md alone; of what `emuchain simulate --json` prints
it takes channels, tiles and what is off chip, and no times.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.cluster import Fpga
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import OffChip, partition
from emuchain.emulator.network import graph
from emuchain.emulator.network.operation import LayerRows
from emuchain.emulator.plan import ChainPlan, find_steady
from emuchain.emulator.timing import Timing

from .drawn import Case, Table, sequences
from .event_simulation import run
from .test_event_simulation import Drawn, check_rows, printed

LEAST_OF_A_KIND = 15


@st.composite
def planned(draw: st.DrawFn) -> Drawn:
    """A case, cut as the plan does or anyhow by units, with data where the plan has them or off
    chip anyhow.
    """
    case = draw(sequences())
    try:
        plan = emuchain.plan(case.network, case.cluster, **case.keys)
        if case.keys["schedule"] != "fpdeep" and draw(st.booleans()):
            plan = timed(
                plan, Timing.of(partition(plan.network, plan.cluster, plan.devices), plan.cluster)
            )
        if draw(st.booleans()):
            plan = draw(off_chip_anyhow(plan))
    except InputError:
        hypothesis.assume(False)
    return Drawn(case, plan)


@st.composite
def off_chip_anyhow(draw: st.DrawFn, plan: ChainPlan) -> ChainPlan:
    """The plan with any data off chip where the board has a port."""
    placed = [
        tuple(
            OffChip(draw(st.integers(0, part.channels)), draw(st.booleans()))
            if plan.cluster.board(device).off_chip_gbytes_per_s
            else OffChip()
            for part in slices
        )
        for device, slices in enumerate(plan.mapping.devices)
    ]
    return timed(
        plan,
        Timing.of(plan.mapping, plan.cluster, (), tuple(placed) if any(map(any, placed)) else ()),
    )


def timed(plan: ChainPlan, timing: Timing) -> ChainPlan:
    return dataclasses.replace(
        plan, timing=timing, mapping=timing.mapping, steady=find_steady(timing, plan.batch)
    )


@hypothesis.given(planned())
@hypothesis.settings(max_examples=120)
def test_same_picoseconds(drawn: Drawn) -> None:
    check_rows(drawn)


@pytest.mark.exhaustive
def test_same_picoseconds_in_hundreds_of_cases() -> None:
    """The same cases in every run, and enough of each kind; the counts are printed (`-s`)."""
    kinds: Counter[str] = Counter()
    differing: list[tuple[Case, int, int]] = []

    @hypothesis.given(planned())
    @hypothesis.settings(
        max_examples=1000, derandomize=True, database=None, phases=[hypothesis.Phase.generate]
    )
    def compare(drawn: Drawn) -> None:
        found = printed(drawn.plan)
        kinds.update(kinds_of(drawn.case, found))
        time_ps = run(found, drawn.case.network, drawn.case.cluster)
        if time_ps != found["virtual_time_ps"]:
            differing.append((drawn.case, time_ps, found["virtual_time_ps"]))

    compare()
    print(f"\n{len(differing)} differ:", dict(kinds.most_common()))
    assert not differing, min(differing, key=lambda each: len(repr(each)))
    assert set(kinds) == ALL_KINDS and min(kinds.values()) >= LEAST_OF_A_KIND, kinds


ALL_KINDS = {
    *("sync", "gpipe", "1f1b-as", "1f1b-so", "pipedream", "2bw", "fpdeep", "old weights"),
    *(
        "lstm",
        "gru",
        "bidirectional",
        "projection",
        "reset before",
        "embedding",
        "convolution over rows",
    ),
    *("last-step", "results of each step", "fc over all steps", "several recurrent layers"),
    *(
        "cut by units",
        "cut over three devices",
        "fixed paths, cut by units",
        "off chip",
        "off chip, cut by units",
    ),
    *("activation cycles of its own", "unequal boards"),
}


def kinds_of(case: Case, found: Table) -> set[str]:
    """Return what occurs in a case."""
    layers, devices = case.network["layers"], found["mapping"]["devices"]
    recurrent = {layer["name"]: layer for layer in layers if layer["type"] in ("lstm", "gru")}
    parts = Counter(
        part["layer"] for each in devices for part in each["slices"] if part["layer"] in recurrent
    )
    cut, fixed = max(parts.values()), case.cluster["links"][0]["share"] == "paths"
    off_chip = {
        part["layer"] for each in devices for part in each["slices"] if part["off_chip_channels"]
    }
    types, last = {layer["type"] for layer in layers}, layers[-2]
    stepwise = last["type"] == "conv" or last["name"] in recurrent
    occurs = {
        "old weights": found["config"]["schedule"] == "fpdeep" and any(found["stale_samples"]),
        "bidirectional": any("bidirectional" in layer for layer in recurrent.values()),
        "projection": any("projection" in layer for layer in recurrent.values()),
        "reset before": any("reset" in layer for layer in recurrent.values()),
        "convolution over rows": any(
            layer["type"] == "conv" and layer["kernel"] != 1 for layer in layers
        ),
        "results of each step": stepwise,
        "fc over all steps": last["type"] == "fc" and "last-step" not in types,
        "several recurrent layers": len(recurrent) > 1,
        "cut by units": cut > 1,
        "cut over three devices": cut > 2,
        "fixed paths, cut by units": cut > 1 and fixed,
        "off chip": off_chip,
        "off chip, cut by units": any(parts[name] > 1 for name in off_chip),
        "activation cycles of its own": any(
            "activation_cycles" in board for board in case.cluster["boards"]
        ),
        "unequal boards": len({device["board"] for device in devices}) > 1,
    }
    named = types & {"lstm", "gru", "embedding", "last-step"}
    return {
        found["config"]["schedule"],
        *named,
        *(kind for kind, is_there in occurs.items() if is_there),
    }


NETWORK: Table = {
    "name": "two",
    "input": [3, 13, 4],
    "layers": [
        {"type": "conv", "name": "zeroth", "channels": 4, "kernel": 1},
        {
            "type": "conv",
            "name": "first",
            "channels": 4,
            "kernel": [2, 1],
            "stride": [3, 1],
        },  # leaves out rows
        {"type": "sequence"},
        {"type": "lstm", "name": "second", "units": 24},
        {"type": "conv", "name": "third", "channels": 3, "kernel": 1},
        {"type": "softmax"},
    ],
}
CLUSTER: Table = {
    "name": "boards",
    "boards": [
        {
            "name": "board",
            "clock_mhz": 100,
            "dsp": 60,
            "on_chip_memory_kbit": 4000,
            "activation_cycles": 7,
        }
    ],
    "links": {"bandwidth_gbps": 40, "latency_ns": 100},
}


def cut_plan() -> ChainPlan:
    """The network's middle layer is cut by units over two devices or more."""
    plan = emuchain.plan(NETWORK, CLUSTER, devices=3, samples=4, batch=2, schedule="sync")
    plan = timed(plan, Timing.of(partition(plan.network, plan.cluster, plan.devices), plan.cluster))
    assert (
        sum(part.layer.name == "second" for slices in plan.mapping.devices for part in slices) > 1
    )
    return plan


def no_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fpga, "activation_ps", property(lambda _: 0))


def no_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timing, "hop_ps", lambda *_: 0)


def errors_of_the_first_step_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_last_first", lambda layer: layer)


def layers_wait_for_rows_in_the_order_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerRows, "last_first", lambda rows: rows)


FAULTS = [
    no_activations,
    no_gathering,
    errors_of_the_first_step_first,
    layers_wait_for_rows_in_the_order_of_images,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = printed(cut_plan())
    assert run(found, NETWORK, CLUSTER) == found["virtual_time_ps"]
    fault(monkeypatch)
    wrong = printed(cut_plan())
    assert wrong["virtual_time_ps"] != found["virtual_time_ps"]
    assert run(wrong, NETWORK, CLUSTER) != wrong["virtual_time_ps"]
