"""A schedule is data: for every device the ordered list of its actions. As text it is printed, and
parsed again.

Written `0F3v1`: device 0 does the forward propagation (F) of micro-batch 3 with version 1 of its
weights. B is error back-propagation (EB), W the parameter gradients (PG), U the update that makes
the next version of the weights, after all W of a mini-batch: `0W3`, `0U1`. F and B may do a
micro-batch in spans of samples, with different weights:
`0F3[0:5]v0` and `0F3[5:16]v1` are its first 5 samples and the others. Where a device holds several
stages (interleaved schedules), `0F3c1v1` is the forward propagation of its chunk 1; chunk 0 is not
written. `0R3v1` (R) computes the features of F again, ahead of B; where there is one, F keeps only
what it takes in. In a text there is one line for the micro-batches, and one for each device:

schedule sync, 2 devices
micro-batches 0:4 4:8 | 8:12 12:16
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1 ...
1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1 ...

Where stages lie in a V, the first line ends in `in a V`. A word ends in `+` or `-` where PyTorch's
tables (`pytorch.py`) have the next action in the same cell, or in another one, and neither follows
from the order.

Stages lie on devices in a loop, as in interleaved schedules, or in a V. In a loop, chunk c of
device d of N is stage c N + d. In a V, odd chunks run back, so that of two chunks device d has
stages d and 2N - 1 - d, and the last stage is on device 0 (ZBV: Qi et al., 2024; DualPipeV):

    device      0   1   2   3              0   1   2   3
    chunk 0     0 > 1 > 2 > 3              0 > 1 > 2 > 3
                                                       v
    chunk 1     4 > 5 > 6 > 7              7 < 6 < 5 < 4
            a loop, 3 > 4 goes round           a V
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence

from ..common import Figures, InputError, plural


@dataclasses.dataclass(frozen=True)
class Fold:
    """Stages 0, 1, … of a chain on `devices` devices, `chunks` on each; in a loop, or `in_v`."""

    devices: int
    chunks: int = 1
    in_v: bool = False

    @property
    def count(self) -> int:
        """Number of stages."""
        return self.devices * self.chunks

    def device(self, stage: int) -> int:
        """Return the device of a stage."""
        chunk, place = divmod(stage, self.devices)
        return self.devices - 1 - place if self._is_back(chunk) else place

    def chunk(self, stage: int) -> int:
        """Return the number of a stage among those of its device."""
        return stage // self.devices

    def stage(self, device: int, chunk: int) -> int:
        """Return the stage that is a device's chunk."""
        return chunk * self.devices + (
            self.devices - 1 - device if self._is_back(chunk) else device
        )

    def stages(self, device: int) -> list[int]:
        """Return a device's stages, in the order of its chunks."""
        return [self.stage(device, chunk) for chunk in range(self.chunks)]

    def link(self, stage: int) -> int | None:
        """Return the device in front of the link between a stage and the next one, None if one
        device has both.

        That behind the last device closes a loop to a ring.
        """
        # In a V links carry onwards and back, and are those of a chain: that between devices d and
        # d + 1 is d in both directions.
        here, there = self.device(stage), self.device(stage + 1)
        return None if here == there else min(here, there) if self.in_v else here

    def _is_back(self, chunk: int) -> bool:
        return self.in_v and chunk % 2 == 1


class Kind(enum.Enum):
    """The kind of an action."""

    FORWARD = "F"
    RECOMPUTE = "R"
    BACKWARD = "B"
    GRADIENT = "W"
    UPDATE = "U"
    OFFLOAD = "O"
    LOAD = "L"

    __hash__ = object.__hash__  # members are singletons; Enum's hash is several times slower

    @property
    def before(self) -> Kind | None:
        """What a stage does with a micro-batch before; None for F, and for U, which is of no
        micro-batch.
        """
        if self in (Kind.BACKWARD, Kind.RECOMPUTE, Kind.OFFLOAD):
            return Kind.FORWARD
        if self is Kind.LOAD:
            return Kind.OFFLOAD
        return Kind.BACKWARD if self is Kind.GRADIENT else None


PASSES = Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT
"""What each stage does once with each micro-batch, in this order."""
MOVES = Kind.OFFLOAD, Kind.LOAD
"""Features of a micro-batch to the host, and back, over a link of their own."""
MICRO_BATCH_KINDS = *PASSES, Kind.RECOMPUTE, *MOVES
"""What it may do with a micro-batch, at most once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """One action; `index` is a micro-batch for F, R, B, W, O and L, and the version made for U.

    `version` names the weights that F, R and B use. `span` is (begin, end) of the samples of the
    micro-batch, if these are not all. `chunk` is the number of the stage among those of the device.
    `joined` says whether a table of PyTorch's has the action after it in the same cell: an F with
    the B that overlaps it, a B with its W. None leaves that to what follows: B and a W of it that
    comes at once are one cell. `idle` is the number of empty cells ahead of it there. An F that is
    `recomputed` keeps no features: an R computes them again.
    """

    kind: Kind
    index: int
    version: int | None = None
    span: tuple[int, int] | None = None
    chunk: int = 0
    joined: bool | None = None
    idle: int = 0
    recomputed: bool = False

    def moved(self, micro_batches: int, versions: int = 0) -> Action:
        """Return the action with its micro-batch and version shifted by these numbers."""
        version = None if self.version is None else self.version + versions
        return Action(
            self.kind,
            self.index + micro_batches,
            version,
            self.span,
            self.chunk,
            self.joined,
            self.idle,
            self.recomputed,
        )

    def __str__(self) -> str:
        span = "" if self.span is None else f"[{self.span[0]}:{self.span[1]}]"
        chunk = f"c{self.chunk}" if self.chunk else ""
        return f"{self.kind.value}{self.index}{chunk}{span}" + (
            "" if self.version is None else f"v{self.version}"
        )


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Samples begin … end-1 of the epoch, all of one mini-batch, which is also called a step."""

    index: int
    step: int
    begin: int
    end: int

    @property
    def samples(self) -> int:
        """Number of its samples."""
        return self.end - self.begin

    def span_of(self, action: Action) -> SampleSpan:
        """Return the samples that an action works on."""
        return SampleSpan(self, *(action.span or (0, self.samples)))

    @property
    def whole(self) -> SampleSpan:
        """All its samples."""
        return SampleSpan(self, 0, self.samples)


def step_micro_batches(micro_batches: Sequence[MicroBatch], step: int) -> Sequence[MicroBatch]:
    """Return the micro-batches of a mini-batch, of all of an epoch in order."""
    begin, end = (
        bisect(micro_batches, step, key=lambda micro_batch: micro_batch.step)
        for bisect in (bisect_left, bisect_right)
    )
    return micro_batches[begin:end]


@dataclasses.dataclass(frozen=True)
class SampleSpan:
    """Samples begin … end-1 of a micro-batch, counted from its first."""

    micro_batch: MicroBatch
    begin: int
    end: int

    @property
    def samples(self) -> int:
        """Number of its samples."""
        return self.end - self.begin

    @property
    def is_whole(self) -> bool:
        """Whether this is all of the micro-batch."""
        return self.samples == self.micro_batch.samples

    @property
    def ends(self) -> bool:
        """Whether the micro-batch ends with it."""
        return self.end == self.micro_batch.samples

    @property
    def first(self) -> int:
        """Index of its first sample in the epoch."""
        return self.micro_batch.begin + self.begin

    @property
    def slice(self) -> slice:
        """Its samples as a slice of the epoch."""
        return slice(self.first, self.micro_batch.begin + self.end)


@dataclasses.dataclass(frozen=True)
class Schedule(Figures):
    """An epoch's schedule: its micro-batches in order, and each device's actions.

    `programs` returns the actions of the given devices, which are generated as they are read, so
    that a device needs no more memory for an epoch of a million samples than for one of a hundred.
    There are `chunks` stages on each device, which lie in a loop or `in_v`.
    """

    _figures = "name devices chunks in_v steps step_samples micro_batches"

    name: str
    devices: int
    micro_batches: Sequence[MicroBatch]
    programs: Callable[[Collection[int]], dict[int, Iterator[Action]]]
    chunks: int = 1
    in_v: bool = False

    @property
    def fold(self) -> Fold:
        """How the stages lie on the devices."""
        return Fold(self.devices, self.chunks, self.in_v)

    @property
    def steps(self) -> int:
        """Number of mini-batches."""
        return self.micro_batches[-1].step + 1 if self.micro_batches else 0

    @property
    def step_samples(self) -> list[int]:
        """Number of samples of each mini-batch."""
        samples = [0] * self.steps
        for micro_batch in self.micro_batches:
            samples[micro_batch.step] += micro_batch.samples
        return samples


def cut_samples(samples: int, batch: int, micro_batch: int) -> list[MicroBatch]:
    """Return micro-batches of at most `micro_batch` samples, cut at mini-batches."""
    micro_batches: list[MicroBatch] = []
    for step, first in enumerate(range(0, samples, batch)):
        last = min(first + batch, samples)
        for begin in range(first, last, micro_batch):
            micro_batches.append(
                MicroBatch(len(micro_batches), step, begin, min(begin + micro_batch, last))
            )
    return micro_batches


_HEAD = re.compile(r"schedule (\S+), ([1-9]\d{0,8}) devices?( in a V)?")
_ACTION = re.compile(
    r"(?P<device>\d{1,9})"
    r"(?:(?P<pass>[FRB])(?P<passed>\d{1,9})(?:c(?P<chunk>[1-9]\d{0,8}))?(?:\[(?P<begin>\d{1,9}):(?P<end>\d{1,9})\])?"
    r"v(?P<version>\d{1,9})(?P<joined>[+-])?"
    r"|(?P<move>[OL])(?P<moved>\d{1,9})(?:c(?P<moved_chunk>[1-9]\d{0,8}))?"
    r"|W(?P<gradient>\d{1,9})(?:c(?P<of_chunk>[1-9]\d{0,8}))?(?:v(?P<at_version>\d{1,9}))?"
    r"|U(?P<made>\d{1,9}))"
)


_JOINTS = {None: "", True: "+", False: "-"}
_JOINED = {joint: joined for joined, joint in _JOINTS.items()}


def to_text(schedule: Schedule) -> str:
    """Return the schedule as text."""
    steps = itertools.groupby(schedule.micro_batches, key=lambda mb: mb.step)
    by_step = []
    for _, group in steps:
        by_step.append(" ".join(f"{mb.begin}:{mb.end}" for mb in group))
    spans = " | ".join(by_step)
    lines = [
        f"schedule {schedule.name}, {plural(schedule.devices, 'device')}"
        + " in a V" * schedule.in_v
    ]
    lines.append(f"micro-batches {spans}")
    for device, program in schedule.programs(range(schedule.devices)).items():
        lines.append(" ".join(f"{device}{action}{_JOINTS[action.joined]}" for action in program))
    return "\n".join(lines) + "\n"


def parse(text: str, source: str = "schedule") -> Schedule:
    """Return the schedule that a text describes; `source` begins the message of an error.

    Raises:
        InputError: a line or a word is not of the form that `to_text` writes.
    """
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")
    ]
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head is None:
        raise InputError(f"{source}: the first line must read `schedule NAME, N devices`")
    name, devices = head[1], int(head[2])
    if len(lines) != devices + 2 or not lines[1].startswith("micro-batches "):
        raise InputError(
            f"{source}: after the first line come `micro-batches ...` and {devices} lines of"
            " actions"
        )
    micro_batches = list(_micro_batches(lines[1].removeprefix("micro-batches "), source))
    actions = [
        list(_actions(line, device, micro_batches, source)) for device, line in enumerate(lines[2:])
    ]
    return listed(name, micro_batches, actions, source, in_v=head[3] is not None)


def listed(
    name: str,
    micro_batches: Sequence[MicroBatch],
    actions: Sequence[Sequence[Action]],
    source: str,
    *,
    in_v: bool = False,
) -> Schedule:
    """Return the schedule of these actions of each device; there are as many chunks as they name,
    and F keeps no features where an R follows.

    Raises:
        InputError: an action names a chunk that is too high for the number of actions.
    """
    chunks = 1
    for device, program in enumerate(actions):
        for action in program:
            # Each chunk has an action at least. Without this bound one word, such as
            # 0F0c99999999v0, would make room for as many chunks.
            chunks = max(chunks, action.chunk + 1)
            if chunks > len(program):
                raise InputError(
                    f"{source}: device {device}: {action}: chunks are counted from 0 on"
                )

    actions = [with_recomputed(program) for program in actions]

    def programs(hosted: Collection[int]) -> dict[int, Iterator[Action]]:
        return {number: iter(actions[number]) for number in hosted}

    return Schedule(name, len(actions), micro_batches, programs, chunks, in_v)


def with_recomputed(program: Sequence[Action]) -> Sequence[Action]:
    """Return a device's actions, of which each F says whether an R computes its features again."""
    again = {(action.index, action.chunk) for action in program if action.kind is Kind.RECOMPUTE}
    if not again:
        return program
    said = []
    for action in program:
        own = action.kind is Kind.FORWARD and (action.index, action.chunk) in again
        said.append(dataclasses.replace(action, recomputed=own))
    return said


def _micro_batches(spans: str, source: str) -> Iterator[MicroBatch]:
    index = position = 0
    for step, group in enumerate(spans.split("|")):
        for span in group.split():
            match = re.fullmatch(r"(\d{1,18}):(\d{1,18})", span)
            if match is None or int(match[1]) != position or int(match[2]) <= position:
                raise InputError(
                    f"{source}: micro-batch {index} is {span!r}; expected {position}:END with END"
                    " larger"
                )
            position = int(match[2])
            yield MicroBatch(index, step, int(match[1]), position)
            index += 1


def _actions(
    line: str, device: int, micro_batches: list[MicroBatch], source: str
) -> Iterator[Action]:
    for word in line.split():
        match = _ACTION.fullmatch(word)
        if match is None or int(match["device"]) != device:
            raise InputError(
                f"{source}: device {device}: {word!r} is not an action such as {device}F0v0,"
                f" {device}W0"
            )
        action = _action(match.groupdict())
        if action.kind is not Kind.UPDATE:
            if action.index >= len(micro_batches):
                raise InputError(
                    f"{source}: device {device}: {word!r}: there are only"
                    f" {plural(len(micro_batches), 'micro-batch')}"
                )
            samples = micro_batches[action.index].samples
            if action.span is not None and not 0 <= action.span[0] < action.span[1] <= samples:
                raise InputError(
                    f"{source}: device {device}: {word!r}: the span must lie in 0:{samples}"
                )
        yield action


def _action(parts: dict[str, str | None]) -> Action:
    """Return the action of the named parts of a word; those that it does not have are None."""
    number = {
        name: int(text)
        for name, text in parts.items()
        if text is not None and name not in ("pass", "joined", "move")
    }
    if "made" in number:
        return Action(Kind.UPDATE, number["made"])
    if "moved" in number:
        return Action(Kind(parts["move"]), number["moved"], chunk=number.get("moved_chunk", 0))
    if "gradient" in number:
        return Action(
            Kind.GRADIENT,
            number["gradient"],
            number.get("at_version"),
            chunk=number.get("of_chunk", 0),
        )
    span = (number["begin"], number["end"]) if "begin" in number else None
    joined = _JOINED[parts["joined"] or ""]
    return Action(
        Kind(parts["pass"]),
        number["passed"],
        number["version"],
        span,
        number.get("chunk", 0),
        joined,
    )
