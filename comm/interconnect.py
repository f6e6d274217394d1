"""The interconnect of nodes that exchange gradients: the time of a message, and of adding it to a
sum.

A message is cut into packets. It occupies its sender's and its receiver's link for its transfer
time, the beta n of INCEPTIONN (MICRO 2018), section VIII-D; it arrives a latency, alpha, later;
adding it to a sum takes gamma n. Each packet passes stages, one packet behind the other in each, so
that for many packets the slowest stage's total counts:

- the wire: payload and the headers, preamble and gap that go with each packet;
- the packet stack: the time of driver, DMA and protocol for a packet, whatever its size;
- for compressible messages the engines in the NICs of sender and receiver (section VI-A).

Beside these, a message has a cost of its own on the link, by its size (`MessageCost`), and costs at
its two ends (`EndCosts`).

Compression shrinks only payloads. The number of packets, their overhead and the stack's time stay
("we do not reduce the total number of packets", section VIII-C), so that beyond some ratio further
compression gains nothing.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .topology import Switch, Topology

SWITCH = Switch()

COMPRESSIBLE_TOS = 0x28
"""Type of Service in the IP header that makes the NIC compress a packet (section VI-B)."""

Count = TypeVar("Count", int, NDArray[np.int64])
"""Bytes or picoseconds: of one message, or an array for many messages."""


@dataclasses.dataclass(frozen=True)
class MessageCost:
    """What a message occupies a link for beside its bytes, in ps, by its size.

    Points are (bytes, ps), with straight lines between them; what is smaller than the first, or
    larger than the last, costs as much as that. A start is one point, an agreement from some size
    on a step, a window a slope.

        ps |            _______    agreed on first
           |   ________/
           +--------------------> bytes
    """

    points: tuple[tuple[int, int], ...] = ()

    def ps(self, message_bytes: Count) -> Count:
        """Return the cost of a message, or of each of an array; one of no bytes costs nothing."""
        if not self.points:
            return 0 * message_bytes
        if isinstance(message_bytes, np.ndarray):
            costs = [self.ps(size) for size in message_bytes.ravel().tolist()]
            return np.array(costs, np.int64).reshape(message_bytes.shape)
        above = bisect.bisect_right(self.points, message_bytes, key=lambda point: point[0])
        if not message_bytes:
            return 0
        if above in (0, len(self.points)):
            return self.points[min(above, len(self.points) - 1)][1]
        (first, first_ps), (last, last_ps) = self.points[above - 1 : above + 1]
        return first_ps + (message_bytes - first) * (last_ps - first_ps) // (last - first)

    @property
    def most_ps(self) -> int:
        """What the dearest message costs."""
        return max((ps for _, ps in self.points), default=0)

    def times(self, factor: float) -> MessageCost:
        """Return costs that are this many times as high."""
        return MessageCost(tuple((size, round(factor * ps)) for size, ps in self.points))


@dataclasses.dataclass(frozen=True)
class NicEngines:
    """Compression and Decompression Engine: each handles a burst of 32-bit floats per cycle (Figs.
    9 and 10).
    """

    clock_period_ps: int = 10_000
    burst_bits: int = 256

    def time_ps(self, message_bytes: Count, compressed_bytes: Count) -> Count:
        """Return the time of the slower engine for a message of these sizes before and after
        compression, in ps.

        Compression reads a burst per cycle. Decompression writes a burst per cycle, but must read
        all compressed bursts, which are more where groups of 272 bits encode 256.
        """
        return (
            later(self._bursts(message_bytes), self._bursts(compressed_bytes))
            * self.clock_period_ps
        )

    def _bursts(self, count_bytes: Count) -> Count:
        return -(-8 * count_bytes // self.burst_bits)


@dataclasses.dataclass(frozen=True)
class EndCosts:
    """What a message costs its two ends beside the link: of sender and receiver for each message,
    of the receiver for 1,000 bytes that it copies from a buffer, and for each sum.

    After LogGP (Alexandrov et al., 1995): `send_ps` and `receive_ps` are its o. Of messages above
    `turn_bytes` the two ends agree one by one: each occupies both for its latency, too. `start_ps`
    is what a rank waits for once, before a collective.
    """

    send_ps: int = 0
    receive_ps: int = 0
    copy_ps_per_kbyte: int = 0
    sum_ps: int = 0
    turn_bytes: float = math.inf
    start_ps: int = 0

    def received_ps(self, message_bytes: int) -> int:
        """Return what a message costs its receiver, without a sum."""
        return self.receive_ps - (-message_bytes * self.copy_ps_per_kbyte // 1000)


NO_COSTS = EndCosts()


@dataclasses.dataclass(frozen=True)
class Interconnect:
    """Identical nodes, on the links of a `topology`.

    A node sends and receives at the same time, each at the full bandwidth, unless `blocking`: then
    one waits for the other, as with MPI_Send and MPI_Recv in Algorithm 1. `sum_ps_per_kbyte` is
    gamma, for 1,000 bytes.
    """

    bandwidth_mbps: int
    latency_ps: int
    packet_bytes: int = 4096
    packet_overhead_bytes: int = 0
    packet_stack_ps: int = 0
    blocking: bool = False
    sum_ps_per_kbyte: int = 0
    engines: NicEngines = NicEngines()
    topology: Topology = SWITCH
    cost: MessageCost = MessageCost()
    ends: EndCosts = NO_COSTS

    @property
    def is_plain(self) -> bool:
        """Whether ends cost nothing, and all links are alike, as closed forms have it."""
        return self.ends == NO_COSTS and self.topology.joins_boards

    def transfer_ps(self, message_bytes: Count, compressed_bytes: Count | None = None) -> Count:
        """Return for how long a message occupies the links of its sender and its receiver, in ps,
        without latency.

        `compressed_bytes` is its size after the codec; None where the ToS does not match and it is
        sent uncompressed.
        """
        payload = message_bytes if compressed_bytes is None else compressed_bytes
        # Of the size before the codec: packets get shorter, not fewer (section VIII-C).
        packets = -(-message_bytes // self.packet_bytes)
        wire_bytes = packets * self.packet_overhead_bytes + payload
        # A byte at 1 Mb/s takes 8 us, which are 8,000,000 ps; a part of a picosecond counts as one.
        taken = later(
            -(-8_000_000 * wire_bytes // self.bandwidth_mbps), packets * self.packet_stack_ps
        )
        if compressed_bytes is not None:
            taken = later(taken, self.engines.time_ps(message_bytes, compressed_bytes))
        return taken + self.cost.ps(payload)

    def sum_ps(self, message_bytes: Count) -> Count:
        """Return the time of adding a message to a node's own values, in ps."""
        return -(-message_bytes * self.sum_ps_per_kbyte // 1000)

    def hops(self, first: Count, second: Count) -> Count:
        """Return the number of latencies between two nodes; see `Topology`."""
        return self.topology.hops(first, second)

    def among(self, nodes: int) -> Interconnect:
        """Return the interconnect of this many nodes.

        Raises:
            TopologyError: its topology cannot have as many.
        """
        return dataclasses.replace(self, topology=self.topology.among(nodes))


def later(first: Count, *others: Count) -> Count:
    """Return the largest of numbers, or of arrays element by element."""
    if isinstance(first, np.ndarray):
        return functools.reduce(np.maximum, others, first)
    return max(first, *others)
