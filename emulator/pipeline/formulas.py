"""Closed forms of the time of a mini-batch on equal stages, and where they are exact.

N devices, M micro-batches, F and B a stage's times, SR that of a message. BaPipe, Tables I and II, with its B that
includes the parameter gradients. Which form applies follows from warm-ups and machine, not from a schedule's name.
Errors take as long on a link as features.
"""

from __future__ import annotations

from .costs import StageCosts
from .machine import Backward, Engines, Machine, Transport
from .shape import ClosedForm, Shape


def one_by_one(shape: Shape) -> ClosedForm | None:
    """Return the form for warm-up forwards and then B and F by turns."""
    costs, forwards = _equal(shape), shape.warm_ups
    if costs is None or forwards is None:
        return None
    if shape.machine.transport is Transport.STREAMED:
        return _streamed(shape, costs)
    if not _is_plain(shape.machine):
        return None
    least = tuple(range(shape.devices, 0, -1))
    double = tuple(2 * each for each in least)
    less = tuple(2 * each - 1 for each in least)
    if shape.machine.engines is Engines.TURNS and shape.machine.transport is Transport.STORED:
        if forwards == least:
            return _not_overlapped(shape, costs)
        if forwards == double:
            return _overlapped(shape, costs, *_within_each(costs))
        if forwards == less:
            return _overlapped(shape, costs, "SR <= (F + B) / 2", 2 * costs.transfer_ps <= costs.work_ps)
        return None
    if shape.machine.transport is Transport.STORED and costs.transfer_ps:
        return None
    of_engines = {Engines.TURNS: (least, less, double), Engines.SHARED: (double,)}
    if forwards in of_engines.get(shape.machine.engines, ()):
        return ClosedForm(_drained(shape, costs), *_within_each(costs))
    if shape.machine.engines is Engines.SPLIT and forwards == double:
        slots = shape.micro_batches + 2 * shape.devices - 1
        return ClosedForm(slots * costs.work_ps, "SR <= F + B", costs.transfer_ps <= costs.work_ps)
    return None


def all_forward_first(shape: Shape) -> ClosedForm | None:
    """Return the form for GPipe."""
    costs = _equal(shape)
    if costs is not None and shape.machine.transport is Transport.STREAMED:
        return _streamed(shape, costs)
    if costs is None or not _is_plain(shape.machine) or shape.machine.engines is not Engines.TURNS:
        return None
    valid, exact = _within_each(costs)
    if shape.machine.transport is Transport.HIDDEN:
        return ClosedForm(_drained(shape, costs), valid, exact)
    return _overlapped(shape, costs, valid, exact)


def full_overlap(shape: Shape) -> ClosedForm | None:
    """Return the form for warm-ups that hide all messages but those that fill and drain the pipeline."""
    costs = _equal(shape)
    if costs is None or shape.machine != Machine():
        return one_by_one(shape)
    return _overlapped(shape, costs, "SR <= (F + B) / 2", 2 * costs.transfer_ps <= costs.work_ps)


def interleaved_form(shape: Shape) -> ClosedForm | None:
    """Return the form for interleaved 1F1B."""
    costs, machine = _equal(shape), shape.machine
    if costs is None or machine.engines is not Engines.TURNS or not _is_plain(machine) or costs.transfer_ps:
        return None
    if machine.transport is Transport.STREAMED:
        return None
    slots = shape.micro_batches * shape.chunks + shape.devices - 1
    exact = shape.micro_batches >= shape.devices or shape.chunks == 1
    return ClosedForm(slots * costs.work_ps, "M >= N", exact)


def zero_bubble_form(shape: Shape) -> ClosedForm | None:
    """Return the form for zero-bubble H1: M (F + EB + PG) + (N - 1) (F + EB - PG)."""
    costs, machine = _equal(shape), shape.machine
    if costs is None or costs.transfer_ps or machine.latency_ps or machine.engines is not Engines.TURNS:
        return None
    if machine.backward is Backward.FUSED or machine.transport is Transport.STREAMED:
        return None
    work = costs.work_ps
    time = shape.micro_batches * work + (shape.devices - 1) * (work - 2 * costs.known_pg_ps)
    exact = costs.known_pg_ps <= min(costs.forward_ps, costs.eb_ps) and shape.micro_batches >= shape.devices
    return ClosedForm(time, "PG <= min(F, EB), M >= N", exact or shape.devices == 1)


def _equal(shape: Shape) -> StageCosts | None:
    """Return the costs of every stage, None if they differ, or errors take another time than features."""
    costs = shape.uniform
    return None if costs is None or costs.sent_errors_ps != costs.transfer_ps else costs


def _streamed(shape: Shape, costs: StageCosts) -> ClosedForm | None:
    """Return the form for engines of their own and streamed rows: (M + 1) (F + B) and 2 (N - 1) rows on their way."""
    machine = shape.machine
    if machine.engines is not Engines.SPLIT or machine.backward is not Backward.FUSED:
        return None
    rows = costs.samples * costs.rows
    row_ps, sent_ps = -(-costs.work_ps // rows), -(-costs.transfer_ps // rows)
    time = (shape.micro_batches * rows + costs.rows) * row_ps
    time += 2 * (shape.devices - 1) * (row_ps + sent_ps + machine.latency_ps)
    return ClosedForm(time, "SR <= F + B", sent_ps <= row_ps or shape.devices == 1)


def _is_plain(machine: Machine) -> bool:
    """Whether a machine is one of the tables': B includes PG, links have no latency."""
    return machine.backward is Backward.FUSED and not machine.latency_ps


def _within_each(costs: StageCosts) -> tuple[str, bool]:
    """Return the range in which each action is as long as a message, and whether it is so here."""
    return "SR <= min(F, B)", costs.transfer_ps <= min(costs.forward_ps, costs.backward_ps)


def _drained(shape: Shape, costs: StageCosts) -> int:
    return (shape.micro_batches + shape.devices - 1) * costs.work_ps


def _overlapped(shape: Shape, costs: StageCosts, valid: str, exact: bool) -> ClosedForm:
    return ClosedForm(_drained(shape, costs) + (shape.devices - 1) * 2 * costs.transfer_ps, valid, exact)


def _not_overlapped(shape: Shape, costs: StageCosts) -> ClosedForm:
    count, devices = shape.micro_batches, shape.devices
    messages = devices + count - 2 - -(-(count - 1) // devices)
    exact = costs.transfer_ps <= costs.work_ps
    return ClosedForm(_drained(shape, costs) + messages * 2 * costs.transfer_ps, "SR <= F + B", exact)
