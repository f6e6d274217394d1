"""A timeline by longest paths: rows of actions and of messages in a graph of what waits for what.

It shares nothing with the engine but the data that both take. A message that is stored is one row,
which leaves when the whole action is done.
"""

from __future__ import annotations

import graphlib
from collections import defaultdict
from collections.abc import Hashable, Sequence

from emuchain.emulator.schedule import (
    Backward,
    Engines,
    Kind,
    Machine,
    Schedule,
    StageCosts,
    Transport,
)

Action = tuple[str, int, int]
"""Kind, micro-batch, stage."""


def place_of(schedule: Schedule, device: int, chunk: int) -> int:
    """Return which stage of a chunk a device has; a device's place among the devices of a chunk is
    the same.
    """
    return schedule.devices - 1 - device if schedule.in_v and chunk % 2 else device


def device_of(schedule: Schedule, stage: int) -> int:
    """Return the device of a stage."""
    return place_of(schedule, stage % schedule.devices, stage // schedule.devices)


def ends_by_longest_path(
    schedule: Schedule, costs: Sequence[StageCosts], machine: Machine
) -> dict[Action, int]:
    """Return the end of each action in ps, where B includes W or W comes by turns, on machines
    without a pool.
    """
    streamed = machine.transport is Transport.STREAMED
    assert streamed or machine.transport is Transport.STORED
    lasts: dict[Hashable, int] = {}
    before: dict[Hashable, list[Hashable]] = defaultdict(list)
    latency: dict[tuple[Hashable, Hashable], int] = {}
    actions: list[Action] = []
    for device, program in schedule.programs(range(schedule.devices)).items():
        last_of: dict[Hashable, Hashable] = {}
        gradients: list[Hashable] = []
        made: dict[int | None, list[Hashable]] = {}  # what each version of the weights waits for
        for each in program:
            if each.kind is Kind.UPDATE:
                made[each.index] = [*gradients]
                continue
            if each.kind is Kind.GRADIENT and machine.backward is Backward.FUSED:
                continue
            letter, stage = (
                each.kind.value,
                each.chunk * schedule.devices + place_of(schedule, device, each.chunk),
            )
            cost, action = costs[stage], (letter, each.index, stage)
            rows = cost.rows if streamed else 1
            split = machine.backward is Backward.SPLIT
            times = {
                "F": cost.forward_ps,
                "B": cost.backward_ps - (cost.pg_ps or 0) * split,
                "W": cost.pg_ps or 0,
            }
            work = (
                cost.forward_ps + cost.backward_ps
                if machine.engines is Engines.SPLIT
                else times[letter]
            )
            to = stage + {"F": 1, "B": -1, "W": len(costs)}[letter]
            goes = 0 <= to < len(costs)
            receiver = device_of(schedule, to)
            queue: Hashable = letter if machine.engines is Engines.SPLIT else "all"
            for row in range(rows):
                node = (*action, row)
                lasts[node] = -(-work // rows)
                before[node] += [last_of[queue]] if queue in last_of else []
                last_of[queue] = node
                before[node] += made.get(each.version, [])
                if letter == "B":
                    before[node].append(("F", each.index, stage, rows - 1))
                if letter in "FB" and 0 <= (origin := stage - {"F": 1, "B": -1}[letter]) < len(
                    costs
                ):
                    sent = ("sent", letter, each.index, origin, row)
                    before[node].append(sent)
                    latency[sent, node] = machine.latency_ps * (
                        device_of(schedule, origin) != device
                    )
                if goes:
                    message = ("sent", *action, row)
                    link = "link", receiver
                    before[message] = [node]
                    lasts[message] = 0
                    if receiver != device:
                        sent_ps = cost.transfer_ps if letter == "F" else costs[to].errors_ps
                        whole = costs[to].transfer_ps if sent_ps is None else sent_ps
                        lasts[message] = -(-whole // rows)
                        before[message] += [last_of[link]] if link in last_of else []
                        last_of[link] = message
            actions.append(action)
            if letter == ("W" if split else "B"):
                gradients.append((*action, rows - 1))
    ends: dict[Hashable, int] = {}
    for found in graphlib.TopologicalSorter(before).static_order():
        start = max(
            (ends[each] + latency.get((each, found), 0) for each in before[found]), default=0
        )
        ends[found] = start + lasts[found]
    return {
        action: ends[(*action, (costs[action[2]].rows if streamed else 1) - 1)]
        for action in actions
    }
