"""Boards on a ring, a torus or a switch: the bits of a chain, and the same time in simulation and
training.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.comm import Cycle, Torus
from emuchain.comm.exchange import ring_ps
from emuchain.emulator.cluster import load_cluster
from emuchain.emulator.common import InputError
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import simulate
from emuchain.emulator.timing import Timing, link_loads

from ..counted import COUNTED

NETWORK = """
name = "past all"
input = [3, 32, 32]
layers = [
  { type = "conv", name = "first", channels = 8, kernel = 3, pad = 1 },
  { type = "max-pool", name = "entry", kernel = 4 },
  { type = "conv", channels = 24, kernel = 3, pad = 1 },
  { type = "conv", channels = 24, kernel = 3, pad = 1 },
  { type = "conv", name = "last", channels = 8, kernel = 3, pad = 1 },
  { type = "add", from = ["last", "entry"] },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""
CLUSTER = """
name = "laid"
[[boards]]
name = "b"
clock_mhz = 100
dsp = {dsp}
on_chip_memory_kbit = 8000
[links]
bandwidth_gbps = 0.4
latency_ns = 2000
{links}
"""
SAMPLES = 24
LAID = {
    "chain": "",
    "ring": 'topology = "ring"',
    "torus": 'topology = "torus"\nshape = [2, 3]',
    "switch": 'topology = "switch"',
}
Made = Callable[..., ChainPlan]


@pytest.fixture(scope="module")
def laid_plan(tmp_path_factory: pytest.TempPathFactory, plan_of: Any) -> Made:
    folder = tmp_path_factory.mktemp("topologies")
    network = folder / "network.toml"
    network.write_text(NETWORK)

    def make(topology: str, dsp: int = 150, **keys: Any) -> ChainPlan:
        path = folder / f"{topology}.toml"
        path.write_text(CLUSTER.format(dsp=dsp, links=LAID[topology]))
        settings = {
            "network": str(network),
            "cluster": str(path),
            "devices": 6,
            "batch": 8,
            "samples": SAMPLES,
        }
        return plan_of(**{**settings, "test_samples": 8, "epochs": 2, "schedule": "sync", **keys})

    return make


@pytest.mark.parametrize("topology", LAID)
@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_training_takes_the_simulated_time(
    laid_plan: Made, trained: Any, topology: str, schedule: str
) -> None:
    plan = laid_plan(topology, schedule=schedule)
    assert simulate(plan, SAMPLES).usage == trained(plan).history[-1].usage


@pytest.mark.parametrize("topology", ["ring", "torus", "switch"])
def test_weights_are_those_of_a_chain(
    laid_plan: Made, trained: Any, bits: Any, topology: str
) -> None:
    chain, laid = laid_plan("chain"), laid_plan(topology)
    assert bits(trained(chain).weights) == bits(trained(laid).weights)


@pytest.mark.parametrize("topology", ["ring", "torus", "switch"])
@pytest.mark.parametrize("engines", ["turns", "shared"])
def test_boards_that_take_actions_as_a_whole(
    laid_plan: Made, trained: Any, topology: str, engines: str
) -> None:
    """Neighbours have a link; on a switch, what a board sends to either side shares its port."""
    keys = {"schedule": "1f1b-sno", "engines": engines, "micro_batch": 2, "devices": 6}
    plan, chain = laid_plan(topology, **keys), laid_plan("chain", **keys)
    assert simulate(plan, SAMPLES).usage == trained(plan).history[-1].usage
    times = [simulate(made, SAMPLES).virtual_time_ps for made in (plan, chain)]
    assert times[0] > times[1] if topology == "switch" else times[0] == times[1]


@pytest.mark.parametrize("topology", ["ring", "torus", "switch"])
@pytest.mark.parametrize("exchange", ["ring", "aggregator"])
@pytest.mark.parametrize("groups", [1, 2])
def test_replicas(laid_plan: Made, trained: Any, topology: str, exchange: str, groups: int) -> None:
    plan = laid_plan(
        topology, dsp=500, devices=6, replicas=4, groups=groups, exchange=exchange, samples=48
    )
    assert simulate(plan, 48).usage == trained(plan).history[-1].usage


def test_maps_that_bypass_layers_take_the_shorter_way(laid_plan: Made) -> None:
    """Around the ring, past no board that computes what is between; and no longer through the
    middle of the chain.
    """
    ring, chain = (laid_plan(topology, dsp=60) for topology in ("ring", "chain"))
    around, along = (
        {load.hop: load.sample_bytes for load in link_loads(Timing.of(ring.mapping, plan.cluster))}
        for plan in (ring, chain)
    )
    entry = 4 * 8 * 8 * 8
    assert around[0, 5] == around[5, 0] == entry and (0, 5) not in along
    assert along[2, 3] - around[2, 3] == along[3, 2] - around[3, 2] == entry


@pytest.mark.parametrize(
    ("topology", "shape"), [("ring", None), ("torus", None), ("torus", [6, 4])]
)
def test_a_ring_of_boards_exchanges_in_the_closed_form(
    topology: str, shape: list[int] | None
) -> None:
    """2 (p-1) (alpha + n/p beta) + (p-1) n/p gamma, with 24 workers, and blocks of whole values."""
    changes = {"link.topology": topology, **({} if shape is None else {"link.shape": shape})}
    cluster, p, values = load_cluster("vc709", changes), 24, 24_000
    over = cluster.between_replicas(p, 1)
    assert isinstance(over.topology, (Cycle, Torus))
    block = 4 * values // p
    beta, gamma = over.transfer_ps(block), over.sum_ps(block)
    ends = ring_ps(over, 0 * over.topology.ring_places(p), values)
    assert set(ends.tolist()) == {2 * (p - 1) * (over.latency_ps + beta) + (p - 1) * gamma}


@pytest.mark.parametrize(
    ("changes", "keys", "said"),
    [
        ({"link.topology": "star"}, {}, "`links.topology` = 'star': should be 'chain', 'ring', 'switch' or 'torus'"),
        ({"link.topology": "torus", "link.shape": [4, 6]}, {}, "a torus of 4 x 6 has 24 places for 6 boards"),
        ({"link.shape": [2, 3]}, {}, "`links.shape` = [2, 3]: is the rows and columns of `topology` = 'torus'"),
        (
            {"link.topology": "torus", "link.shape": [2, 2]},
            {"schedule": "data-parallel-ring"},
            "`links.shape`: a torus of 2 x 2 has 4 places for 6 nodes that exchange gradients; should have as many",
        ),
        ({"link.topology": "switch"}, {"schedule": "interleaved"}, "`links.topology` = 'switch': the shares of a port"),
        ({"link.topology": "ring"}, {"throttle": "wall"}, "`throttle` = 'wall': holds up messages"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_reported_in_a_line(
    changes: dict[str, Any], keys: dict[str, Any], said: str, one_line: Any
) -> None:
    with pytest.raises(InputError) as error:
        settings = {"devices": 6, "batch": 12, "samples": 12, "schedule": "sync", **keys}
        emuchain.plan("quick-cifar", load_cluster("vc709", changes), **settings)
    assert said in one_line(error)


def test_links_in_a_row_are_those_of_a_chain(tmp_path: Path, one_line: Any) -> None:
    path = tmp_path / "row.toml"
    path.write_text(
        CLUSTER.format(dsp=100, links='topology = "ring"').replace("[links]", "[[links]]")
    )
    with pytest.raises(InputError) as error:
        load_cluster(str(path))
    assert (
        "are those of a chain, one after another; `topology` = 'ring' needs one table `[links]`"
        in one_line(error)
    )


def test_a_torus_orders_the_chain_itself() -> None:
    """Neighbours are a link apart on any shape, so all that has one hop takes the time that it
    takes on a chain.
    """
    times = set()
    for changes in (
        {},
        {"link.topology": "torus"},
        {"link.topology": "torus", "link.shape": [4, 6]},
    ):
        plan = emuchain.plan(
            "vgg16-cifar",
            load_cluster("vc709", {**COUNTED, **changes}),
            devices=24,
            samples=32,
            batch=32,
        )
        times.add(emuchain.simulate(plan).virtual_time_ps)
    assert len(times) == 1
