"""Rings, tori and switches in the emulator and in the discrete-event simulation, which shares no
code with it.
"""

from __future__ import annotations

from collections import Counter

import hypothesis
import pytest
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.timing import Timing

from .drawn import Case, attention_chains, chains, on_topologies, replicas, sequences, tied_chains
from .event_simulation import run
from .test_event_simulation import Drawn, as_printed, check_rows, planned

CASES = on_topologies(st.one_of(chains(), chains(), replicas(), tied_chains(), attention_chains()))
LEAST_OF_A_KIND = 10


@hypothesis.given(planned(CASES))
@hypothesis.settings(max_examples=40)
def test_same_picoseconds(drawn: Drawn) -> None:
    check_rows(drawn)


@hypothesis.given(on_topologies(sequences()))
@hypothesis.settings(max_examples=20)
def test_same_picoseconds_of_recurrent_layers(case: Case) -> None:
    """Placed by the plan, which stores no parameters of such networks on other devices."""
    try:
        plan = emuchain.plan(case.network, case.cluster, **case.keys)
    except InputError:
        hypothesis.assume(False)
    check_rows(Drawn(case, plan))


@pytest.mark.exhaustive
def test_same_picoseconds_in_hundreds_of_cases() -> None:
    """At least 200 different cases, the same in every run, and enough of each kind; the counts are
    printed (`-s`).
    """
    seen: set[str] = set()
    kinds: Counter[str] = Counter()
    differing: list[tuple[Case, int, int]] = []

    @hypothesis.given(planned(CASES))
    @hypothesis.settings(
        max_examples=500, derandomize=True, database=None, phases=[hypothesis.Phase.generate]
    )
    def compare(drawn: Drawn) -> None:
        simulated = as_printed(emuchain.simulate(drawn.plan))
        key = repr((drawn.case, simulated["mapping"]))
        if key in seen:
            return
        seen.add(key)
        kinds.update(kinds_of(drawn))
        time_ps = run(simulated, drawn.case.network, drawn.case.cluster)
        if time_ps != simulated["virtual_time_ps"]:
            differing.append((drawn.case, time_ps, simulated["virtual_time_ps"]))

    compare()
    print(f"\n{len(seen)} different cases, {len(differing)} differ:", dict(kinds.most_common()))
    assert not differing, min(differing, key=lambda each: len(repr(each)))
    assert len(seen) >= 200
    assert set(kinds) == ALL_KINDS and min(kinds.values()) >= LEAST_OF_A_KIND, kinds


ALL_KINDS = {
    "ring",
    "torus",
    "switch",
    "shape",
    "shorter routes",
    "tied weights",
    "fixed paths",
    "replicas",
}


def kinds_of(drawn: Drawn) -> set[str]:
    """Return what occurs in a case."""
    links, timing = drawn.case.cluster["links"], drawn.plan.timing
    occurs = {
        "shape": "shape" in links,
        "shorter routes": has_shorter_routes(timing),
        "tied weights": bool(drawn.plan.network.heads),
        "fixed paths": links["share"] == "paths",
        "replicas": drawn.plan.data_parallel.replicas > 1,
    }
    return {links["topology"], *(kind for kind, is_there in occurs.items() if is_there)}


def has_shorter_routes(timing: Timing) -> bool:
    """Return whether a stream passes a link of the chain in no time."""
    return any(
        timing.path(link, stream) is None
        for link, streams in enumerate(timing.links)
        for stream in streams
    )
