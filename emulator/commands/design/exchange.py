"""`emuchain study exchange`: the time to exchange a network's gradients, by the number of workers."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ....kernels.number import FP32
from ...common import InputError, plural
from ..frame.kernels import starting
from ..frame.named import NETWORK, PICTURE, SET, Counts, FileCommand, cluster_option, set_option, set_words
from ..frame.output import phases, tell

if TYPE_CHECKING:
    from ...cluster import Cluster
    from ...studies import ExchangeTimes

_MOST_WORKERS = 1024
_MOST_RATIO = 16
"""Greatest compression ratio: 32 bits over a tag of 2."""


@click.command(cls=FileCommand)
@click.argument("network", type=NETWORK)
@click.option(
    "--workers",
    type=Counts("workers", _MOST_WORKERS),
    default="4,8,16,64,256,1024",
    show_default=True,
    metavar="N,N-N,...",
)
@cluster_option(default="titan-xp-10gbe", show_default=True)
@click.option(
    "--compress-ratio",
    "ratio",
    type=float,
    default=8.0,
    show_default=True,
    help="Compression ratio, in the rows with compression.",
)
@click.option("--plot", type=PICTURE, metavar="FILE.png", help="Draw a picture.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@set_option
def exchange(
    network: str,
    workers: tuple[int, ...],
    cluster: str,
    ratio: float,
    plot: pathlib.Path | None,
    as_json: bool,
    changes: dict[str, object],
) -> None:
    """Print how long workers take to exchange NETWORK's gradients: by a ring, an aggregator, and hierarchies.

    By the timing model, for up to 1,024 workers, with and without compression in the network interface.
    """
    with starting():
        from ...cluster import load_cluster
        from ...plan import network_of
        from ...studies import draw_exchanges, exchange_times
        from ...view import picture_file

    if not (math.isfinite(ratio) and 1 <= ratio <= _MOST_RATIO):
        given = f"`--compress-ratio` = {ratio:g}"
        raise InputError(f"{given}: must be from 1 to {_MOST_RATIO}, as a value keeps a tag of 2 bits")
    loaded, boards = network_of(network), load_cluster(cluster, changes, blame=SET)
    _note_idle(cluster, changes, boards)
    title = f"{loaded.name}, {FP32.bytes_of(loaded.parameters) / 1e6:,.1f} MB of gradients, on {boards.name}"
    rows = []
    with picture_file(plot, "--plot") as picture:
        with phases(f"exchanges among up to {plural(workers[-1], 'worker')}"):
            for count in workers:
                rows += [
                    exchange_times(boards.interconnect, loaded.parameters, count, assumed) for assumed in (None, ratio)
                ]
        if picture is not None:
            draw_exchanges(title, rows, picture)
    if as_json:
        said = {"network": loaded.name, "cluster": boards.name, "gradient_bytes": FP32.bytes_of(loaded.parameters)}
        print(json.dumps({**said, "exchanges": [dataclasses.asdict(row) for row in rows]}, indent=2))
        return
    from ...view import next_line, print_answer

    plain, compressed = rows[-2:]
    to_try = [
        "emuchain",
        "simulate",
        network,
        "--cluster",
        cluster,
        *set_words(changes),
        "--schedule",
        "data-parallel-ring",
    ]
    to_try += ["--devices", str(workers[0]), "--batch", str(16 * workers[0]), "--samples", str(64 * workers[0])]
    print_answer(
        [
            title,
            _fastest(plain, ""),
            _fastest(compressed, f", compressed {ratio:g} times"),
            next_line(shlex.join(to_try)),
        ]
    )
    _print("Time of an exchange", rows)


def _note_idle(cluster: str, changes: Mapping[str, object], boards: Cluster) -> None:
    """Tell of each changed key without which the interconnect, and so the exchange, is what it is with all."""
    from ...cluster import load_cluster

    for key in changes:
        without = load_cluster(cluster, {other: value for other, value in changes.items() if other != key})
        if without.interconnect == boards.interconnect:
            own = "links" if boards.own_interconnect is None else "network"
            tell(f"emuchain: note: {SET} {key}: has no effect; an exchange takes what it does by keys of `{own}` alone")


def _fastest(row: ExchangeTimes, how: str) -> str:
    """Return the ways to exchange among some workers, the fastest first."""
    from ...common import format_time_ps

    times = {
        "ring": row.ring_ps,
        "aggregator": row.aggregator_ps,
        "rings and an aggregator": row.rings_under_aggregator_ps,
        "rings and a ring": row.rings_of_rings_ps,
    }
    shown = [f"{way} {format_time_ps(times[way])}" for way in sorted(times, key=lambda way: times[way])]
    return f"{plural(row.workers, 'worker')}{how}: {', '.join(shown)}"


def _print(title: str, rows: Sequence[ExchangeTimes]) -> None:
    from ...common import format_time_ps
    from ...view import say, table

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
    print()
    say(
        "A ring sends two gradients over each link regardless of the number of workers, so its time grows only with"
        " latency; an aggregator's time grows with the workers. Hierarchies sum by rings within groups, then by an"
        " aggregator or a ring between groups: they send more, in fewer steps. Gradients are compressed, weights are"
        " not; where links are faster than the compression engines of the network interface, compression takes longer"
        " than it saves."
    )
