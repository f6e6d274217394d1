"""`emuchain explore`: cut, schedule and micro-batch of a pipeline for a network on unequal devices."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from ....kernels.number import number_format
from ...common import InputError, plural
from ..frame.flags import range_option
from ..frame.kernels import starting
from ..frame.named import (
    CHANGES,
    NETWORK,
    OPTIMIZER,
    SET,
    WORD,
    FileCommand,
    cluster_option,
    profile_option,
    set_option,
)
from ..frame.output import tell

if TYPE_CHECKING:
    from ....comm import Topology
    from ...cluster import Cluster, ConstantRange
    from ...explore import Question, Wires
    from ...profile import Stages
    from ...schedule import Engines, Machine, PipelineKind, Transport

_MOST_DEVICES = 64
_MOST_ACTIONS = 200_000
_ACTION_S, _LONG_S = 2e-3, 120
"""Time that each micro-batch on a device takes, with all bandwidths that are tried; and time before a warning."""
_SCHEDULES = {
    "hidden": ("1f1b-as", "fbp-as", "gpipe", "zero-bubble"),
    "stored": ("1f1b-sno", "1f1b-so", "gpipe", "zero-bubble"),
}
"""The schedules of BaPipe, GPipe's and ZB-H1, by the transport that devices have."""
_OF_NETWORK = ("network.bandwidth_gbps", "network.latency_us", "network.packet_stack_ns", "network.sum_gbytes_per_s")
_USUAL = {"precision": "fp32", "optimizer": "sgd"}
"""Defaults of flags that a run takes, too."""


def _format_name(name: str) -> str:
    from ...number import named_format

    try:
        return named_format(name).name
    except ValueError as error:
        raise click.BadParameter(f"{name!r}: {error}") from None


@click.command(cls=FileCommand)
@click.argument("network", type=NETWORK, required=False)
@cluster_option(required=True)
@profile_option("FILE", "Measured times: a TOML file, or PipeDream's graph.txt.")
@click.option(
    "--devices",
    type=click.IntRange(1, _MOST_DEVICES),
    metavar="N",
    help="Devices of the chain.  [default: as many as the cluster lists]",
)
@click.option(
    "--batch", type=click.IntRange(min=1), default=128, show_default=True, metavar="N", help="Samples of a mini-batch."
)
@click.option(
    "--micro-batch",
    type=WORD,
    default="search",
    show_default=True,
    metavar="N|search",
    help="Samples of a micro-batch; search tries the powers of two, or profiled sizes, that divide --batch.",
)
@click.option(
    "--precision",
    type=WORD,
    metavar="NAME",
    default="fp32",
    show_default=True,
    callback=lambda ctx, option, name: _format_name(name),
    help="Format of all values, such as fp16.",
)
@click.option(
    "--optimizer",
    type=OPTIMIZER,
    metavar="NAME",
    default="sgd",
    show_default=True,
    help="Optimizer, such as adam; its state takes memory, too.",
)
@click.option(
    "--engines",
    type=click.Choice(["turns", "shared"]),
    help="What runs on a board at the same time.  [default: the cluster's, or both]",
)
@click.option(
    "--transport",
    type=click.Choice(["hidden", "stored"]),
    help="Send messages while they are computed, or after.  [default: the cluster's, or hidden; stored with a profile]",
)
@click.option("--whole-layers", is_flag=True, help="Cut between layers only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@range_option
@set_option
def explore(network: str | None, as_json: bool, ranged: bool, **flags: Any) -> None:
    """Find the fastest cut, schedule and micro-batch to train NETWORK on a chain of devices, which may differ.

    Follows BaPipe: profile, cut between layers, coarse or within layers, memory; then schedules and micro-batches, each
    timed and compared with data parallelism. NETWORK may be left out if a profile describes it.
    """
    with starting():
        from ...explore import explore as best_of
        from ...studies import explored
        from .exploration import exploration_as_json, print_exploration

    chain, question_on = _questions(network, flags)
    devices, question = chain.devices, question_on(chain)
    _heed_work(question)
    exploration = best_of(question)
    sure = None
    if ranged:
        sure = explored(question, exploration, chain.constants, lambda given: question_on(chain.varied(given)))
    if as_json:
        print(json.dumps(exploration_as_json(devices, question, exploration, sure), indent=2))
    else:
        named = {"cluster": flags["cluster"], "devices": question.stages_of(exploration.winner.samples).devices}
        others = {key: flags[key] for key, usual in _USUAL.items() if flags[key] != usual}
        others |= {CHANGES: flags[CHANGES]} if flags[CHANGES] else {}
        run = {"network": network, **named, **others} if flags["profile"] is None else None
        print_exploration(devices, question, exploration, run, sure)


def _heed_work(question: Question) -> None:
    """Say how long an exploration takes, if that is long.

    Raises:
        InputError: a candidate has too many micro-batches.
    """
    from ...plan import duration

    devices = question.stages_of(question.micro_batches[0]).devices
    counts = [question.batch // samples for samples in question.micro_batches]
    most = _MOST_ACTIONS // devices
    if max(counts) > most:
        size = f"micro-batches of {plural(min(question.micro_batches), 'sample')} on {plural(devices, 'device')}"
        raise InputError(
            f"`batch` = {question.batch}: {max(counts):,} {size}, at most {most:,}; give fewer samples, or larger"
            " micro-batches by --micro-batch"
        )
    seconds = _ACTION_S * devices * sum(counts)
    if seconds > _LONG_S:
        tell(f"emuchain: warning: exploring {sum(counts):,} micro-batches takes about {duration(seconds)}; see --batch")


class _Chain(NamedTuple):
    """What is known of the devices: kinds, wires, stages by the samples of a micro-batch, sizes to try, machines.

    Without `engines`, they can do all that a schedule asks for. `constants` have ranges; `varied` is the chain with
    factors of these.
    """

    kinds: tuple[str, ...]
    wires: Wires
    stages_of: Callable[[int], Stages]
    sizes: tuple[int, ...]
    transport: Transport
    source: str
    constants: tuple[ConstantRange, ...]
    varied: Callable[[Mapping[ConstantRange, float]], _Chain]
    engines: str | None = None

    @property
    def devices(self) -> str:
        """The devices as text."""
        alike = ((kind, len(list(group))) for kind, group in itertools.groupby(self.kinds))
        return ", ".join(f"{count} {kind}" for kind, count in alike)


def _questions(network: str | None, flags: dict[str, Any]) -> tuple[_Chain, Callable[[_Chain], Question]]:
    """Return what is known of the devices, and what is explored on them.

    Raises:
        InputError: a name, a file or a value is invalid.
    """
    from ...explore import Question
    from ...schedule import Transport

    chain = _of_boards(network, flags) if flags["profile"] is None else _of_profile(network, flags)
    transport = Transport(flags["transport"]) if flags["transport"] else chain.transport
    engines = flags["engines"] or chain.engines
    sizes = _sizes(chain, flags["batch"], flags["micro_batch"])

    def question_on(known: _Chain) -> Question:
        stages_of = functools.cache(known.stages_of)
        return Question(
            *(stages_of, known.wires, flags["batch"], sizes, _schedules(transport, engines), flags["whole_layers"]),
            weights_together=flags["profile"] is not None,
        )

    return chain, question_on


def _sizes(chain: _Chain, batch: int, micro_batch: str) -> tuple[int, ...]:
    if micro_batch == "search":
        fitting = tuple(size for size in chain.sizes if batch % size == 0)
        if fitting:
            return fitting
        known = ", ".join(map(str, chain.sizes))
        raise InputError(f"`batch` = {batch}: must be a multiple of a micro-batch of {chain.source}: {known}")
    if not micro_batch.isdecimal() or not int(micro_batch) or batch % int(micro_batch):
        raise InputError(f"`micro_batch` = {micro_batch!r}: must be `search`, or a divisor of `batch` = {batch}")
    return (int(micro_batch),)


def _schedules(transport: Transport, engines: str | None) -> tuple[tuple[PipelineKind, Machine], ...]:
    """Return the kinds of schedules that the devices can do, each with its machine."""
    from ...schedule import Engines, pipeline_kind

    names = _SCHEDULES[transport.value]
    kinds = [pipeline_kind(name) for name in names]
    pairs = [(kind, dataclasses.replace(kind.machine, transport=transport)) for kind in kinds]
    return tuple((kind, machine) for kind, machine in pairs if engines in (None, machine.engines.value)) or _none(
        transport, Engines(engines)
    )


def _none(transport: Transport, engines: Engines) -> NoReturn:
    raise InputError(f"`engines` = {engines.value!r}: no schedule supports it with `transport` = {transport.value!r}")


def _devices(given: int | None, listed: int) -> int:
    return listed if given is None else given


def _check_topology(topology: Topology, devices: int) -> None:
    """Check that neighbours have links of their own.

    Raises:
        InputError: they share ports.
    """
    if topology.has_ports and devices > 1:
        raise InputError(
            f"`links.topology` = {topology.name!r}: what shares a port depends on the cut that is sought; should be"
            " 'chain', 'ring' or 'torus'"
        )


def _of_boards(network: str | None, flags: dict[str, Any]) -> _Chain:
    from ....kernels.optimizers import optimizer_kind
    from ...cluster import BANDWIDTH, CLOCK, LATENCY, MEMORY, load_cluster, varied
    from ...explore import Wires, micro_batches_of
    from ...mapping import COPIES
    from ...number import Precision
    from ...plan import in_precision, network_of
    from ...profile import BoardStages
    from ...schedule import Transport

    if network is None:
        raise InputError("NETWORK is missing; it can be left out only with `--profile`")
    number = number_format(flags["precision"])
    loaded, cluster = (
        network_of(network),
        in_precision(load_cluster(flags["cluster"], flags["changes"], blame=SET), Precision.all_in(number)),
    )
    devices = _devices(flags["devices"], len(cluster.boards))
    _check_topology(cluster.laid_on(devices), devices)
    copies = COPIES + optimizer_kind(flags["optimizer"]).states_beside_lgb

    constants = [cluster.range_of(key, device) for device in range(devices) for key in (*CLOCK, MEMORY)]
    keys = [BANDWIDTH, LATENCY, *([] if cluster.own_interconnect is None else _OF_NETWORK)]
    constants += [cluster.range_of(key) for key in keys if devices > 1]
    sizes = micro_batches_of(flags["batch"])
    said = cluster.transport in _SCHEDULES
    transport = Transport(cluster.transport) if said else Transport.HIDDEN
    engines = None if cluster.engines == "split" else cluster.engines

    def chain_on(cluster: Cluster) -> _Chain:
        boards = [cluster.board(device) for device in range(devices)]
        links = tuple(cluster.link_at(link) for link in range(devices - 1))
        wires = Wires(links, cluster.between_replicas(devices, 1), cluster.topology_of(devices))

        def stages_of(samples: int) -> Stages:
            return BoardStages(loaded, boards, samples, number, copies)

        kinds = tuple(board.name for board in boards)
        named = kinds, wires, stages_of, sizes, transport, loaded.name, tuple(dict.fromkeys(constants))
        return _Chain(*named, lambda given: chain_on(varied(cluster, lambda entry: given.get(entry, 1.0))), engines)

    return chain_on(cluster)


def _of_profile(network: str | None, flags: dict[str, Any]) -> _Chain:
    from ....comm import TopologyError
    from ....kernels.optimizers import optimizer_kind
    from ...cluster import BANDWIDTH, LATENCY, find_range, load_named, varied_link
    from ...explore import Wires
    from ...plan import network_of
    from ...profile import ProfileStages, load_graph, load_profile
    from ...schedule import Transport

    path, chain = pathlib.Path(flags["profile"]), load_named(flags["cluster"])
    if os.path.isdir(path):
        raise InputError(f"`profile` = {flags['profile']!r}: is a folder; should be a TOML file or a graph.txt")
    devices = _devices(flags["devices"], len(chain.kinds))
    kinds = tuple(chain.kind(device) for device in range(devices))
    known = None if network is None else network_of(network)
    if path.suffix == ".toml":
        profile = load_profile(path, known, number_format(flags["precision"]))
    else:
        samples = flags["micro_batch"]
        if not samples.isdecimal() or not int(samples):
            raise InputError(
                f"{path}: does not state its micro-batch; give the one it was measured with as `--micro-batch N`"
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

    def stages_of(samples: int) -> Stages:
        return ProfileStages(kept, kinds, samples, known)

    constants = tuple(find_range(key, ()) for key in (BANDWIDTH, LATENCY) if devices > 1)

    def chain_with(given: Mapping[ConstantRange, float]) -> _Chain:
        def factor(entry: ConstantRange) -> float:
            return given.get(entry, 1.0)

        links = tuple(varied_link(link, factor, ()) for link in wires.links)
        named = kinds, dataclasses.replace(wires, links=links), stages_of, profile.micro_batches
        return _Chain(*named, Transport.STORED, profile.name, constants, chain_with)

    return chain_with({})
