"""The network between nodes that exchange gradients: the time of a message, and of what is summed on arrival.

A message is cut into packets. What it takes of its sender's and its receiver's link is its transfer time, the beta n of
INCEPTIONN (MICRO 2018), section VIII-D; it arrives a latency, alpha, later; adding it up takes gamma n. Each packet
passes stages, one packet behind the other in each, so that of many packets the slowest stage's total counts:

- the wire: payload and the headers, preamble and gap that go with each packet;
- the packet stack: what driver, DMA and protocol take for a packet, whatever it holds;
- for compressible messages the engines in the NIC (section VI-A), that of the sender and that of the receiver.

Compression shrinks payloads alone. The number of packets, their overhead and the stack's time stay ("we do not reduce
the total number of packets", section VIII-C), so that beyond some ratio more of it gains nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

COMPRESSIBLE_TOS = 0x28
"""Type of Service in the IP header that has the NIC compress a packet (section VI-B)."""

Count = TypeVar("Count", int, NDArray[np.int64])
"""Bytes or picoseconds: of a message, or an array with those of many."""


@dataclasses.dataclass(frozen=True)
class Nic:
    """Compression and Decompression Engine: each takes or gives a burst of 32-bit floats a cycle (Figs. 9 and 10)."""

    clock_period_ps: int = 10_000
    burst_bits: int = 256

    def engines_ps(self, message_bytes: Count, made_bytes: Count) -> Count:
        """What the slower engine takes for a message of which compression made so many bytes, in ps.

        Compression takes a burst a cycle. Decompression gives a burst a cycle, but has to take as many as it gets:
        more, if it gets groups of 272 bits for 256.
        """
        return later(self._bursts(message_bytes), self._bursts(made_bytes)) * self.clock_period_ps

    def _bursts(self, count_bytes: Count) -> Count:
        return -(-8 * count_bytes // self.burst_bits)


@dataclasses.dataclass(frozen=True)
class Network:
    """Nodes, all alike, on a switch or in a chain.

    A node sends and receives at the same time, each at the full bandwidth, unless `blocking`: then the one waits for
    the other, as with MPI_Send and MPI_Recv in Algorithm 1. `sum_ps_per_kbyte` is gamma, for 1,000 bytes.
    """

    bandwidth_mbps: int
    latency_ps: int
    packet_bytes: int = 4096
    packet_overhead_bytes: int = 0
    packet_stack_ps: int = 0
    blocking: bool = False
    sum_ps_per_kbyte: int = 0
    nic: Nic = Nic()
    topology: Literal["switch", "chain"] = "switch"

    def transfer_ps(self, message_bytes: Count, made_bytes: Count | None = None) -> Count:
        """For how long a message occupies the links of its sender and its receiver, in ps; latency comes on top.

        `made_bytes` is what the codec made of it; None where the ToS does not match and it goes as it is.
        """
        payload = message_bytes if made_bytes is None else made_bytes
        packets = -(-message_bytes // self.packet_bytes)
        wire_bytes = packets * self.packet_overhead_bytes + payload
        taken = later(-(-8_000_000 * wire_bytes // self.bandwidth_mbps), packets * self.packet_stack_ps)
        return taken if made_bytes is None else later(taken, self.nic.engines_ps(message_bytes, made_bytes))

    def sum_ps(self, message_bytes: Count) -> Count:
        """What adding a message to values of one's own takes, in ps."""
        return -(-message_bytes * self.sum_ps_per_kbyte // 1000)

    def hops(self, first: Count, second: Count) -> Count:
        """Latencies between two nodes: one through a switch; in a chain one for each link between them.

        A node of a chain passes on what is not for it as it comes (cut-through), so the bandwidth counts once.
        """
        distance = abs(first - second)
        return distance if self.topology == "chain" else distance * 0 + 1


def later(first: Count, *others: Count) -> Count:
    """The largest of numbers, or of arrays value by value."""
    if isinstance(first, np.ndarray):
        return functools.reduce(np.maximum, others, first)
    return max(first, *others)
