"""The way of one packet through INCEPTIONN's NIC, a burst of 256 bits at a time (section VI-A, Fig.
8).

Out, from the host: packet DMA, Compression Engine, virtual FIFO, 10G MAC. In: MAC, virtual FIFO,
Decompression Engine, packet DMA. An engine reads the Type of Service in a packet's first burst.
Packets of another ToS bypass it, and so do all headers. Out, the engine works while bursts arrive;
in, it begins when the FIFO holds the whole packet.

Each stage takes and gives at most a burst a cycle. The paper does not give the stages' delays: here
a burst leaves a stage at the earliest a cycle after it came. Headers are assumed to be padded to
whole bursts, so that a payload begins with a burst of its own; the receiver knows the number of
values, as from the TCP stream.

Plain Python and slow: what trains and is timed is `exchange/nic.py` and `interconnect.py`.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Sequence

import numpy as np

from ..kernels.inceptionn import Rule, hardware
from .interconnect import COMPRESSIBLE_TOS

BURST_BYTES = hardware.BUS_BITS // 8
TOS_PLACE = 15
"""The ToS is the second byte of the IP header, which follows 14 bytes of Ethernet's."""


class NicStage(enum.Enum):
    """A stage of the NIC."""

    DMA = "packet DMA"
    ENGINE = "engine"
    FIFO = "virtual FIFO"
    MAC = "10G MAC"


@dataclasses.dataclass(frozen=True)
class NicBurst:
    """Up to 256 bits, and the cycle in which they leave a stage."""

    cycle: int
    data: bytes


NicFlow = dict[NicStage, list[NicBurst]]
"""The bursts that leave each stage, in the order in which they pass the stages."""


def packet_header(tos: int, size_bytes: int = 64) -> bytes:
    """Return a packet's header that is zero but for its ToS."""
    return bytes(tos if place == TOS_PLACE else 0 for place in range(size_bytes))


def egress(head: bytes, payload: bytes, error_bound_exponent: int, rule: Rule = "bound") -> NicFlow:
    """Return the flow of a packet from the host to the wire."""
    first = [NicBurst(cycle, data) for cycle, data in enumerate(_cut(head) + _cut(payload))]
    heads = len(_cut(head))
    flow = {NicStage.DMA: first}
    flow[NicStage.ENGINE] = (
        [*_later(first[:heads]), *_compressed(first[heads:], error_bound_exponent, rule)]
        if _is_compressible(first)
        else _later(first)
    )
    flow[NicStage.FIFO] = _later(flow[NicStage.ENGINE])
    flow[NicStage.MAC] = _later(flow[NicStage.FIFO])
    return flow


def ingress(sent: Sequence[NicBurst], head_bytes: int, count: int) -> NicFlow:
    """Return the flow of a packet of `count` values that arrives as these bursts, from the wire to
    the host.

    Raises:
        CodecError: the bytes end early.
    """
    heads = -(-head_bytes // BURST_BYTES)
    flow = {NicStage.MAC: _later(sent)}
    flow[NicStage.FIFO] = held = _whole(_later(flow[NicStage.MAC]))
    flow[NicStage.ENGINE] = (
        [*_later(held[:heads]), *_decompressed(held[heads:], count)]
        if _is_compressible(held)
        else _later(held)
    )
    flow[NicStage.DMA] = _later(flow[NicStage.ENGINE])
    return flow


def payload_of(bursts: Sequence[NicBurst], head_bytes: int) -> bytes:
    """Return the bytes behind the header."""
    return b"".join(burst.data for burst in bursts[-(-head_bytes // BURST_BYTES) :])


def _cut(data: bytes) -> list[bytes]:
    return [data[first : first + BURST_BYTES] for first in range(0, len(data), BURST_BYTES)]


def _is_compressible(bursts: Sequence[NicBurst]) -> bool:
    return bursts[0].data[TOS_PLACE] == COMPRESSIBLE_TOS


def _later(bursts: Sequence[NicBurst]) -> list[NicBurst]:
    """Return bursts that leave a cycle after they came."""
    return [dataclasses.replace(burst, cycle=burst.cycle + 1) for burst in bursts]


def _whole(bursts: Sequence[NicBurst]) -> list[NicBurst]:
    """Return bursts that leave a FIFO one a cycle, once the last of them is in it."""
    return [NicBurst(bursts[-1].cycle + place, burst.data) for place, burst in enumerate(bursts)]


def _compressed(
    bursts: Sequence[NicBurst], error_bound_exponent: int, rule: Rule
) -> list[NicBurst]:
    """Return what the Compression Engine makes of a payload: a burst whenever the Alignment Unit
    has 256 bits.
    """
    units = [
        hardware.compression_unit(
            np.frombuffer(burst.data, np.uint32).tolist(), error_bound_exponent, rule
        )
        for burst in bursts
    ]
    size = sum(unit.length for unit in units) // 8
    made, begin = [], bursts[0].cycle + 1 if bursts else 0
    for cycle, bits in enumerate(hardware.alignment_unit(units), begin):
        if bits is not None:
            made.append(NicBurst(cycle, bits.to_bytes(BURST_BYTES, "little")))
    # The Alignment Unit pads its last burst with zeros; of that one only the bytes of values leave.
    ends = itertools.accumulate(len(burst.data) for burst in made)
    return [
        dataclasses.replace(burst, data=burst.data[: BURST_BYTES - max(0, end - size)])
        for burst, end in zip(made, ends, strict=True)
    ]


def _decompressed(bursts: Sequence[NicBurst], count: int) -> list[NicBurst]:
    """Return what the Decompression Engine makes of a payload; its last burst leaves when its work
    ends.
    """
    values, cycles = hardware.decompress(b"".join(burst.data for burst in bursts), count)
    made = _cut(values.tobytes())
    begin = bursts[0].cycle + 1 + cycles - len(made) if bursts else 0
    return [NicBurst(begin + place, data) for place, data in enumerate(made)]
