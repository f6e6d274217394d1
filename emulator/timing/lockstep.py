"""Steps of recurrent layers: a row is a time step, and needs the results of the step before.

So between two rows, FP waits for the activations of the first (`Board.activation_ps`), and EB likewise. A layer that is
cut by units over several devices steps in lockstep: a step takes as long as on its slowest device, and then all devices
gather the states. In FP, states of earlier units travel right on path 2, and those of later ones left on path 7; the
step waits for the slower direction. In EB, errors of states are summed to the left on path 4, and the sums then travel
right on path 8; the step waits for both. Each hop takes a row's time on its path, and the link's latency.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ..cluster import Cluster
from ..mapping import DataPath, Mapping, SliceEngines

HopTime = Callable[[int, DataPath, int], int]
"""Returns the time in ps of a row's hop over a link on a path, for the stream of a tensor's number."""


def lockstep(
    mapping: Mapping, cluster: Cluster, engines: Sequence[Sequence[SliceEngines]], hop_ps: HopTime
) -> tuple[tuple[SliceEngines, ...], ...]:
    """Return the engines with the waits of recurrent layers in the times of their rows."""
    found = [list(held) for held in engines]
    for layer in mapping.network.layers:
        if not layer.operation.recurs:
            continue
        places = [
            (device, place)
            for device, slices in enumerate(mapping.devices)
            for place, part in enumerate(slices)
            if part.layer.index == layer.index
        ]
        links = [device for device, _ in places][:-1]
        states = layer.makes.number

        def sweep_ps(path: DataPath, links: Sequence[int] = links, states: int = states) -> int:
            return sum(hop_ps(link, path, states) for link in links)

        gather_ps = max(sweep_ps(DataPath.PARTIAL_ACTIVATIONS), sweep_ps(DataPath.STATES))
        errors_ps = sweep_ps(DataPath.INPUT_ERRORS) + sweep_ps(DataPath.STATE_ERRORS)
        steps = [found[device][place] for device, place in places]
        activation_ps = [cluster.board(device).activation_ps for device, _ in places]
        fp_ps = gather_ps + max(of.fp.row_ps + more for of, more in zip(steps, activation_ps, strict=True))
        ebs = [of.eb for of in steps if of.eb is not None]
        eb_ps = errors_ps + max(eb.row_ps + more for eb, more in zip(ebs, activation_ps, strict=True))
        for (device, place), of, eb in zip(places, steps, ebs, strict=True):
            waiting = of.fp.waiting(fp_ps - of.fp.row_ps), eb.waiting(eb_ps - eb.row_ps)
            found[device][place] = dataclasses.replace(of, fp=waiting[0], eb=waiting[1])
    return tuple(map(tuple, found))
