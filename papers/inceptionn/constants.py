"""INCEPTIONN's constants and choices that its text leaves open, with their plausible ranges."""

from __future__ import annotations

from ..constants import Choice, Constant

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

ROUNDS = Choice(
    "aggregator.rounds",
    {"of-tree": "ceil(log2(p + 1))", "as-printed": "log2(p)"},
    "a tree of 4 workers and an aggregator takes 3 rounds; section VIII-D's formula has 2",
    "Table II's communication",
)
"""Rounds in which the new weights reach p workers."""

BLOCKING = Choice(
    "network.blocking",
    {"in-turn": True, "at-once": False},
    "Algorithm 1 lists a send and then a receive; section VIII-D's formula has both at once",
    "Fig. 12's savings",
)
"""Whether a worker of a ring sends and receives one after the other."""

RULE = Choice(
    "codec.rule",
    {"range": "inceptionn-range", "bound": "inceptionn"},
    "Algorithm 2 is missing from the text, which does not say where 8 bits end and 16 begin",
)
"""By what the codec of Table III takes 8 or 16 bits: a value's range, or the bound on its error."""

CHOICES = (ROUNDS, BLOCKING, RULE)
