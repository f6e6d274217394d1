"""`emuchain study exchange`: how long workers take to exchange a network's gradients, by their
number.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ....kernels.number import FP32
from ... import view
from ...common import InputError, format_time_ps, plural
from ..frame.command import (
    SET,
    Answer,
    FileCommand,
    json_option,
    plot_option,
    set_option,
    set_words,
)
from ..frame.kernels import starting
from ..frame.named import NETWORK, cluster_option, counts
from ..frame.output import phases, tell
from .study import study

if TYPE_CHECKING:
    from ...cluster import Cluster
    from ...network import Network
    from ...studies import ExchangeTimes

_MOST_WORKERS = 1024
_MOST_RATIO = 16
"""Greatest compression ratio: 32 bits over a tag of 2."""


@click.command(cls=FileCommand)
@click.argument("network", type=NETWORK)
@click.option(
    "--workers",
    type=counts("workers", _MOST_WORKERS),
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
@plot_option("Draw a picture.")
@json_option()
@set_option
def exchange(
    network: str, workers: tuple[int, ...], cluster: str, ratio: float, changes: dict[str, object]
) -> Answer:
    """Print how long workers take to exchange NETWORK's gradients: by a ring, an aggregator,
    hierarchies, and all other collectives.

    By the timing model, for up to 1,024 workers, with and without compression in the network
    interface.
    """
    with starting():
        from ...cluster import load_cluster
        from ...plan import network_of
        from ...studies import draw_exchanges, exchange_times

    if not (math.isfinite(ratio) and 1 <= ratio <= _MOST_RATIO):
        given = f"`--compress-ratio` = {ratio:g}"
        raise InputError(
            f"{given}: must be from 1 to {_MOST_RATIO}, as a value keeps a tag of 2 bits"
        )
    loaded, boards = network_of(network), load_cluster(cluster, changes, blame=SET)
    _note_idle(cluster, changes, boards)
    gradient_bytes = FP32.bytes_of(loaded.parameters)
    title = f"{loaded.name}, {gradient_bytes / 1e6:,.1f} MB of gradients, on {boards.name}"
    rows = []
    with phases(f"exchanges among up to {plural(workers[-1], 'worker')}"):
        for count in workers:
            rows += [
                exchange_times(boards.interconnect, loaded.parameters, count, assumed)
                for assumed in (None, ratio)
            ]
    words = network, "--cluster", cluster, *set_words(changes)

    def to_try() -> str:
        count = workers[0]
        keys = {"devices": count, "batch": 16 * count, "samples": 64 * count}
        with phases("the run to try next"):
            if _fits({"schedule": "data-parallel-ring", **keys}, loaded, boards):
                flags = [word for key, value in keys.items() for word in (f"--{key}", str(value))]
                ring = ["--schedule", "data-parallel-ring", *flags]
                return shlex.join(["emuchain", "simulate", *words, *ring])
        return shlex.join(["emuchain", "study", "exchange", *words, "--json"])

    said = {"network": loaded.name, "cluster": boards.name, "gradient_bytes": gradient_bytes}
    return Answer(
        lambda: _print_exchanges(title, rows, to_try()),
        lambda: {**said, "exchanges": [dataclasses.asdict(row) for row in rows]},
        lambda picture: draw_exchanges(title, rows, picture),
    )


study.add_command(exchange)


def _note_idle(cluster: str, changes: Mapping[str, object], boards: Cluster) -> None:
    """Tell of each changed key without which the interconnect, and so the exchange, is what it is
    with all.
    """
    from ...cluster import load_cluster

    for key in changes:
        without = load_cluster(
            cluster, {other: value for other, value in changes.items() if other != key}
        )
        if without.interconnect == boards.interconnect:
            own = "links" if boards.own_interconnect is None else "network"
            tell(
                f"emuchain: note: {SET} {key}: has no effect; an exchange takes what it does by"
                f" keys of `{own}` alone"
            )


def _fits(settings: Mapping[str, object], network: Network, cluster: Cluster) -> bool:
    """Return whether a run of each worker's own network can be planned on these boards."""
    from ...config import settings_config
    from ...plan import plan_run

    try:
        plan_run(settings_config(dict(settings)), network=network, cluster=cluster)
    except InputError:
        return False
    return True


def _fastest(row: ExchangeTimes, how: str) -> str:
    """Return the ways to exchange among some workers, the fastest first."""
    times = sorted(row.by_name.items(), key=lambda timed: timed[1])
    shown = [f"{way} {format_time_ps(time_ps)}" for way, time_ps in times]
    return f"{plural(row.workers, 'worker')}{how}: {', '.join(shown)}"


def _print_exchanges(title: str, rows: Sequence[ExchangeTimes], to_try: str) -> None:
    plain, compressed = rows[-2:]
    fastest = [
        _fastest(plain, ""),
        _fastest(compressed, f", compressed {compressed.ratio:g} times"),
    ]
    view.print_answer([title, *fastest, view.next_line(to_try)])
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
    columns = [
        "workers",
        "ratio",
        "ring",
        "aggregator",
        "groups",
        "rings, aggregator",
        "rings, ring",
    ]
    view.table("Time of an exchange", columns, shown)
    names = [*dict.fromkeys(name for row in rows for name in row.collectives)]
    others = []
    for row in rows:
        times = (row.collectives.get(name) for name in names)
        ratio = "-" if row.ratio is None else f"{row.ratio:g}"
        said = ("-" if time_ps is None else format_time_ps(time_ps) for time_ps in times)
        others.append([str(row.workers), ratio, *said])
    if names:
        view.table("By other collectives", ["workers", "ratio", *names], others)
    print()
    view.say(
        "A ring sends two gradients over each link regardless of the number of workers, so its time"
        " grows only with latency; an aggregator's time grows with the workers. Hierarchies sum by"
        " rings within groups, then by an aggregator or a ring between groups: they send more, in"
        " fewer steps. Halving and doubling sends as much as a ring, in steps that grow with the"
        " logarithm of the workers. Gradients are compressed, weights are not; where links are faster than the"
        " compression engines of the network interface, compression takes longer than it saves."
    )
