"""Links and rings beside SimGrid, where the two models mean the same; and how far they differ where
they do not.

docs/time-model.md, "Beside SimGrid", has the numbers; `pytest -s` prints them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.comm import Interconnect, Served, topologies
from emuchain.comm.collective import check, collective_ends_ps, collective_of, laid
from emuchain.comm.exchange import block_sizes, ring_ps, ring_steps, sent_block

pytest.importorskip("simgrid", exc_type=ImportError)

Scenario = dict[str, Any]
US = 1e6
"""Picoseconds of a microsecond."""

NETWORK = {
    "name": "three",
    "input": [3, 12, 12],
    "layers": [
        {"type": "conv", "channels": 16, "kernel": 3, "pad": 1},
        {"type": "conv", "channels": 16, "kernel": 3, "pad": 1},
        {"type": "conv", "channels": 16, "kernel": 3, "pad": 1},
        {"type": "fc", "features": 4},
        {"type": "softmax"},
    ],
}


def on_simgrid(scenario: Scenario) -> dict[str, list[float]]:
    """Return when each step of each actor ended, in us."""
    script = Path(__file__).with_name("on_simgrid.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        input=json.dumps(scenario),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def streams_of(
    devices: int,
    dsp: int,
    gbps: float,
    latency_ns: int,
    network: dict[str, Any] = NETWORK,
    topology: str = "chain",
    cut: str | None = None,
) -> dict[str, tuple[Any, Any, float]]:
    """Run a chain; return for each stream on a link when rows were ready and arrived, in us, and
    the bytes of a row.
    """
    cluster = {
        "name": "boards",
        "boards": [{"name": "board", "clock_mhz": 100, "dsp": dsp, "on_chip_memory_kbit": 9000}],
        "links": {"bandwidth_gbps": gbps, "latency_ns": latency_ns, "topology": topology},
    }
    served: dict[str, list[Served]] = {}

    def observe(rows: Served) -> None:
        if rows.resource.startswith("link"):
            served.setdefault(rows.resource, []).append(rows)

    plan = emuchain.plan(
        network, cluster, devices=devices, samples=6, batch=3, schedule="fpdeep", cut=cut
    )
    emuchain.simulate(plan, observer=observe)
    found = {}
    for link, streams in enumerate(plan.timing.links):
        for stream in streams:
            resource = plan.timing.path(link, stream)
            if resource is None:  # its route is shorter
                continue
            name = resource.name
            ready, left = (
                np.concatenate([getattr(each, of) for each in served[name]])
                for of in ("ready_ps", "left_ps")
            )
            found[name] = (
                ready / US,
                (left + 1000 * latency_ns) / US,
                stream.sample_bytes // ready.shape[1],
            )
    return found


def on_links(
    streams: dict[str, tuple[Any, Any, float]], gbps: float, latency_ns: int
) -> dict[str, Any]:
    """Send the rows of all streams, those of one after the other; return when they arrive, in
    us.
    """
    scenario: Scenario = {"links": {}, "routes": [], "actors": {}}
    routes = {}
    for name, (ready, _, row_bytes) in streams.items():
        sender, receiver = name.split(",")[0].removeprefix("link ").split(" -> ")
        link, direction = (
            "-".join(sorted([sender, receiver])),
            "UP" if sender < receiver else "DOWN",
        )
        port, far = f"{sender}>{receiver} port", f"{sender}>{receiver} far end"
        scenario["links"] |= {link: [gbps * 1000 / 8, 0], f"{link} wire": [1e12, latency_ns / 1000]}
        routes[sender, port], routes[port, far] = [[link, direction]], [[f"{link} wire", direction]]
        rows = np.ravel(ready).tolist()
        send = [step for at in rows for step in (["until", at], ["put", f"{name} out", row_bytes])]
        on_wire = [
            step for _ in rows for step in (["get", f"{name} out"], ["send", f"{name} in", 1])
        ]
        scenario["actors"] |= {
            f"{name} receiver": [far, [["get", f"{name} in"]] * len(rows)],
            f"{name} wire": [port, on_wire],
            f"{name} sender": [sender, send],
        }
    scenario["routes"] = [[*ends, way] for ends, way in routes.items()]
    times = on_simgrid(scenario)
    return {
        name: np.reshape(times[f"{name} receiver"], ready.shape)
        for name, (ready, _, _) in streams.items()
    }


def test_rows_on_the_links_of_a_chain() -> None:
    """A stream in each direction of each link, both directions at once: every row arrives when it
    does here.
    """
    streams = streams_of(devices=6, dsp=120, gbps=0.4, latency_ns=3000)
    directions = Counter(name.split(",")[0] for name in streams)
    alone = {
        name: stream for name, stream in streams.items() if directions[name.split(",")[0]] == 1
    }
    assert {"link 3 -> 4", "link 4 -> 3", "link 4 -> 5", "link 5 -> 4"} <= {
        name.split(",")[0] for name in alone
    }
    others = on_links(alone, 0.4, 3000)
    apart = max(
        np.abs(others[name] - arrived).max() / arrived.max()
        for name, (_, arrived, _) in alone.items()
    )
    rows = sum(np.size(ready) for ready, _, _ in alone.values())
    print(f"\n{rows} rows of {len(alone)} streams on links: at most {apart:.1e} of the run apart")
    assert apart < 0.01


@pytest.mark.parametrize("topology", ["ring", "torus"])
def test_rows_on_the_links_of_other_topologies(topology: str) -> None:
    """As above, where a map of the first layer goes past the others on a shorter route."""
    conv, *_, closing = NETWORK["layers"]
    layers = [
        {**conv, "name": "first"},
        {"type": "max-pool", "kernel": 2, "name": "pooled"},
        {**conv, "name": "second", "from": "first", "stride": 2},
        {**conv, "name": "third"},
        {**conv, "name": "last"},
        {"type": "add", "from": ["last", "pooled"]},
        {"type": "fc", "features": 4, "name": "head"},
        closing,
    ]
    cut = "first | second | third[:8] | third[8:] | last | head"
    streams = streams_of(6, 400, 0.4, 3000, {**NETWORK, "layers": layers}, topology, cut)
    directions = Counter(name.split(",")[0] for name in streams)
    alone = {
        name: stream for name, stream in streams.items() if directions[name.split(",")[0]] == 1
    }
    ends = {
        tuple(map(int, name.split(",")[0].removeprefix("link ").split(" -> "))) for name in alone
    }
    assert any(abs(sender - receiver) > 1 for sender, receiver in ends)
    theirs = on_links(alone, 0.4, 3000)
    apart = max(
        np.abs(theirs[name] - arrived).max() / arrived.max()
        for name, (_, arrived, _) in alone.items()
    )
    print(f"\n{len(alone)} streams on links of a {topology}: at most {apart:.1e} of the run apart")
    assert apart < 0.01


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("topology", ["switch", "chain", "ring", "torus"])
def test_ring(workers: int, topology: str) -> None:
    """All workers have the sum when they do here: each with a link of its own to a switch, or
    folded in a chain.

    On a ring or a torus each has a link to the next, and the sum comes after the time of the closed
    form.
    """
    values, mbps, latency_us, sum_us_per_kbyte = 250_003, 10_000, 5, 0.05
    sum_ps_per_kbyte = int(sum_us_per_kbyte * US)
    network = Interconnect(
        mbps, 5 * 10**6, sum_ps_per_kbyte=sum_ps_per_kbyte, topology=topologies()[topology]
    )
    network = network.among(workers)
    ready_us = [0.0] * workers
    ours_us = ring_ps(network, np.zeros(workers, np.int64), values) / US
    places = network.topology.ring_places(workers).tolist()
    scenario: Scenario = {"links": {}, "routes": [], "actors": {}}
    blocks = (4 * block_sizes(values, workers)).tolist()
    for worker in range(workers):
        right = (worker + 1) % workers
        first, last = places[worker], places[right]
        if topology != "switch":
            hops = network.topology.route(first, last)
            way = [
                [f"link {min(hop)} - {max(hop)}", "UP" if hop[0] < hop[1] else "DOWN"]
                for hop in hops
            ]
            scenario["links"] |= {name: [mbps / 8, latency_us] for name, _ in way}
        else:
            way = [[f"link {first}", "UP"], [f"link {last}", "DOWN"]]
            scenario["links"] |= {name: [mbps / 8, latency_us / 2] for name, _ in way}
        scenario["routes"].append([f"host {worker}", f"host {right}", way])
        steps: list[list[Any]] = [["until", ready_us[worker]]]
        for step in ring_steps(workers):
            received = blocks[sent_block((worker - 1) % workers, step, workers)]
            steps.append(["send", f"to {right}", blocks[sent_block(worker, step, workers)]])
            steps.append(["get", f"to {worker}"])
            if step < workers:
                steps.append(["sleep", received * sum_us_per_kbyte / 1000])
        scenario["actors"][f"worker {worker}"] = [f"host {worker}", steps]
    times = on_simgrid(scenario)
    theirs_us = np.array([times[f"worker {worker}"][-1] for worker in range(workers)])
    apart = np.abs(theirs_us - ours_us).max() / ours_us.max()
    print(
        f"\nring of {workers}, {topology}: {ours_us.max():.1f} us here, {theirs_us.max():.1f} us"
        f" there, {apart:.2e}"
    )
    assert apart < 0.01


ONE_EACH = [
    "doubling",
    "halving-doubling",
    "tree",
    "binomial-broadcast",
    "binomial-reduce",
    "ring-reduce-scatter",
    "ring-allgather",
]
"""Collectives in which a rank sends and receives at most one message in a round: elsewhere messages
to one rank come one after another here, and share its link there.
"""


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", ONE_EACH)
def test_collectives(name: str, ranks: int) -> None:
    """Ranks on a switch carry out the rounds of a collective, and end it when they do here.

    A rank that receives in a round goes on to the next one then; one that only sends, once it has
    sent.
    """
    mbps, latency_us, size = 10_000, 1, 8_000_000
    collective = collective_of(name)
    network = Interconnect(mbps, latency_us * 10**6).among(ranks)
    phases = check(collective, ranks, network.topology)
    blocks = collective.goal.is_in_blocks

    def bounds_of(pieces: int) -> list[int]:
        whole = size * pieces if blocks else size
        return [whole * piece // pieces for piece in range(pieces + 1)]

    ours_us = (
        collective_ends_ps(
            laid(phases, network.topology), network, np.zeros(ranks, np.int64), bounds_of
        )
        / US
    )
    scenario: Scenario = {"links": {}, "routes": [], "actors": {}}
    actors: list[list[list[Any]]] = [[["until", 0]] for _ in range(ranks)]
    for rank in range(ranks):
        scenario["links"][f"link {rank}"] = [mbps / 8, latency_us / 2]
        for other in range(rank):
            way = [[f"link {rank}", "UP"], [f"link {other}", "DOWN"]]
            back = [[f"link {other}", "UP"], [f"link {rank}", "DOWN"]]
            scenario["routes"] += [
                [f"host {rank}", f"host {other}", way],
                [f"host {other}", f"host {rank}", back],
            ]
    rounds = [(phase.pieces, steps) for phase in phases for steps in phase.rounds]
    for number, (pieces, steps) in enumerate(rounds):
        bounds, receivers = bounds_of(pieces), {step.receiver for step in steps}
        for step in steps:
            box = f"round {number} to {step.receiver}"
            how = "send" if step.sender in receivers else "put"
            actors[step.sender].append([how, box, bounds[step.stop] - bounds[step.first]])
        for receiver in receivers:
            actors[receiver].append(["get", f"round {number} to {receiver}"])
    scenario["actors"] = {
        f"rank {rank}": [f"host {rank}", steps] for rank, steps in enumerate(actors)
    }
    times = on_simgrid(scenario)
    theirs_us = np.array([times[f"rank {rank}"][-1] for rank in range(ranks)])
    apart = np.abs(theirs_us - ours_us).max() / ours_us.max()
    print(
        f"\n{name} of {ranks}: {ours_us.max():.1f} us here, {theirs_us.max():.1f} there, {apart:.1e}"
    )
    assert apart < 0.01


def test_shares() -> None:
    """Where streams share a direction, SimGrid gives each as much as others, and idle bandwidth to
    those that wait.

    Here shares are fixed, by bytes. So the smaller stream, path 1, is through sooner there, at the
    cost of single rows of the larger one, path 2; a sample's last row is only little sooner.
    """
    streams = streams_of(devices=6, dsp=120, gbps=0.4, latency_ns=3000)
    for link in range(3):
        names = [name for name in streams if name.startswith(f"link {link} -> {link + 1}")]
        theirs, sooner = on_links({name: streams[name] for name in names}, 0.4, 3000), []
        for name in names:
            ready, arrived, _ = streams[name]
            here_us, there_us = (
                (each[:, -1] - ready[:, 0]).mean() for each in (arrived, theirs[name])
            )
            sooner.append(1 - there_us / here_us)
            print(
                f"\n{name}: {here_us:.1f} us for a sample here, {there_us:.1f} us there,"
                f" {sooner[-1]:.1%} less"
            )
        smaller, larger = sooner
        assert 0.1 < smaller < 0.4 and 0 < larger < 0.04
        assert (theirs[names[1]] - streams[names[1]][1]).max() > 1  # us, of a row
