"""A cluster: boards in a chain, the links between neighbours, and where replicas exchange
gradients.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
import itertools
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...comm import Chain, Interconnect, MessageCost, NicEngines, Topology, TopologyError
from ..common import Figures, InputError, check_names, format_time_ps, html_table, plural
from ..faults import Faults, joined_links
from ..number import SINGLE, UNSHARED, Precision, Sharing, Storage
from .board import Board
from .constants import ConstantRange, find_range

Bytes = TypeVar("Bytes", int, NDArray[np.int64])
"""Of one message, or an array for many messages."""

CHAIN = Chain()
_SHOULD_FIT = "should have as many, or be left out"

_SUMMED_BYTES = 64
"""Bytes of gradients that a board adds in a cycle: 16 values of 32 bits, the width of a 512-bit
memory port.
"""

_ENGINE_MBPS = 10_000
"""Bandwidth in Mb/s for one INCEPTIONN engine of 256 bits a cycle (section VI-A); a faster link has
several.
"""


class LinkShare(enum.Enum):
    """How the streams of a link's direction share its bandwidth, in fixed parts."""

    BYTES = "bytes"
    """Each stream's part of the bandwidth is its part of the bytes. Slices send outputs as their
    engines make them.
    """
    PATHS = "paths"
    """Each data path has as large a part. Slices with complete outputs (OCP) pool before they send.
    """


@dataclasses.dataclass(frozen=True)
class Link:
    """One direction of the link between two neighbours.

    A message is cut into packets with a payload of up to `packet_bytes`, each with `header_bytes`
    on the wire, and has a `cost` of its own, which counts as as many bytes.
    """

    bandwidth_mbps: int
    latency_ps: int
    share: LinkShare = LinkShare.BYTES
    header_bytes: int = 0
    packet_bytes: int = Interconnect.packet_bytes
    cost: MessageCost = Interconnect.cost

    @property
    def bandwidth_gbps(self) -> float:
        """Bandwidth in Gb/s."""
        return self.bandwidth_mbps / 1000

    def overhead_bytes(self, sent_bytes: Bytes) -> Bytes:
        """Return what a message takes beside its own bytes: headers of its packets, and its
        cost.
        """
        headers = self._headers(sent_bytes)
        # Planning asks often, and most links cost nothing beside.
        return headers + self._bytes_of(self.cost.ps(sent_bytes)) if self.cost.points else headers

    def most_overhead_bytes(self, sent_bytes: int) -> int:
        """Return an upper bound of `overhead_bytes` for messages of at most `sent_bytes`."""
        return self._headers(sent_bytes) + self._bytes_of(self.cost.most_ps)

    def _headers(self, sent_bytes: Bytes) -> Bytes:
        return -(-sent_bytes // self.packet_bytes) * self.header_bytes

    def _bytes_of(self, time_ps: Bytes) -> Bytes:
        # A byte takes 8 * 10^6 ps at 1 Mb/s.
        return -(-time_ps * self.bandwidth_mbps // 8_000_000)

    def wire_bytes(self, sent_bytes: Bytes) -> Bytes:
        """Return the bytes that a link carries in the time of a message."""
        return sent_bytes + self.overhead_bytes(sent_bytes)

    def transfer_ps(self, sent_bytes: int) -> int:
        """Return the time in ps that a message takes, without the latency."""
        # A bit takes 10^6 ps at 1 Mb/s.
        return -(-8_000_000 * self.wire_bytes(sent_bytes) // self.bandwidth_mbps)

    def carried_bytes(self, time_ps: int) -> int:
        """Return the bytes of the largest message that takes no longer than a time, without the
        latency.
        """
        most = self.bandwidth_mbps * time_ps // 8_000_000
        return bisect.bisect_right(range(1, most + 1), time_ps, key=self.transfer_ps)


class OnBoard(Link):
    """What joins two stages of one board: nothing crosses, and it takes no time."""

    def wire_bytes(self, sent_bytes: Bytes) -> Bytes:
        """Return no bytes."""
        return 0 * sent_bytes


def links_interconnect(boards: tuple[Board, ...], link: Link, topology: Topology) -> Interconnect:
    """Return links like the boards' as an interconnect for gradients: their headers, sums at the
    slowest clock.
    """
    slowest_ps = max(board.period_ps for board in boards)
    engines = -(-link.bandwidth_mbps // _ENGINE_MBPS)
    return Interconnect(
        link.bandwidth_mbps,
        link.latency_ps,
        link.packet_bytes,
        link.header_bytes,
        sum_ps_per_kbyte=round(1000 * slowest_ps / _SUMMED_BYTES),
        engines=NicEngines(slowest_ps, engines * NicEngines().burst_bits),
        topology=topology,
        cost=link.cost,
    )


@dataclasses.dataclass(frozen=True)
class Cluster(Figures):
    """Boards in the order of the chain; the last one is repeated for all further devices.

    `alpha` is the share of engines built of DSPs and `beta` that of buffers built of block RAM; the
    rest is built of LUTs. With the aim "storage", parameters are moved until the fullest device
    holds as little as possible; with "throughput", only those that do not fit are moved (FPDeep,
    section 3.4.2). `text` is its description. Where links differ, `own_links` has them in the order
    of the chain, and the last one is repeated; all have the same `share`. `engines` and `transport`
    say how boards execute and when messages leave them (`pipeline.Machine`); without `transport`,
    as suits the engines. `parameter_copies` is the room of a parameter, in units of its size:
    itself, its gradient, what an optimiser keeps beside them, and `residuals`, what error feedback
    keeps; `sharing` says what of these replicas share out. `precision` has the formats of a run's
    numbers, and `clips` says whether gradients are clipped by their norm. `faults` are those of a
    run on it that names no others. `ranges` are those of the links' and the network's constants
    that are not their class's; boards have their own. `topology` is that of the links: its nodes
    are the boards in the order of the chain. Only in a chain may links differ.
    """

    name: str
    boards: tuple[Board, ...]
    link: Link
    text: str = dataclasses.field(default="", repr=False, compare=False)
    alpha: float = 1.0
    beta: float = 1.0
    aim: Literal["throughput", "storage"] = "throughput"
    own_interconnect: Interconnect | None = None
    own_links: tuple[Link, ...] = ()
    engines: Literal["split", "shared", "turns"] = "split"
    transport: Literal["streamed", "stored", "hidden"] | None = None
    parameter_copies: int = 2
    residuals: int = 0
    sharing: Sharing = UNSHARED
    precision: Precision = SINGLE
    clips: bool = False
    faults: Faults = dataclasses.field(default_factory=Faults)
    ranges: tuple[ConstantRange, ...] = dataclasses.field(default=(), repr=False, compare=False)
    topology: Topology = CHAIN

    def to_dict(self) -> dict[str, Any]:
        """Return the description, which `emuchain.load_cluster` takes."""
        from ..common import read_description  # it loads pydantic, which other ranks do without

        return read_description(self.text)

    def __post_init__(self) -> None:
        check_names("cluster", (self.name,))
        check_names(f"cluster {self.name}: board", (board.name for board in self.boards))

    @property
    def storage(self) -> Storage:
        """The formats of what boards store of a run."""
        # Without the parameter itself and its gradient, which each run has.
        storage = self.precision.storage(self.parameter_copies - 2 - self.residuals)
        return storage.shared_out(self.sharing).with_residuals(self.residuals)

    @property
    def is_chain(self) -> bool:
        """Whether each board has a link to the next one, and none has another."""
        return isinstance(self.topology, Chain)

    @property
    def interconnect(self) -> Interconnect:
        """The interconnect over which replicas exchange gradients: `own_interconnect`, or links
        like the slowest.
        """
        return self.own_interconnect or links_interconnect(
            self.boards, self.slowest_link, self.topology
        )

    def between_replicas(self, nodes: int, devices: int) -> Interconnect:
        """Return the interconnect of `nodes` nodes, the replicas and any aggregator, of `devices`
        boards each.

        Links like those of the boards have their shape where each replica is one board.

        Raises:
            InputError: the topology cannot have as many nodes.
        """
        over = self.interconnect
        if self.own_interconnect is None and devices > 1:
            over = dataclasses.replace(over, topology=type(over.topology)())
        table = "links" if self.own_interconnect is None else "network"
        try:
            return over.among(nodes)
        except TopologyError as error:
            given = f"`{table}.shape`: {error} for {plural(nodes, 'node')}"
            raise InputError(f"{given} that exchange gradients; {_SHOULD_FIT}") from None

    def topology_of(self, devices: int) -> Topology:
        """Return the topology of the links between the boards of a chain; one alone, or of several
        stages, has none.

        Raises:
            InputError: it cannot have as many.
        """
        return CHAIN.among(devices) if devices == 1 or self.own_links else self.laid_on(devices)

    def laid_on(self, boards: int) -> Topology:
        """Return the topology of this many boards.

        Raises:
            InputError: it cannot have as many.
        """
        try:
            return self.topology.among(boards)
        except TopologyError as error:
            raise InputError(
                f"`links.shape`: {error} for {plural(boards, 'board')}; {_SHOULD_FIT}"
            ) from None

    def range_of(self, key: str, device: int = 0) -> ConstantRange:
        """Return the range of a constant: `link.KEY`, `network.KEY`, or `board.KEY` of a device's
        board.
        """
        return find_range(
            key, self.board(device).ranges if key.startswith("board.") else self.ranges
        )

    @property
    def slowest_link(self) -> Link:
        """The link with the lowest bandwidth; of these, the one with the highest latency."""
        return min(
            (self.link, *self.own_links), key=lambda link: (link.bandwidth_mbps, -link.latency_ps)
        )

    def banks_for_buffers(self, board: Board) -> int:
        """Return the banks that buffers may count on a board, of which the share `beta` is in block
        RAM.
        """
        return int(board.banks / self.beta)

    def link_at(self, link: int) -> Link:
        """Return one direction of the link between devices `link` and `link + 1`."""
        return self.own_links[min(link, len(self.own_links) - 1)] if self.own_links else self.link

    def board(self, device: int) -> Board:
        """Return the board of a device."""
        return self.boards[min(device, len(self.boards) - 1)]

    def with_bandwidth(self, mbps: int) -> Cluster:
        """Return the cluster with this bandwidth of all links, in Mb/s."""
        own = tuple(dataclasses.replace(link, bandwidth_mbps=mbps) for link in self.own_links)
        return dataclasses.replace(
            self, link=dataclasses.replace(self.link, bandwidth_mbps=mbps), own_links=own
        )

    def among(self, alive: Sequence[int]) -> Cluster:
        """Return the cluster of some of its boards, in the order of the chain.

        Links past missing boards are joined: with the lowest bandwidth and the sum of the
        latencies.

        Raises:
            InputError: the boards are not in a chain.
        """
        if not self.is_chain:
            raise InputError(
                "`faults.deaths`: boards die in a chain only, and `links.topology` ="
                f" {self.topology.name!r}"
            )
        joined = [self._joined(list(map(self.link_at, links))) for links in joined_links(alive)]
        boards = tuple(self.board(board) for board in alive)
        return dataclasses.replace(self, boards=boards, own_links=tuple(joined), faults=Faults())

    @staticmethod
    def _joined(links: Sequence[Link]) -> Link:
        slowest = min(links, key=lambda link: link.bandwidth_mbps)
        return dataclasses.replace(slowest, latency_ps=sum(link.latency_ps for link in links))

    def __repr__(self) -> str:
        return f"<Cluster {self.name}: {self._boards}, links of {self._links}>"

    def _repr_html_(self) -> str:
        own = self.interconnect
        replicas = (
            f"{own.bandwidth_mbps / 1000:g} Gb/s and {format_time_ps(own.latency_ps)},"
            f" {own.topology.name}"
        )
        rows = [["boards", self._boards], ["links", self._links], ["between replicas", replicas]]
        return html_table(f"Cluster {self.name}", rows)

    @property
    def _boards(self) -> str:
        names = [board.name for board in self.boards]
        return ", ".join(
            f"{len(list(alike))} x {name}" if len(names) > 1 else name
            for name, alike in itertools.groupby(names)
        )

    @property
    def _links(self) -> str:
        laid = "" if self.is_chain else f", {self.topology.name}"
        return f"{self.link.bandwidth_gbps:g} Gb/s and {format_time_ps(self.link.latency_ps)}{laid}"
