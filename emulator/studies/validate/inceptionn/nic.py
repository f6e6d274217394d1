"""The NIC of sections VI and VII-C: what its engines and packets take, on the cluster `titan-xp-10gbe`."""

from __future__ import annotations

import dataclasses

from .....comm.interconnect import COMPRESSIBLE_TOS
from ....cluster.load import load_cluster
from ..measure import Measure, Measured
from .evidence import cluster_network

_MANY = 3200
"""Bytes of a message of many bursts."""


def _board() -> Measured:
    cluster = load_cluster("titan-xp-10gbe")
    return Measured([cluster.board(0).name, cluster.network.bandwidth_mbps / 1000], "board, Gb/s")


def _burst_bytes() -> float:
    nic = cluster_network().nic
    return _MANY / (nic.engines_ps(_MANY, 0) / nic.clock_period_ps)


def _burst() -> Measured:
    return Measured(8 * _burst_bytes(), "bits that the engine takes in a cycle")


def _floats() -> Measured:
    return Measured(_burst_bytes() / 4, "values that the engine takes in a cycle")


def _frequency() -> Measured:
    gbps = 8000 * _MANY / cluster_network().nic.engines_ps(_MANY, 0)
    return Measured(1e6 / cluster_network().nic.clock_period_ps, f"of a cluster's file; with 256 bits, {gbps:.1f} Gb/s")


def _no_slowdown() -> Measured:
    """A message through the engines that does not get shorter, over one past them."""
    found = cluster_network()
    bytes_ = 1000 * found.packet_bytes
    return Measured(found.transfer_ps(bytes_, bytes_) / found.transfer_ps(bytes_), "time of 1000 packets")


def _headers() -> Measured:
    """What is on the wire of a packet whose payload is compressed to nothing."""
    found = cluster_network()
    wire = dataclasses.replace(found, packet_stack_ps=0, nic=dataclasses.replace(found.nic, clock_period_ps=0))
    return Measured(wire.transfer_ps(found.packet_bytes, 0) * found.bandwidth_mbps / 8e6, "bytes, of 1,538")


def _tos() -> Measured:
    return Measured(f"0x{COMPRESSIBLE_TOS:02x}", "comm/network.py")


MEASURES: dict[str, Measure] = {
    "inceptionn-nic-board": _board,
    "inceptionn-burst-width": _burst,
    "inceptionn-burst-floats": _floats,
    "inceptionn-header-bypass": _headers,
    "inceptionn-tos-value": _tos,
    "inceptionn-freq": _frequency,
    "inceptionn-no-slowdown": _no_slowdown,
}
