"""The interconnect of nodes that exchange gradients: the time of a message, and of adding it to a
sum.

A message is cut into packets. It occupies its sender's and its receiver's link for its transfer
time, the beta n of INCEPTIONN (MICRO 2018), section VIII-D; it arrives a latency, alpha, later;
adding it to a sum takes gamma n. Each packet passes stages, one packet behind the other in each, so
that for many packets the slowest stage's total counts:

- the wire: payload and the headers, preamble and gap that go with each packet;
- the packet stack: the time of driver, DMA and protocol for a packet, whatever its size;
- for compressible messages the engines in the NICs of sender and receiver (section VI-A).

Compression shrinks only payloads. The number of packets, their overhead and the stack's time stay
("we do not reduce the total number of packets", section VIII-C), so that beyond some ratio further
compression gains nothing.
"""

from __future__ import annotations

import dataclasses
import functools
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
        return (
            taken
            if compressed_bytes is None
            else later(taken, self.engines.time_ps(message_bytes, compressed_bytes))
        )

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
