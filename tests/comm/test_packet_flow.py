"""A packet's way through the NIC: order of the stages, what bypasses the engines, and when they
begin.
"""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.comm import (
    COMPRESSIBLE_TOS,
    NicBurst,
    NicStage,
    egress,
    ingress,
    packet_header,
    payload_of,
)
from emuchain.kernels.inceptionn import compress, decompress

EXPONENT, HEAD_BYTES = -10, 64
VALUES = (0.1 * np.random.Generator(np.random.Philox(key=4)).standard_normal(362)).astype(
    np.float32
)
OUT = [NicStage.DMA, NicStage.ENGINE, NicStage.FIFO, NicStage.MAC]
IN = [NicStage.MAC, NicStage.FIFO, NicStage.ENGINE, NicStage.DMA]


def both_ways(
    tos: int, values: np.ndarray = VALUES
) -> tuple[dict[NicStage, list[NicBurst]], dict[NicStage, list[NicBurst]]]:
    out = egress(packet_header(tos, HEAD_BYTES), values.tobytes(), EXPONENT)
    return out, ingress(out[NicStage.MAC], HEAD_BYTES, values.size)


@pytest.mark.parametrize("tos", [0, COMPRESSIBLE_TOS])
def test_every_burst_passes_the_stages_in_order_and_one_a_cycle(tos: int) -> None:
    out, back = both_ways(tos)
    for flow, order in ((out, OUT), (back, IN)):
        assert list(flow) == order
        cycles = [[burst.cycle for burst in flow[stage]] for stage in order]
        assert all(np.all(np.diff(each) >= 1) for each in cycles)
        assert [each[0] for each in cycles] == sorted({each[0] for each in cycles})
        assert [each[-1] for each in cycles] == sorted({each[-1] for each in cycles})


def test_a_marked_payload_is_the_codecs() -> None:
    out, back = both_ways(COMPRESSIBLE_TOS)
    made = compress(VALUES, EXPONENT)
    assert payload_of(out[NicStage.MAC], HEAD_BYTES) == made.tobytes()
    assert payload_of(back[NicStage.DMA], HEAD_BYTES) == decompress(made, VALUES.size).tobytes()


def test_other_packets_and_all_headers_bypass_the_engines() -> None:
    out, back = both_ways(0)
    assert (
        payload_of(out[NicStage.MAC], HEAD_BYTES)
        == payload_of(back[NicStage.DMA], HEAD_BYTES)
        == VALUES.tobytes()
    )
    for tos in (0, COMPRESSIBLE_TOS):
        out, back = both_ways(tos)
        for end in (out[NicStage.MAC], back[NicStage.DMA]):
            assert b"".join(burst.data for burst in end[: HEAD_BYTES // 32]) == packet_header(
                tos, HEAD_BYTES
            )


def test_decompression_waits_for_the_whole_packet_and_compression_does_not() -> None:
    out, back = both_ways(COMPRESSIBLE_TOS)
    assert out[NicStage.ENGINE][0].cycle < out[NicStage.DMA][-1].cycle
    assert back[NicStage.FIFO][0].cycle > back[NicStage.MAC][-1].cycle
    assert back[NicStage.ENGINE][0].cycle > back[NicStage.MAC][-1].cycle


def test_a_packet_without_payload() -> None:
    out, back = both_ways(COMPRESSIBLE_TOS, VALUES[:0])
    assert (
        payload_of(out[NicStage.MAC], HEAD_BYTES)
        == payload_of(back[NicStage.DMA], HEAD_BYTES)
        == b""
    )
