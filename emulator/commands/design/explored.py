"""What `emuchain explore` asks: the question that its flags, and a cluster or a profile, make."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ....kernels.number import number_format
from ...common import InputError, plural
from ..frame.command import SET
from .searched import bytes_of

if TYPE_CHECKING:
    from ....comm import Topology
    from ...cluster import ConstantRange, Factors
    from ...explore import Question, Search
    from ...network import Network
    from ...profile import Stages
    from ...schedule import Machine, PipelineKind

_SCHEDULES = {
    "hidden": ("1f1b-as", "fbp-as", "gpipe", "zero-bubble"),
    "stored": ("1f1b-sno", "1f1b-so", "gpipe", "zero-bubble"),
}
"""The schedules of BaPipe, GPipe's and ZB-H1, by the transport that devices have."""
_OF_NETWORK = (
    "network.bandwidth_gbps",
    "network.latency_us",
    "network.packet_stack_ns",
    "network.sum_gbytes_per_s",
)


class Explored(NamedTuple):
    """The kinds of a chain's devices, constants that have ranges, and what is explored with factors
    of these.
    """

    kinds: tuple[str, ...]
    constants: tuple[ConstantRange, ...]
    question: Callable[[Factors], Question]

    @property
    def devices(self) -> str:
        """The devices as text."""
        alike = ((kind, len(list(group))) for kind, group in itertools.groupby(self.kinds))
        return ", ".join(f"{count} {kind}" for kind, count in alike)


def _sizes(flags: Mapping[str, Any], tried: tuple[int, ...], source: str) -> tuple[int, ...]:
    """Return the samples of a micro-batch to try: those asked for, or of those that a source has
    the divisors.
    """
    batch, micro_batch = flags["batch"], flags["micro_batch"]
    if micro_batch == "search":
        fitting = tuple(size for size in tried if batch % size == 0)
        if fitting:
            return fitting
        known = ", ".join(map(str, tried))
        raise InputError(
            f"`batch` = {batch}: must be a multiple of a micro-batch of {source}: {known}"
        )
    if not micro_batch.isdecimal() or not int(micro_batch) or batch % int(micro_batch):
        raise InputError(
            f"`micro_batch` = {micro_batch!r}: must be `search`, or a divisor of `batch` = {batch}"
        )
    return (int(micro_batch),)


def _schedules(
    flags: Mapping[str, Any], usual: str, usual_engines: str | None = None
) -> tuple[tuple[PipelineKind, Machine], ...]:
    """Return the kinds of schedules that the devices can do, each with its machine; the usual one
    where none is asked.

    Without engines, devices can do all that a schedule asks for.
    """
    from ...schedule import Transport, pipeline_kind

    transport, engines = Transport(flags["transport"] or usual), flags["engines"] or usual_engines
    kinds = map(pipeline_kind, _SCHEDULES[transport.value])
    pairs = [(kind, dataclasses.replace(kind.machine, transport=transport)) for kind in kinds]
    name = flags["schedule"]
    if name is not None:
        kind = pipeline_kind(name, ["search"])
        if not kind.drains or kind.chunks > 1 or kind.searches:
            raise InputError(
                f"`schedule` = {name!r}: must be `search`, or have one stage on each device, an"
                " order of its own, and an empty pipeline at each update"
            )
        pairs = [(kind, dataclasses.replace(kind.machine, transport=transport))]
    able = tuple(
        (kind, machine) for kind, machine in pairs if engines in (None, machine.engines.value)
    )
    if not able:
        raise InputError(
            f"`engines` = {engines!r}: no schedule supports it with `transport` ="
            f" {transport.value!r}"
        )
    return able


def _searches(
    flags: Mapping[str, Any], usual: str, engines: str | None = None
) -> tuple[tuple[Search, Machine], ...]:
    """Return the search that is asked for, if it is, with its machine.

    Raises:
        InputError: boards do several actions at a time.
    """
    from ...explore import BY_TIMES, SEARCHES
    from ...schedule import Backward, Machine, Transport

    if flags["schedule"] != "search":
        if flags["out"] is not None:
            raise InputError(
                f"`out` = {flags['out']!r}: writes a searched order; add --schedule search"
            )
        return ()
    if (flags["engines"] or engines or "turns") != "turns":
        raise InputError(
            "`schedule` = 'search': searches orders for devices that do one action after another;"
            " leave out --engines, or give `--engines turns`"
        )
    transport = Transport(flags["transport"] or usual)
    # Without a limit in bytes, as many micro-batches as zero-bubble keeps.
    search = dataclasses.replace(SEARCHES["search"], limit=BY_TIMES["zero-bubble"].limit)
    return ((search, Machine(transport=transport, backward=Backward.SPLIT)),)


def _recomputed(flags: Mapping[str, Any], network: Network) -> frozenset[int]:
    """Return the layers, by index, whose features a searched order may compute again.

    Raises:
        InputError: no order is searched, or a layer is unknown.
    """
    from ...plan import recomputed_layers

    text = flags["recompute"]
    if text is None:
        return frozenset()
    if flags["schedule"] != "search":
        raise InputError(
            f"`recompute` = {text!r}: is for an order that is searched; add --schedule search"
        )
    if text in ("auto", "none"):
        raise InputError(
            f"`recompute` = {text!r}: the search chooses micro-batches; should be names of layers,"
            " or all"
        )
    return recomputed_layers(text, network)


def _limits(flags: Mapping[str, Any], usual: str, engines: str | None = None) -> dict[str, Any]:
    """Return the schedules, searches and the memory of a question, as flags say them."""
    searches = _searches(flags, usual, engines)
    return {
        "schedules": () if searches else _schedules(flags, usual, engines),
        "whole_layers": flags["whole_layers"],
        "replicas": flags["schedule"] is None,
        "searches": searches,
        "memory_bytes": bytes_of(flags["memory"], "memory"),
    }


def _check_topology(topology: Topology, devices: int) -> None:
    """Check that neighbours have links of their own.

    Raises:
        InputError: they share ports.
    """
    if topology.has_ports and devices > 1:
        raise InputError(
            f"`links.topology` = {topology.name!r}: what shares a port depends on the cut that is"
            " sought; should be 'chain', 'ring' or 'torus'"
        )


def of_boards(network: str | None, flags: dict[str, Any]) -> Explored:
    """Return what is explored on the boards of a cluster.

    Raises:
        InputError: a flag is invalid, or the network is missing.
    """
    from ....kernels.optimizers import optimizer_kind
    from ...cluster import BANDWIDTH, CLOCK, LATENCY, MEMORY, load_cluster, varied
    from ...explore import Question, Wires, micro_batches_of
    from ...mapping import COPIES
    from ...number import Precision, Storage
    from ...plan import in_precision, network_of
    from ...profile import BoardStages

    if network is None:
        raise InputError("NETWORK is missing; it can be left out only with `--profile`")
    number = number_format(flags["precision"])
    loaded, cluster = (
        network_of(network),
        in_precision(
            load_cluster(flags["cluster"], flags["changes"], blame=SET), Precision.all_in(number)
        ),
    )
    devices = flags["devices"] or len(cluster.boards)
    _check_topology(cluster.laid_on(devices), devices)
    copies = COPIES + optimizer_kind(flags["optimizer"]).states_beside_lgb

    constants = [
        cluster.range_of(key, device) for device in range(devices) for key in (*CLOCK, MEMORY)
    ]
    keys = [BANDWIDTH, LATENCY, *([] if cluster.own_interconnect is None else _OF_NETWORK)]
    constants += [cluster.range_of(key) for key in keys if devices > 1]
    usual = cluster.transport if cluster.transport in _SCHEDULES else "hidden"
    sizes = _sizes(flags, micro_batches_of(flags["batch"]), loaded.name)
    limits = _limits(flags, usual, None if cluster.engines == "split" else cluster.engines)
    layers, storage = _recomputed(flags, loaded), Storage.all_in(number, copies)

    def question(given: Factors) -> Question:
        there = varied(cluster, given) if given else cluster
        boards = [there.board(device) for device in range(devices)]
        links = tuple(there.link_at(link) for link in range(devices - 1))
        wires = Wires(links, there.between_replicas(devices, 1), there.topology_of(devices))

        @functools.cache
        def stages_of(samples: int) -> Stages:
            return BoardStages(loaded, boards, samples, storage)

        @functools.cache
        def again_of(samples: int) -> Stages:
            return BoardStages(loaded, boards, samples, storage, recomputed=layers)

        return Question(
            stages_of,
            wires,
            flags["batch"],
            sizes,
            weights_together=False,
            again_of=again_of if layers else None,
            **limits,
        )

    kinds = tuple(cluster.board(device).name for device in range(devices))
    return Explored(kinds, tuple(dict.fromkeys(constants)), question)


def of_profile(network: str | None, flags: dict[str, Any]) -> Explored:
    """Return what is explored on devices that a profile describes.

    Raises:
        InputError: a flag is invalid, or the profile cannot be read.
    """
    from ....comm import TopologyError
    from ....kernels.optimizers import optimizer_kind
    from ...cluster import BANDWIDTH, LATENCY, find_range, load_named, varied_link
    from ...explore import Question, Wires
    from ...plan import network_of
    from ...profile import ProfileStages, load_graph, load_profile

    if flags["recompute"] is not None:
        raise InputError(
            f"`recompute` = {flags['recompute']!r}: a profile does not have the bytes that arrive at a"
            " layer, which R begins from; leave out --profile"
        )
    path, chain = pathlib.Path(flags["profile"]), load_named(flags["cluster"])
    if os.path.isdir(path):
        raise InputError(
            f"`profile` = {flags['profile']!r}: is a folder; should be a TOML file or a graph.txt"
        )
    devices = flags["devices"] or len(chain.kinds)
    kinds = tuple(chain.kind(device) for device in range(devices))
    known = None if network is None else network_of(network)
    if path.suffix == ".toml":
        profile = load_profile(path, known, number_format(flags["precision"]))
    else:
        samples = flags["micro_batch"]
        if not samples.isdecimal() or not int(samples):
            raise InputError(
                f"{path}: does not state its micro-batch; give the one it was measured with as"
                " `--micro-batch N`"
            )
        profile = load_graph(path, int(samples), tuple(dict.fromkeys(kinds)))
    _check_topology(chain.topology, devices)
    try:
        over = chain.interconnect.among(devices)
    except TopologyError as error:
        given = f"`shape`: {error} for {plural(devices, 'device')}"
        raise InputError(f"{given}; should have as many, or be left out") from None
    wires = Wires(tuple(chain.link_at(link) for link in range(devices - 1)), over, chain.topology)
    states = optimizer_kind(flags["optimizer"]).states_beside_lgb
    kept = dataclasses.replace(profile, parameter_copies=profile.parameter_copies + states)

    constants = tuple(find_range(key, ()) for key in (BANDWIDTH, LATENCY) if devices > 1)
    sizes = _sizes(flags, profile.micro_batches, profile.name)
    limits = _limits(flags, "stored")

    @functools.cache
    def stages_of(samples: int) -> Stages:
        return ProfileStages(kept, kinds, samples, known)

    def question(given: Factors) -> Question:
        links = tuple(varied_link(link, given, ()) for link in wires.links)
        there = dataclasses.replace(wires, links=links)
        return Question(stages_of, there, flags["batch"], sizes, **limits)

    return Explored(kinds, constants, question)
