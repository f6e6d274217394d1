"""The emulator against a discrete-event simulation that shares no code with it: the same
picoseconds of every row.

The simulation (event_simulation.py) is given what `emuchain simulate --json` prints, and the
descriptions of network and cluster; of the JSON it uses no times.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import hypothesis
import pytest
from hypothesis import strategies as st

import emuchain
from emuchain.comm import FifoResource
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import BalancedParameters, Stream
from emuchain.emulator.network.operations.pool import MaxPool
from emuchain.emulator.plan import ChainPlan, find_steady
from emuchain.emulator.run import Simulation, steady_state
from emuchain.emulator.schedule import dry_run
from emuchain.emulator.timing import Timing
from emuchain.emulator.view import simulation_as_json

from ..networks import of_table
from .chains import scattered
from .described import read_maps
from .drawn import (
    Case,
    Table,
    array_chains,
    attention_chains,
    built_chains,
    chains,
    dot_chains,
    formats_by_layer,
    frozen_chains,
    narrow_attention_chains,
    narrow_chains,
    replicas,
    tied_chains,
    vocabulary_chains,
)
from .event_simulation import run, run_of, staleness_of
from .served import served_by_emulator, served_by_events, without_gathered
from .staleness_events import Staleness

LEAST_OF_A_KIND = 20


class Drawn(NamedTuple):
    """A case with its plan."""

    case: Case
    plan: ChainPlan


def printed(plan: ChainPlan) -> Table:
    """Return what `emuchain simulate --json` prints of a plan's run."""
    return as_printed(emuchain.simulate(plan))


def as_printed(simulation: Simulation) -> Table:
    """Return what `emuchain simulate --json` prints of a run."""
    text = json.dumps(
        simulation_as_json(simulation, steady_state(simulation.plan), epoch_images=1000)
    )
    shown: Table = json.loads(text)
    return shown


def check_rows(drawn: Drawn) -> None:
    """Check that every row leaves every engine, link and memory port of the first replica at the
    same time.
    """
    case, plan = drawn
    simulation, served = served_by_emulator(plan, list(read_maps(case.network)))
    events = run_of(as_printed(simulation), case.network, case.cluster, partial(in_order, plan))
    assert without_gathered(served) == without_gathered(served_by_events(events.chains[0]))
    assert simulation.virtual_time_ps == events.time_ps
    if plan.data_parallel.replicas == 1:
        assert plan.timing.interval_ps == events.chains[0].interval_ps


@st.composite
def planned(draw: st.DrawFn, cases: st.SearchStrategy[Case]) -> Drawn:
    """A case, its data placed by the plan, or anywhere; those that cannot be planned are left
    out.
    """
    case = draw(cases)
    try:
        plan = emuchain.plan(case.network, case.cluster, **case.keys)
        in_single = plan.config.precision.is_single
        moves = plan.data_parallel.replicas == 1 and in_single and not plan.network.heads
        if moves and draw(st.booleans()):
            plan = draw(scattered(plan))
            dry_run(plan.schedule(case.keys["samples"]), plan.timing.stores)
    except InputError:
        hypothesis.assume(False)
    return Drawn(case, plan)


CASES = {
    "chains and replicas": (st.one_of(*[chains()] * 4, replicas()), 120),
    "on arrays": (array_chains(), 400),
    "with attention": (attention_chains(), 80),
    "with attention in formats": (narrow_attention_chains(), 60),
    "where slices compute the loss": (vocabulary_chains(), 60),
    "with tied weights": (tied_chains(), 80),
    "with frozen layers": (frozen_chains(), 120),
    "in any formats": (narrow_chains(), 60),
    "in formats by layer": (formats_by_layer(), 60),
    "with sums of blocks": (dot_chains(), 40),
}
"""Strategies of cases, and how many are compared."""


@pytest.mark.parametrize("name", CASES)
def test_same_picoseconds(name: str) -> None:
    cases, examples = CASES[name]

    @hypothesis.given(planned(cases))
    @hypothesis.settings(max_examples=examples)
    def compare(drawn: Drawn) -> None:
        check_rows(drawn)

    compare()


@hypothesis.given(planned(built_chains()))
@hypothesis.settings(max_examples=60)
def test_same_picoseconds_where_multipliers_are_built(drawn: Drawn) -> None:
    boards = drawn.plan.cluster.boards
    assert all(board.budget is not None for board in boards)  # type: ignore[attr-defined]  # FPGAs
    check_rows(drawn)


def test_tables_do_not_wait_for_blocks_that_a_device_stores() -> None:
    """The first board stores weights of the last layer, whose gradients come after its own."""
    layers: list[dict[str, Any]] = [
        {"type": "embedding", "features": 7, "name": "table"},
        {"type": "positions"},
        {"type": "conv", "channels": 7, "kernel": 1},
        {"type": "conv", "channels": 7, "kernel": 1},
        {"type": "conv", "channels": 33, "kernel": 1, "tied": "table"},
        {"type": "last-step"},
        {"type": "fc", "features": 40, "bias": False},
        {"type": "softmax", "vocabulary_parallel": True},
    ]
    network = {"name": "drawn", "input": [33, 5, 1], "layers": layers}
    board = {"name": "b", "clock_mhz": 50, "dsp": 40, "off_chip_gbytes_per_s": 0.02}
    boards = [{**board, "on_chip_memory_kbit": kbit} for kbit in (4000, 40)]
    links = [{"bandwidth_gbps": 20, "latency_ns": 0}]
    cluster = {"name": "drawn", "boards": boards, "links": links}
    keys = {"devices": 4, "samples": 9, "batch": 2, "epochs": 1, "schedule": "sync"}
    plan = emuchain.plan(network, cluster, **keys)
    assert plan.timing.tied and any(block.store_device == 0 for block in plan.timing.blocks)
    check_rows(Drawn(Case(network, cluster, keys), plan))


_TIED = tied_chains().filter(
    lambda case: case.keys["schedule"] != "2bw"
)  # whose staleness is read off its actions


def in_order(plan: ChainPlan, late: Staleness) -> Staleness:
    """Return how many updates are missing, in FP and in EB of each sample of a mini-batch on each
    device.

    Of devices with parts of tied weights that would wait in a circle, all are as late: the order of
    their actions decides whether they would, which the simulation does not know. So that is taken
    from the plan: it differs there.
    """
    for table in plan.timing.tied if planned_staleness(plan) != late else ():
        holders = [
            device for device in range(table.first, table.last + 1) if table.stops_at(device)
        ]
        latest = {
            way: [*map(max, *(late[device][way] for device in holders))] for way in ("fp", "eb")
        }
        late = [latest if device in holders else stale for device, stale in enumerate(late)]
    return late


def planned_staleness(plan: ChainPlan) -> Staleness:
    """Return the staleness of a plan."""
    return [{"fp": [*stale.forward], "eb": [*stale.backward]} for stale in plan.steady.staleness]


def check_staleness(drawn: Drawn) -> None:
    """Check how many updates are missing, in FP and in EB of each sample of a mini-batch on each
    device.
    """
    case, plan = drawn
    late = staleness_of(as_printed(emuchain.simulate(plan)), case.network, case.cluster)
    assert in_order(plan, late) == planned_staleness(plan)


@hypothesis.given(planned(st.one_of(chains(), chains(), replicas(), frozen_chains(), _TIED)))
@hypothesis.settings(max_examples=100)
def test_same_staleness(drawn: Drawn) -> None:
    check_staleness(drawn)


def test_same_staleness_of_a_table_beside_another_slice() -> None:
    """The wait for the other end's gradients ends before the longer update of the device's second
    slice begins.
    """
    conv = {"type": "conv", "channels": 1, "kernel": 1}
    network = of_table("drawn", 1, 1, {**conv, "channels": 7}, conv)
    board = {
        "name": "b0",
        "clock_mhz": 50,
        "dsp": 40,
        "on_chip_memory_kbit": 4000,
        "off_chip_gbytes_per_s": 0.02,
    }
    links = [{"share": "bytes", "bandwidth_gbps": 20, "latency_ns": 0, "count": 1}]
    case = Case(
        network,
        {"name": "drawn", "boards": [board, {**board, "on_chip_memory_kbit": 40}], "links": links},
        {"devices": 2, "samples": 1, "batch": 1, "epochs": 1, "schedule": "sync"},
    )
    check_staleness(Drawn(case, emuchain.plan(case.network, case.cluster, **case.keys)))


def test_same_picoseconds_where_the_ends_of_a_table_would_wait_in_a_circle() -> None:
    """All devices with a part of it then take as old weights as the latest of them."""
    network = of_table(
        "drawn", 10, 7, {"type": "positions"}, {"type": "conv", "channels": 7, "kernel": 1}
    )
    boards = [{"name": "b0", "clock_mhz": 50, "dsp": 63, "on_chip_memory_kbit": 8}]
    links = [{"share": "bytes", "bandwidth_gbps": 100, "latency_ns": 0, "count": 1}]
    keys = {"devices": 6, "samples": 8, "batch": 1, "epochs": 1, "schedule": "fpdeep"}
    case = Case(network, {"name": "drawn", "boards": boards, "links": links}, keys)
    drawn = Drawn(case, emuchain.plan(case.network, case.cluster, **case.keys))
    shown = as_printed(emuchain.simulate(drawn.plan))
    assert staleness_of(shown, case.network, case.cluster) != planned_staleness(drawn.plan)
    check_staleness(drawn)
    check_rows(drawn)


def test_same_picoseconds_where_a_frozen_layers_sample_comes_back_before_an_update() -> None:
    """Without EB, the empty message waits for no weights, which the replicas' exchange makes
    late.
    """
    network = {
        "name": "drawn",
        "input": [2, 3, 3],
        "layers": [
            {"type": "conv", "name": "conv0", "channels": 1, "kernel": 1},
            {"type": "fc", "features": 1},
            {"type": "softmax"},
        ],
    }
    board = {
        "name": "b0",
        "clock_mhz": 50,
        "dsp": 40,
        "on_chip_memory_kbit": 4000,
        "off_chip_gbytes_per_s": 0.02,
    }
    boards = [board, {**board, "name": "b1", "clock_mhz": 265}] * 2
    links = [{"share": "bytes", "bandwidth_gbps": 20, "latency_ns": 0, "count": 1}]
    keys = {
        "devices": 2,
        "replicas": 2,
        "samples": 4,
        "batch": 2,
        "epochs": 2,
        "schedule": "fpdeep",
    }
    case = Case(
        network, {"name": "drawn", "boards": boards, "links": links}, {**keys, "freeze": ["conv0"]}
    )
    check_rows(Drawn(case, emuchain.plan(case.network, case.cluster, **case.keys)))


@pytest.mark.exhaustive
def test_same_picoseconds_in_hundreds_of_cases() -> None:
    """At least 500 different cases, and enough of each kind."""
    cases, kinds = compare_hundreds(st.one_of(chains(), chains(), replicas()), 1200, kinds_of)
    assert cases >= 500
    assert set(kinds) == ALL_KINDS and min(kinds.values()) >= LEAST_OF_A_KIND, kinds


@pytest.mark.exhaustive
def test_same_picoseconds_in_hundreds_of_cases_in_formats() -> None:
    """At least 400 different cases, and enough of each kind."""
    drawn = st.one_of(narrow_chains(), narrow_attention_chains(), formats_by_layer(), dot_chains())
    cases, kinds = compare_hundreds(drawn, 900, kinds_in_formats)
    assert cases >= 400
    assert set(kinds) == KINDS_IN_FORMATS and min(kinds.values()) >= LEAST_OF_A_KIND, kinds


def compare_hundreds(
    cases: st.SearchStrategy[Case], examples: int, kinds_of_case: Callable[[Case, Table], set[str]]
) -> tuple[int, Counter[str]]:
    """Compare the times of different cases, the same in every run; return how many they are, and
    how many of each kind. The counts are printed (`-s`).
    """
    seen: set[str] = set()
    kinds: Counter[str] = Counter()
    differing: list[tuple[Case, int, int]] = []

    @hypothesis.given(planned(cases))
    @hypothesis.settings(
        max_examples=examples, derandomize=True, database=None, phases=[hypothesis.Phase.generate]
    )
    def compare(drawn: Drawn) -> None:
        emulated = printed(drawn.plan)
        key = repr((drawn.case, emulated["mapping"]))
        if key in seen:
            return
        seen.add(key)
        kinds.update(kinds_of_case(drawn.case, emulated))
        time_ps = run(emulated, drawn.case.network, drawn.case.cluster)
        if time_ps != emulated["virtual_time_ps"]:
            differing.append((drawn.case, time_ps, emulated["virtual_time_ps"]))

    compare()
    print(f"\n{len(seen)} different cases, {len(differing)} differ:", dict(kinds.most_common()))
    assert not differing, min(differing, key=lambda difference: len(repr(difference)))
    return len(seen), kinds


KINDS_IN_FORMATS = {
    *("attention", "tied", "layer", "master", "accumulate bf16"),
    *("accumulate dot:8", "accumulate dot:16", "accumulate dot:32"),
    *("bf16", "fp16", "fp8", "q2.5", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "int5@12", "e2m3@3"),
    *("several devices", "sync", "gpipe", "fpdeep"),
}


def kinds_in_formats(case: Case, emulated: Table) -> set[str]:
    """Return what occurs in a case in formats."""
    words = case.keys["precision"].replace("accumulate=", "accumulate ")
    tied = any("tied" in layer for layer in case.network["layers"])
    types = {layer["type"] for layer in case.network["layers"]}
    several = len(emulated["mapping"]["devices"]) > 1
    occurring = {
        *re.split(r"[ =.](?!5)", words),  # a name as q2.5 stays whole
        *(f"accumulate {name}" for name in re.findall(r"accumulate (\S+)", words)),
        *(["tied"] if tied else []),
        *(["several devices"] if several else []),
        *types,
        emulated["config"]["schedule"],
    }
    return occurring & KINDS_IN_FORMATS


SCHEDULES = ["sync", "gpipe", "fpdeep", "data-parallel-ring", "data-parallel-aggregator"]
ALL_KINDS = {
    *SCHEDULES,
    *(
        "add",
        "concat",
        "pool",
        "several devices",
        "short mini-batch",
        "several epochs",
        "old weights",
    ),
    *(
        "groups cut",
        "balanced parameters",
        "off chip",
        "unequal boards",
        "unequal links",
        "fixed paths",
        "fixed paths, OCP",
    ),
    *(
        "replicas",
        "chains side by side",
        "fpdeep with replicas",
        "ring",
        "aggregator",
        "[network]",
        "blocking",
    ),
}


def kinds_of(case: Case, found: Table) -> set[str]:
    """Return what occurs in a case."""
    config, devices = found["config"], found["mapping"]["devices"]
    operations = {operation["type"].rpartition("-")[2] for operation in case.network["layers"]}
    links = [link for link in case.cluster["links"] for _ in range(link["count"])][
        : len(devices) - 1
    ]
    alike = [{key: value for key, value in link.items() if key != "count"} for link in links]
    fixed = bool(links) and links[0]["share"] == "paths"
    by_outputs = Counter(
        part["layer"] for each in devices for part in each["slices"] if part["cut"] == "OCP"
    )
    in_groups = {layer["name"] for layer in case.network["layers"] if layer.get("groups", 1) > 1}
    replicas, exchanges = found["replicas"] > 1, set[str]()
    if replicas:
        kind = config["schedule"] if len(devices) == 1 else config["exchange"]
        network = case.cluster.get("network", {})
        exchanges = {
            "ring" if "ring" in (kind, config["schedule"].rpartition("-")[2]) else "aggregator",
            *(["chains side by side"] if len(devices) > 1 else []),
            *(["fpdeep with replicas"] if config["schedule"] == "fpdeep" else []),
            *(["[network]"] if network else []),
            *(["blocking"] if network.get("blocking") else []),
        }
    occurs = {
        "several devices": len(devices) > 1,
        "short mini-batch": (
            config["samples"] % config["batch"] and config["samples"] > config["batch"]
        ),
        "several epochs": config["epochs"] > 1,
        "old weights": any(found["stale_samples"]) and config["schedule"] == "fpdeep",
        "groups cut": any(by_outputs[name] > 1 for name in in_groups),
        "balanced parameters": found["mapping"]["balanced_parameters"],
        "off chip": any(device["port_bytes"] for device in found["devices"]),
        "unequal boards": len({device["board"] for device in devices}) > 1,
        "unequal links": any(link != alike[0] for link in alike),
        "fixed paths": fixed,
        "fixed paths, OCP": fixed and max(by_outputs.values(), default=0) > 1,
        "replicas": replicas,
    }
    named = operations & {"add", "concat", "pool"}
    return {
        config["schedule"],
        *named,
        *exchanges,
        *(kind for kind, is_there in occurs.items() if is_there),
    }


# With four devices the second convolution is cut by input channels, and each path matters for the
# time.
CHAIN: Table = {
    "name": "chain",
    "input": [3, 6, 6],
    "layers": [
        {"type": "conv", "name": "first", "channels": 16, "kernel": 3, "pad": 1},
        {"type": "conv", "name": "second", "channels": 8, "kernel": 3, "pad": 1},
        {"type": "fc", "name": "third", "features": 4},
        {"type": "softmax"},
    ],
}
BOARDS: Table = {
    "name": "boards",
    "boards": [{"name": "board", "clock_mhz": 100, "dsp": 58, "on_chip_memory_kbit": 4000}],
    "links": {"bandwidth_gbps": 10, "latency_ns": 1000},
}


def chain_plan(is_balanced: bool) -> ChainPlan:
    """Four devices; if balanced, the first one stores weights of a slice on the last one."""
    plan = emuchain.plan(CHAIN, BOARDS, devices=4, samples=4, batch=2, schedule="sync")
    if not is_balanced:
        return plan
    part = plan.mapping.devices[3][0]
    size = 4 * part.layer.channels * 9  # of one input channel
    block = BalancedParameters(part.layer, part.begin, part.begin + 1, 3, 0, size)
    timing = Timing.of(plan.mapping, plan.cluster, (block,))
    return dataclasses.replace(plan, timing=timing, steady=find_steady(timing, plan.batch))


@pytest.mark.parametrize("path", range(1, 7))
def test_a_forgotten_latency_is_noticed(path: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator with a fault planted in it: rows on one data path arrive as soon as they have
    left.
    """
    plan = chain_plan(is_balanced=path >= 5)
    found = printed(plan)
    assert any(link["path_bytes"].get(str(path)) for link in found["links"])
    assert run(found, CHAIN, BOARDS) == found["virtual_time_ps"]

    right = Timing.path

    def forgetful(timing: Timing, link: int, stream: Stream) -> FifoResource:
        fifo = right(timing, link, stream)
        assert fifo is not None
        if stream.path.value == path:
            fifo.latency_ps = 0
        return fifo

    monkeypatch.setattr(Timing, "path", forgetful)
    wrong: dict[str, Any] = printed(plan)
    assert (
        wrong["mapping"] == found["mapping"] and wrong["virtual_time_ps"] < found["virtual_time_ps"]
    )
    assert run(wrong, CHAIN, BOARDS) != wrong["virtual_time_ps"]


def test_a_forgotten_pool_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fixed paths, slices that are cut by output channels pool before they send; with this
    fault they do not.
    """
    first, *others = CHAIN["layers"]
    network = {
        **CHAIN,
        "layers": [first, {"type": "relu"}, {"type": "max-pool", "kernel": 2}, *others],
    }
    links = {"bandwidth_gbps": 0.02, "latency_ns": 1000, "share": "paths"}
    cluster = {**BOARDS, "links": links, "boards": [{**BOARDS["boards"][0], "dsp": 44}]}

    def simulated() -> Table:
        return printed(
            emuchain.plan(network, cluster, devices=6, samples=4, batch=2, schedule="sync")
        )

    found = simulated()
    assert [
        part["cut"] for device in found["mapping"]["devices"] for part in device["slices"]
    ].count("OCP") > 1
    assert run(found, network, cluster) == found["virtual_time_ps"]
    monkeypatch.setattr(MaxPool, "by_channel", False)
    wrong = simulated()
    assert wrong["virtual_time_ps"] > found["virtual_time_ps"]
    assert run(wrong, network, cluster) != wrong["virtual_time_ps"]
