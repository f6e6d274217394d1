"""VC709 as papers count it: a multiply-accumulate of each DSP in each cycle. For tests of cuts,
links, ranges and answers that have nothing to do with what multipliers are built of.
"""

from __future__ import annotations

from typing import Any

_KEYS: dict[str, Any] = {
    "multipliers": "one-per-dsp",
    "clock_mhz": 200,
    "dsp_share": 0.833,
    "lut_share": 1,
    "efficiency": 1,
}

COUNTED: dict[str, Any] = {f"board.{key}": value for key, value in _KEYS.items()}
"""Changes of a cluster of VC709."""

COUNTED_WORDS: tuple[str, ...] = tuple(
    word for key, value in COUNTED.items() for word in ("--set", f"{key}={value}")
)
"""The same as words of a command."""


def counted(gbps: float = 150, **board: Any) -> dict[str, Any]:
    """Return a cluster of such boards, whose clock is known as well as one that is fitted."""
    return {
        "name": "counted",
        "boards": [
            {
                "type": "vc709",
                **_KEYS,
                "uncertainty": {"board.clock_mhz": {"class": "fitted"}},
                **board,
            }
        ],
        "links": {"bandwidth_gbps": gbps, "latency_ns": 1000},
    }
