"""Streamed rows: by hand, beside the row-level clocks of a chain, and what the number of samples
does to time.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.config import Config
from emuchain.emulator.plan import make_plan
from emuchain.emulator.run import simulate
from emuchain.emulator.schedule import (
    Backward,
    Engines,
    Kind,
    Machine,
    Shape,
    StageCosts,
    Transport,
    pipeline_kind,
    pipelines,
)
from emuchain.emulator.timing import Step, run_timeline, schedule_of, time_pipeline

from .shapes import shape_of, timed

SPLIT = Machine(Engines.SPLIT, Transport.STREAMED)
TURNS = Machine(Engines.TURNS, Transport.STREAMED)
IN_ORDER = sorted(name for name, kind in pipelines().items() if kind.chunks == 1)
ONE_MINI_BATCH = [name for name in IN_ORDER if name not in ("pipedream", "2bw")]
"""The others update after one micro-batch, or after N."""


def starts_and_ends(shape: Shape, name: str = "1f1b-as") -> dict[str, tuple[int, int]]:
    """Start and end of each action by kind, micro-batch and stage."""
    schedule, _ = schedule_of(pipeline_kind(name), shape)
    found = run_timeline(schedule, shape.costs, shape.machine).timed
    return {
        f"{e.step.kind.value}{e.step.micro_batch} {e.step.stage}": (e.start_ps, e.end_ps)
        for e in found
    }


def test_by_hand() -> None:
    """Four rows; F 4 and B 8, so a row 1 and 2; a message 2, so a row 1 (rounded up); latency 3.

    Rows of F leave the link at 2 3 4 5 and come at 5 6 7 8; B comes back at 12 + ... one in 2.
    """
    costs = StageCosts(4, 8, transfer_ps=2, rows=4)
    assert starts_and_ends(
        shape_of("1f1b-as", 2, 1, costs, Machine(Engines.TURNS, Transport.STREAMED, latency_ps=3))
    ) == {
        "F0 0": (0, 4),
        "F0 1": (5, 9),
        "B0 1": (9, 17),
        "B0 0": (15, 23),  # rows leave at 11 13 15 17, and come four later
    }


def test_rows_that_trickle() -> None:
    """A link three times as slow as the engine: rows leave it at 4 7 10 13, the receiver ends one
    after the last.
    """
    costs = StageCosts(4, 4, transfer_ps=12, rows=4)
    found = starts_and_ends(shape_of("1f1b-as", 2, 2, costs, SPLIT))
    assert found["F0 0"] == (0, 8) and found["F0 1"] == (5, 16)
    assert found["F1 0"] == (8, 16) and found["F1 1"] == (17, 28)


def test_critical_path_follows_rows_that_trickle() -> None:
    result, _ = timed(
        "1f1b-as", shape_of("1f1b-as", 2, 1, StageCosts(4, 4, transfer_ps=12, rows=4), TURNS)
    )
    assert [(each.step.kind.value, each.device) for each in result.critical_path] == [
        ("F", 0),
        ("F", 1),
        ("B", 1),
        ("B", 0),
    ]
    assert [(each.start_ps, each.end_ps, each.arrival_ps) for each in result.sent] == [
        (1, 13, 13),
        (15, 27, 27),
    ]


def test_what_trickles_in_counts_as_the_cause() -> None:
    """On stage 1, F1 starts at 58, when B0 ends, and waits for rows that come at 51 61 71 81."""
    shape = shape_of("1f1b-as", 2, 2, StageCosts(4, 16, transfer_ps=40, rows=4), TURNS)
    found = {each.step: each for each in timed("1f1b-as", shape)[0].timed}
    late = found[Step(Kind.FORWARD, 1, 1)]
    assert (late.start_ps, late.end_ps) == (58, 82)
    assert late.released_by == Step(Kind.FORWARD, 1, 0)


def test_a_pool_cannot_stream() -> None:
    with pytest.raises(
        InputError, match="rows of shared engines have no fixed time; try stored or hidden"
    ):
        Machine(Engines.SHARED, Transport.STREAMED)


def test_rows_and_samples_that_are_refused() -> None:
    with pytest.raises(InputError, match="`samples` = 1, `rows` = 0: must be at least 1"):
        StageCosts(1, 2, rows=0)
    shape = Shape(2, 2, (StageCosts(1, 2), StageCosts(2, 4, samples=2)), TURNS)
    with pytest.raises(InputError, match="same number of samples"):
        timed("1f1b-as", shape)


# Beside the row-level clocks

PERIOD_PS = 10_000
CHANNELS, WIDTH = 2, 3


def chain_files(
    folder: Path, stages: int, rows: int, gbps: float, latency_ns: int
) -> dict[str, str]:
    """Write a network of equal 1x1 convolutions, a pool of the whole map at its end, and boards
    with one layer each.

    The first layer has no EB, so a board of two multipliers holds it; each other layer needs three.
    """
    network, cluster = folder / "network.toml", folder / "cluster.toml"
    layers = ", ".join([f'{{ type = "conv", channels = {CHANNELS}, kernel = 1 }}'] * stages)
    network.write_text(
        f'name = "equal"\ninput = [{CHANNELS}, {rows}, {WIDTH}]\n'
        f'layers = [{layers}, {{ type = "global-average-pool" }}, {{ type = "softmax" }}]\n'
    )
    boards = ", ".join(
        f'{{ name = "{name}", clock_mhz = 100, dsp = {dsp}, on_chip_memory_kbit = 8 }}'
        for name, dsp in (("first", 2), ("other", 3))
    )
    cluster.write_text(
        f'name = "equal"\nboards = [{boards}]\nlinks = {{ bandwidth_gbps = {gbps}, latency_ns ='
        f" {latency_ns} }}\n"
    )
    return {"network": str(network), "cluster": str(cluster)}


@pytest.mark.parametrize("schedule", ["sync", "gpipe"])
@pytest.mark.parametrize(
    ("stages", "rows", "gbps", "latency_ns", "samples"),
    [
        (1, 4, 8, 0, 3),
        (2, 5, 8, 100, 4),
        (3, 6, 0.9, 70, 5),
        (4, 1, 3.7, 0, 6),
        (5, 7, 1.6, 1000, 4),
        (3, 4, 0.7, 5, 1),
    ],
)
def test_beside_the_clocks_of_rows(
    tmp_path: Path,
    schedule: str,
    stages: int,
    rows: int,
    gbps: float,
    latency_ns: int,
    samples: int,
) -> None:
    """The clocks of a mini-batch on a chain, less its update, which the timeline leaves out."""
    files = chain_files(tmp_path, stages, rows, gbps, latency_ns)
    plan = make_plan(Config(**files, devices=stages, batch=samples, schedule=schedule), 1)
    assert [len(each) for each in plan.mapping.devices] == [1] * stages
    virtual_time_ps = simulate(plan, samples).virtual_time_ps
    row_ps = CHANNELS * CHANNELS * WIDTH * PERIOD_PS
    sent_row_ps = -(-CHANNELS * WIDTH * 4 * 8000 * 10 // round(gbps * 10))
    costs = StageCosts(
        rows * row_ps // 2, rows * row_ps // 2, transfer_ps=rows * sent_row_ps, rows=rows
    )
    machine = Machine(Engines.SPLIT, Transport.STREAMED, latency_ps=1000 * latency_ns)
    for kind in ("gpipe", "1f1b-so"):
        result, form = timed(kind, shape_of(kind, stages, samples, costs, machine))
        assert form is not None and form.exact == (sent_row_ps <= row_ps or stages == 1)
        assert not form.exact or form.time_ps == result.makespan_ps
        assert result.makespan_ps == virtual_time_ps - CHANNELS * PERIOD_PS


# What the number of samples in a micro-batch does


@given(
    st.sampled_from(ONE_MINI_BATCH),
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 4),
    st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 90)),
    st.integers(0, 20),
)
def test_with_split_engines_samples_alone_count(
    name: str,
    stages: int,
    count: int,
    samples: int,
    rows: int,
    times: tuple[int, int, int],
    latency_ps: int,
) -> None:
    """Time depends on how many samples a mini-batch has, not on how these are cut into
    micro-batches.
    """
    forward, backward, transfer = times
    machine = Machine(
        Engines.SPLIT, Transport.STREAMED, pipeline_kind(name).machine.backward, latency_ps
    )

    def time_ps(count: int, samples: int) -> int:
        costs = StageCosts(
            samples * forward,
            samples * backward,
            samples * (backward // 2),
            samples * transfer,
            samples=samples,
            rows=rows,
        )
        return timed(name, shape_of(name, stages, count, costs, machine))[0].makespan_ps

    assert time_ps(count, samples) == time_ps(count * samples, 1)


@pytest.mark.parametrize(("transport", "transfer"), [("streamed", 8), ("stored", 1), ("hidden", 0)])
def test_with_turns_the_micro_batch_counts(transport: str, transfer: int) -> None:
    """Where rows are streamed, it does as soon as links are slower than engines."""

    def time_ps(count: int, samples: int) -> int:
        costs = StageCosts(
            2 * samples, 4 * samples, transfer_ps=transfer * samples, samples=samples, rows=2
        )
        return timed(
            "1f1b-so", shape_of("1f1b-so", 3, count, costs, Machine(transport=Transport(transport)))
        )[0].makespan_ps

    times = [time_ps(count, 12 // count) for count in (12, 6, 3, 1)]
    assert times == sorted(set(times)), "the fewer micro-batches, the longer"


def test_gradients_take_the_errors_that_back_propagation_takes() -> None:
    """With engines of their own W runs beside B; by turns it follows it."""
    costs = StageCosts(3, 6, 3, 1, rows=3)
    split = shape_of(
        "zero-bubble", 2, 1, costs, Machine(Engines.SPLIT, Transport.STREAMED, Backward.SPLIT)
    )
    found = starts_and_ends(split, "zero-bubble")
    assert found["B0 0"] == found["W0 0"] and found["B0 1"] == found["W0 1"]
    turns = shape_of(
        "zero-bubble", 2, 1, costs, Machine(Engines.TURNS, Transport.STREAMED, Backward.SPLIT)
    )
    found = starts_and_ends(turns, "zero-bubble")
    assert found["W0 0"][0] == found["B0 0"][1]


def test_stages_with_other_numbers_of_rows() -> None:
    """Row r of 2 waits for row 2r + 1 of 4, and the other way round for row r / 2."""
    costs = (StageCosts(4, 4, rows=4), StageCosts(4, 4, rows=2))
    schedule, _ = schedule_of(pipeline_kind("1f1b-as"), Shape(2, 1, costs, TURNS))
    found = {each.step: each for each in time_pipeline(schedule, costs, TURNS).timed}
    assert found[Step(Kind.FORWARD, 0, 1)].start_ps == 2
    assert found[Step(Kind.BACKWARD, 0, 0)].start_ps == 8
