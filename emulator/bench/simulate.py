"""The cost of simulation: for chains of 1 to 1,024 devices, epochs of many samples, and maps of many or few rows.

A row is what a server (an engine, or a data path on a link) takes at once. In a chain of twice the devices, layers are
cut twice as often, and a sample has about twice the rows. So a cost that is linear in devices x samples x rows shows as
a constant cost per row; where maps have few rows, a device's cost per sample shows instead.

The curve of cost over scale is of whole commands, from their start to the last line of what they print. Each runs in a
process of its own; the operating system counts its processor time and the most memory that it had.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from ...kernels import python_command, safe_environment
from ..common import plural
from ..config import load_config
from ..plan import make_plan
from ..run import simulate
from ..timing import Timing, engine_loads, link_loads
from .figures import Sheet

BATCH = 64
CASES = (
    *(("vgg16", devices, 64) for devices in (1, 100, 200, 400, 800, 1024)),
    *(("vgg16", 100, samples) for samples in (128, 256, 512, 1024, 2048, 4096)),
    *(("vgg16-cifar", devices, 1024) for devices in (15, 100)),
)
"""Network, devices and samples of each case: more devices; more samples; fewer rows."""

_CHAINS = (64, 256, 1024, 4096, 10_000)
_RECURRENT = (16, 64, 256, 1024)
_STAGES = (64, 256, 1024)
CURVE = (
    *((boards, f"simulate vgg16 --devices {boards} --samples 64") for boards in _CHAINS),
    (1024, "simulate vgg16 --devices 64 --replicas 16 --batch 1024 --samples 1024"),
    *((boards, f"simulate lstm-5x1024 --devices {boards} --schedule sync --samples 64") for boards in _RECURRENT),
    (2, "simulate lstm-5x1024 --schedule farnn --cluster farnn-9p --batch 16 --samples 64"),
    *(
        (boards, f"pipeline --schedule 1f1b-so --stages {boards} --micro-batches 128 --forward 1 --backward 2")
        for boards in _STAGES
    ),
)
"""Boards and words of each command."""

SIMULATION_NOTES = (
    "Processor seconds. Plan: mapping, timing, the steady pipeline and the dry run, regardless of the samples; for"
    " each device, in ms. Run: the samples through the chain; for each row that a resource serves, in ns."
)
CURVE_NOTES = "Whole commands, with their start and all that they print: seconds of the processor, peak memory."


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


@dataclasses.dataclass(frozen=True)
class WholeCommand:
    """What a command took: seconds of the processor, and the most bytes of memory at a time."""

    boards: int
    command: str
    processor_seconds: float
    peak_bytes: int

    @property
    def board_ms(self) -> float:
        """Cost of a board in ms of the processor, the command's start included."""
        return 1e3 * self.processor_seconds / self.boards


def measure_commands(commands: tuple[tuple[int, str], ...] = CURVE) -> Iterator[WholeCommand]:
    """Yield what each command took.

    Raises:
        RuntimeError: a command failed.
    """
    for boards, words in commands:
        line = python_command(__name__.partition(".")[0], *words.split())
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, env=safe_environment(os.environ)) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"status {process.returncode}: {' '.join(line)}")
        unit = 1 if sys.platform == "darwin" else 1024
        yield WholeCommand(boards, words, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)


def simulation_answer(costs: Sequence[Cost]) -> list[str]:
    """Return what the largest cluster and the longest run cost."""
    most, longest = max(costs, key=lambda cost: cost.devices), max(costs, key=lambda cost: cost.samples)
    return [
        f"{cost.network} on {plural(cost.devices, 'device')}: {cost.plan_seconds:.2f} s to plan,"
        f" {cost.run_seconds:.2f} s for {plural(cost.samples, 'sample')}"
        for cost in (most, longest)
    ]


def simulation_sheet(costs: Sequence[Cost]) -> Sheet:
    """Return a table with a row for each case."""
    columns = ("network", "devices", "samples", "rows of a sample", "plan", "plan/device", "run", "run/row")
    cells = tuple(
        (
            cost.network,
            str(cost.devices),
            str(cost.samples),
            str(cost.sample_rows),
            f"{cost.plan_seconds:.2f} s",
            f"{cost.device_plan_ms:.2f} ms",
            f"{cost.run_seconds:.2f} s",
            f"{cost.row_ns:.1f} ns",
        )
        for cost in costs
    )
    return Sheet("Simulation, mini-batches of 64, fpdeep", columns, cells, 1)


def curve_sheet(commands: Sequence[WholeCommand]) -> Sheet:
    """Return a table with a row for each command."""
    cells = tuple(
        (
            command.command,
            f"{command.boards:,}",
            f"{command.processor_seconds:.2f} s",
            f"{command.board_ms:.2f} ms",
            f"{command.peak_bytes / 1e6:,.0f} MB",
        )
        for command in commands
    )
    return Sheet("Whole commands", ("command", "boards", "processor", "a board", "memory"), cells, 1)
