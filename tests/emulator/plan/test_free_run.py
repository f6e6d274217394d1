"""The free run: times of samples that only follow at the interval are those of a run of every
sample.
"""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emuchain
from emuchain.comm import FifoResource
from emuchain.emulator.common import Note
from emuchain.emulator.config import load_config
from emuchain.emulator.plan import make_plan
from emuchain.emulator.plan.steady import free_run

from ..counted import COUNTED
from ..timing.chains import Run, runs

STEPS = 5


@settings(max_examples=60)
@given(runs(), st.lists(st.integers(0, 10**9), min_size=6, max_size=6), st.booleans(),
       st.sampled_from([1, 1, 2, 3]))  # fmt: skip
def test_left_out_samples_are_where_they_would_be(
    run: Run, exchanges_ps: list[int], exchanges: bool, faster: int
) -> None:
    """Also where samples enter faster than the slowest resource takes them, so that they queue."""
    interval_ps, batch = max(1, run.plan.timing.interval_ps // faster), run.plan.batch
    timing = dataclasses.replace(run.plan.timing, interval_ps=interval_ps)
    exchange_ps = exchanges_ps[: run.plan.devices] if exchanges else []
    shown = list(free_run(timing, batch, STEPS, exchange_ps))
    with mock.patch("emuchain.emulator.plan.steady._FIRST_SAMPLES", STEPS * batch):
        for trace, whole in zip(shown, free_run(timing, batch, STEPS, exchange_ps), strict=True):
            for times, expected in zip(vars(trace).values(), vars(whole).values(), strict=True):
                np.testing.assert_array_equal(times, expected)
            assert len(trace.forward_ps) == len(trace.gradient_ps) == STEPS * batch
            assert len(trace.updated_ps) == STEPS


@pytest.mark.parametrize("devices", [3, 24])
def test_the_work_depends_on_devices_alone(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are served: as many for a thousand samples as for ten."""
    keys = {"network": "vgg16-cifar", "devices": devices, "samples": 64, "schedule": "fpdeep"}
    timing = make_plan(load_config(None, keys), timing_only=True).timing
    served = 0
    serve = FifoResource.serve

    def counting(resource: FifoResource, ready: np.ndarray) -> np.ndarray:
        nonlocal served
        served += ready.size
        return serve(resource, ready)

    monkeypatch.setattr(FifoResource, "serve", counting)
    counts = []
    for batch in (2, 64, 256):
        served = 0
        list(free_run(timing, batch, 4))
        counts.append(served)
    assert counts[0] == counts[1] == counts[2] > 0


def test_a_pipeline_that_is_not_steady_yet_has_a_pattern_that_can_be_trained() -> None:
    """A clock and a memory of other units: after 256 mini-batches updates still come in bursts, of
    three here.
    """
    units = {"board.clock_mhz": 3700.0, "board.off_chip_gbytes_per_s": 0.00743}
    changes = {**COUNTED, **units}
    with pytest.warns(Note, match="what exists is"):
        plan = emuchain.plan("gpt2", devices=24, rows_at_once=1, changes=changes)
    for staleness in plan.steady.staleness:
        for late in (staleness.forward, staleness.backward):
            assert list(late) == sorted(late, reverse=True) and late[0] <= late[-1] + 1
