"""The NIC of sections VI and VII-C: a packet's way through it; times on the cluster
`titan-xp-10gbe`.

The engines' units (section VI-A, Figs. 9 and 10), of the plain Python engines that the codec is
checked against.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools

import numpy as np
from numpy.typing import NDArray

from ...comm import COMPRESSIBLE_TOS, NicFlow, NicStage, egress, ingress, packet_header, payload_of
from ...comm.exchange import ORDINARY_TOS, Gradient, Nic
from ...emulator.cluster import load_cluster
from ...kernels import CodecError, inceptionn
from ...kernels.codec import Inceptionn
from ...kernels.inceptionn import hardware
from ..claim import Measured
from .codec import EXPONENT, Floats, numbers
from .evidence import cluster_network

_VALUES = 1600


def blocks_in() -> Measured:
    """Count the payloads of 32 bits in a compression unit's output."""
    unit = hardware.compression_unit([0x3F80_0000] * hardware.VALUES, EXPONENT, "bound")
    return Measured(
        (unit.length - hardware.TAG_BITS) // 32, "payloads of 32 bits that a unit makes at once"
    )


def blocks_out() -> Measured:
    """Count the values that a decompression unit makes."""
    words = hardware.decompression_unit(0, hardware.tag_decoder(0))
    return Measured(len(words), "values that a unit makes of 16 bits of tags")


def shifter() -> Measured:
    """Join eight vectors of 0, 8 or 32 ones in all combinations; measure the range of lengths,
    count wrong results.
    """
    lengths, wrong = [], 0
    for widths in itertools.product((0, 8, 32), repeat=hardware.VALUES):
        whole = hardware.shifter_tree(
            [hardware.Vector((1 << width) - 1, width) for width in widths]
        )
        lengths.append(whole.length)
        wrong += whole != hardware.Vector((1 << sum(widths)) - 1, sum(widths))
    return Measured(
        [min(lengths), max(lengths), wrong], f"bits, least and most; wrong of {len(lengths)}"
    )


def same_bytes() -> Measured:
    """Check that all bursts but the last are full, and that the bytes are the codec's."""
    values = numbers()[:_VALUES]
    made = inceptionn.compress(values, EXPONENT)
    units = [
        hardware.compression_unit(words.tolist(), EXPONENT, "bound")
        for words in values.view(np.uint32).reshape(-1, hardware.VALUES)
    ]
    sent = sum(burst is not None for burst in hardware.alignment_unit(units))
    same = hardware.compress(values, EXPONENT)[0] == made.tobytes()
    how = f"{sent} bursts for {len(made)} bytes; the same bytes as the codec's"
    return Measured([sent == -(-8 * len(made) // hardware.BUS_BITS), same], how)


def refill() -> Measured:
    """Count the values that the Burst Buffer's engine restores wrongly; measure its cycles over
    bursts in or out.
    """
    values = numbers()[:_VALUES]
    made = inceptionn.compress(values, EXPONENT)
    back, cycles = hardware.decompress(made.tobytes(), values.size)
    wrong = int(
        np.count_nonzero(
            back.view(np.uint32) != inceptionn.decompress(made, values.size).view(np.uint32)
        )
    )
    bursts = max(-(-8 * len(made) // hardware.BUS_BITS), values.size // hardware.VALUES)
    return Measured(
        [wrong, round(cycles / bursts, 2)], "wrong values; cycles over bursts, taken or given"
    )


def burst_buffer() -> Measured:
    """Find the least Burst Buffer, in bits, that decompresses random values and the worst case."""
    worst = np.concatenate(
        [[0.25], np.zeros(hardware.VALUES - 1), np.ones(20 * hardware.VALUES)]
    ).astype(np.float32)
    gradients = numbers()[np.abs(numbers()) < 1][:_VALUES]
    needed = {
        "random": _least_buffer(numbers()[:_VALUES]),
        "the worst case": _least_buffer(worst),
        "gradients below 1": _least_buffer(gradients),
    }
    return Measured(
        max(needed.values()),
        f"bits needed: {', '.join(f'{kind} {bits}' for kind, bits in needed.items())}",
    )


def _least_buffer(values: NDArray[np.float32]) -> int:
    made = inceptionn.compress(values, EXPONENT).tobytes()

    def is_enough(bits: int) -> bool:
        try:
            hardware.decompress(made, values.size, bits)
        except CodecError:
            return False
        return True

    sizes = range(hardware.BUS_BITS, 4 * hardware.BUS_BITS, 8)
    return sizes[bisect.bisect_left(sizes, True, key=is_enough)]


_MANY = 3200
"""Bytes of a message of many bursts."""


_HEADER_BYTES = 64


@functools.cache
def _values() -> Floats:
    """Return the values of a packet of 1,448 bytes."""
    return (0.02 * np.random.default_rng(1).standard_normal(362)).astype(np.float32)


def _way_out(tos: int) -> NicFlow:
    return egress(packet_header(tos, _HEADER_BYTES), _values().tobytes(), EXPONENT)


def _way_in(tos: int) -> NicFlow:
    return ingress(_way_out(tos)[NicStage.MAC], _HEADER_BYTES, _values().size)


def _order(flow: NicFlow) -> list[str]:
    """Return the stages in the order of the cycles in which the first burst leaves them."""
    return [stage.value for stage in sorted(flow, key=lambda stage: flow[stage][0].cycle)]


def flow_out() -> Measured:
    """Find the order of the stages; check that only packets with the ToS are changed on their
    way.
    """
    sent = [
        payload_of(_way_out(tos)[NicStage.MAC], _HEADER_BYTES)
        for tos in (ORDINARY_TOS, COMPRESSIBLE_TOS)
    ]
    bypassed = sent[0] == _values().tobytes() != sent[1]
    how = (
        f"a packet of {_values().nbytes} bytes, {len(sent[1])} compressed; of another ToS it"
        " bypasses the engine"
    )
    return Measured([*_order(_way_out(COMPRESSIBLE_TOS)), bypassed], how)


def flow_in() -> Measured:
    """Find the order of the stages; check that the engine begins when the whole packet is there."""
    flow = _way_in(COMPRESSIBLE_TOS)
    first, last = flow[NicStage.ENGINE][0].cycle, flow[NicStage.MAC][-1].cycle
    how = f"the engine's first burst leaves in cycle {first}, the MAC's last one in cycle {last}"
    return Measured([*_order(flow), first > last], how)


def marked() -> Measured:
    """Check that a gradient is sent as it is by default, and compressed where its message is
    marked.
    """
    gradient = Gradient(_values().size, _values())
    plain, marked = (
        Nic(cluster_network(), Inceptionn(EXPONENT)).pack(gradient, tos)
        for tos in (ORDINARY_TOS, COMPRESSIBLE_TOS)
    )
    sizes = [
        0 if message.payload is None else message.payload.nbytes for message in (plain, marked)
    ]
    made = len(Inceptionn(EXPONENT).compress(_values()))
    return Measured(
        [sizes[0] == _values().nbytes, sizes[1] == made],
        f"{sizes[0]} bytes unmarked, {sizes[1]} marked",
    )


def board() -> Measured:
    """Return the NIC's board, and the rate of its link."""
    cluster = load_cluster("titan-xp-10gbe")
    return Measured(
        [cluster.board(0).name, cluster.interconnect.bandwidth_mbps / 1000], "board, Gb/s"
    )


def burst_bytes() -> float:
    """Return the bytes that the engine takes in a cycle."""
    engines = cluster_network().engines
    return _MANY / (engines.time_ps(_MANY, 0) / engines.clock_period_ps)


def frequency() -> Measured:
    """Measure the engines' clock in MHz."""
    engines = cluster_network().engines
    gbps = 8000 * _MANY / engines.time_ps(_MANY, 0)
    return Measured(
        1e6 / engines.clock_period_ps, f"of a cluster's file; with 256 bits, {gbps:.1f} Gb/s"
    )


def no_slowdown() -> Measured:
    """Measure the time of an incompressible message through the engines over that of one that
    bypasses them.
    """
    interconnect = cluster_network()
    bytes_ = 1000 * interconnect.packet_bytes
    return Measured(
        interconnect.transfer_ps(bytes_, bytes_) / interconnect.transfer_ps(bytes_),
        "time of 1000 packets",
    )


def headers() -> Measured:
    """Measure the bytes on the wire of a packet whose payload is compressed to nothing."""
    interconnect = cluster_network()
    at_once = dataclasses.replace(interconnect.engines, clock_period_ps=0)
    wire = dataclasses.replace(interconnect, packet_stack_ps=0, engines=at_once)
    return Measured(
        wire.transfer_ps(interconnect.packet_bytes, 0) * interconnect.bandwidth_mbps / 8e6,
        "bytes, of 1,538",
    )


def tos() -> Measured:
    """Return the ToS of packets that are compressed."""
    return Measured(f"0x{COMPRESSIBLE_TOS:02x}", "comm/interconnect.py")
