"""What it takes to read, check, time and draw a schedule grows with its length, not with the square
of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.config import load_config
from emuchain.emulator.schedule import (
    Engines,
    Machine,
    Shape,
    StageCosts,
    check_complete,
    edited_kind,
    read_schedule,
)
from emuchain.emulator.schedule import edited as editing
from emuchain.emulator.timing import schedule_of, time_pipeline
from emuchain.emulator.view import PipelineDrawing, gantt_lines

from ..counting import lines_run


def gpipe(count: int) -> str:
    """All F, then all B."""
    numbers = range(count)
    rows = ([f"{d}F{i}" for i in numbers] + [f"{d}B{i}" for i in numbers] for d in range(2))
    return "\n".join(map(",".join, rows))


def with_messages(count: int) -> str:
    first = [f"0F{i},0SEND_F{i}" for i in range(count)] + [
        f"0RECV_B{i},0B{i}" for i in range(count)
    ]
    last = [f"1RECV_F{i},1F{i}" for i in range(count)] + [f"1B{i},1SEND_B{i}" for i in range(count)]
    return ",".join(first) + "\n" + ",".join(last)


def old_weights(count: int) -> str:
    """Mini-batches of one micro-batch, all with the first weights, each followed by an update."""
    spans = " | ".join(f"{i}:{i + 1}" for i in range(count))
    actions = [f"0F{i}v0" for i in range(count)] + [
        f"0B{i}v0 0W{i}v0 0U{i + 1}" for i in range(count)
    ]
    return f"schedule mine, 1 device\nmicro-batches {spans}\n{' '.join(actions)}\n"


def two_mini_batches(count: int) -> str:
    halves = range(count // 2), range(count // 2, count)
    spans = " | ".join(" ".join(f"{i}:{i + 1}" for i in half) for half in halves)
    lines = ["schedule mine, 2 devices", f"micro-batches {spans}"]
    for d in range(2):
        words = list[str]()
        for v, half in enumerate(halves):
            words += [f"{d}F{i}v{v}" for i in half]
            words += [f"{d}B{i}v{v} {d}W{i}" for i in half]
            words.append(f"{d}U{v + 1}")
        lines.append(" ".join(words))
    return "\n".join(lines)


@pytest.mark.parametrize("engines", Engines)
@pytest.mark.parametrize("text", [gpipe, with_messages, old_weights, two_mini_batches])
def test_four_times_as_long_takes_four_times_as_much(
    tmp_path: Path, text: Callable[[int], str], engines: Engines
) -> None:
    file = tmp_path / "mine"

    def work() -> None:
        check_complete(read_schedule(str(file)))
        kind = edited_kind(str(file))
        costs = [StageCosts(2, 4, 1)] * kind.order.devices
        shape = Shape(
            kind.order.devices, kind.order.micro_batches * kind.order.steps, costs, Machine(engines)
        )
        schedule, _ = schedule_of(kind, shape)
        gantt_lines(
            PipelineDrawing(shape, time_pipeline(schedule, costs, shape.machine), 1).chart(), 80
        )

    taken = []
    for count in (50, 200):
        file.write_text(text(count))
        taken.append(lines_run(work))
    assert taken[1] < 4.2 * taken[0]


class Copied(list[Any]):
    """A list that counts what is copied of it."""

    items = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        Copied.items += len(found) if isinstance(place, slice) else 0
        return found


def test_micro_batches_are_not_copied_for_each_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of Python do not show it."""
    parse_csv = editing.parse_csv

    def parsed(text: str, source: str) -> Any:
        schedule = parse_csv(text, source)
        return dataclasses.replace(schedule, micro_batches=Copied(schedule.micro_batches))

    monkeypatch.setattr(editing, "parse_csv", parsed)
    monkeypatch.setattr(Copied, "items", 0)
    file = tmp_path / "mine.csv"
    file.write_text(gpipe(200))
    edited_kind(str(file))
    assert Copied.items <= 2 * 200


def test_a_file_is_read_once_however_often_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again, once it says something else."""
    file, read, parse_csv = tmp_path / "mine.csv", list[str](), editing.parse_csv

    def parsed(text: str, source: str) -> Any:
        read.append(text)
        return parse_csv(text, source)

    monkeypatch.setattr(editing, "parse_csv", parsed)
    for text in (gpipe(2), gpipe(3)):
        file.write_text(text)
        kinds = [load_config(None, {"schedule": str(file)}).schedule for _ in range(3)]
        assert kinds[0] == kinds[1] == kinds[2]
    assert read == [gpipe(2), gpipe(3)]
