"""`emuchain study`: studies of the papers' questions on any network, without a run.

`compare` and `topology` compare FPDeep with other ways to train on the same boards.
"""

from __future__ import annotations

import json
import pathlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...common import InputError, plural
from ..frame.flags import range_option
from ..frame.kernels import starting
from ..frame.named import (
    NETWORK,
    PICTURE,
    SET,
    WORD,
    Counts,
    FileGroup,
    Rate,
    cluster_option,
    set_option,
    set_words,
)
from ..frame.output import phases
from .exchange import exchange

if TYPE_CHECKING:
    from ...cluster import Cluster
    from ...network import Network
    from ...studies import Comparison, MethodRanges, Outcome, Topology
    from ...view import Line


_CLUSTER = "vc709"
_CHAIN, _DIRECT = "chain (1D)", "direct links (2D)"


@click.group("study", cls=FileGroup)
def study() -> None:
    """Compare kinds of parallelism, topologies, and exchanges of gradients."""


def _options(devices: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--plot", type=PICTURE, metavar="FILE.png", help="Draw a picture."),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
            click.option(
                "--layers", type=WORD, metavar="FIRST:LAST", help="Only these layers, such as conv3_1:conv5_3."
            ),
            click.option("--devices", type=Counts(), default=devices, show_default=True, metavar="N,N-N,..."),
            set_option,
            cluster_option(default=_CLUSTER, show_default=True),
            click.argument("network", type=NETWORK),
        ):
            command = option(command)
        return command

    return add


@study.command()
@_options("2-16")
@click.option("--batch", type=click.IntRange(min=1), default=128, show_default=True, help="Samples of a mini-batch.")
@range_option
def compare(
    network: str,
    cluster: str,
    devices: tuple[int, ...],
    layers: str | None,
    batch: int,
    ranged: bool,
    as_json: bool,
    plot: pathlib.Path | None,
    changes: dict[str, object],
) -> None:
    """Compare data, layer, model and hybrid parallelism on the same boards.

    FLOP utilisation, storage, communication footprint and bandwidth of an iteration, over the number of devices, and
    the ranks of the methods.
    """
    with starting():
        from ...plan import check_batch
        from ...studies import Workload, draw_comparison, method_ranges
        from ...studies import compare_methods as run
        from ...view import picture_file

    loaded, boards = _load(network, cluster, layers, changes)
    check_batch(batch, loaded)
    with picture_file(plot, "--plot") as picture:
        with phases(f"mapping {loaded.name} in four ways on up to {plural(devices[-1], 'device')}"):
            comparison = run(Workload(loaded, boards, batch), devices)
            sure = method_ranges(comparison) if ranged else None
        if picture is not None:
            draw_comparison(comparison, picture)
    if as_json:
        print(json.dumps({**_comparison_as_json(comparison), **({} if sure is None else sure.to_dict())}, indent=2))
    else:
        _print_comparison(comparison, sure, _to_try(network, cluster, devices, changes))


@study.command()
@_options("2-16")
@click.option("--ports", type=click.IntRange(min=1), default=10, show_default=True, help="Ports of a board.")
@click.option(
    "--port-gbps",
    type=Rate(),
    default=13.1,
    show_default=True,
    help="Bandwidth of a port in each direction; 13.1 is the maximum of a Virtex-7's GTH (Xilinx DS180).",
)
def topology(
    network: str,
    cluster: str,
    devices: tuple[int, ...],
    layers: str | None,
    ports: int,
    port_gbps: float,
    as_json: bool,
    plot: pathlib.Path | None,
    changes: dict[str, object],
) -> None:
    """Compare a chain of boards (1D) with direct links between all boards that exchange data (2D), and others.

    These are the ring, the torus and the switch that `topology` in a cluster's `[links]` may name. The mapping is the
    same; a board divides its ports among its links.
    """
    with starting():
        from ...mapping import partition
        from ...studies import Ports, chain_topology, direct_topology, draw_topologies, other_topologies
        from ...view import picture_file

    loaded, boards = _load(network, cluster, layers, changes)
    having = Ports(ports, port_gbps)
    title = f"{loaded.name} on {boards.name}, {ports} ports of {port_gbps:g} Gb/s"
    with picture_file(plot, "--plot") as picture:
        with phases(f"mapping {loaded.name} on up to {plural(devices[-1], 'device')}"):
            mappings = [partition(loaded, boards, count) for count in devices]
            pairs = [(chain_topology(m, boards, having), direct_topology(m, boards, having)) for m in mappings]
            others = [other_topologies(mapping, boards, having) for mapping in mappings]
        if picture is not None:
            draw_topologies(title, pairs, picture, loaded.sample_noun)
    if as_json:
        kinds = [{"1d": one, "2d": two, **laid} for (one, two), laid in zip(pairs, others, strict=True)]
        as_dicts = [{kind: _topology_as_json(links) for kind, links in each.items()} for each in kinds]
        said = {"network": loaded.name, "cluster": boards.name, "ports": ports, "port_gbps": port_gbps}
        print(json.dumps({**said, "topologies": as_dicts}, indent=2))
    else:
        kinds = [{_CHAIN: one, _DIRECT: two, **laid} for (one, two), laid in zip(pairs, others, strict=True)]
        _print_topologies(title, kinds, loaded.sample_noun, _to_try(network, cluster, devices, changes))


def _to_try(network: str, cluster: str, devices: tuple[int, ...], changes: dict[str, object]) -> str:
    """Return the command that shows the layout on the most devices that were compared."""
    on = [] if cluster == _CLUSTER else ["--cluster", cluster]
    return shlex.join(["emuchain", "plan", network, *on, *set_words(changes), "--devices", str(devices[-1])])


def _load(network: str, cluster: str, layers: str | None, changes: dict[str, object]) -> tuple[Network, Cluster]:
    from ...cluster import load_cluster
    from ...plan import network_of
    from ...studies import section

    loaded = network_of(network)
    if layers is not None:
        first, colon, last = layers.partition(":")
        if not colon:
            raise InputError(f"`layers` = {layers!r}: must be FIRST:LAST, two names of layers of {loaded.name}")
        loaded = section(loaded, first, last)
    return loaded, load_cluster(cluster, changes, blame=SET)


def _sure(sure: MethodRanges | None) -> list[Line]:
    """Return the ranges of the methods' FLOP utilisation, and in what share of draws the best is the best."""
    from ...common import number, percent
    from ...view import Line, class_words, range_lines

    if sure is None:
        return []
    spans = [
        f"{method.value.split()[0]} {number(100 * of.low)} to {number(100 * of.high)}"
        for method, of in sure.ranges.items()
    ]
    first, *others = range_lines(sure.ranges[sure.best])
    names = ", ".join(method.value.split()[0] for method in (sure.best, *sure.rivals))
    alike = f"not distinguishable: {names}; " if sure.rivals else ""
    grounds = class_words(sure.ranges[sure.best].classes)
    first = Line(f"range: 90 % of FLOP utilisation on {sure.devices}, %: {', '.join(spans)}; {grounds}", beside=True)
    choice = Line(
        f"choice: {alike}{sure.best.value.split()[0]} best in {percent(sure.best_share)} of draws", beside=True
    )
    return [first, *others, choice]


def _print_comparison(comparison: Comparison, sure: MethodRanges | None, to_try: str) -> None:
    from ...common import number
    from ...studies import METRICS, Method, Metric
    from ...view import at_values, next_line, print_answer, table

    outcomes = comparison.outcomes
    first, *others = _best_first(comparison, at_values(None if sure is None else sure.ranges[sure.best]))
    print_answer([first, *_sure(sure), *others, next_line(to_try)])
    devices = sorted({count for by_count in outcomes.values() for count in by_count})
    for metric in METRICS:

        def shown(method: Method, count: int, metric: Metric = metric) -> str:
            outcome = outcomes[method].get(count)
            return number(metric.shown(outcome)) if outcome else "-"

        rows = [[str(count), *(shown(method, count) for method in Method)] for count in devices]
        table(f"{metric.name} / {metric.unit}", ["devices", *(method.value for method in Method)], rows)
    common = comparison.common_devices
    ranks = comparison.ranks(common) if common else {}
    rows = [
        [
            method.value,
            ", ".join(sorted(method.dimensions)),
            f"{comparison.most_devices[method]:,}",
            *(str(ranked[method]) for ranked in ranks.values()),
        ]
        for method in Method
    ]
    title = "Methods"
    if common:
        title += f": ranks from 1 (worst) to 4, by the mean over {', '.join(map(str, common))} devices"
    columns = ["method", "divides", "most devices", *(("parallel", *(m.name for m in METRICS)) if common else ())]
    table(title, columns, rows, left=("divides",), names=("method",))


def _best_first(comparison: Comparison, at: str) -> list[str]:
    """Return for each metric the methods on the most devices that all of them can use, the best first.

    `at` says at which values of constants.
    """
    from ...common import number
    from ...studies import METRICS, Method

    workload, outcomes = comparison.workload, comparison.outcomes
    most = comparison.most_devices
    ordered = sorted(Method, key=lambda method: -most[method])
    title = f"{workload.network.name} on {workload.cluster.name}, batch {workload.batch}"
    lines = [
        f"{title}: four ways{at}, the best first",
        f"most devices: {', '.join(f'{method.value} {most[method]:,}' for method in ordered)}",
    ]
    counts = comparison.common_devices or (min(map(min, filter(None, outcomes.values()))),)
    having = {method: by_count[counts[-1]] for method, by_count in outcomes.items() if counts[-1] in by_count}
    for metric in METRICS:
        sign = -1 if metric.more_is_better else 1
        values = {method: metric.shown(outcome) for method, outcome in having.items()}
        shown = [
            f"{m.value.split()[0]} {number(v)}" for m, v in sorted(values.items(), key=lambda entry: sign * entry[1])
        ]
        lines.append(f"{metric.name} on {counts[-1]}, {metric.unit}: {', '.join(shown)}")
    return lines


def _comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    from ...studies import Method

    workload, common = comparison.workload, comparison.common_devices

    def ranks(devices: Sequence[int]) -> dict[str, Any]:
        rank_of = comparison.ranks(devices)
        return {"devices": list(devices), **{k: {m.name: r for m, r in by.items()} for k, by in rank_of.items()}}

    return {
        "network": workload.network.name,
        "cluster": workload.cluster.name,
        "batch": workload.batch,
        "methods": {
            method.name: {
                "name": method.value,
                "divides": sorted(method.dimensions),
                "most_devices": comparison.most_devices[method],
                "outcomes": [_outcome_as_json(outcome) for outcome in comparison.outcomes[method].values()],
            }
            for method in Method
        },
        "ranks": ranks(common) if common else None,
        "ranks_by_devices": [ranks([count]) for count in common],
    }


def _outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "devices": outcome.devices,
        "iteration_ps": outcome.iteration_ps,
        "flop_utilisation": outcome.flop_utilisation,
        "storage_bytes": list(outcome.storage_bytes),
        "total_storage_bytes": outcome.total_storage_bytes,
        "largest_storage_bytes": outcome.largest_storage_bytes,
        "footprint_bytes": outcome.footprint_bytes,
        "bandwidth_gbps": outcome.bandwidth_gbps,
    }


def _reach(kind: str, links: Topology, noun: str) -> str:
    """Return the rate that a topology allows, and what limits it."""
    from ...common import number

    worst = links.bottleneck
    if worst is None:
        return f"{kind}: {number(links.images_per_s)} {noun}s/s, no links"
    link = f"worst link {_ends(links, worst)}, {number(links.worst_link_images_per_s)}"
    limit = "engines" if links.compute_images_per_s <= links.worst_link_images_per_s else "links"
    return f"{kind}: {number(links.images_per_s)} {noun}s/s, limited by {limit}; {link}"


def _print_topologies(title: str, kinds: Sequence[Mapping[str, Topology]], noun: str, to_try: str) -> None:
    from ...view import next_line, print_answer, table

    print_answer(
        [
            f"{title}, {plural(kinds[-1][_CHAIN].devices, 'device')}",
            *(_reach(kind, links, noun) for kind, links in kinds[-1].items()),
            "memory is not checked; `emuchain plan` checks it",
            next_line(to_try),
        ]
    )
    columns = ["devices", "engines", "worst link", "degree", "ports per link", f"{noun}s/s of that link"]
    for kind in kinds[-1]:
        rows = [_row(links[kind]) for links in kinds]
        table(f"{kind[0].upper()}{kind[1:]}: {noun}s/s of the slowest engine and of the worst link", columns, rows)


def _row(links: Topology) -> list[str]:
    from ...common import number

    worst = links.bottleneck
    first = [f"{links.devices:,}", number(links.compute_images_per_s)]
    if worst is None:
        return [*first, *["-"] * 4]
    degree, ports = _degree(links, worst), links.link_ports(*worst)
    return [*first, _ends(links, worst), str(degree), str(ports), number(links.worst_link_images_per_s)]


def _ends(links: Topology, worst: tuple[int, int]) -> str:
    """Return the ends of a link, of which a switch has the number of the devices."""
    return " -> ".join("switch" if end == links.devices else str(end) for end in worst)


def _degree(links: Topology, worst: tuple[int, int]) -> int:
    """Return the most links of a device at an end of a link."""
    return max(links.degree(device) for device in worst if device < links.devices)


def _topology_as_json(links: Topology) -> dict[str, Any]:
    worst = links.bottleneck
    return {
        "devices": links.devices,
        "degrees": [links.degree(device) for device in range(links.devices)],
        "compute_images_per_s": links.compute_images_per_s,
        "worst_link_images_per_s": links.worst_link_images_per_s if worst else None,
        "images_per_s": links.images_per_s,
        "bottleneck": list(worst) if worst else None,
        "bottleneck_degree": _degree(links, worst) if worst else None,
        "links": [
            {
                "sender": sender,
                "receiver": receiver,
                "sample_bytes": count,
                "ports": links.link_ports(sender, receiver),
                "images_per_s": links.link_images_per_s(sender, receiver),
            }
            for (sender, receiver), count in sorted(links.traffic.items())
            if count
        ],
    }


study.add_command(exchange)
