"""Recurrent layers against chains worked out with pencil and paper, in docs/time-model.md; all
times in nanoseconds.

`wavefront`: two LSTMs of two units on two boards, three steps. `units`: an LSTM of two units, of
which each board has one, so that every step gathers states. The texts are those of the page, where
every number below is derived.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.config import Config
from emuchain.emulator.plan import ChainPlan, make_plan

PAGE = Path(__file__).parents[3] / "docs" / "time-model.md"
FILES = {"wavefront": ("two.toml", "steps.toml"), "units": ("one.toml", "halves.toml")}
SLICES = {
    "wavefront": [["lstm1[0:2] OCP"], ["lstm2[0:2] OCP"]],
    "units": [["lstm1[0:1] OCP"], ["lstm1[1:2] OCP"]],
}
INTERVAL_NS = {"wavefront": 300, "units": 900}
ENGINES = {
    "wavefront": {
        "0 lstm1 fp": [100, 200, 300],  # steps 1, 2, 3
        "0 lstm1 eb": [700, 800, 900],  # steps 3, 2, 1
        "0 lstm1 pg": [780, 880, 980],
        "1 lstm2 fp": [250, 350, 450],
        "1 lstm2 eb": [550, 650, 750],
        "1 lstm2 pg": [630, 730, 830],
    },
    "units": {
        "0 lstm1 fp": [200, 400, 600],
        "0 lstm1 eb": [1100, 1400, 1700],
        "0 lstm1 pg": [1180, 1480, 1780],
        "1 lstm1 fp": [300, 500, 700],
        "1 lstm1 eb": [1000, 1300, 1600],
        "1 lstm1 pg": [1080, 1380, 1680],
    },
}
PATHS = {
    "wavefront": {1: [150, 250, 350], 4: [600, 700, 800]},
    "units": {1: [100, 140, 180], 2: [300, 500, 700], 3: [800, 840, 880]},
}
UPDATED = {"wavefront": [1000, 850], "units": [1790, 1690]}

ToyPlan = Callable[..., ChainPlan]


@pytest.fixture
def toy_plan(tmp_path: Path) -> ToyPlan:
    """Makes the plan of a toy, from the files that the page shows."""

    def make(toy: str, **keys: Any) -> ChainPlan:
        page = PAGE.read_text()
        paths = []
        for name in FILES[toy]:
            [text] = re.findall(rf"`{name}`:\n\n```toml\n(.*?)```", page, re.DOTALL)
            paths.append(tmp_path / name)
            paths[-1].write_text(text)
        network, cluster = map(str, paths)
        run: dict[str, Any] = {"batch": 1, "micro_batch": 1, "schedule": "sync", **keys}
        return make_plan(Config(network=network, cluster=cluster, devices=2, **run), 1)

    return make


def later(rows: list[float], by: float) -> list[float]:
    return [time + by for time in rows]


@pytest.mark.parametrize("toy", FILES)
def test_cut_and_interval(toy_plan: ToyPlan, toy: str) -> None:
    plan = toy_plan(toy)
    assert [[str(part) for part in slices] for slices in plan.mapping.devices] == SLICES[toy]
    assert plan.timing.interval_ps == 1000 * INTERVAL_NS[toy]


@pytest.mark.parametrize("toy", FILES)
def test_every_row_of_a_sample(toy_plan: ToyPlan, record: Any, toy: str) -> None:
    recorded = record(toy_plan(toy), 1)
    assert recorded.engines == {name: [rows] for name, rows in ENGINES[toy].items()}
    assert {path: recorded.paths[path] for path in PATHS[toy]} == {
        p: [rows] for p, rows in PATHS[toy].items()
    }
    assert [trace.updated_ps for trace in recorded.traces] == [
        [1000 * time] for time in UPDATED[toy]
    ]


def test_streams_of_a_cut_layer_and_no_others(toy_plan: ToyPlan, record: Any) -> None:
    assert record(toy_plan("units"), 1).paths.keys() == {1, 2, 3, 4, 7, 8}
    assert record(toy_plan("wavefront"), 1).paths.keys() == {1, 4}


def test_rows_of_the_second_sample_come_an_interval_later(toy_plan: ToyPlan, record: Any) -> None:
    recorded = record(toy_plan("wavefront", batch=2, micro_batch=2), 2)
    assert recorded.engines == {
        name: [rows, later(rows, 300)] for name, rows in ENGINES["wavefront"].items()
    }
    assert [trace.updated_ps[0] for trace in recorded.traces] == [1_300_000, 1_150_000]


def test_the_same_rows_under_fpdeep(toy_plan: ToyPlan, record: Any) -> None:
    assert (
        record(toy_plan("wavefront", schedule="fpdeep"), 1).engines
        == record(toy_plan("wavefront"), 1).engines
    )
