"""The NIC of sections VI and VII-C: times of its engines and packets on the cluster `titan-xp-10gbe`."""

from __future__ import annotations

import dataclasses

from .....comm import COMPRESSIBLE_TOS
from ....cluster import load_cluster
from ..measure import Measure, Measured
from .evidence import cluster_network

_MANY = 3200
"""Bytes of a message of many bursts."""


def _board() -> Measured:
    cluster = load_cluster("titan-xp-10gbe")
    return Measured([cluster.board(0).name, cluster.interconnect.bandwidth_mbps / 1000], "board, Gb/s")


def _burst_bytes() -> float:
    engines = cluster_network().engines
    return _MANY / (engines.time_ps(_MANY, 0) / engines.clock_period_ps)


def _burst() -> Measured:
    return Measured(8 * _burst_bytes(), "bits that the engine takes in a cycle")


def _floats() -> Measured:
    return Measured(_burst_bytes() / 4, "values that the engine takes in a cycle")


def _frequency() -> Measured:
    engines = cluster_network().engines
    gbps = 8000 * _MANY / engines.time_ps(_MANY, 0)
    return Measured(1e6 / engines.clock_period_ps, f"of a cluster's file; with 256 bits, {gbps:.1f} Gb/s")


def _no_slowdown() -> Measured:
    """Measure the time of an incompressible message through the engines over that of one that bypasses them."""
    found = cluster_network()
    bytes_ = 1000 * found.packet_bytes
    return Measured(found.transfer_ps(bytes_, bytes_) / found.transfer_ps(bytes_), "time of 1000 packets")


def _headers() -> Measured:
    """Measure the bytes on the wire of a packet whose payload is compressed to nothing."""
    found = cluster_network()
    at_once = dataclasses.replace(found.engines, clock_period_ps=0)
    wire = dataclasses.replace(found, packet_stack_ps=0, engines=at_once)
    return Measured(wire.transfer_ps(found.packet_bytes, 0) * found.bandwidth_mbps / 8e6, "bytes, of 1,538")


def _tos() -> Measured:
    return Measured(f"0x{COMPRESSIBLE_TOS:02x}", "comm/interconnect.py")


MEASURES: dict[str, Measure] = {
    "inceptionn-nic-board": _board,
    "inceptionn-burst-width": _burst,
    "inceptionn-burst-floats": _floats,
    "inceptionn-header-bypass": _headers,
    "inceptionn-tos-value": _tos,
    "inceptionn-freq": _frequency,
    "inceptionn-no-slowdown": _no_slowdown,
}
