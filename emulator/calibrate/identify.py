"""What measurements cannot tell apart: constants of which the same data fix only a product or a sum."""

from __future__ import annotations

from .board import BoardFit
from .link import UNIT_BYTES, LinkFit

_SHARE = "`share` of links: what one message at a time takes says nothing of how several share a link"


def open_of_link(fit: LinkFit) -> list[str]:
    """Return what the data of a link leave open."""
    messages = fit.messages
    told = [
        "bandwidth and header bytes: `bandwidth_gbps` is that of payload, `header_bytes` stays 0",
        "link latency and kernel hand-over: `latency_ns` is their sum",
    ]
    if not messages.starts:
        why = "`loop_length` is the same in all rows" if messages.rows[0].has("loop_length") else "no `loop_length`"
        told.append(f"latency and the start of kernels ({why}): `latency_ns` holds the start's part of each message")
    if messages.sizes.min() > UNIT_BYTES:
        told.append(f"latency and what small messages take besides: none is below {messages.sizes.min():,.0f} bytes")
    return [*told, _SHARE]


def open_of_board(fit: BoardFit) -> list[str]:
    """Return what the data of a board leave open."""
    keys = {constant.key for constant in fit.constants}
    told = []
    if "board.efficiency" in keys:
        told.append(
            "`dsp_share` and efficiency: the bitstream's report fixes clock and DSPs, products the rest"
            if fit.has_report
            else "clock, DSPs, `dsp_share` and efficiency, of which products fix the product: without a bitstream's"
            " report (clock_mhz, dsp_used), the first three are those of the board's type, and exact"
        )
    if "board.off_chip_gbytes_per_s" in keys:
        told.append("reading and writing: bandwidth is the mean of functions that do both, and its range holds each")
    return [*told, _SHARE]
