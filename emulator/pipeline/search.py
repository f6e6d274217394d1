"""The smallest warm-up that hides all messages but those that fill and drain the pipeline."""

from __future__ import annotations

from ..schedule import warm_up
from .engine import run_timeline
from .shape import Shape


def least_time_ps(shape: Shape) -> int:
    """Return a bound in ps that no order of actions is below, where messages are stored and B includes PG.

    max over stages i of the sum over j < i of (F_j + B_j + 2 SR_j), plus M (F_i + B_i): a stage begins no sooner than
    the first micro-batch has come, and its last B has to go all the way back. 2 SR_j is features and errors.
    """
    best = ahead = 0
    for costs in shape.costs:
        best = max(best, ahead + shape.micro_batches * costs.work_ps)
        ahead += costs.work_ps + costs.transfer_ps + costs.sent_errors_ps + 2 * shape.machine.latency_ps
    return best


def smallest_warm_ups(shape: Shape) -> tuple[int, ...]:
    """Return the smallest warm-up forwards with which the mini-batch takes no longer than `least_time_ps`.

    Those tried are N-i+1 + ceil(k (N-i) / (N-1)), k from 0 on, up to N-i more; where none reaches the bound, the
    smallest of those that come closest is returned. Each is run on the timeline engine.
    """
    devices, bound = shape.devices, least_time_ps(shape)
    best, best_ps = (1,) * devices, -1
    for extra in range(devices + (devices - 1)):
        ahead = range(devices - 1, -1, -1)
        tried = tuple(each + 1 + -(-extra * each // max(devices - 1, 1)) for each in ahead)
        schedule = warm_up("1f1b-min", shape.epoch, tried)
        end_ps = max(timed.end_ps for timed in run_timeline(schedule, shape.costs, shape.machine))
        if best_ps < 0 or end_ps < best_ps:
            best, best_ps = tried, end_ps
        if best_ps <= bound:
            break
    return best
