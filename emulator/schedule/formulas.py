"""Closed forms of the time of a mini-batch on equal stages, and where they are exact.

N devices, M micro-batches, F and B a stage's times, SR that of a message. BaPipe, Tables I and II, with its B that
includes the parameter gradients. Which form applies follows from warm-ups and machine, not from a schedule's name.
Errors take as long on a link as features.
"""

from __future__ import annotations

from .machine import Backward, Engines, Machine, StageCosts, Transport
from .shape import ClosedForm, Shape


def one_by_one(shape: Shape) -> ClosedForm | None:
    """Return the form for warm-up forwards and then B and F by turns."""
    costs, forwards = equal_costs(shape), shape.warm_ups
    if costs is None or forwards is None:
        return None
    if shape.machine.transport is Transport.STREAMED:
        return streamed(shape, costs)
    if not is_plain(shape.machine):
        return None
    least = tuple(range(shape.devices, 0, -1))
    double = tuple(2 * each for each in least)
    less = tuple(2 * each - 1 for each in least)
    if shape.machine.engines is Engines.TURNS and shape.machine.transport is Transport.STORED:
        if forwards == least:
            return _not_overlapped(shape, costs)
        if forwards == double:
            return overlapped(shape, costs, *within_each(costs))
        if forwards == less:
            return overlapped(shape, costs, "SR <= (F + B) / 2", 2 * costs.transfer_ps <= costs.work_ps)
        return None
    if shape.machine.transport is Transport.STORED and costs.transfer_ps:
        return None
    of_engines = {Engines.TURNS: (least, less, double), Engines.SHARED: (double,)}
    if forwards in of_engines.get(shape.machine.engines, ()):
        return ClosedForm(drained(shape, costs), *within_each(costs))
    if shape.machine.engines is Engines.SPLIT and forwards == double:
        slots = shape.micro_batches + 2 * shape.devices - 1
        return ClosedForm(slots * costs.work_ps, "SR <= F + B", costs.transfer_ps <= costs.work_ps)
    return None


def equal_costs(shape: Shape) -> StageCosts | None:
    """Return the costs of every stage, None if they differ, or errors take another time than features."""
    costs = shape.uniform
    return None if costs is None or costs.sent_errors_ps != costs.transfer_ps else costs


def streamed(shape: Shape, costs: StageCosts) -> ClosedForm | None:
    """Return the form for engines of their own and streamed rows: (M + 1) (F + B) and 2 (N - 1) rows on their way."""
    machine = shape.machine
    if machine.engines is not Engines.SPLIT or machine.backward is not Backward.FUSED:
        return None
    rows = costs.samples * costs.rows
    row_ps, sent_ps = -(-costs.work_ps // rows), -(-costs.transfer_ps // rows)
    time = (shape.micro_batches * rows + costs.rows) * row_ps
    time += 2 * (shape.devices - 1) * (row_ps + sent_ps + machine.latency_ps)
    return ClosedForm(time, "SR <= F + B", sent_ps <= row_ps or shape.devices == 1)


def is_plain(machine: Machine) -> bool:
    """Whether a machine is one of the tables': B includes PG, links have no latency."""
    return machine.backward is Backward.FUSED and not machine.latency_ps


def within_each(costs: StageCosts) -> tuple[str, bool]:
    """Return the range in which each action is as long as a message, and whether it is so here."""
    return "SR <= min(F, B)", costs.transfer_ps <= min(costs.forward_ps, costs.backward_ps)


def drained(shape: Shape, costs: StageCosts) -> int:
    return (shape.micro_batches + shape.devices - 1) * costs.work_ps


def overlapped(shape: Shape, costs: StageCosts, valid: str, exact: bool) -> ClosedForm:
    return ClosedForm(drained(shape, costs) + (shape.devices - 1) * 2 * costs.transfer_ps, valid, exact)


def _not_overlapped(shape: Shape, costs: StageCosts) -> ClosedForm:
    count, devices = shape.micro_batches, shape.devices
    messages = devices + count - 2 - -(-(count - 1) // devices)
    exact = costs.transfer_ps <= costs.work_ps
    return ClosedForm(drained(shape, costs) + messages * 2 * costs.transfer_ps, "SR <= F + B", exact)
