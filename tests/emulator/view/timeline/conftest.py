"""What tests of timelines share: the plans of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.plan import ChainPlan

from .runs import RUNS, SAMPLES

TracedPlan = Callable[..., ChainPlan]


@pytest.fixture(scope="session")
def traced_plan(plan_of: Any, small_cifar: Path, small_cluster: str) -> TracedPlan:
    """Makes the plan of a run."""

    def make(run: str, **keys: Any) -> ChainPlan:
        settings = {
            "data": str(small_cifar),
            "samples": SAMPLES,
            "test_samples": 7,
            "batch": 12,
            "micro_batch": 5,
        }
        chosen = {**RUNS[run], **keys}
        if chosen.get("cluster") == "small":
            chosen["cluster"] = small_cluster
        elif chosen.get("cluster") == "small with a port":
            described = Path(small_cluster).read_text()
            path = Path(small_cluster).with_name("port.toml")
            path.write_text(described.replace("dsp = 300", "dsp = 300\noff_chip_gbytes_per_s = 2"))
            chosen["cluster"] = str(path)
        return plan_of(**{**settings, "epochs": 2, **chosen})

    return make
