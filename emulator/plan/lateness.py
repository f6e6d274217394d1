"""How late weights are under a schedule that never drains, read off its actions."""

from __future__ import annotations

import dataclasses

from ..schedule import EpochShape, Kind, ScheduleKind, Staleness, dry_run


def staleness_of(kind: ScheduleKind, epoch: EpochShape) -> tuple[Staleness, ...]:
    """Return for each device the staleness of a mini-batch in the middle of a long epoch.

    Args:
        kind: a schedule whose versions do not follow from virtual time.
        epoch: what it is made for; its samples do not matter.
    """
    steps = 2 * epoch.devices + 4
    schedule = kind.schedule_of(dataclasses.replace(epoch, samples=steps * epoch.batch))
    if not kind.is_shipped:
        dry_run(schedule, aligned=kind.aligned)  # it may leave out a sample
    middle, of_step = steps // 2, {each.index: each for each in schedule.micro_batches}
    found = []
    for program in schedule.programs(range(epoch.devices)).values():
        late: dict[Kind, list[int]] = {Kind.FORWARD: [], Kind.BACKWARD: []}
        for action in program:
            if action.kind in late and not action.chunk and of_step[action.index].step == middle:
                samples = of_step[action.index].span_of(action).samples
                late[action.kind] += [middle - (action.version or 0)] * samples
        found.append(Staleness(tuple(late[Kind.FORWARD]), tuple(late[Kind.BACKWARD])))
    return tuple(found)
