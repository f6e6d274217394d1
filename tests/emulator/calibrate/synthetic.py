"""Measurements that are drawn: links with known constants, and files of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SIZES = tuple(2**power for power in range(21))
"""Message sizes of HPCC FPGA's b_eff."""

LOOPS = (*(65536,) * 12, 56211, 46886, 37561, 28236, 18911, 9586, 261, 256, 256)
"""Its loops, by the size."""


class Link(NamedTuple):
    """Constants of a link, in s and bytes/s."""

    latency_s: float = 700e-9
    bytes_per_s: float = 5e9
    start_s: float = 100e-6

    def message_s(self, size: int, loop: float = math.inf) -> float:
        """Time of a message."""
        return self.latency_s + math.ceil(size / 64) * 64 / self.bytes_per_s + self.start_s / loop


class Message(NamedTuple):
    """A measured message."""

    run: str
    size: int
    loop: int
    message_s: float


def scattered(link: Link, share: float, draw: np.random.Generator) -> Link:
    """A link as another run finds it."""
    latency, bandwidth, start = map(math.exp, draw.normal(0, share, 3))
    return Link(link.latency_s * latency, link.bytes_per_s * bandwidth, link.start_s * start)


def messages_of(
    links: Iterable[Link], draw: np.random.Generator, noise: float = 0.002, outliers: float = 0.0
) -> list[Message]:
    """Messages of one run for each link, with noise, and a share of outliers that take three times
    as long.
    """
    messages = []
    for number, link in enumerate(links, 1):
        for size, loop in zip(SIZES, LOOPS, strict=True):
            time = link.message_s(size, loop) * math.exp(draw.normal(0, noise))
            messages.append(
                Message(f"run{number}", size, loop, 3 * time if draw.random() < outliers else time)
            )
    return messages


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """A CSV file."""
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in [columns, *rows]))
    return path


def write_messages(path: Path, messages: Iterable[Message]) -> Path:
    """A file of messages, as the time of a whole loop."""
    rows = (
        [message.run, message.size, message.loop, repr(message.message_s * message.loop)]
        for message in messages
    )
    return write_csv(path, ["run", "message_bytes", "loop_length", "transfer_s"], rows)
