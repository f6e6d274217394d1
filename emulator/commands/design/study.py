"""`emuchain study`: studies of the papers' questions on any network, without a run.

`compare` and `topology` compare FPDeep with other ways to train on the same boards; others have
files of their own.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ... import view
from ...common import InputError, number, plural
from ..frame.command import (
    SET,
    Answer,
    FileGroup,
    attributes,
    json_option,
    plot_option,
    set_option,
    set_words,
)
from ..frame.flags import range_option
from ..frame.kernels import starting
from ..frame.named import NETWORK, Rate, cluster_option, counts, word_option
from ..frame.output import phases

if TYPE_CHECKING:
    from ...cluster import Cluster
    from ...network import Network
    from ...run import RankedRanges
    from ...studies import Comparison, Method, Outcome, Topology


_CLUSTER = "vc709"
_CHAIN, _DIRECT = "chain (1D)", "direct links (2D)"


@click.group("study", cls=FileGroup)
def study() -> None:
    """Compare kinds of parallelism, topologies, and exchanges of gradients."""


def _options(devices: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            plot_option("Draw a picture."),
            json_option(),
            word_option("--layers", "FIRST:LAST", "Only these layers, such as conv3_1:conv5_3."),
            click.option(
                "--devices", type=counts(), default=devices, show_default=True, metavar="N,N-N,..."
            ),
            set_option,
            cluster_option(default=_CLUSTER, show_default=True),
            click.argument("network", type=NETWORK),
        ):
            command = option(command)
        return command

    return add


@study.command()
@_options("2-16")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="Samples of a mini-batch.",
)
@range_option
def compare(
    network: str,
    cluster: str,
    devices: tuple[int, ...],
    layers: str | None,
    batch: int,
    ranged: bool,
    changes: dict[str, object],
) -> Answer:
    """Compare data, layer, model and hybrid parallelism on the same boards.

    FLOP utilisation, storage, communication footprint and bandwidth of an iteration, over the
    number of devices, and the ranks of the methods.
    """
    with starting():
        from ...plan import check_batch
        from ...studies import Workload, draw_comparison, method_ranges
        from ...studies import compare_methods as run

    loaded, boards = _load(network, cluster, layers, changes)
    check_batch(batch, loaded)
    with phases(f"mapping {loaded.name} in four ways on up to {plural(devices[-1], 'device')}"):
        comparison = run(Workload(loaded, boards, batch), devices)
        sure = method_ranges(comparison) if ranged else None
    return Answer(
        lambda: _print_comparison(comparison, sure, _to_try(network, cluster, devices, changes)),
        lambda: {**_comparison_as_json(comparison), **_ranges_as_json(comparison, sure)},
        lambda picture: draw_comparison(comparison, picture),
    )


@study.command()
@_options("2-16")
@click.option(
    "--ports", type=click.IntRange(min=1), default=10, show_default=True, help="Ports of a board."
)
@click.option(
    "--port-gbps",
    type=Rate(),
    default=13.1,
    show_default=True,
    help=(
        "Bandwidth of a port in each direction; 13.1 is the maximum of a Virtex-7's GTH (Xilinx"
        " DS180)."
    ),
)
def topology(
    network: str,
    cluster: str,
    devices: tuple[int, ...],
    layers: str | None,
    ports: int,
    port_gbps: float,
    changes: dict[str, object],
) -> Answer:
    """Compare a chain of boards (1D) with direct links between all boards that exchange data (2D),
    and others.

    These are the ring, the torus and the switch that `topology` in a cluster's `[links]` may name.
    The mapping is the same; a board divides its ports among its links.
    """
    with starting():
        from ...mapping import partition
        from ...studies import (
            Ports,
            chain_topology,
            direct_topology,
            draw_topologies,
            other_topologies,
        )

    loaded, boards = _load(network, cluster, layers, changes)
    having = Ports(ports, port_gbps)
    title = f"{loaded.name} on {boards.name}, {ports} ports of {port_gbps:g} Gb/s"
    with phases(f"mapping {loaded.name} on up to {plural(devices[-1], 'device')}"):
        mappings = [partition(loaded, boards, count) for count in devices]
        pairs = [
            (chain_topology(m, boards, having), direct_topology(m, boards, having))
            for m in mappings
        ]
        others = [other_topologies(mapping, boards, having) for mapping in mappings]

    def named(chain: str, direct: str) -> list[dict[str, Topology]]:
        return [
            {chain: one, direct: two, **laid}
            for (one, two), laid in zip(pairs, others, strict=True)
        ]

    def as_json() -> dict[str, Any]:
        kinds = []
        for laid in named("1d", "2d"):
            kinds.append({name: _topology_as_json(links) for name, links in laid.items()})
        said = {
            "network": loaded.name,
            "cluster": boards.name,
            "ports": ports,
            "port_gbps": port_gbps,
        }
        return {**said, "topologies": kinds}

    to_try, noun = _to_try(network, cluster, devices, changes), loaded.sample_noun
    return Answer(
        lambda: _print_topologies(title, named(_CHAIN, _DIRECT), noun, to_try),
        as_json,
        lambda picture: draw_topologies(title, pairs, picture, noun),
    )


def _to_try(
    network: str, cluster: str, devices: tuple[int, ...], changes: dict[str, object]
) -> str:
    """Return the command that shows the layout on the most devices that were compared."""
    on = [] if cluster == _CLUSTER else ["--cluster", cluster]
    return shlex.join(
        ["emuchain", "plan", network, *on, *set_words(changes), "--devices", str(devices[-1])]
    )


def _load(
    network: str, cluster: str, layers: str | None, changes: dict[str, object]
) -> tuple[Network, Cluster]:
    from ...cluster import load_cluster
    from ...plan import network_of
    from ...studies import section

    loaded = network_of(network)
    if layers is not None:
        first, colon, last = layers.partition(":")
        if not colon:
            raise InputError(
                f"`layers` = {layers!r}: must be FIRST:LAST, two names of layers of {loaded.name}"
            )
        loaded = section(loaded, first, last)
    return loaded, load_cluster(cluster, changes, blame=SET)


def _sure(comparison: Comparison, sure: RankedRanges | None) -> list[view.Line]:
    """Return the ranges of the methods' FLOP utilisation, and in what share of draws the best is
    the best.
    """
    from ...studies import Method

    if sure is None:
        return []
    words = {name: Method[name].value.split()[0] for name in sure.ranges}
    spans = [
        f"{words[name]} {number(100 * span.low)} to {number(100 * span.high)}"
        for name, span in sure.ranges.items()
    ]
    _, *others = view.range_lines(sure.best)
    best, *_ = words.values()
    grounds = view.class_words(sure.best.classes)
    ranges = (
        f"range: 90 % of FLOP utilisation on {comparison.compared_devices}, %: {', '.join(spans)};"
        f" {grounds}"
    )
    choice = view.choice_text(
        [best, *(words[name] for name in sure.rivals)], sure.best_share, f"{best} best"
    )
    return [view.Line(ranges, beside=True), *others, view.Line(choice, beside=True)]


def _ranges_as_json(comparison: Comparison, sure: RankedRanges | None) -> dict[str, Any]:
    if sure is None:
        return {}
    values = sure.to_dict()
    what = {
        "of": (
            f"flop_utilisation of {next(iter(sure.ranges))} on {comparison.compared_devices}"
            " devices"
        )
    }
    ends = {name: answer.to_dict()["range"] for name, answer in sure.ranges.items()}
    confidence = values.pop("confidence")
    return {
        **values,
        "range": {**what, **values["range"]},
        "ranges": ends,
        "confidence": confidence,
    }


def _print_comparison(comparison: Comparison, sure: RankedRanges | None, to_try: str) -> None:
    from ...studies import METRICS, Method, Metric

    outcomes = comparison.outcomes
    first, *others = _best_first(comparison, view.at_values(None if sure is None else sure.best))
    view.print_answer([first, *_sure(comparison, sure), *others, view.next_line(to_try)])
    devices = sorted({count for by_count in outcomes.values() for count in by_count})
    for metric in METRICS:

        def shown(method: Method, count: int, metric: Metric = metric) -> str:
            outcome = outcomes[method].get(count)
            return number(metric.shown(outcome)) if outcome else "-"

        rows = []
        for count in devices:
            rows.append([str(count), *(shown(method, count) for method in Method)])
        view.table(
            f"{metric.name} / {metric.unit}",
            ["devices", *(method.value for method in Method)],
            rows,
        )
    common = comparison.common_devices
    ranks = comparison.ranks(common) if common else {}
    rows = []
    for method in Method:
        divided, most = ", ".join(sorted(method.dimensions)), comparison.most_devices[method]
        places = [str(ranked[method]) for ranked in ranks.values()]
        rows.append([method.value, divided, f"{most:,}", *places])
    title = "Methods"
    if common:
        title += (
            f": ranks from 1 (worst) to 4, by the mean over {', '.join(map(str, common))} devices"
        )
    columns = [
        "method",
        "divides",
        "most devices",
        *(("parallel", *(m.name for m in METRICS)) if common else ()),
    ]
    view.table(title, columns, rows, left=("divides",), names=("method",))


def _best_first(comparison: Comparison, at: str) -> list[str]:
    """Return for each metric the methods on the most devices that all of them can use, the best
    first.

    `at` says at which values of constants.
    """
    from ...studies import METRICS, Method

    workload, most = comparison.workload, comparison.most_devices
    ordered = sorted(Method, key=lambda method: -most[method])
    title = f"{workload.network.name} on {workload.cluster.name}, batch {workload.batch}"
    lines = [
        f"{title}: four ways{at}, the best first",
        f"most devices: {', '.join(f'{method.value} {most[method]:,}' for method in ordered)}",
    ]
    for metric in METRICS:
        sign = -1 if metric.more_is_better else 1
        values = {method: metric.shown(outcome) for method, outcome in comparison.compared.items()}
        shown = [
            f"{m.value.split()[0]} {number(v)}"
            for m, v in sorted(values.items(), key=lambda entry: sign * entry[1])
        ]
        lines.append(
            f"{metric.name} on {comparison.compared_devices}, {metric.unit}: {', '.join(shown)}"
        )
    return lines


def _comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    from ...studies import Method

    workload, common = comparison.workload, comparison.common_devices

    def ranks(devices: Sequence[int]) -> dict[str, Any]:
        ranks_by_key: dict[str, Any] = {"devices": list(devices)}
        for key, by_method in comparison.ranks(devices).items():
            ranks_by_key[key] = {method.name: rank for method, rank in by_method.items()}
        return ranks_by_key

    methods = {method.name: _method_as_json(comparison, method) for method in Method}
    return {
        "network": workload.network.name,
        "cluster": workload.cluster.name,
        "batch": workload.batch,
        "methods": methods,
        "ranks": ranks(common) if common else None,
        "ranks_by_devices": [ranks([count]) for count in common],
    }


def _method_as_json(comparison: Comparison, method: Method) -> dict[str, Any]:
    outcomes = comparison.outcomes[method].values()
    return {
        "name": method.value,
        "divides": sorted(method.dimensions),
        "most_devices": comparison.most_devices[method],
        "outcomes": [_outcome_as_json(outcome) for outcome in outcomes],
    }


def _outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    first = attributes(outcome, "devices", "iteration_ps", "flop_utilisation", "storage_bytes")
    last = attributes(
        outcome, "total_storage_bytes", "largest_storage_bytes", "footprint_bytes", "bandwidth_gbps"
    )
    return first | last


def _reach(kind: str, links: Topology, noun: str) -> str:
    """Return the rate that a topology allows, and what limits it."""
    worst = links.bottleneck
    if worst is None:
        return f"{kind}: {number(links.images_per_s)} {noun}s/s, no links"
    link = f"worst link {_ends(links, worst)}, {number(links.worst_link_images_per_s)}"
    limit = "engines" if links.compute_images_per_s <= links.worst_link_images_per_s else "links"
    return f"{kind}: {number(links.images_per_s)} {noun}s/s, limited by {limit}; {link}"


def _print_topologies(
    title: str, kinds: Sequence[Mapping[str, Topology]], noun: str, to_try: str
) -> None:
    view.print_answer(
        [
            f"{title}, {plural(kinds[-1][_CHAIN].devices, 'device')}",
            *(_reach(kind, links, noun) for kind, links in kinds[-1].items()),
            "memory is not checked; `emuchain plan` checks it",
            view.next_line(to_try),
        ]
    )
    columns = [
        "devices",
        "engines",
        "worst link",
        "degree",
        "ports per link",
        f"{noun}s/s of that link",
    ]
    for kind in kinds[-1]:
        rows = [_row(links[kind]) for links in kinds]
        view.table(
            f"{kind[0].upper()}{kind[1:]}: {noun}s/s of the slowest engine and of the worst link",
            columns,
            rows,
        )


def _row(links: Topology) -> list[str]:
    worst = links.bottleneck
    first = [f"{links.devices:,}", number(links.compute_images_per_s)]
    if worst is None:
        return [*first, *["-"] * 4]
    degree, ports = _degree(links, worst), links.link_ports(*worst)
    return [
        *first,
        _ends(links, worst),
        str(degree),
        str(ports),
        number(links.worst_link_images_per_s),
    ]


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
        "degrees": [*map(links.degree, range(links.devices))],
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
