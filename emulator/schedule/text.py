"""Schedules as text: one line for the micro-batches, one for each device; what is printed can be parsed again.

schedule sync, 2 devices
micro-batches 0:4 4:8 | 8:12 12:16
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1 ...
1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1 ...

The CSV is that of PyTorch's pipelining schedules (2.13: `_dump_csv` and `_load_csv`). It has a row for each rank, a
cell for each action, its stage first: `0F3`, and for the backward pass `0B3`, or its two parts `0I3` (errors, our B)
and `0W3` (parameter gradients). B in a cell includes W. Cells may be empty: the rank waits. It is one mini-batch, whose
update comes at its end, and all of it uses the same weights.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence

from ..common import InputError, plural
from .action import Action, Kind, MicroBatch, Schedule

_HEAD = re.compile(r"schedule (\S+), ([1-9]\d{0,8}) devices?")
_ACTION = re.compile(
    r"(?P<device>\d{1,9})"
    r"(?:(?P<pass>[FB])(?P<passed>\d{1,9})(?:c(?P<chunk>[1-9]\d{0,8}))?(?:\[(?P<begin>\d{1,9}):(?P<end>\d{1,9})\])?"
    r"v(?P<version>\d{1,9})"
    r"|W(?P<gradient>\d{1,9})(?:c(?P<of_chunk>[1-9]\d{0,8}))?(?:v(?P<at_version>\d{1,9}))?"
    r"|U(?P<made>\d{1,9}))"
)


def to_text(schedule: Schedule) -> str:
    """Return the schedule as text."""
    steps = itertools.groupby(schedule.micro_batches, key=lambda mb: mb.step)
    spans = " | ".join(" ".join(f"{mb.begin}:{mb.end}" for mb in group) for _, group in steps)
    lines = [f"schedule {schedule.name}, {schedule.devices} device{'s' * (schedule.devices != 1)}"]
    lines.append(f"micro-batches {spans}")
    for device, program in schedule.programs(range(schedule.devices)).items():
        lines.append(" ".join(f"{device}{action}" for action in program))
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
    return listed(name, micro_batches, actions, source)


def listed(
    name: str, micro_batches: Sequence[MicroBatch], actions: Sequence[Sequence[Action]], source: str
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
    return Schedule(
        name, len(actions), micro_batches, lambda hosted: {number: iter(actions[number]) for number in hosted}, chunks
    )


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
    number = {name: int(text) for name, text in parts.items() if text is not None and name != "pass"}
    if "made" in number:
        return Action(Kind.UPDATE, number["made"])
    if "gradient" in number:
        return Action(Kind.GRADIENT, number["gradient"], number.get("at_version"), chunk=number.get("of_chunk", 0))
    span = (number["begin"], number["end"]) if "begin" in number else None
    return Action(Kind(parts["pass"]), number["passed"], number["version"], span, number.get("chunk", 0))


_COMPUTES = re.compile(r"(?P<stage>\d{1,9})(?P<kind>[FBIW])(?P<micro_batch>\d{1,9})")
_FOLLOWS = re.compile(r"\d{1,9}(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)\d{0,9}")
"""Communication, which follows from the order of the other actions."""

_KINDS = {
    "F": (Kind.FORWARD,),
    "B": (Kind.BACKWARD, Kind.GRADIENT),
    "I": (Kind.BACKWARD,),
    "W": (Kind.GRADIENT,),
}


def to_csv(schedule: Schedule) -> str:
    """Return a schedule of one mini-batch as CSV; B that its W follows at once is one cell.

    Raises:
        InputError: it has several mini-batches, or does a micro-batch in parts.
    """
    if schedule.steps != 1:
        raise InputError(
            f"schedule {schedule.name}: has {plural(schedule.steps, 'mini-batch')}; as CSV, it must be one"
        )
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for device, program in schedule.programs(range(schedule.devices)).items():
        actions = [action for action in program if action.kind is not Kind.UPDATE]
        for action in actions:
            if action.span is not None:
                raise InputError(
                    f"schedule {schedule.name}: device {device}: {action}: as CSV, it must be all of a micro-batch"
                )
        writer.writerow(_cells(device, actions, schedule.devices))
    return written.getvalue()


def _cells(device: int, actions: Sequence[Action], devices: int) -> Iterator[str]:
    """Yield the cells of a device."""
    fused = False
    for action, following in itertools.zip_longest(actions, actions[1:]):
        if fused:
            fused = False
            continue
        letter = action.kind.value
        if action.kind is Kind.BACKWARD:
            fused = following is not None and _is_gradient_of(following, action)
            letter = "B" if fused else "I"
        yield f"{action.chunk * devices + device}{letter}{action.index}"


def _is_gradient_of(action: Action, backward: Action) -> bool:
    return action.kind is Kind.GRADIENT and (action.index, action.chunk) == (backward.index, backward.chunk)


def parse_csv(text: str, source: str = "schedule", name: str = "csv") -> Schedule:
    """Return the schedule that CSV describes; `source` begins the message of an error.

    Micro-batches have one sample each.

    Raises:
        InputError: a cell cannot be read, or a stage is not on its rank: c N + d on rank d of N.
    """
    try:
        rows = list(csv.reader(io.StringIO(text.rstrip()), strict=True))
    except csv.Error as error:
        raise InputError(f"{source}: is not CSV: {error}") from None
    if not rows:
        raise InputError(f"{source}: is empty; there must be a row for each rank, of cells such as 0F0 and 0B0")
    actions = [list(_row_actions(row, rank, len(rows), source)) for rank, row in enumerate(rows)]
    count = 1 + max((action.index for program in actions for action in program), default=-1)
    if not 0 < count <= max(map(len, actions)):
        raise InputError(
            f"{source}: has {plural(count, 'micro-batch')}; they are counted from 0 on, and each has cells F and B"
        )
    for program in actions:
        program.append(Action(Kind.UPDATE, 1))
    return listed(name, [MicroBatch(index, 0, index, index + 1) for index in range(count)], actions, source)


def _row_actions(row: Sequence[str], rank: int, ranks: int, source: str) -> Iterator[Action]:
    """Yield the actions of a rank."""
    for cell in map(str.strip, row):
        if not cell or _FOLLOWS.fullmatch(cell):
            continue
        match = _COMPUTES.fullmatch(cell)
        if match is None:
            raise InputError(
                f"{source}: rank {rank}: {cell!r} is not an action such as {rank}F0, {rank}B0, {rank}I0, {rank}W0"
            )
        chunk, of_rank = divmod(int(match["stage"]), ranks)
        if of_rank != rank:
            raise InputError(
                f"{source}: rank {rank}: {cell!r}: stage {match['stage']} must be on rank {of_rank} of {ranks}"
            )
        for kind in _KINDS[match["kind"]]:
            version = None if kind is Kind.GRADIENT else 0
            yield Action(kind, int(match["micro_batch"]), version, chunk=chunk)
