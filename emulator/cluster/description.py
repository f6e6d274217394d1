"""The description of a cluster, as in its TOML file.

name = "mine"
[[boards]]                    # in the order of the chain; the last one is repeated for further devices
type = "vc709"                # a board that comes with emuchain, or a TOML file; keys beside it override its own
count = 4                     # optional: the number of these in a row
[[boards]]                    # or with all keys here
name = "ours"
clock_mhz = 200
dsp = 900                     # multipliers; one does one multiply-accumulate a cycle
on_chip_memory_kbit = 16000
[[boards]]                    # or a GPU, for the schedules of pairs
kind = "gpu"                  # otherwise "fpga"
name = "its name"
peak_tflops = 9.3
[links]                       # all links; or [[links]], in the order of the chain, the last one repeated
bandwidth_gbps = 150          # of each direction of each link
latency_ns = 1000
header_bytes = 0              # optional: on the wire with each packet, of a payload of up to `packet_bytes`
message_ns = 0                # optional: what a message takes beside its bytes; by size, [[bytes, ns], ...]
core_lut = 3_500              # optional: what its core takes on each board, `core_ff`, `core_bram`, `core_dsp`, too
share = "bytes"               # optional: of a stream, its part of the bytes; or "paths": each data path has as much
topology = "chain"            # optional: or "ring", "switch", "torus" (`shape = [rows, columns]`, if not the squarest)
[machine]                     # optional: how boards execute, and when messages leave
engines = "split"             # or "shared", "turns"
transport = "streamed"        # or "stored", "hidden"
[resources]                   # optional: what engines and buffers are built of
alpha = 1.0
beta = 1.0
[network]                     # optional: where replicas exchange gradients, if not over the links above
topology = "switch"
latency_us = 100
[[faults.boards]]             # optional: what is hurt, and when (`emulator/faults`)
board = 2
factor = 3
[uncertainty]                 # optional: how far constants may be wrong (`constants.py`)
"link.latency_ns" = { low = 950, high = 1100, class = "measured" }
[[next_measurement]]          # optional: what further measurements should be (`emuchain calibrate check`)
what = "message"
[[collectives]]               # optional: what collectives cost (`emuchain calibrate collective`)
bandwidth_gbps = 95
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import pydantic

from ...comm import (
    Chain,
    EndCosts,
    Interconnect,
    MessageCost,
    NicEngines,
    Topology,
    Torus,
    topologies,
    topology_of,
)
from ...comm.collective import collectives
from ..common import (
    DESCRIBED,
    Gbps,
    GbytesPerSecond,
    Megahertz,
    Microseconds,
    Model,
    Name,
    Nanoseconds,
    NotNegative,
    NotNegativeFinite,
    PositiveFinite,
    Share,
    as_tuple,
    either,
)
from ..faults import FaultsDescription
from .board_description import (
    FpgaDescription,
    GpuDescription,
    NextMeasurements,
    RangeDescription,
)
from .cluster import Link, LinkShare


def _of_network(text: str) -> str:
    if text.partition(":")[0] not in topologies():
        raise ValueError(f"should be {either([*map(repr, topologies())])}")
    topology_of(text)
    return text


def _names_of_boards() -> list[str]:
    return [name for name, kind in topologies().items() if kind.joins_boards]


def _of_boards(text: str) -> str:
    names = _names_of_boards()
    if text.partition(":")[0] not in names:
        alone = " is of `[network]` alone;" if text.partition(":")[0] in topologies() else ""
        raise ValueError(f"{alone} should be {either([*map(repr, names)])}".strip())
    return _of_network(text)


BoardTopology = Annotated[
    str,
    pydantic.AfterValidator(_of_boards),
    pydantic.Field(json_schema_extra={"choices": _names_of_boards()}),
]
NetworkTopology = Annotated[
    str,
    pydantic.AfterValidator(_of_network),
    pydantic.Field(json_schema_extra={"choices": [*topologies()]}),
]


def _rows_and_columns(value: Any) -> Any:
    """Return a shape as two numbers, of which flags make a text such as `4x6`."""
    if isinstance(value, str):
        value = [int(side) if side.isdecimal() else side for side in value.split("x")]
    if (
        not isinstance(value, list | tuple)
        or len(value) != 2
        or not all(type(side) is int for side in value)
    ):
        raise ValueError("should be rows and columns, such as [4, 6], or 4x6 as a flag")
    return tuple(value)


Shape = Annotated[
    tuple[Annotated[int, pydantic.Field(ge=1, le=100_000)], ...],
    pydantic.BeforeValidator(_rows_and_columns),
]
"""Rows and columns."""


class LaidModel(Model):
    """A table with the topology of its links."""

    topology: BoardTopology = "chain"
    shape: Shape | None = None

    @pydantic.field_validator("shape")
    @classmethod
    def _of_a_torus(
        cls, shape: tuple[int, ...] | None, info: pydantic.ValidationInfo
    ) -> tuple[int, ...] | None:
        if shape is not None and info.data.get("topology") != Torus.name:
            raise ValueError("is the rows and columns of `topology` = 'torus'")
        return shape

    @property
    def laid(self) -> Topology:
        """The topology, of no number of nodes yet."""
        if self.shape is None:
            return topology_of(self.topology)
        rows, columns = self.shape
        return Torus(shape=(rows, columns))


def _sizes_and_costs(value: Any) -> Any:
    """Return pairs of bytes and ns; one number is the cost of all messages."""
    if isinstance(value, int | float):
        return ((1, value),)
    return tuple(map(as_tuple, value)) if isinstance(value, list | tuple) else value


def _in_order(points: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    sizes = [size for size, _ in points]
    if sizes != sorted(set(sizes)):
        raise ValueError("should have each size once, the smallest first")
    return points


_Point = tuple[
    Annotated[int, pydantic.Field(ge=1, le=10**12)],
    Annotated[float, pydantic.Field(ge=0, le=1e9, allow_inf_nan=False)],
]
MessageNs = Annotated[
    tuple[_Point, ...],
    pydantic.BeforeValidator(_sizes_and_costs),
    pydantic.AfterValidator(_in_order),
]
"""What a message occupies a link for beside its bytes, in ns, by its size in bytes."""


def _cost(points: tuple[tuple[int, float], ...]) -> MessageCost:
    return MessageCost(tuple((size, round(ns * 1000)) for size, ns in points))


class LinksDescription(LaidModel):
    """The `[links]` table: each direction of every link of the chain, or, in `[[links]]`, of the
    next `count` links.
    """

    kind: str | None = None
    bandwidth_gbps: Gbps
    latency_ns: Nanoseconds
    source: str | None = None
    share: Literal["bytes", "paths"] = "bytes"
    header_bytes: Annotated[int, pydantic.Field(ge=0, le=10_000)] = 0
    packet_bytes: Annotated[int, pydantic.Field(ge=1, le=10**9)] = Link.packet_bytes
    message_ns: MessageNs = ()
    core_dsp: NotNegative = 0
    core_lut: NotNegative = 0
    core_ff: NotNegative = 0
    core_bram: NotNegative = 0
    count: Annotated[int, pydantic.Field(ge=1, le=100_000)] = 1

    @property
    def core(self) -> dict[str, int]:
        """What its core takes on each of the two boards: DSPs, LUTs, FFs and block RAMs."""
        return {
            "dsp": self.core_dsp,
            "lut": self.core_lut,
            "ff": self.core_ff,
            "bram": self.core_bram,
        }

    @property
    def link(self) -> Link:
        """One direction of a link."""
        return Link(
            _mbps(self.bandwidth_gbps),
            round(self.latency_ns * 1000),
            LinkShare(self.share),
            self.header_bytes,
            self.packet_bytes,
            _cost(self.message_ns),
        )


class MachineDescription(Model):
    """The `[machine]` table: what a board does at the same time, and when a message leaves it."""

    engines: Literal["split", "shared", "turns"] = "split"
    transport: Literal["streamed", "stored", "hidden"] | None = None


class ResourcesDescription(Model):
    """The `[resources]` table: what engines and buffers are built of, and the aim of parameter
    balancing.
    """

    alpha: Share = 1.0
    beta: Share = 1.0
    aim: Literal["throughput", "storage"] = "throughput"


class NetworkDescription(LaidModel):
    """The `[network]` table: where replicas exchange gradients. Values that are None are those of
    the links.
    """

    topology: NetworkTopology = "chain"
    bandwidth_gbps: Gbps | None = None
    latency_us: Microseconds | None = None
    packet_bytes: Annotated[int, pydantic.Field(ge=64, le=10**9)] = Interconnect.packet_bytes
    packet_overhead_bytes: Annotated[int, pydantic.Field(ge=0, le=10_000)] = 0
    packet_stack_ns: Annotated[float, pydantic.Field(ge=0, le=1e6, allow_inf_nan=False)] = 0
    blocking: bool = False
    sum_gbytes_per_s: GbytesPerSecond | None = None
    nic_clock_mhz: Megahertz | None = None
    burst_bits: Annotated[int, pydantic.Field(ge=32, le=4096, multiple_of=32)] | None = None
    message_ns: MessageNs = ()
    start_us: Microseconds = 0
    send_ns: Nanoseconds = 0
    receive_ns: Nanoseconds = 0
    copy_gbytes_per_s: GbytesPerSecond | None = None
    sum_start_ns: Nanoseconds = 0
    turn_bytes: PositiveFinite | None = None

    @property
    def ends(self) -> EndCosts:
        """What messages cost at their ends."""
        copies = self.copy_gbytes_per_s
        return EndCosts(
            round(self.send_ns * 1000),
            round(self.receive_ns * 1000),
            0 if copies is None else round(1e6 / copies),
            round(self.sum_start_ns * 1000),
            math.inf if self.turn_bytes is None else self.turn_bytes,
            round(self.start_us * 1e6),
        )

    def interconnect(self, links: Interconnect) -> Interconnect:
        """Return the interconnect of this table; values that are None are those of `links`."""
        bandwidth, latency, sums = self.bandwidth_gbps, self.latency_us, self.sum_gbytes_per_s
        clock, bits = self.nic_clock_mhz, self.burst_bits
        return Interconnect(
            bandwidth_mbps=links.bandwidth_mbps if bandwidth is None else _mbps(bandwidth),
            latency_ps=links.latency_ps if latency is None else round(latency * 1e6),
            packet_bytes=self.packet_bytes,
            packet_overhead_bytes=self.packet_overhead_bytes,
            packet_stack_ps=round(self.packet_stack_ns * 1000),
            blocking=self.blocking,
            sum_ps_per_kbyte=links.sum_ps_per_kbyte if sums is None else round(1e6 / sums),
            engines=NicEngines(
                links.engines.clock_period_ps if clock is None else max(1, round(1e6 / clock)),
                links.engines.burst_bits if bits is None else bits,
            ),
            topology=self.laid,
            cost=_cost(self.message_ns),
            ends=self.ends,
        )


BoardDescription = FpgaDescription | GpuDescription
"""All kinds of boards."""

BOARD_KINDS: tuple[type[BoardDescription], ...] = (FpgaDescription, GpuDescription)


def _kind(described: Any) -> str:
    """Return the kind that a `[[boards]]` table is read as; one of an unknown kind is refused as an
    FPGA.
    """
    return "gpu" if isinstance(described, dict) and described.get("kind") == "gpu" else "fpga"


_Board = Annotated[
    Annotated[FpgaDescription, DESCRIBED, pydantic.Tag("fpga")]
    | Annotated[GpuDescription, DESCRIBED, pydantic.Tag("gpu")],
    pydantic.Discriminator(_kind),
]
_Boards = tuple[_Board, ...]


class ProtocolDescription(Model):
    """A table of `[collectives.protocols]`: what a message costs at its ends."""

    latency_ns: NotNegativeFinite
    send_ns: NotNegativeFinite = 0.0
    receive_ns: NotNegativeFinite = 0.0
    sum_ns: NotNegativeFinite = 0.0
    turn_bytes: PositiveFinite | None = None


class CollectivesDescription(Model):
    """A table of `[[collectives]]`: what collectives of a system cost, and how sure that is."""

    where: dict[str, str] | None = None
    bandwidth_gbps: PositiveFinite
    pass_ns_per_kbyte: NotNegativeFinite
    start_us: NotNegativeFinite = 0.0
    blocks: bool = True
    steps: dict[str, str] | None = None
    goals: Annotated[tuple[str, ...], pydantic.BeforeValidator(as_tuple)]
    nodes: Annotated[
        tuple[pydantic.PositiveInt, ...],
        pydantic.Field(min_length=1, max_length=1000),
        pydantic.BeforeValidator(as_tuple),
    ]
    row_scatter: PositiveFinite
    node_scatter: PositiveFinite
    goal_scatter: PositiveFinite
    protocols: dict[str, ProtocolDescription]

    @pydantic.model_validator(mode="after")
    def _has_known_steps(self) -> CollectivesDescription:
        for goal, name in (self.steps or {}).items():
            kind = collectives().get(name)
            if kind is None or kind.goal.value != goal:
                of_goal = [
                    repr(one) for one, own in collectives().items() if own.goal.value == goal
                ]
                known = either(of_goal) if of_goal else "left out: there is no such collective"
                raise ValueError(f"`steps.{goal}` = {name!r}: should be {known}")
        return self


def _tuple_of(value: Any) -> Any:
    """Return a table as a tuple of one."""
    return (value,) if isinstance(value, dict) else as_tuple(value)


class ClusterDescription(Model):
    """A cluster, as in its TOML file, but for its links."""

    former: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("number", "boards", "devices"), "count"),
        **dict.fromkeys(("bandwidth", "rate", "gbps"), "bandwidth_gbps"),
        **dict.fromkeys(("latency", "delay"), "latency_ns"),
        **dict.fromkeys(("clock", "frequency", "mhz"), "clock_mhz"),
    }
    elsewhere: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("layers", "input"), "it is a key of a network; give that as `network`"),
        **dict.fromkeys(
            ("cluster", "devices", "data", "epochs", "batch", "schedule"),
            "it is a key of a run, whose file names a network and a cluster",
        ),
    }

    name: Name
    boards: Annotated[_Boards, pydantic.Field(min_length=1), pydantic.BeforeValidator(as_tuple)]
    machine: MachineDescription | None = None
    resources: ResourcesDescription | None = None
    network: NetworkDescription | None = None
    faults: FaultsDescription | None = None
    uncertainty: dict[str, RangeDescription] | None = None
    next_measurement: NextMeasurements | None = None
    collectives: (
        Annotated[tuple[CollectivesDescription, ...], pydantic.BeforeValidator(as_tuple)] | None
    ) = None

    @property
    @abc.abstractmethod
    def all_links(self) -> tuple[Link, ...]:
        """The links in the order of the chain; the last one is repeated."""

    @property
    @abc.abstractmethod
    def link_tables(self) -> tuple[LinksDescription, ...]:
        """The tables of links, as they are described."""


class WithLinks(ClusterDescription):
    """A cluster with a table `[links]` for all links."""

    links: LinksDescription

    @property
    def all_links(self) -> tuple[Link, ...]:
        """See `ClusterDescription`."""
        return (self.links.link,) * self.links.count

    @property
    def link_tables(self) -> tuple[LinksDescription, ...]:
        """See `ClusterDescription`."""
        return (self.links,)


class WithLinkTables(ClusterDescription):
    """A cluster with tables `[[links]]`."""

    links: Annotated[
        tuple[LinksDescription, ...],
        pydantic.Field(min_length=1),
        pydantic.BeforeValidator(as_tuple),
    ]

    @pydantic.field_validator("links")
    @classmethod
    def _share_alike(cls, links: tuple[LinksDescription, ...]) -> tuple[LinksDescription, ...]:
        if len({table.share for table in links}) > 1:
            raise ValueError(
                "must have the same `share` in all tables: it also says what slices do before they"
                " send"
            )
        return links

    @pydantic.field_validator("links")
    @classmethod
    def _in_a_chain(cls, links: tuple[LinksDescription, ...]) -> tuple[LinksDescription, ...]:
        if laid := next((table.topology for table in links if table.topology != Chain.name), None):
            raise ValueError(
                f"are those of a chain, one after another; `topology` = {laid!r} needs one table"
                " `[links]`"
            )
        return links

    @property
    def all_links(self) -> tuple[Link, ...]:
        """See `ClusterDescription`."""
        return tuple(table.link for table in self.links for _ in range(table.count))

    @property
    def link_tables(self) -> tuple[LinksDescription, ...]:
        """See `ClusterDescription`."""
        return self.links


class NamedDevice(Model):
    """A `[[boards]]` table with no more than a name: of a device that a profile describes."""

    name: Name
    count: Annotated[int, pydantic.Field(ge=1, le=100_000)] = 1


class NamedCluster(Model):
    """A cluster whose devices have names alone."""

    name: Name
    boards: Annotated[
        tuple[NamedDevice, ...], pydantic.Field(min_length=1), pydantic.BeforeValidator(as_tuple)
    ]
    links: Annotated[
        tuple[LinksDescription, ...],
        pydantic.Field(min_length=1),
        pydantic.BeforeValidator(_tuple_of),
    ]
    network: NetworkDescription | None = None

    @property
    def link_tables(self) -> tuple[LinksDescription, ...]:
        """See `ClusterDescription`."""
        return self.links


def _mbps(gbps: float) -> int:
    return max(1, round(gbps * 1000))
