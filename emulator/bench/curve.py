"""The curve of cost over scale: whole commands, from their start to the last line of what they print.

Each runs in a process of its own; the operating system counts its processor time and the most memory that it had.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator

from ...kernels import python_command, safe_environment

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
