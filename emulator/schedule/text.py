"""Schedules as text: one line for the micro-batches, one for each device; what is printed can be parsed again.

schedule sync, 2 devices
micro-batches 0:4 4:8 | 8:12 12:16
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1 ...
1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1 ...

Where stages lie in a V, the first line ends in `in a V`. A word ends in `+` or `-` where PyTorch's tables
(`pytorch.py`) have the next action in the same cell, or in another one, and neither follows from the order.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from ..common import InputError, plural
from .action import Action, Kind, MicroBatch, Schedule

_HEAD = re.compile(r"schedule (\S+), ([1-9]\d{0,8}) devices?( in a V)?")
_ACTION = re.compile(
    r"(?P<device>\d{1,9})"
    r"(?:(?P<pass>[FB])(?P<passed>\d{1,9})(?:c(?P<chunk>[1-9]\d{0,8}))?(?:\[(?P<begin>\d{1,9}):(?P<end>\d{1,9})\])?"
    r"v(?P<version>\d{1,9})(?P<joined>[+-])?"
    r"|W(?P<gradient>\d{1,9})(?:c(?P<of_chunk>[1-9]\d{0,8}))?(?:v(?P<at_version>\d{1,9}))?"
    r"|U(?P<made>\d{1,9}))"
)


_JOINTS = {None: "", True: "+", False: "-"}
_JOINED = {joint: joined for joined, joint in _JOINTS.items()}


def to_text(schedule: Schedule) -> str:
    """Return the schedule as text."""
    steps = itertools.groupby(schedule.micro_batches, key=lambda mb: mb.step)
    spans = " | ".join(" ".join(f"{mb.begin}:{mb.end}" for mb in group) for _, group in steps)
    lines = [f"schedule {schedule.name}, {plural(schedule.devices, 'device')}" + " in a V" * schedule.in_v]
    lines.append(f"micro-batches {spans}")
    for device, program in schedule.programs(range(schedule.devices)).items():
        lines.append(" ".join(f"{device}{action}{_JOINTS[action.joined]}" for action in program))
    return "\n".join(lines) + "\n"


def parse(text: str, source: str = "schedule") -> Schedule:
    """Return the schedule that a text describes; `source` begins the message of an error.

    Raises:
        InputError: a line or a word is not of the form that `to_text` writes.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head is None:
        raise InputError(f"{source}: the first line must read `schedule NAME, N devices`")
    name, devices = head[1], int(head[2])
    if len(lines) != devices + 2 or not lines[1].startswith("micro-batches "):
        raise InputError(f"{source}: after the first line come `micro-batches ...` and {devices} lines of actions")
    micro_batches = list(_micro_batches(lines[1].removeprefix("micro-batches "), source))
    actions = [list(_actions(line, device, micro_batches, source)) for device, line in enumerate(lines[2:])]
    return listed(name, micro_batches, actions, source, in_v=head[3] is not None)


def listed(
    name: str,
    micro_batches: Sequence[MicroBatch],
    actions: Sequence[Sequence[Action]],
    source: str,
    *,
    in_v: bool = False,
) -> Schedule:
    """Return the schedule of these actions of each device; there are as many chunks as they name.

    Raises:
        InputError: an action names a chunk that is too high for the number of actions.
    """
    chunks = 1
    for device, program in enumerate(actions):
        for action in program:
            chunks = max(chunks, action.chunk + 1)
            if chunks > len(program):
                raise InputError(f"{source}: device {device}: {action}: chunks are counted from 0 on")

    def programs(hosted: Collection[int]) -> dict[int, Iterator[Action]]:
        return {number: iter(actions[number]) for number in hosted}

    return Schedule(name, len(actions), micro_batches, programs, chunks, in_v)


def _micro_batches(spans: str, source: str) -> Iterator[MicroBatch]:
    index = position = 0
    for step, group in enumerate(spans.split("|")):
        for span in group.split():
            match = re.fullmatch(r"(\d{1,18}):(\d{1,18})", span)
            if match is None or int(match[1]) != position or int(match[2]) <= position:
                raise InputError(f"{source}: micro-batch {index} is {span!r}; expected {position}:END with END larger")
            position = int(match[2])
            yield MicroBatch(index, step, int(match[1]), position)
            index += 1


def _actions(line: str, device: int, micro_batches: list[MicroBatch], source: str) -> Iterator[Action]:
    for word in line.split():
        match = _ACTION.fullmatch(word)
        if match is None or int(match["device"]) != device:
            raise InputError(f"{source}: device {device}: {word!r} is not an action such as {device}F0v0, {device}W0")
        action = _action(match.groupdict())
        if action.kind is not Kind.UPDATE:
            if action.index >= len(micro_batches):
                raise InputError(
                    f"{source}: device {device}: {word!r}: there are only {plural(len(micro_batches), 'micro-batch')}"
                )
            samples = micro_batches[action.index].samples
            if action.span is not None and not 0 <= action.span[0] < action.span[1] <= samples:
                raise InputError(f"{source}: device {device}: {word!r}: the span must lie in 0:{samples}")
        yield action


def _action(parts: dict[str, str | None]) -> Action:
    """Return the action of the named parts of a word; those that it does not have are None."""
    number = {name: int(text) for name, text in parts.items() if text is not None and name not in ("pass", "joined")}
    if "made" in number:
        return Action(Kind.UPDATE, number["made"])
    if "gradient" in number:
        return Action(Kind.GRADIENT, number["gradient"], number.get("at_version"), chunk=number.get("of_chunk", 0))
    span = (number["begin"], number["end"]) if "begin" in number else None
    joined = _JOINED[parts["joined"] or ""]
    return Action(Kind(parts["pass"]), number["passed"], number["version"], span, number.get("chunk", 0), joined)
