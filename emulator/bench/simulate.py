"""The cost of simulation: for chains of 1 to 1,024 devices, epochs of many samples, and maps of many or few rows.

A row is what a server (an engine, or a data path on a link) takes at once. In a chain of twice the devices, layers are
cut twice as often, and a sample has about twice the rows. So a cost that is linear in devices x samples x rows shows as
a constant cost per row; where maps have few rows, a device's cost per sample shows instead.
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Iterator

from ..config import load_config
from ..plan import make_plan
from ..run import simulate
from ..timing import Timing, engine_loads, link_loads

BATCH = 64
CASES = (
    *(("vgg16", devices, 64) for devices in (1, 100, 200, 400, 800, 1024)),
    *(("vgg16", 100, samples) for samples in (128, 256, 512, 1024, 2048, 4096)),
    *(("vgg16-cifar", devices, 1024) for devices in (15, 100)),
)
"""Network, devices and samples of each case: more devices; more samples; fewer rows."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Processor time in seconds: to plan a run, whatever its samples, and to simulate an epoch of `samples`.

    `sample_rows` is the number of rows that all servers together take for a sample.
    """

    network: str
    devices: int
    samples: int
    sample_rows: int
    plan_seconds: float
    run_seconds: float

    @property
    def row_ns(self) -> float:
        """Cost of a row in the run, in ns."""
        return 1e9 * self.run_seconds / (self.samples * self.sample_rows)

    @property
    def device_plan_ms(self) -> float:
        """Cost of a device in the plan, in ms."""
        return 1e3 * self.plan_seconds / self.devices


def measure(runs: int, cases: tuple[tuple[str, int, int], ...] = CASES) -> Iterator[Cost]:
    """Yield the median cost of `runs` runs of each case."""
    for network, devices, samples in cases:
        plans, epochs = [], []
        keys = {"network": network, "devices": devices, "samples": samples, "batch": BATCH, "micro_batch": BATCH}
        config = load_config(None, keys)
        for _ in range(runs + 1):
            gc.collect()
            begun = time.process_time()
            plan = make_plan(config, 1)
            planned = time.process_time()
            simulate(plan, samples)
            plans.append(planned - begun)
            epochs.append(time.process_time() - planned)
        rows = sample_rows(plan.timing)
        # The first run loads kernels, and is not counted.
        yield Cost(network, devices, samples, rows, statistics.median(plans[1:]), statistics.median(epochs[1:]))


def sample_rows(timing: Timing) -> int:
    """Return the number of rows of a sample on all engines and links."""
    engines = sum(load.engine.rows for load in engine_loads(timing))
    return engines + sum(stream.rows for load in link_loads(timing) for stream in load.streams)
