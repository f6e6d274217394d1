"""What engines, links and memory ports of the emulator serve, under the names that the event
simulation gives them.
"""

from __future__ import annotations

import itertools

import numpy as np

from emuchain.comm import Served
from emuchain.emulator.network import Phase
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import Simulation, simulate

from .event_simulation import Chain, Mark

Rows = tuple[int, list[int]]
"""The time of a row, and when each row left, in ps."""
GATHERED = 7
"""States that go left: the time of a step has their hops in it, so nothing waits for them."""


def served_by_emulator(plan: ChainPlan, maps: list[str]) -> tuple[Simulation, dict[Mark, Rows]]:
    """Run a plan; return what the first replica's resources serve."""
    names, served = names_of(plan, maps), dict[Mark, Rows]()

    def observe(rows: Served) -> None:
        if rows.resource in names:  # an exchange has a test of its own
            served.setdefault(names[rows.resource], (rows.row_ps, []))[1].extend(
                np.ravel(rows.left_ps).tolist()
            )

    assert plan.config.samples is not None
    return simulate(plan, plan.config.samples, observe), served


def served_by_events(chain: Chain) -> dict[Mark, Rows]:
    """Return the same of the event simulation, whose marks are arrivals."""
    samples = range(sum(chain.mini_batches))
    return {
        name: (
            row_ps,
            [
                chain.at_ps[(*name, *place)] - latency_ps
                for place in itertools.product(samples, range(rows))
            ],
        )
        for name, rows, row_ps, latency_ps, _ in chain.servers
    }


def without_gathered(served: dict[Mark, Rows]) -> dict[Mark, tuple[int, int | list[int]]]:
    """Return rows with the number of those that nothing waits for in place of their times."""
    return {
        name: (row_ps, len(left_ps) if name[0] == GATHERED else left_ps)
        for name, (row_ps, left_ps) in served.items()
    }


def names_of(plan: ChainPlan, maps: list[str]) -> dict[str, Mark]:
    """Return the event simulation's names by those of observers; `maps` are the names of maps by
    their numbers.
    """
    names: dict[str, Mark] = {}
    for device, slices in enumerate(plan.mapping.devices):
        for part, phase in itertools.product(slices, Phase):
            engine, place = phase.value.lower(), (device, part.layer.index)
            names[f"{phase.value} of {part} on device {device}"] = (engine, *place)
            names[f"memory of device {device}, {phase.value} of {part}"] = (
                f"{engine} port",
                *place,
            )
    layers = {layer.makes.number: layer for layer in plan.network.layers}
    for link, streams in enumerate(plan.timing.links):
        ends = [
            plan.mapping.devices[link][-1].layer.index,
            plan.mapping.devices[link + 1][0].layer.index,
        ]
        for stream in streams:
            path, number, moved = stream.path.value, stream.number, tuple[str | int, ...]()
            layer = layers.get(number)
            if path in (5, 6):
                moved = (number,)
            elif path in (2, 3, 7, 8):
                moved = (layers[number].index,)
            elif (
                path == 4
                and layer is not None
                and layer.operation.recurs
                and ends == [layer.index] * 2
            ):
                moved = "states", layer.index
            else:
                moved = (maps[number],)
            resource = plan.timing.path(link, stream)
            if resource is not None:
                receiver = plan.timing.routes.receiver(link, stream.key)
                names[resource.name] = (path, receiver - stream.path.is_forward, *moved)
    return names
