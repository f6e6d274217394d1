"""Times in which workers exchange gradients, from the model alone: a ring, an aggregator,
hierarchies, all other collectives; as a picture.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from ...comm import Interconnect, squarest
from ...comm.collective import Collective, laid_out, sums
from ...comm.exchange import (
    Compressed,
    aggregator_ps,
    bytes_at_ratio,
    hierarchy_ps,
    played_ends_ps,
    ring_ps,
)
from ...kernels.number import FP32
from ..view import log_ticks, nested_widths, new_figure, save_figure

_WAYS = {
    "ring_ps": ("ring", "o", "#0072b2"),
    "aggregator_ps": ("aggregator", "s", "#d55e00"),
    "rings_under_aggregator_ps": ("rings, aggregator", "^", "#009e73"),
    "rings_of_rings_ps": ("rings, ring", "D", "#cc79a7"),
}
_MOST_TICKS = 12


@dataclasses.dataclass(frozen=True)
class ExchangeTimes:
    """Times of one gradient exchange among `workers` in ps, compressed by `ratio` or, if None, not
    compressed.

    Hierarchies have `groups` groups. `collectives` has the times of all others that take as many
    workers, by name.
    """

    workers: int
    groups: int
    ratio: float | None
    ring_ps: int
    aggregator_ps: int
    rings_under_aggregator_ps: int
    rings_of_rings_ps: int
    collectives: Mapping[str, int]

    @property
    def by_name(self) -> dict[str, int]:
        """All times, by what each way is called in a sentence."""
        own = {
            "ring": self.ring_ps,
            "aggregator": self.aggregator_ps,
            "rings and an aggregator": self.rings_under_aggregator_ps,
            "rings and a ring": self.rings_of_rings_ps,
        }
        return own | dict(self.collectives)


def groups_of(workers: int) -> int:
    """Return the number of groups in a hierarchy: the largest divisor of `workers` up to its square
    root.
    """
    return squarest(workers)[0]


def exchange_times(
    interconnect: Interconnect, values: int, workers: int, ratio: float | None
) -> ExchangeTimes:
    """Return the times in which `workers` exchange gradients of `values` values, all ready at once.

    They are on the interconnect's topology, of any shape: as square as their number allows.
    """
    interconnect = dataclasses.replace(interconnect, topology=type(interconnect.topology)())
    wires, beside_aggregator = map(interconnect.among, (workers, workers + 1))
    groups, ready = groups_of(workers), np.zeros(workers, np.int64)
    in_groups, gradients = ready.reshape(groups, -1), np.full(workers, FP32.bytes_of(values))
    compressed = None if ratio is None else functools.partial(bytes_at_ratio, ratio=ratio)
    whole = None if compressed is None else compressed(gradients)

    # [0 1 2] [3 4 5] [6 7 8]    rings sum within each of the groups; then between these one more ring, or an
    #     \       |       /       aggregator, which is a node beside the workers
    #       ring or aggregator
    def hierarchy(top: Literal["aggregator", "ring"]) -> int:
        over = wires if top == "ring" else beside_aggregator
        return int(hierarchy_ps(over, in_groups, values, top, compressed).max())

    if interconnect.is_plain:
        shown = (
            int(ring_ps(wires, ready, values, compressed).max()),
            int(aggregator_ps(beside_aggregator, ready, values, whole).max()),
            hierarchy("aggregator"),
            hierarchy("ring"),
        )
    else:
        played = [
            _played_ps(sums()[name](), interconnect, values, workers, compressed) for name in _SHOWN
        ]
        shown = (played[0], played[1], played[2], played[3])
    others = _others(interconnect, values, workers, compressed)
    return ExchangeTimes(workers, groups, ratio, *shown, dict(others))


_SHOWN = ("ring", "aggregator", "rings-aggregator", "rings")
"""Collectives whose times have fields of their own, in their order."""


def _others(
    interconnect: Interconnect, values: int, workers: int, compressed: Compressed | None
) -> Iterator[tuple[str, int]]:
    """Yield the times of other collectives among as many workers; a switch adds where there is
    one.
    """
    for name, kind in sums().items():
        collective = kind()
        if name in _SHOWN or collective.problem(workers) is not None:
            continue
        if collective.needs_switch and not interconnect.topology.has_ports:
            continue
        yield name, _played_ps(collective, interconnect, values, workers, compressed)


def _played_ps(
    collective: Collective,
    interconnect: Interconnect,
    values: int,
    workers: int,
    compressed: Compressed | None,
) -> int:
    nodes = collective.nodes(workers)
    wires = interconnect.among(nodes)
    phases = laid_out(collective, workers, wires.topology)
    ready = np.full(nodes, wires.ends.start_ps, np.int64)
    return int(played_ends_ps(phases, wires, values, ready, compressed)[:workers].max())


def draw_exchanges(
    title: str, times: Sequence[ExchangeTimes], path: str | os.PathLike[str], flag: str = "--plot"
) -> None:
    """Draw exchange times into a file, whose extension sets the format.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(7, 4.6, flag, layout="constrained")
    axes, widths = figure.subplots(), iter(nested_widths(2 * len(_WAYS)))
    for ratio in dict.fromkeys(row.ratio for row in times):
        rows = [row for row in times if row.ratio == ratio]
        counts = [row.workers for row in rows]
        compressed = "" if ratio is None else f", compressed {ratio:g}:1"
        for field, (name, shape, colour) in _WAYS.items():
            axes.plot(
                counts,
                [getattr(row, field) / 1e9 for row in rows],
                shape,
                linestyle="-" if ratio is None else "--",
                color=colour,
                markerfacecolor=colour if ratio is None else "white",
                markersize=5,
                linewidth=next(widths),
                label=f"{name}{compressed}",
            )
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="time of an exchange / ms")
    log_ticks(axes.yaxis)
    workers = sorted({row.workers for row in times})
    log_ticks(axes.xaxis)
    if len(workers) <= _MOST_TICKS:
        axes.set_xticks(workers)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    save_figure(figure, path, flag)
