"""`emuchain exchange`: how long workers take to exchange a network's gradients, by the number of workers."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..common.errors import InputError
from .kernels import settle

if TYPE_CHECKING:
    from ...comm.interconnect import Network

_MOST_WORKERS = 1024
_MOST_RATIO = 16
"""32 bits over a tag of 2."""


class Workers(click.ParamType):
    """Numbers of workers: 4,8,16."""

    name = "workers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Ascending, each once."""
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"\d{1,4}(,\d{1,4})*", value, re.ASCII):
            self.fail(f"{value!r} is not a list of numbers of workers such as 4,8,16", param, ctx)
        found = tuple(sorted({int(item) for item in value.split(",")}))
        if not 1 <= found[0] <= found[-1] <= _MOST_WORKERS:
            self.fail(f"{value!r}: must be from 1 to {_MOST_WORKERS} workers", param, ctx)
        return found


@dataclasses.dataclass(frozen=True)
class Row:
    """One exchange of a gradient among so many workers, with a ratio of compression or without, in ps."""

    workers: int
    groups: int
    ratio: float | None
    ring_ps: int
    aggregator_ps: int
    rings_under_aggregator_ps: int
    rings_of_rings_ps: int


TIMES = tuple(field.name for field in dataclasses.fields(Row) if field.name.endswith("_ps"))


@click.command()
@click.argument("network")
@click.option("--workers", type=Workers(), default="4,8,16,64,256,1024", show_default=True, metavar="N,N,...")
@click.option("--cluster", default="titan-xp-10gbe", show_default=True, metavar="WORD", help="A name, or a TOML file.")
@click.option(
    "--compress-ratio", "ratio", type=float, default=8.0, show_default=True, help="Of compression, where it is used."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def exchange(network: str, workers: tuple[int, ...], cluster: str, ratio: float, as_json: bool) -> None:
    """How long workers take to exchange NETWORK's gradients: by a ring, an aggregator, and hierarchies.

    From the model alone, for up to 1,024 workers; with and without compression in the NIC.
    """
    settle()
    from ..cluster.load import load_cluster
    from ..network.load import load_network

    if not (math.isfinite(ratio) and 1 <= ratio <= _MOST_RATIO):
        given = f"`--compress-ratio` = {ratio:g}"
        raise InputError(f"{given}: must be from 1 to {_MOST_RATIO}, as a value keeps a tag of 2 bits")
    found, boards = load_network(network), load_cluster(cluster)
    rows = [row_of(boards.network, found.parameters, count, each) for count in workers for each in (None, ratio)]
    if as_json:
        said = {"network": found.name, "cluster": boards.name, "gradient_bytes": 4 * found.parameters}
        print(json.dumps({**said, "exchanges": [dataclasses.asdict(row) for row in rows]}, indent=2))
    else:
        _print(f"{found.name}, {4 * found.parameters / 1e6:.1f} MB of gradients, on {boards.name}", rows)


def groups_of(workers: int) -> int:
    """The groups of a hierarchy: of divisors, the largest up to the square root."""
    return max(groups for groups in range(1, math.isqrt(workers) + 1) if workers % groups == 0)


def row_of(network: Network, values: int, workers: int, ratio: float | None) -> Row:
    """Exchange times of so many values; all workers are ready at once."""
    import numpy as np

    from ...comm.exchange.time import (
        VALUE_BYTES,
        aggregator_ps,
        compressed_bytes,
        hierarchy_ps,
        ring_messages,
        ring_ps,
    )

    groups, ready = groups_of(workers), np.zeros(workers, np.int64)
    in_groups, gradients = ready.reshape(groups, -1), np.full(workers, VALUE_BYTES * values)
    made = None if ratio is None else functools.partial(compressed_bytes, ratio=ratio)
    blocks_made = None if made is None else made(ring_messages(values, workers))
    gradients_made = None if made is None else made(gradients)
    return Row(
        workers,
        groups,
        ratio,
        ring_ps=int(ring_ps(network, ready, values, blocks_made).max()),
        aggregator_ps=int(aggregator_ps(network, ready, values, gradients_made).max()),
        rings_under_aggregator_ps=int(hierarchy_ps(network, in_groups, values, "aggregator", made).max()),
        rings_of_rings_ps=int(hierarchy_ps(network, in_groups, values, "ring", made).max()),
    )


def _print(title: str, rows: Sequence[Row]) -> None:
    from ..common.units import format_time_ps
    from ..report.tables import table

    shown = [
        [
            str(row.workers),
            "-" if row.ratio is None else f"{row.ratio:g}",
            *(format_time_ps(getattr(row, name)) for name in TIMES[:2]),
            f"{row.groups}x{row.workers // row.groups}",
            *(format_time_ps(getattr(row, name)) for name in TIMES[2:]),
        ]
        for row in rows
    ]
    columns = ["workers", "ratio", "ring", "aggregator", "groups", "rings, aggregator", "rings, ring"]
    table(title, columns, shown)
    print(
        "A ring's time is that of two gradients on each link, however many workers there are, until latencies count;\n"
        "an aggregator's grows with them. Hierarchies have groups make their sum by rings, and then the groups an\n"
        "aggregator or a ring: they send more, but have fewer steps. Compression is of gradients, not of weights;\n"
        "where links are faster than the NIC's engines, it takes longer than it saves."
    )
