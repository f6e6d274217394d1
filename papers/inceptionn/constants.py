"""INCEPTIONN's constants that its text leaves open, with their plausible ranges."""

from __future__ import annotations

from ..constants import Constant

CONSTANTS = (
    Constant(
        "network.latency_us",
        100,
        (25, 50, 75, 100, 150, 200, 280),
        "Table II needs almost none for HDC, Fig. 12 needs 280",
        "HDC's rows",
    ),
    Constant(
        "network.packet_stack_ns",
        567,
        (460, 500, 540, 567, 600, 650),
        "at least what the NIC's engines take",
        '"53.9 % lower" of INC+C',
    ),
    Constant(
        "network.sum_gbytes_per_s",
        8.33,
        (7.5, 7.9, 8.33, 8.75, 9.2),
        "Table II's gradient sums, rounded; 10 %",
        "Table II's gradient sums",
    ),
)
