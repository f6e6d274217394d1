"""`emuchain exchange`: the time to exchange a network's gradients, by the number of workers."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..common import InputError
from .kernels import starting
from .ranges import Counts

if TYPE_CHECKING:
    from ..studies import ExchangeTimes

_MOST_WORKERS = 1024
_MOST_RATIO = 16
"""Greatest compression ratio: 32 bits over a tag of 2."""


@click.command()
@click.argument("network")
@click.option(
    "--workers",
    type=Counts("workers", _MOST_WORKERS),
    default="4,8,16,64,256,1024",
    show_default=True,
    metavar="N,N-N,...",
)
@click.option("--cluster", default="titan-xp-10gbe", show_default=True, metavar="WORD", help="A name, or a TOML file.")
@click.option(
    "--compress-ratio",
    "ratio",
    type=float,
    default=8.0,
    show_default=True,
    help="Compression ratio, in the rows with compression.",
)
@click.option("--plot", type=click.Path(path_type=pathlib.Path), metavar="FILE.png", help="Draw a picture.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def exchange(
    network: str, workers: tuple[int, ...], cluster: str, ratio: float, plot: pathlib.Path | None, as_json: bool
) -> None:
    """Print how long workers take to exchange NETWORK's gradients: by a ring, an aggregator, and hierarchies.

    By the timing model, for up to 1,024 workers, with and without compression in the NIC.
    """
    with starting():
        from ..cluster import load_cluster
        from ..network import load_network
        from ..studies import draw_exchanges, exchange_times

    if not (math.isfinite(ratio) and 1 <= ratio <= _MOST_RATIO):
        given = f"`--compress-ratio` = {ratio:g}"
        raise InputError(f"{given}: must be from 1 to {_MOST_RATIO}, as a value keeps a tag of 2 bits")
    found, boards = load_network(network), load_cluster(cluster)
    rows = [
        exchange_times(boards.interconnect, found.parameters, count, each)
        for count in workers
        for each in (None, ratio)
    ]
    title = f"{found.name}, {4 * found.parameters / 1e6:.1f} MB of gradients, on {boards.name}"
    if plot is not None:
        draw_exchanges(title, rows, plot)
    if as_json:
        said = {"network": found.name, "cluster": boards.name, "gradient_bytes": 4 * found.parameters}
        print(json.dumps({**said, "exchanges": [dataclasses.asdict(row) for row in rows]}, indent=2))
    else:
        _print(title, rows)


def _print(title: str, rows: Sequence[ExchangeTimes]) -> None:
    from ..common import format_time_ps
    from ..report import table

    shown = [
        [
            str(row.workers),
            "-" if row.ratio is None else f"{row.ratio:g}",
            format_time_ps(row.ring_ps),
            format_time_ps(row.aggregator_ps),
            f"{row.groups}x{row.workers // row.groups}",
            format_time_ps(row.rings_under_aggregator_ps),
            format_time_ps(row.rings_of_rings_ps),
        ]
        for row in rows
    ]
    columns = ["workers", "ratio", "ring", "aggregator", "groups", "rings, aggregator", "rings, ring"]
    table(title, columns, shown)
    print(
        "A ring sends two gradients over each link, whatever the number of workers, until latencies count; an\n"
        "aggregator's time grows with the workers. Hierarchies sum by rings within groups, then by an aggregator or a\n"
        "ring between groups: they send more, in fewer steps. Gradients are compressed, weights are not; where links\n"
        "are faster than the NIC's engines, compression takes longer than it saves."
    )
