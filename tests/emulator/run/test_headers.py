"""Headers of packets and costs of messages on a chain's links: by hand, exact to the ps; training
as simulation; no byte is lost.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

import emuchain

# docs/time-model.md works this out.
ROWS = {
    "name": "rows",
    "input": [1, 2, 3],
    "layers": [
        {"type": "conv", "channels": 2, "kernel": [1, 2]},
        {"type": "fc", "features": 2},
        {"type": "softmax"},
    ],
}
FOUR = {
    "name": "four",
    "boards": [{"name": "four", "clock_mhz": 100, "dsp": 4, "on_chip_memory_kbit": 800}],
    "links": {"bandwidth_gbps": 3.2, "latency_ns": 100},
}


def four(header: int, **tables: Any) -> dict[str, Any]:
    """The toy's cluster, with `header` bytes on each packet of 10."""
    return {
        **FOUR,
        "links": {**FOUR["links"], "header_bytes": header, "packet_bytes": 10},
        **tables,
    }  # type: ignore[dict-item]


def time_ps(cluster: dict[str, Any]) -> int:
    found = emuchain.simulate(ROWS, cluster, devices=2, samples=1, batch=1, schedule="sync")
    return found.virtual_time_ps


def test_rows_by_hand() -> None:
    """A row of 16 bytes is two packets; two rows each way, of which the second waits for the
    first.
    """
    assert time_ps(four(0)) == time_ps(FOUR) == 700_000
    assert time_ps(four(4)) == 780_000


@pytest.mark.parametrize("engines", ["turns", "split"])
def test_whole_messages_by_hand(engines: str) -> None:
    """Both rows at once are 32 bytes: four packets, 16 bytes of headers, 40 ns. One message goes
    each way.
    """
    machine = {"engines": engines, "transport": "stored"}
    assert time_ps(four(4, machine=machine)) - time_ps(four(0, machine=machine)) == 2 * 40_000


def test_costs_by_hand() -> None:
    """A row of 16 bytes costs 20 ns, as 8 bytes of headers do; both rows at once cost 30 ns."""
    links = {**FOUR["links"], "message_ns": [[16, 20], [32, 30]]}  # type: ignore[dict-item]
    assert time_ps({**FOUR, "links": links}) == 780_000
    turns = {"machine": {"engines": "turns", "transport": "stored"}}
    free, dear = {**FOUR, **turns}, {**FOUR, "links": links, **turns}
    assert time_ps(dear) - time_ps(free) == 2 * 30_000


def test_all_bytes_cross_the_links() -> None:
    """What links are busy with is payload, a header for each packet of each row, and its cost."""
    samples, header, packet, cost = 24, 66, 100, 8  # 8 ns are 150 bytes at 150 Gb/s
    changes = {
        "link.header_bytes": header,
        "link.packet_bytes": packet,
        "link.message_ns": cost,
    }
    plan = emuchain.plan(
        "quick-cifar", "vc709", devices=4, batch=8, samples=samples, changes=changes
    )
    usage = emuchain.simulate(plan).usage
    for link in usage.links:
        streams = plan.timing.sent(
            min(link.sender, link.receiver), forward=link.receiver > link.sender
        )
        payload = samples * sum(stream.sample_bytes for stream in streams)
        packets = samples * sum(
            stream.rows * math.ceil(stream.row_bytes / packet) for stream in streams
        )
        assert sum(link.path_bytes.values()) == payload
        rows = samples * sum(stream.rows for stream in streams)
        mbps = plan.cluster.link_at(0).bandwidth_mbps
        carried = link.utilisation * usage.virtual_time_ps * mbps / 8e6
        assert carried == pytest.approx(payload + header * packets + 150 * rows, rel=1e-9)


@pytest.mark.parametrize(
    "more", [{}, {"schedule": "1f1b-so"}, {"schedule": "data-parallel-ring"}], ids=str
)
def test_training_takes_the_time_of_simulation(more: dict[str, Any]) -> None:
    times = []
    for header, cost in ((0, 0), (66, 0), (66, 2000)):
        changes = {
            "link.header_bytes": header,
            "link.packet_bytes": 100,
            "link.bandwidth_gbps": 1,
            "link.message_ns": cost,
        }
        plan = emuchain.plan(
            "quick-cifar", "vc709", devices=2, batch=4, samples=8, changes=changes, **more
        )
        times.append(emuchain.simulate(plan).virtual_time_ps)
        assert emuchain.train(plan).history["virtual_time_ps"][-1] == times[-1]
    assert times[0] < times[1] < times[2]
