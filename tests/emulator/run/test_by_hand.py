"""Virtual time against chains worked out with pencil and paper; all times in nanoseconds unless a
name says otherwise.

The rules are those of design and docstrings: a row starts when its engine is free and the input
rows that it needs have arrived; it leaves when it is finished and its partial row has arrived. A
path also carries one row after another, and a row arrives a latency after it has left. Output
errors are ready when the outputs are. Weights are updated `output channels` clock cycles after the
last gradient.

Chain A: two boards, the cut goes through the second layer
---------------------------------------------------------- Network: image 1x6x3; conv1 1x1 with 2
channels gives 2x6x3; ReLU; max-pool [2, 1] gives 2x3x3; conv2 kernel [3, 2], pad [1, 0], 2
channels, gives 2x3x2; average-pool [3, 2] gives 2x1x1; softmax.

Cut: conv1 has 1 input and 2 output channels, so it is cut by output channels (OCP), 18 MACs each;
conv2 has as many input as output channels, so it is cut by input channels (ICP), 2·6·3·2 = 72 MACs
each. One tile for each engine takes 2 multipliers for conv1 and 18 for conv2. So `left`, with 22
multipliers, holds conv1[0:1], conv1[0:2] or, too, conv2[0:1]. Only the last leaves conv2[1:2] alone
for `right`, with 30, whose engines then take 192 as shown below; with all of conv2 it is twice the
work in 5 tiles, and EB, 12 cycles a row in 3 rows, takes 576 with one, 288 with two, where FP or
PG, 8 in 3, take 384 with one.

Engines of left, 22 multipliers, tiles of 1 (conv1) and 6 (conv2). Cycles of a row and a sample with
one tile each:
    conv1 FP 3 pixels · 2 channels = 6 (36), conv1 PG 2·3 = 6 (36), conv2 FP 2·2 = 4 (12), EB 3·2 =
    6 (18), PG 4 (12)
192 are 19 cycles, so conv1 FP and PG get two tiles (3 cycles, 18 a sample), the others one:
    2+2+6+6+6 = 22. conv1 FP 30, PG 30; conv2 FP 40, EB 60, PG 40 for each row
Engines of right, 30 multipliers: one tile each are 18, 12 are left over: FP 4 (12), EB 6 (18), PG 4
(12). 192 are 12 cycles, so EB gets one (3 cycles, 9). FP, which takes just 12, gets one (2 cycles,
6), nothing is left for PG.
    conv2 FP 32, EB 48, PG 64

Link: path 1 has 1 channel of conv2's input, 12 bytes a row, 36 a sample; path 2 the partial
outputs, 16 and 48; path 3 the output errors, 16 and 48; path 4 the input errors, 12 and 36. So 84
bytes a sample in each direction, in 3 rows on each path: a row takes as long as 84/3 = 28 bytes
take at full bandwidth, 224 bits at 3.2 Gb/s = 70. The latency is 500.

The slowest FIFO resource for a sample: conv1 FP 6·30 = 180, conv1 PG 180, EB 180 on the left, PG
192 on the right, paths 210. So a sample enters every 210.

First sample:
    left   conv1 FP      30  60  90 120 150 180
           pooled        60 120 180                         rows 1, 3, 5
           conv2 FP     160 220 260                         row 0 waits for pooled row 1, 120; rows 1, 2 for row 2
    path 1  leaves      130 200 270    arrives  630  700  770
    path 2  leaves      230 300 370    arrives  730  800  870
    right  conv2 FP     732 802 834                         starts at 700, 770, 802
           complete     732 802 870                         the last row waits for its partial row
           pooled, and errors of all conv2 outputs: 870
           EB           918 966 1014
           PG           934 998 1062; new weights 1062 + 2·16 = 1094
    path 3  leaves      940 1010 1080  arrives 1440 1510 1580
    path 4  leaves      988 1058 1128  arrives 1488 1558 1628
    left   conv2 EB    1570 1640 1700                       row 0 needs error row 1, 1510; rows 1, 2 need row 2, 1580
           conv2 PG    1480 1550 1620; new weights 1640
           complete    1570 1640 1700                       path 4 came before
           conv1 PG    1600 1630 1670 1700 1730 1760        from 1570 1570 1640 1640 1700 1700; new weights 1780

Chain B: the cut is a layer's boundary, and the second layer is fully connected
------------------------------------------------------------------------------- Network: image
1x2x3; conv1 kernel [1, 2], 2 channels, gives 2x2x2; fc with 2 features. conv1: OCP, 8 MACs each
channel; fc: 2 input channels, ICP, 8 MACs each. Two boards with 4 multipliers, 10 ns: one holds
conv1 (2 engines with tiles of 2) and the other fc (3 with tiles of 1), for all 5 engines, 7
multipliers, are too many for one. Device 0: a tile of 2 each for FP, 2·2 = 4 cycles a row, and PG,
4. Device 1: a 1x1 convolution with 8 inputs, one tile each takes 2·8 = 16 cycles; the one left over
goes to FP, the first of the slowest: 8 cycles. EB 16, PG 16. Link: path 1 and path 4 alone in their
directions, 16 bytes a row, 128 bits at 3.2 Gb/s = 40. Latency 100. A sample enters every 160 (EB
and PG of fc).
    device 0  conv1 FP   40  80
    path 1    leaves     80 120   arrives 180 220
    device 1  FP        300                        needs both rows
              EB        460                        both error rows leave at once
              PG        460; new weights 460 + 2·10 = 480
    path 4    leaves    500 540   arrives 600 640
    device 0  PG        640 680; new weights 700   no EB for images

Chain C: a slow second board whose input errors the first one waits for, and the rule of one channel
----------------------------------------------------------------------------------------------------
Network: image 1x2x2; conv1 1x1, 2 channels (OCP, 4 MACs each); conv2 1x1, 2 channels (ICP, 8 each);
average-pool 2. Boards: 5 multipliers at 10 ns, 3 at 100 ns. The slower one has to hold a channel
and had better hold no more: device 0 holds conv1[0:2], conv2[0:1], device 1 conv2[1:2]. One tile
for each engine, and 4 cycles a row for each: 40 on device 0, 400 on device 1. Link: 8, 16, 16, 8
bytes a row on paths 1 to 4; 48 a sample and direction, 24 bytes for each of 2 rows = 192 bits at
1.92 Gb/s = 100. No latency. A sample enters every 800.
    device 0  conv1 FP    40   80
              conv2 FP    80  120
    path 1    140  240
    path 2    180  280
    device 1  FP         540  940; pooled 940
              EB        1340 1740
              PG        1340 1740; new weights 1740 + 2·100 = 1940
    path 3   1040 1140
    path 4   1440 1840
    device 0  conv2 EB  1080 1180, complete with path 4: 1440 1840
              conv2 PG  1080 1180
              conv1 PG  1480 1880; new weights 1900
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.config import Config
from emuchain.emulator.mapping import DataPath
from emuchain.emulator.plan import ChainPlan, make_plan
from emuchain.emulator.run import simulate

PS = 1000
"""Picoseconds in a nanosecond."""

CHAINS = {
    "A": (
        """
        name = "a"
        input = [1, 6, 3]
        layers = [
          { type = "conv", channels = 2, kernel = 1 },
          { type = "relu" },
          { type = "max-pool", kernel = [2, 1] },
          { type = "conv", channels = 2, kernel = [3, 2], pad = [1, 0] },
          { type = "average-pool", kernel = [3, 2] },
          { type = "softmax" },
        ]
        """,
        """
        name = "two"
        boards = [
          { name = "left", clock_mhz = 100, dsp = 22, on_chip_memory_kbit = 8 },
          { name = "right", clock_mhz = 62.5, dsp = 30, on_chip_memory_kbit = 8 },
        ]
        links = { bandwidth_gbps = 3.2, latency_ns = 500 }
        """,
    ),
    "B": (
        """
        name = "b"
        input = [1, 2, 3]
        layers = [
          { type = "conv", channels = 2, kernel = [1, 2] },
          { type = "relu" },
          { type = "fc", features = 2 },
          { type = "softmax" },
        ]
        """,
        """
        name = "like"
        boards = [{ name = "both", clock_mhz = 100, dsp = 4, on_chip_memory_kbit = 8 }]
        links = { bandwidth_gbps = 3.2, latency_ns = 100 }
        """,
    ),
    "C": (
        """
        name = "c"
        input = [1, 2, 2]
        layers = [
          { type = "conv", channels = 2, kernel = 1 },
          { type = "conv", channels = 2, kernel = 1 },
          { type = "average-pool", kernel = 2 },
          { type = "softmax" },
        ]
        """,
        """
        name = "slow"
        boards = [
          { name = "quick", clock_mhz = 100, dsp = 5, on_chip_memory_kbit = 8 },
          { name = "slow", clock_mhz = 10, dsp = 3, on_chip_memory_kbit = 8 },
        ]
        links = { bandwidth_gbps = 1.92, latency_ns = 0 }
        """,
    ),
}

ChainPlan = Callable[..., ChainPlan]
Record = Callable[[ChainPlan, int], Any]


@pytest.fixture
def chain_plan(tmp_path: Path) -> ChainPlan:
    """Makes the plan of one of the chains, from TOML files as a user would write them."""

    def make(chain: str, schedule: str, batch: int, epochs: int = 1) -> ChainPlan:
        for name, text in zip(("network", "cluster"), CHAINS[chain], strict=True):
            (tmp_path / f"{name}.toml").write_text(text)
        config = Config(
            network=str(tmp_path / "network.toml"),
            cluster=str(tmp_path / "cluster.toml"),
            devices=2,
            batch=batch,
            micro_batch=1,
            schedule=schedule,
            epochs=epochs,
        )
        return make_plan(config, 1)

    return make


def later(rows: list[float], by: float) -> list[float]:
    """The same rows, so much later."""
    return [time + by for time in rows]


FIRST_ENGINES = {
    "A": {
        "0 conv1 fp": [30, 60, 90, 120, 150, 180],
        "0 conv1 pg": [1600, 1630, 1670, 1700, 1730, 1760],
        "0 conv2 fp": [160, 220, 260],
        "0 conv2 eb": [1570, 1640, 1700],
        "0 conv2 pg": [1480, 1550, 1620],
        "1 conv2 fp": [732, 802, 834],
        "1 conv2 eb": [918, 966, 1014],
        "1 conv2 pg": [934, 998, 1062],
    },
    "B": {
        "0 conv1 fp": [40, 80],
        "0 conv1 pg": [640, 680],
        "1 fc1 fp": [300],
        "1 fc1 eb": [460],
        "1 fc1 pg": [460],
    },
    "C": {
        "0 conv1 fp": [40, 80],
        "0 conv1 pg": [1480, 1880],
        "0 conv2 fp": [80, 120],
        "0 conv2 eb": [1080, 1180],
        "0 conv2 pg": [1080, 1180],
        "1 conv2 fp": [540, 940],
        "1 conv2 eb": [1340, 1740],
        "1 conv2 pg": [1340, 1740],
    },
}
FIRST_PATHS = {
    "A": {1: [630, 700, 770], 2: [730, 800, 870], 3: [1440, 1510, 1580], 4: [1488, 1558, 1628]},
    "B": {1: [180, 220], 4: [600, 640]},
    "C": {1: [140, 240], 2: [180, 280], 3: [1040, 1140], 4: [1440, 1840]},
}
SLICES = {
    "A": [["conv1[0:2] OCP", "conv2[0:1] ICP"], ["conv2[1:2] ICP"]],
    "B": [["conv1[0:2] OCP"], ["fc1[0:2] ICP"]],
    "C": [["conv1[0:2] OCP", "conv2[0:1] ICP"], ["conv2[1:2] ICP"]],
}
UPDATED = {"A": (1780, 1094), "B": (700, 480), "C": (1900, 1940)}
INTERVAL = {"A": 210, "B": 160, "C": 800}


@pytest.mark.parametrize("chain", CHAINS)
def test_cut_and_interval(chain_plan: ChainPlan, chain: str) -> None:
    plan = chain_plan(chain, "sync", 1)
    assert [[str(part) for part in slices] for slices in plan.mapping.devices] == SLICES[chain]
    assert plan.timing.interval_ps == INTERVAL[chain] * PS


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_first_sample(chain_plan: ChainPlan, record: Record, chain: str, schedule: str) -> None:
    recorded = record(chain_plan(chain, schedule, 1), 1)
    assert recorded.engines == {name: [rows] for name, rows in FIRST_ENGINES[chain].items()}
    assert recorded.paths == {path: [rows] for path, rows in FIRST_PATHS[chain].items()}
    assert [trace.updated_ps for trace in recorded.traces] == [
        [time * PS] for time in UPDATED[chain]
    ]


@pytest.mark.parametrize("chain", CHAINS)
def test_second_sample_in_sync_waits_for_the_first_devices_new_weights(
    chain_plan: ChainPlan, record: Record, chain: str
) -> None:
    """With one sample a mini-batch the chain drains, so the second is the first, as late as device
    0's update.
    """
    wait = UPDATED[chain][0]
    recorded = record(chain_plan(chain, "sync", 1), 2)
    assert recorded.engines == {
        name: [rows, later(rows, wait)] for name, rows in FIRST_ENGINES[chain].items()
    }
    assert recorded.paths == {
        path: [rows, later(rows, wait)] for path, rows in FIRST_PATHS[chain].items()
    }
    assert [trace.updated_ps for trace in recorded.traces] == [
        [t * PS, (t + wait) * PS] for t in UPDATED[chain]
    ]


@pytest.mark.parametrize("chain", ["A", "B"])
@pytest.mark.parametrize(("schedule", "batch"), [("fpdeep", 1), ("fpdeep", 2), ("sync", 2)])
def test_second_sample_that_waits_for_no_weights_follows_an_interval_later(
    chain_plan: ChainPlan, record: Record, chain: str, schedule: str, batch: int
) -> None:
    """No FIFO resource of chains A and B is occupied for longer than the interval by a sample,
    first row to last.
    """
    recorded = record(chain_plan(chain, schedule, batch), 2)
    interval = INTERVAL[chain]
    assert recorded.engines == {
        name: [rows, later(rows, interval)] for name, rows in FIRST_ENGINES[chain].items()
    }
    assert recorded.paths == {
        path: [rows, later(rows, interval)] for path, rows in FIRST_PATHS[chain].items()
    }


@pytest.mark.parametrize(
    ("chain", "schedule", "batch", "samples", "ends"),
    [
        ("A", "sync", 1, 1, [1780]),
        ("A", "sync", 1, 2, [3560]),
        ("A", "sync", 2, 2, [1990]),  # 1780 + 210
        (
            "A",
            "sync",
            2,
            4,
            [3980],
        ),  # the first two again, from 1990 on; paths 1 and 2 are always busy, so no gain
        ("A", "sync", 2, 3, [3770]),  # 1990 + 1780
        ("A", "fpdeep", 1, 2, [1990]),
        ("A", "fpdeep", 2, 4, [2410]),  # 1780 + 3·210: nothing waits
        (
            "A",
            "fpdeep",
            1,
            9,
            [3460],
        ),  # the ninth enters at 8·210 = 1680, before the first new weights, at 1780
        (
            "A",
            "fpdeep",
            1,
            10,
            [3670],
        ),  # the tenth enters at 1890, after them: it, too, waits for nothing
        (
            "A",
            "fpdeep",
            1,
            2,
            [1990, 3980],
        ),  # an epoch begins with the weights that the one before left
        ("B", "sync", 1, 2, [1400]),
        ("B", "fpdeep", 1, 2, [860]),  # 700 + 160
        ("C", "sync", 1, 1, [1940]),
        ("C", "sync", 1, 2, [3840]),  # device 0 begins anew at 1900, device 1 ends 1940 later
        ("C", "sync", 1, 3, [5740]),
    ],
)
def test_virtual_time_at_the_end(
    chain_plan: ChainPlan, chain: str, schedule: str, batch: int, samples: int, ends: list[int]
) -> None:
    found = simulate(chain_plan(chain, schedule, batch, epochs=len(ends)), samples)
    assert found.epoch_ends_ps == tuple(end * PS for end in ends)
    assert found.usage.virtual_time_ps == ends[-1] * PS


def test_staleness_of_chain_a_one_sample_a_mini_batch(chain_plan: ChainPlan) -> None:
    """Sample n is the first one, 210·n later: device 0 starts FP at 0 and EB at 1510 and has new
    weights at 1780, so FP is stale by the 8 updates that are due from 0 to 1780 (210 … 1680 later),
    EB by one, at 1570; device 1 starts at 700 and 870 and has new weights at 1094, so both are
    stale by one: 1094 - 210 = 884 is just too late for 870."""
    staleness = chain_plan("A", "fpdeep", 1).steady.staleness
    assert [(late.forward, late.backward) for late in staleness] == [((8,), (1,)), ((1,), (1,))]


def test_staleness_of_chain_a_two_samples_a_mini_batch(chain_plan: ChainPlan) -> None:
    """New weights come every 420, on device 0 at 1990, 1570, 1150, 730, 310 before the present
    mini-batch's zero.

    Written so that the present mini-batch starts at 0 and 210, updates are at 1990 - 420·j after j
    mini-batches: those of j = 1 … 4 come after FP of both samples (310 > 210), that of j = 5
    before; EB starts at 1510 and 1720, j = 1 is at 1570. On device 1, updates at 1304 - 420·j: 884
    is after FP (700) and EB (870) of the first sample, and before FP (910) and EB (1080) of the
    second.
    """
    staleness = chain_plan("A", "fpdeep", 2).steady.staleness
    assert [(late.forward, late.backward) for late in staleness] == [
        ((4, 4), (1, 0)),
        ((1, 0), (1, 0)),
    ]


def test_in_flight_of_chain_a(chain_plan: ChainPlan) -> None:
    """Device 0 has PG of a sample done 1760 after it entered, when 1760 / 210 = 8.4 have entered
    after it; device 1 at 1062, having started at 700: 362 / 210 = 1.7 have started after it."""
    assert chain_plan("A", "fpdeep", 1).steady.in_flight == (9, 2)


def test_usage_of_chain_a(chain_plan: ChainPlan) -> None:
    found = simulate(chain_plan("A", "sync", 1), 2).usage
    left, right = found.devices
    end = 3560
    assert (left.board, left.multipliers) == ("left", 22)
    assert (right.board, right.multipliers) == ("right", 30)
    # Two samples; conv1 FP 6·30 with 2 multipliers and conv2 FP 3·40 with 6; conv2 EB 3·60; PG as
    # FP.
    assert left.busy == pytest.approx(
        {
            "FP": (2 * 180 * 2 + 2 * 120 * 6) / (8 * end),
            "EB": 2 * 180 / end,
            "PG": (2 * 180 * 2 + 2 * 120 * 6) / (8 * end),
        }
    )
    assert right.busy == pytest.approx(
        {"FP": 2 * 96 / end, "EB": 2 * 144 / end, "PG": 2 * 192 / end}
    )
    forward, backward = found.links
    assert (forward.sender, forward.receiver, backward.sender, backward.receiver) == (0, 1, 1, 0)
    assert forward.path_bytes == {DataPath.ACTIVATIONS: 72, DataPath.PARTIAL_ACTIVATIONS: 96}
    assert backward.path_bytes == {DataPath.OUTPUT_ERRORS: 96, DataPath.INPUT_ERRORS: 72}
    # 168 bytes are 1344 bits, at 3.2 Gb/s 420 ns.
    assert [forward.utilisation, backward.utilisation] == pytest.approx([420 / end] * 2)
    # Left: conv1 2 weights and 2 biases, conv2 2·6 weights; inputs 18 + 9 words for each of 9
    # samples in flight.
    assert (left.memory.lpram, left.memory.lgb, left.memory.act_ram) == (4 * 16, 4 * 16, 4 * 27 * 9)
    # Right: conv2 2·6 weights and 2 biases; inputs 9 words for each of 2 samples.
    assert (right.memory.lpram, right.memory.lgb, right.memory.act_ram) == (
        4 * 14,
        4 * 14,
        4 * 9 * 2,
    )
    assert left.memory.board == 1024
