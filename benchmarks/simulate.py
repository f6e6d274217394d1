"""The cost of simulation: for chains of 1 to 1,024 devices, epochs of many samples, and maps of
many or few rows.

A row is what a server (an engine, or a data path on a link) takes at once. In a chain of twice the
devices, layers are cut twice as often, and a sample has about twice the rows. So a cost that is
linear in devices x samples x rows shows as a constant cost per row; where maps have few rows, a
device's cost per sample shows instead.

The curve of cost over scale is of whole commands, from their start to the last line of what they
print. Each runs in a process of its own; the operating system counts its processor time and the
most memory that it had.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from ..emulator.common import plural
from ..emulator.config import load_config
from ..emulator.plan import make_plan
from ..emulator.run import simulate
from ..emulator.timing import Timing, engine_loads, link_loads
from ..kernels import python_command, safe_environment
from . import frame
from .frame import Report, Sheet

BATCH = 64
CASES = (
    *itertools.product(("vgg16",), (1, 100, 200, 400, 800, 1024), (64,)),
    *itertools.product(("vgg16",), (100,), (128, 256, 512, 1024, 2048, 4096)),
    *itertools.product(("vgg16-cifar",), (15, 100), (1024,)),
)
"""Network, devices and samples of each case: more devices; more samples; fewer rows."""


def _on(boards: Sequence[int], command: str) -> list[tuple[int, str]]:
    """Return a command for each number of boards, which stands where it has braces."""
    return [(number, command.format(number)) for number in boards]


CURVE = (
    *_on((64, 256, 1024, 4096, 10_000), "simulate vgg16 --devices {} --samples 64"),
    (1024, "simulate vgg16 --devices 64 --replicas 16 --batch 1024 --samples 1024"),
    *_on((16, 64, 256, 1024), "simulate lstm-5x1024 --devices {} --schedule sync --samples 64"),
    (2, "simulate lstm-5x1024 --schedule farnn --cluster farnn-9p --batch 16 --samples 64"),
    *_on(
        (64, 256, 1024),
        "pipeline --schedule 1f1b-so --stages {} --micro-batches 128 --forward 1 --backward 2",
    ),
)
"""Boards and words of each command."""

NOTES = (
    "Processor seconds. Plan: mapping, timing, the steady pipeline and the dry run, regardless of"
    " the samples; for each device, in ms. Run: the samples through the chain; for each row that a"
    " resource serves, in ns."
)
CURVE_NOTES = (
    "Whole commands, with their start and all that they print: seconds of the processor, peak"
    " memory."
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """Processor time in seconds: to plan a run, whatever its samples, and to simulate an epoch of
    `samples`.

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


def report(runs: int) -> Report:
    """Measure planning and simulation of all cases."""
    frame.tell("measuring simulations …")
    host, costs = frame.describe_host(None), list(measure(runs))
    fields = {
        "runs": runs,
        "rows": [frame.fields_of(cost, "device_plan_ms", "row_ns") for cost in costs],
    }
    return Report(host, fields, answer(costs), [sheet(costs)], NOTES)


def curve_report() -> Report:
    """Measure whole commands."""
    frame.tell("measuring whole commands …")
    host, measured = frame.describe_host(None), list(measure_commands())
    fields = {"curve": [frame.fields_of(row, "board_ms") for row in measured]}
    return Report(
        host,
        fields,
        [f"{len(measured)} commands were measured"],
        [curve_sheet(measured)],
        CURVE_NOTES,
    )


def measure(runs: int, cases: tuple[tuple[str, int, int], ...] = CASES) -> Iterator[Cost]:
    """Yield the median cost of `runs` runs of each case."""
    for network, devices, samples in cases:
        plans, epochs = [], []
        keys = {
            "network": network,
            "devices": devices,
            "samples": samples,
            "batch": BATCH,
            "micro_batch": BATCH,
        }
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
        yield Cost(
            network,
            devices,
            samples,
            rows,
            statistics.median(plans[1:]),
            statistics.median(epochs[1:]),
        )


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
        with subprocess.Popen(
            line, stdout=subprocess.DEVNULL, env=safe_environment(os.environ)
        ) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"status {process.returncode}: {' '.join(line)}")
        unit = 1 if sys.platform == "darwin" else 1024
        yield WholeCommand(boards, words, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)


def answer(costs: Sequence[Cost]) -> list[str]:
    """Return what the largest cluster and the longest run cost."""
    most, longest = (
        max(costs, key=lambda cost: cost.devices),
        max(costs, key=lambda cost: cost.samples),
    )
    return [
        f"{cost.network} on {plural(cost.devices, 'device')}: {cost.plan_seconds:.2f} s to plan,"
        f" {cost.run_seconds:.2f} s for {plural(cost.samples, 'sample')}"
        for cost in (most, longest)
    ]


def sheet(costs: Sequence[Cost]) -> Sheet:
    """Return a table with a row for each case."""
    return frame.sheet_of(
        "Simulation, mini-batches of 64, fpdeep",
        1,
        costs,
        ("network", lambda cost: cost.network),
        ("devices", lambda cost: str(cost.devices)),
        ("samples", lambda cost: str(cost.samples)),
        ("rows of a sample", lambda cost: str(cost.sample_rows)),
        ("plan", lambda cost: f"{cost.plan_seconds:.2f} s"),
        ("plan/device", lambda cost: f"{cost.device_plan_ms:.2f} ms"),
        ("run", lambda cost: f"{cost.run_seconds:.2f} s"),
        ("run/row", lambda cost: f"{cost.row_ns:.1f} ns"),
    )


def curve_sheet(commands: Sequence[WholeCommand]) -> Sheet:
    """Return a table with a row for each command."""
    return frame.sheet_of(
        "Whole commands",
        1,
        commands,
        ("command", lambda command: command.command),
        ("boards", lambda command: f"{command.boards:,}"),
        ("processor", lambda command: f"{command.processor_seconds:.2f} s"),
        ("a board", lambda command: f"{command.board_ms:.2f} ms"),
        ("memory", lambda command: f"{command.peak_bytes / 1e6:,.0f} MB"),
    )
