"""Formats by epoch against the event simulation: each phase runs by itself, in its own formats on
the boards of all, and begins when all boards are done with the one before.
"""

from __future__ import annotations

import itertools
from functools import partial

import hypothesis
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError

from .described import FORMATS
from .drawn import Case, narrow_chains
from .event_simulation import run_of
from .test_event_simulation import in_order, printed


@st.composite
def formats_by_epoch(draw: st.DrawFn) -> tuple[Case, list[tuple[int, str]]]:
    """A run of one chain in other formats from epochs on; and the first epoch of each phase with
    its formats as text.
    """
    case = draw(narrow_chains())
    before = case.keys["precision"]
    names = st.sampled_from([name for name in FORMATS if name != "int32"])
    begins = sorted(draw(st.sets(st.integers(2, 4), min_size=1, max_size=2)))
    phases, words = [(1, before)], [before]
    for begin in begins:
        kinds = {kind: draw(names) for kind in ("activations", "weights", "errors")}
        own = [f"{kind}={name}" for kind, name in kinds.items()]
        others = [word for word in before.split() if word.startswith(("master", "accumulate"))]
        phases.append((begin, " ".join(["fp32", *others, *own])))
        words += [f"epoch.{begin}.{word}" for word in own]
    keys = {**case.keys, "epochs": draw(st.integers(begins[-1], 4)), "precision": " ".join(words)}
    return case._replace(keys=keys), phases


@hypothesis.given(formats_by_epoch())
@hypothesis.settings(max_examples=12)
def test_same_picoseconds(drawn: tuple[Case, list[tuple[int, str]]]) -> None:
    case, phases = drawn
    try:
        plan = emuchain.plan(case.network, case.cluster, **case.keys)
    except InputError:
        hypothesis.assume(False)
    simulated, ends = printed(plan), [*(begin for begin, _ in phases[1:]), plan.config.epochs + 1]
    times_ps = []
    for own, (begin, text), end in zip(plan.of_phases, phases, ends, strict=True):
        config = {**simulated["config"], "precision": text, "epochs": end - begin}
        # Which parameters other boards store may change with their bytes.
        described = {**printed(own), "config": config}
        run = run_of(described, case.network, case.cluster, partial(in_order, own))
        times_ps.append(run.time_ps)
    begun_ps = [0, *itertools.accumulate(times_ps)]
    ends_ps = [0, *emuchain.simulate(plan).epoch_ends_ps]
    assert [ends_ps[begin - 1] for begin, _ in phases] == begun_ps[:-1]
    assert ends_ps[-1] == simulated["virtual_time_ps"] == begun_ps[-1]
