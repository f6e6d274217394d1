"""Clusters: boards in a 1D chain, and the links between neighbours; read from TOML.

name = "mine"
[[boards]]                    # in the order of the chain; the last one named stands for all that follow
type = "vc709"                # a board that comes with emuchain, or a TOML file; keys beside it go before its own
count = 4                     # optional: how many of these in a row
[[boards]]                    # or all keys here
name = "ours"
clock_mhz = 200
dsp = 900                     # multipliers; one does one multiply-accumulate a cycle
on_chip_memory_kbit = 16000
[links]
bandwidth_gbps = 150          # of each direction of each link
latency_ns = 1000
[resources]                   # optional: what engines and buffers are built of
alpha = 1.0
beta = 1.0
[network]                     # optional: where replicas exchange gradients, if not over the links as they are
topology = "switch"
latency_us = 100
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import pydantic

from ...comm.interconnect import Network, Nic
from ..common import shipped as shelf
from ..common.errors import InputError
from ..inputs.validation import Model, read_toml, validate
from ..network.description import NotNegative, Positive
from ..plan.resources import lut_multipliers
from .board import Board, Cluster, Link, chain_network

Megahertz = Annotated[float, pydantic.Field(ge=0.001, le=1e6, allow_inf_nan=False)]
Gbps = Annotated[float, pydantic.Field(ge=0.001, le=1e6, allow_inf_nan=False)]
Nanoseconds = Annotated[float, pydantic.Field(ge=0, le=1e12, allow_inf_nan=False)]
PositiveNumber = Annotated[float, pydantic.Field(gt=0, le=1e9, allow_inf_nan=False)]
Watts = Annotated[float, pydantic.Field(gt=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, pydantic.Field(gt=0, le=1, allow_inf_nan=False)]
Boards = Annotated[int, pydantic.Field(ge=1, le=100_000)]
Microseconds = Annotated[float, pydantic.Field(ge=0, le=1e6, allow_inf_nan=False)]
GbytesPerSecond = Annotated[float, pydantic.Field(ge=0.001, le=1e6, allow_inf_nan=False)]


class BoardDescription(Model):
    """A `[[boards]]` table, with what its `type` says of the board filled in."""

    type: str | None = None
    name: str
    clock_mhz: Megahertz
    dsp: Positive
    dsp_share: Share = 1.0
    on_chip_memory_kbit: Positive
    power_w: Watts | None = None
    lut: Positive | None = None
    ff: Positive | None = None
    bram: Positive | None = None
    bram_kbit: Annotated[int, pydantic.Field(ge=18, le=1000)] = 36
    uram: NotNegative = 0
    transceivers: Positive | None = None
    transceiver_gbps: PositiveNumber | None = None
    off_chip_memory_gbytes: PositiveNumber | None = None
    off_chip_gbytes_per_s: PositiveNumber | None = None
    source: str | None = None
    count: Boards = 1


class LinksDescription(Model):
    """The `[links]` table: every link of the chain, each direction for itself."""

    bandwidth_gbps: Gbps
    latency_ns: Nanoseconds


class ResourcesDescription(Model):
    """The `[resources]` table: what engines and buffers are built of, and what parameters move for."""

    alpha: Share = 1.0
    beta: Share = 1.0
    aim: Literal["throughput", "storage"] = "throughput"


class NetworkDescription(Model):
    """The `[network]` table: where replicas exchange gradients. What it leaves out is as the links have it."""

    topology: Literal["chain", "switch"] = "chain"
    bandwidth_gbps: Gbps | None = None
    latency_us: Microseconds | None = None
    packet_bytes: Annotated[int, pydantic.Field(ge=64, le=10**9)] = Network.packet_bytes
    packet_overhead_bytes: Annotated[int, pydantic.Field(ge=0, le=10_000)] = 0
    packet_stack_ns: Annotated[float, pydantic.Field(ge=0, le=1e6, allow_inf_nan=False)] = 0
    blocking: bool = False
    sum_gbytes_per_s: GbytesPerSecond | None = None
    nic_clock_mhz: Megahertz | None = None
    burst_bits: Annotated[int, pydantic.Field(ge=32, le=4096, multiple_of=32)] | None = None


class ClusterDescription(Model):
    """A cluster as its TOML file says it."""

    name: str
    boards: Annotated[
        tuple[BoardDescription, ...],
        pydantic.Field(min_length=1),
        pydantic.BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    ]
    links: LinksDescription
    resources: ResourcesDescription | None = None
    network: NetworkDescription | None = None


def clusters() -> list[str]:
    """The names of the clusters that come with emuchain."""
    return shelf.names("cluster/clusters")


def board_types() -> list[str]:
    """The names of the boards that come with emuchain."""
    return shelf.names("cluster/boards")


def changeable_keys() -> list[str]:
    """What `load_cluster` may change: `board.KEY` and `link.KEY` (on all of them), `resources.KEY`, `network.KEY`."""
    boards = [f"board.{key}" for key in BoardDescription.model_fields if key not in ("name", "source", "count")]
    links = [f"link.{key}" for key in LinksDescription.model_fields]
    resources = [f"resources.{key}" for key in ResourcesDescription.model_fields]
    return [*boards, *links, *resources, *(f"network.{key}" for key in NetworkDescription.model_fields)]


def load_cluster(name: str, changes: dict[str, object] | None = None) -> Cluster:
    """The cluster of that name, or the one that a TOML file describes; with other values of some `changeable_keys`.

    Raises:
        InputError: no such name or file, or a key of it is wrong, or a change is.
    """
    path = shelf.find("cluster", name, "cluster/clusters")
    described = read_toml(path)
    source, said = str(path), _validated(described, str(path))
    if changes:
        source, said = "--what-if", _validated(_changed(described, changes), "--what-if")
    built_of = said.resources or ResourcesDescription()
    for place, board in enumerate(said.boards):
        if board.lut is None and min(built_of.alpha, built_of.beta) < 1:
            raise InputError(f"{source}: key `boards[{place}].lut` is missing: `resources` has {board.name} use LUTs")
    boards = tuple(_board(board, built_of.alpha) for board in said.boards for _ in range(board.count))
    link = Link(_mbps(said.links.bandwidth_gbps), round(said.links.latency_ns * 1000))
    network = None if said.network is None else _network(said.network, chain_network(boards, link))
    text = path.read_text(encoding="utf-8")
    return Cluster(said.name, boards, link, text, built_of.alpha, built_of.beta, built_of.aim, network)


def _validated(described: dict[str, Any], source: str) -> ClusterDescription:
    return validate(ClusterDescription, _with_types(described, source), source)


def _changed(described: dict[str, Any], changes: dict[str, object]) -> dict[str, Any]:
    """A cluster's description with other values."""

    def of(table: str) -> dict[str, object]:
        return {key.removeprefix(table): value for key, value in changes.items() if key.startswith(table)}

    boards = [{**board, **of("board.")} for board in described["boards"]]
    resources = {**described.get("resources", {}), **of("resources.")}
    links = {**described["links"], **of("link.")}
    network = {**described.get("network", {}), **of("network.")}
    return {**described, "boards": boards, "links": links, "resources": resources, "network": network}


def _with_types(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same, with each board's keys laid over those of its `type`."""
    tables = values.get("boards")
    if not isinstance(tables, list):
        return values
    filled = []
    for place, table in enumerate(tables):
        kind = table.get("type") if isinstance(table, dict) else None
        if isinstance(kind, str):
            try:
                table = {**read_toml(shelf.find("type", kind, "cluster/boards")), **table}
            except InputError as error:
                raise InputError(f"{source}: boards[{place}]: {error}") from None
        filled.append(table)
    return {**values, "boards": filled}


def _board(said: BoardDescription, alpha: float) -> Board:
    off_chip = said.off_chip_memory_gbytes
    board = Board(
        name=said.name,
        period_ps=max(1, round(1e6 / said.clock_mhz)),
        dsp=said.dsp,
        on_chip_memory_bytes=said.on_chip_memory_kbit * 1000 // 8,
        power_w=said.power_w,
        dsp_share=said.dsp_share,
        lut=said.lut,
        ff=said.ff,
        bram=said.bram,
        bram_kbit=said.bram_kbit,
        uram=said.uram,
        transceivers=said.transceivers,
        transceiver_gbps=said.transceiver_gbps,
        off_chip_memory_bytes=None if off_chip is None else round(off_chip * 1e9),
        off_chip_gbytes_per_s=said.off_chip_gbytes_per_s,
    )
    return dataclasses.replace(board, lut_multipliers=lut_multipliers(board, alpha))


def _network(said: NetworkDescription, links: Network) -> Network:
    """What is said of the network, and for the rest the chain's links."""
    bandwidth, latency, sums = said.bandwidth_gbps, said.latency_us, said.sum_gbytes_per_s
    clock, bits = said.nic_clock_mhz, said.burst_bits
    nic = Nic(
        links.nic.clock_period_ps if clock is None else max(1, round(1e6 / clock)),
        links.nic.burst_bits if bits is None else bits,
    )
    return Network(
        bandwidth_mbps=links.bandwidth_mbps if bandwidth is None else _mbps(bandwidth),
        latency_ps=links.latency_ps if latency is None else round(latency * 1e6),
        packet_bytes=said.packet_bytes,
        packet_overhead_bytes=said.packet_overhead_bytes,
        packet_stack_ps=round(said.packet_stack_ns * 1000),
        blocking=said.blocking,
        sum_ps_per_kbyte=links.sum_ps_per_kbyte if sums is None else round(1e6 / sums),
        nic=nic,
        topology=said.topology,
    )


def _mbps(gbps: float) -> int:
    return max(1, round(gbps * 1000))
