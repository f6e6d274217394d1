"""1F1B with warm-up forwards, and BaPipe's schedules, which are kinds of it (BaPipe, section III-C,
Figs. 3 and 4).

Device i of N, from 1 on, does N-i+1 forwards ahead (`1f1b-as`, `1f1b-sno`) or twice as many
(`1f1b-so`, whose messages then come while a GPU works; `fbp-as`, whose F and B share their
multipliers, as FPDeep has them). Accelerators send while they compute; messages of GPUs wait for
their action. `1f1b-min` has the fewest forwards ahead that overlap all communication, found by
trying on the timeline.

`warm_up` is the generator behind all kinds of 1F1B, and `warm_ups` reads expressions for the number
of warm-up forwards. That number is also the most micro-batches whose features a stage keeps. As
under `sync`, the pipeline drains at each update, and every sample of a mini-batch sees the weights
from the end of the one before.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from ..common import InputError
from .action import Action, Kind, Schedule, cut_samples
from .kind import PipelineKind
from .shape import (
    ClosedForm,
    Engines,
    EpochShape,
    Machine,
    Shape,
    Transport,
    equal_costs,
    one_by_one,
    overlapped,
)

_MOST_CHARACTERS = 200
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}
_ALLOWED = (
    "must be of whole numbers, N, M, i (stages, micro-batches, the stage from 1 on), + - * //, min"
    " and max"
)


def single(devices: int) -> tuple[int, ...]:
    """Return for each device the fewest warm-up forwards that fill the pipeline: N-i+1 for device i
    of N, from 1 on.
    """
    return tuple(range(devices, 0, -1))


def doubled(devices: int) -> tuple[int, ...]:
    """Return twice as many, 2(N-i+1): room for messages under way, or for F and B side by side."""
    return tuple(2 * forwards for forwards in single(devices))


def warm_up(
    name: str, epoch: EpochShape, forwards: Sequence[int], late: Sequence[int] | None = None
) -> Schedule:
    """Return the schedule in which each device does some F first, then B and F by turns, then the
    other B.

    Args:
        name: the schedule's name.
        epoch: the epoch.
        forwards: for each device, its number of warm-up F, at least 1; no more are done than a
            mini-batch has.
        late: for each device, by how many B its W are late; without it, W follows its B.
    """
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)

    def program(first: int, behind: int) -> Iterator[Action]:
        for step, group in itertools.groupby(
            micro_batches, key=lambda micro_batch: micro_batch.step
        ):
            numbers = [micro_batch.index for micro_batch in group]
            # Warm-up, then B and F by turns, then the other B; `first` = 2, `behind` = 1:
            #     F0 F1 | B0 F2 B1 W0 F3 | B2 W1 B3 W2 W3 U
            yield from (Action(Kind.FORWARD, number, step) for number in numbers[:first])
            for place, number in enumerate(numbers):
                yield Action(Kind.BACKWARD, number, step)
                if place >= behind:
                    yield Action(Kind.GRADIENT, numbers[place - behind])
                yield from (
                    Action(Kind.FORWARD, ahead, step)
                    # A slice, which is empty once all F are done.
                    for ahead in numbers[place + first : place + first + 1]
                )
            # Not below 0, which would count from the end: a mini-batch may have fewer micro-batches
            # than W are late.
            yield from (
                Action(Kind.GRADIENT, number) for number in numbers[max(len(numbers) - behind, 0) :]
            )
            yield Action(Kind.UPDATE, step + 1)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {
            device: program(forwards[device], late[device] if late else 0) for device in devices
        }

    return Schedule(name, epoch.devices, micro_batches, programs)


def warm_ups(expression: str, stages: int, micro_batches: int) -> tuple[int, ...]:
    """Return the warm-up forwards of each stage that an expression of N, M and i gives; `2(N-i)` is
    `2*(N-i)`.

    Raises:
        InputError: the expression cannot be read, or is less than 1 for a stage.
    """
    times = re.sub(r"(?<=[0-9)])\s*(?=[NMi(])(?!in\b)", "*", expression)
    try:
        # Before it is parsed: what is long may be nested too deeply.
        if len(expression) > _MOST_CHARACTERS:
            raise SyntaxError
        tree = ast.parse(times.strip(), mode="eval").body
        counts = [
            _value(tree, {"N": stages, "M": micro_batches, "i": i}) for i in range(1, stages + 1)
        ]
    # What Python's documentation says that parsing raises for malformed text, and N // 0.
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError):
        raise InputError(f"`warm_up` = {expression!r}: {_ALLOWED}") from None
    for stage, forwards in enumerate(counts, 1):
        if forwards < 1:
            raise InputError(
                f"`warm_up` = {expression!r}: is {forwards} at stage {stage}; must be at least 1"
            )
    return tuple(counts)


def _value(node: ast.expr, names: dict[str, int]) -> int:
    """Return the value of an expression.

    Raises:
        ValueError: it has a part that is not allowed.
    """
    match node:
        # True and False are whole numbers to Python.
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_value(left, names), _value(right, names))
        # Two arguments or more: of a single one, `min` and `max` want to go through its elements.
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as args, keywords=[]) if (
            name in _FUNCTIONS
        ):
            return _FUNCTIONS[name](*(_value(arg, names) for arg in args))
    raise ValueError


def as_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with N-i+1 warm-up forwards on device i of N (Fig. 3a)."""
    return warm_up("1f1b-as", epoch, epoch.warm_ups or single(epoch.devices))


def fbp_as(epoch: EpochShape) -> Schedule:
    """Return the schedule with 2(N-i+1) warm-up forwards on device i of N (Fig. 3b)."""
    return warm_up("fbp-as", epoch, epoch.warm_ups or doubled(epoch.devices))


def sno_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with N-i+1 warm-up forwards on device i of N (Fig. 4a)."""
    return warm_up("1f1b-sno", epoch, epoch.warm_ups or single(epoch.devices))


def so_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with 2(N-i+1) warm-up forwards on device i of N (Fig. 4b)."""
    return warm_up("1f1b-so", epoch, epoch.warm_ups or doubled(epoch.devices))


def min_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with the epoch's warm-up forwards."""
    return warm_up("1f1b-min", epoch, epoch.warm_ups)


def full_overlap(shape: Shape) -> ClosedForm | None:
    """Return the form for warm-ups that hide all messages but those that fill and drain the
    pipeline.
    """
    costs = equal_costs(shape)
    if costs is None or shape.machine != Machine():
        return one_by_one(shape)
    return overlapped(shape, costs, "SR <= (F + B) / 2", 2 * costs.transfer_ps <= costs.work_ps)


AS_1F1B = PipelineKind(
    "1f1b-as",
    as_1f1b,
    "one forward, one backward, communication hidden",
    drains=True,
    repeats=True,
    warm_ups=single,
    machine=Machine(transport=Transport.HIDDEN),
)
FBP_AS = PipelineKind(
    "fbp-as",
    fbp_as,
    "forward and backward side by side, communication hidden",
    drains=True,
    repeats=True,
    warm_ups=doubled,
    machine=Machine(Engines.SHARED, Transport.HIDDEN),
    equal_stages=True,
)
SNO_1F1B = PipelineKind(
    "1f1b-sno",
    sno_1f1b,
    "one forward, one backward, communication not overlapped",
    drains=True,
    repeats=True,
    warm_ups=single,
    overlaps=False,
)
SO_1F1B = PipelineKind(
    "1f1b-so",
    so_1f1b,
    "one forward, one backward, doubled warm-up overlaps communication",
    drains=True,
    repeats=True,
    warm_ups=doubled,
)
MIN_1F1B = PipelineKind(
    "1f1b-min",
    min_1f1b,
    "one forward, one backward, smallest warm-up that overlaps communication",
    drains=True,
    repeats=True,
    warm_ups=single,
    closed_form=full_overlap,
    searches=True,
)
