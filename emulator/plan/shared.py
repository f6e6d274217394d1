"""The course of an epoch where F and B of a device share one pool of multipliers.

F and B that run together slow one another, so the end of an action depends on messages that come while it runs. The
timeline engine works that out for the whole chain, before anything runs.
"""

from __future__ import annotations

import dataclasses

from ..common import InputError, plural
from ..schedule import Schedule
from ..timing import EpochCourse, Timing, run_course
from .stages import PlannedStages


def shared_course(schedule: Schedule, stages: PlannedStages, timing: Timing) -> EpochCourse:
    """Return when the actions of an epoch run, and when their messages arrive.

    Raises:
        InputError: micro-batches are not all of one size, or links have different latencies.
    """
    for each in schedule.micro_batches:
        if each.samples != stages.samples:
            raise InputError(
                f"`micro_batch` = {stages.samples}: leaves a micro-batch of"
                f" {plural(each.samples, 'sample')}, but shared"
                " engines need equal ones; should divide `batch` and `samples`"
            )
    links = [timing.cluster.link_at(link) for link in range(len(timing.links))]
    if len({link.latency_ps for link in links}) > 1:
        raise InputError("`latency_ns`: differs from link to link, but shared engines need one for all")
    costs = []
    for stage in range(len(timing.mapping.devices)):
        right, left = (
            links[stage].transfer_ps(stages.message_bytes(streams, stages.samples)) if streams else 0
            for streams in (timing.sent(stage, forward=True), timing.sent(stage, forward=False))
        )
        costs.append(dataclasses.replace(stages.costs(stage, stages.samples), transfer_ps=right, errors_ps=left))
    machine = dataclasses.replace(stages.machine, latency_ps=links[0].latency_ps if links else 0)
    course = run_course(schedule, costs, machine)
    return EpochCourse(
        {each.step: (each.start_ps, each.end_ps) for each in course.timed},
        {each.step: each.arrival_ps for each in course.sent},
        max((each.end_ps for each in course.timed), default=0),
    )
