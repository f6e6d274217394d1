"""Searched orders for `emuchain pipeline`: limits of memory, in micro-batches or in bytes, as flags
say them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from ...common import InputError, plural
from .times import number_of

if TYPE_CHECKING:
    from ...explore import Search, Searched
    from ...schedule import EpochShape, Fold, Machine, PipelineKind, Schedule, Shape
    from ...timing import Course, Timed

_SIZE = re.compile(r"(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})\s*([kKMGT]i?B|B)?", re.ASCII)
_POWERS = "KMGT"
_MOST_TIMED = 200_000
"""F and B of all shapes that are timed to choose one."""


def sizes_of(text: str, name: str, devices: int) -> list[tuple[Fraction, bool]]:
    """Return for each device a number that a flag says, and whether it is of bytes.

    Raises:
        InputError: it is no number above zero, or there are not as many as devices.
    """
    sizes = [_size(entry.strip(), name) for entry in text.split(",")]
    if len(sizes) not in (1, devices):
        raise InputError(
            f"`{name}` = {text!r}: has {plural(len(sizes), 'value')}; must be one, or one for each"
            f" of {plural(devices, 'device')}"
        )
    return sizes * (devices if len(sizes) == 1 else 1)


def _size(text: str, name: str) -> tuple[Fraction, bool]:
    match = _SIZE.fullmatch(text)
    if match is None or not Fraction(match[1]):
        raise InputError(
            f"`{name}` = {text!r}: must be a number above 0, of bytes with a unit, such as 24GiB or"
            " 512MB"
        )
    unit = match[2]
    if unit in (None, "B"):
        return Fraction(match[1]), unit is not None
    step = 1024 if unit.endswith("iB") else 1000
    return Fraction(match[1]) * step ** (1 + _POWERS.index(unit[0].upper())), True


def feature_bytes_of(text: str | None, devices: int) -> list[Fraction] | None:
    """Return the bytes of a micro-batch's features on each device; None where they are not said.

    Raises:
        InputError: they are not given in bytes.
    """
    if text is None:
        return None
    sizes = sizes_of(text, "features", devices)
    if not all(is_bytes for _, is_bytes in sizes):
        raise InputError(f"`features` = {text!r}: must have a unit, such as 1.5GiB or 512MB")
    return [size for size, _ in sizes]


def late_share_of(flags: Mapping[str, Any]) -> Fraction:
    """Return the part of a micro-batch that is kept from B to W: as said, or that of a search."""
    from ...explore import SEARCHES

    if flags["gradient_features"] is not None:
        return number_of(flags["gradient_features"], "gradient_features")
    search = SEARCHES.get(flags["schedule"])
    return Fraction(1) if search is None else search.share


class KeptParts(NamedTuple):
    """Kept parts of a micro-batch's features: `waiting` from F to R, `late` from B to W."""

    waiting: Fraction
    late: Fraction

    @property
    def unit(self) -> int:
        """A size of a micro-batch of which all parts are whole numbers."""
        return math.lcm(self.waiting.denominator, self.late.denominator)


def kept_of_micro_batch(flags: Mapping[str, Any]) -> KeptParts:
    """Return the parts of a micro-batch that are kept where R, or W, is an action of its own.

    Raises:
        InputError: a part is not from 0 to 1.
    """
    waiting = flags["recompute_features"]
    parts = KeptParts(
        Fraction(0) if waiting is None else number_of(waiting, "recompute_features"),
        late_share_of(flags),
    )
    for name, part in zip(("recompute_features", "gradient_features"), parts, strict=True):
        if part > 1:
            raise InputError(f"`{name}` = {flags[name]}: must be from 0 to 1")
    return parts


def refuse_recompute(flags: Mapping[str, Any]) -> None:
    """Refuse what is said of R.

    Raises:
        InputError: something is.
    """
    for flag in ("recompute", "recompute_features"):
        if flags[flag] is not None:
            raise InputError(
                f"`{flag}` = {flags[flag]}: {flags['schedule']} has no R; it is for a file with R,"
                " or an order that is searched"
            )


def check_offload(flags: Mapping[str, Any], *, offloads: bool) -> None:
    """Check that the time of O and L is said where a schedule has them, and only there.

    Raises:
        InputError: it is not.
    """
    if offloads and flags["offload"] is None:
        raise InputError(
            f"`schedule` = {flags['schedule']!r} has O and L; say how long by --offload"
        )
    if flags["offload"] is not None and not offloads:
        raise InputError(
            f"`offload` = {flags['offload']}: {flags['schedule']} has no O; it is for a file with O"
            " and L"
        )


def courses_of(
    timed: Iterable[Timed],
    fold: Fold,
    machine: Machine,
    parts: KeptParts,
    sizes: Sequence[Fraction],
) -> tuple[Course, ...]:
    """Return what each device keeps over time, of micro-batches of these sizes by device."""
    from ...timing import FeatureBytes, kept_courses

    of_stages = []
    for stage in range(fold.count):
        size = sizes[fold.device(stage)] / fold.chunks
        waiting, late = parts.waiting * size, parts.late * size
        of_stages.append(FeatureBytes(waiting, size - waiting, late, size))
    last = machine.frees_features
    return kept_courses(timed, fold.devices, last, lambda step: of_stages[step.stage], apart=True)


def bytes_of(text: str | None, name: str) -> int | None:
    """Return the bytes that a flag says of each device; None where it says none.

    Raises:
        InputError: it has no unit, or no number above zero.
    """
    if text is None:
        return None
    size, is_bytes = _size(text.strip(), name)
    if not is_bytes:
        raise InputError(f"`{name}` = {text!r}: must have a unit, such as 4GiB or 512MB")
    return int(size)


def write_order(order: Schedule | None, path: str) -> None:
    """Write an order as CSV; one of several mini-batches as text, unless the file is a .csv.

    Raises:
        InputError: there is none, the file cannot be written, or is a .csv, and the order has
            several mini-batches.
    """
    from ...common import write_whole
    from ...schedule import to_csv, to_text

    if order is None:
        raise InputError(f"`out` = {path!r}: the winner has no searched order")
    is_text = order.steps > 1 and not path.endswith(".csv")
    write_whole(path, to_text(order) if is_text else to_csv(order), example="order.csv")


def kept_of(
    text: str | None, features: Sequence[Fraction] | None, devices: int
) -> list[Fraction] | None:
    """Return how many micro-batches each device may keep; None where that is not said.

    Raises:
        InputError: a limit is in bytes, and the bytes of features are not known.
    """
    if text is None:
        return None
    limits = []
    for device, (size, is_bytes) in enumerate(sizes_of(text, "memory", devices)):
        if is_bytes and features is None:
            raise InputError(
                f"`memory` = {text!r}: is in bytes, so --features should say how many a micro-batch"
                " keeps on a device; or give the number of micro-batches"
            )
        limits.append(size / features[device] if is_bytes and features is not None else size)
    return limits


def kind_of(search: Search) -> PipelineKind:
    """Return a search as a kind of schedule, whose machine and stages it has; it has no order of
    its own.
    """
    from ...schedule import Backward, Machine, PipelineKind

    def generate(epoch: EpochShape) -> Schedule:
        raise AssertionError("a searched order needs times")

    return PipelineKind(
        search.name,
        generate,
        search.summary,
        drains=True,
        chunks=search.chunks,
        in_v=search.in_v,
        machine=Machine(backward=Backward.SPLIT),
        closed_form=lambda shape: None,
    )


def searched_of(
    shape: Shape, flags: Mapping[str, Any], features: Sequence[Fraction] | None
) -> Searched | None:
    """Return the order that is searched, None where the schedule has its own.

    Raises:
        InputError: a flag has no part in it, or there is no room.
    """
    from ...explore import BY_TIMES, SEARCHES, search_order

    name = flags["schedule"]
    search = SEARCHES.get(name)
    if search is None:
        for flag in ("memory", "gradient_features"):
            if flags[flag] is not None:
                raise InputError(
                    f"`{flag}` = {flags[flag]}: {name} has an order of its own; a limit is for"
                    f" {', '.join(SEARCHES)}"
                )
        if name not in BY_TIMES or shape.uniform or not _has_orders(shape):
            return None
        return _by_times(BY_TIMES[name], shape)
    if flags["warm_up"] is not None:
        raise InputError(f"`warm_up`: {name} searches its order; leave it out")
    if shape.chunks != search.chunks:
        stages = plural(search.chunks, "stage")
        raise InputError(f"`chunks` = {shape.chunks}: {name} has {stages} on each device")
    part = flags["gradient_features"]
    share = None if part is None else number_of(part, "gradient_features")
    again = any(flags[flag] is not None for flag in ("recompute", "recompute_features"))
    waiting = kept_of_micro_batch(flags).waiting if again else None
    memory = kept_of(flags["memory"], features, shape.devices)
    return search_order(search, shape, memory, share, waiting=waiting)


def _by_times(search: Search, shape: Shape) -> Searched:
    """Return the order of a kind for stages that differ, which begins with that of equal ones: in
    the memory that this has where they are equal, of `interleaved` where they differ, on the device
    that keeps most.
    """
    from ...explore import search_order
    from ...schedule import pipeline_kind, unflushed_in_order
    from ...timing import schedule_of, time_shape

    kind = pipeline_kind(search.name)
    begin, _ = schedule_of(kind, shape)
    memory = None
    if search.limit is None:
        memory = [max(time_shape(kind, shape).features)] * shape.devices
    search = dataclasses.replace(search, chunks=shape.chunks)
    searched = search_order(search, shape, memory, None, begin)
    if kind.drains:
        return searched
    order = unflushed_in_order(searched.schedule, kind.mini_batch(shape))
    return dataclasses.replace(searched, schedule=order)


def by_times(kind: PipelineKind, shape: Shape) -> Shape:
    """Return the shape with the warm-up of `fbp-as` that is the fastest on stages that differ, of
    those of 1F1B and more, up to twice as many F as there are stages; any other shape as it is.
    """
    from ...schedule import Transport
    from ...timing import time_shape

    devices = shape.devices
    if (
        kind.name != "fbp-as"
        or shape.uniform
        or shape.warm_ups is not None
        or shape.machine.transport is Transport.STREAMED
        or 2 * devices * len(shape.costs) * shape.micro_batches > _MOST_TIMED
    ):
        return shape
    behind = range(devices - 1, -1, -1)
    tried = [tuple(2 * (far + 1) for far in behind)]
    for extra in range(devices + 1):
        tried.append(tuple(far + 1 + -(-extra * far // max(devices - 1, 1)) for far in behind))
    shapes = [dataclasses.replace(shape, warm_ups=warm_ups) for warm_ups in tried]
    return min(shapes, key=lambda one: time_shape(kind, one).makespan_ps)


def _has_orders(shape: Shape) -> bool:
    """Return whether a kind with an order for equal stages may have another on this machine."""
    from ...schedule import Engines, Transport

    machine = shape.machine
    return (
        machine.engines is Engines.TURNS
        and machine.transport is not Transport.STREAMED
        and shape.warm_ups is None
    )
