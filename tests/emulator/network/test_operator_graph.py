"""The operator graph: counted by hand, and what must hold in any."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from emuchain.emulator.common import tomllib, validate
from emuchain.emulator.network import Layer, Phase, Recurrent, load_network, operator_graph, zoo
from emuchain.emulator.network.description import Description
from emuchain.emulator.network.graph import resolve

# a: 2·2·9 multiply-accumulates for each of 4 pixels; b and c: 2·2 for each; fc: 16 inputs, 3
# outputs.
BRANCHES = """
name = "branches"
input = [2, 4, 4]
layers = [
  { type = "conv", channels = 2, kernel = 3, name = "a" },
  { type = "relu", name = "x" },
  { type = "conv", channels = 2, kernel = 1, name = "b" },
  { type = "add", from = ["b", "x"], name = "y" },
  { type = "conv", channels = 2, kernel = 1, name = "c", from = "x" },
  { type = "concat", from = ["y", "c"] },
  { type = "fc", features = 3, name = "d" },
  { type = "softmax" },
]
"""


def test_by_hand() -> None:
    graph = operator_graph(
        resolve(validate(Description, tomllib.loads(BRANCHES), "x.toml"), "x.toml")
    )
    assert {str(of): of.operations for of in graph.operators} == {
        "FP of a": 288, "PG of a": 288,
        "FP of b": 32, "EB of b": 32, "PG of b": 32,
        "FP of c": 32, "EB of c": 32, "PG of c": 32,
        "FP of d": 96, "EB of d": 96, "PG of d": 96,
    }  # fmt: skip
    assert graph.operations == 2 * 288 + 3 * (32 + 32 + 96)
    assert graph.layer_operations("a") == {Phase.FP: 288, Phase.PG: 288}
    forward = [
        ("a", "b"),
        ("a", "c"),
        ("a", "d"),
        ("b", "d"),
        ("c", "d"),
    ]  # the sum y is of b and a, and so part of d
    expected = set()
    for before, after in forward:
        expected |= {(f"FP of {before}", f"FP of {after}"), (f"FP of {before}", f"PG of {after}")}
        expected |= {(f"EB of {after}", f"PG of {before}")}
        expected |= {(f"EB of {after}", f"EB of {before}")} if before != "a" else set()
    assert {(str(edge.source), str(edge.target)) for edge in graph.edges} == expected
    assert {edge.shape for edge in graph.edges} == {(2, 2, 2), (4, 2, 2)}


def state_macs(layer: Layer) -> int:
    """Return the multiply-accumulates of a layer's own state, whose errors are always needed."""
    cells = layer.operation
    if not isinstance(cells, Recurrent):
        return 0
    each = cells.gates * cells.hidden + (cells.projection or 0)
    return layer.output[1] * cells.directions * cells.units * each


@pytest.mark.parametrize("name", zoo())
def test_of_the_zoo(name: str) -> None:
    """Forwards, edges run with the order of the layers, and back against it; all counts are those
    of the layers.
    """
    network = load_network(name)
    graph = operator_graph(network)
    place = {layer.name: layer.index for layer in network.layers}
    for edge in graph.edges:
        if edge.source.phase is Phase.FP:
            assert place[edge.source.layer] < place[edge.target.layer]
        else:
            assert edge.source.phase is Phase.EB
            assert place[edge.source.layer] > place[edge.target.layer]
    images = sum(
        layer.macs - state_macs(layer) for layer in network.layers if not layer.needs_errors
    )
    attention = sum(
        2 * (layer.eb_macs - 2 * layer.macs) for layer in network.layers if not layer.has_pg
    )
    assert graph.operations == 6 * network.macs - 2 * images + attention
    fed = {edge.target for edge in graph.edges}
    assert {of.layer for of in graph.operators if of.phase is Phase.FP and of not in fed} == {
        layer.name for layer in network.layers if not layer.needs_errors
    }


def test_as_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "emuchain", "network", "inception-cifar", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found, graph = json.loads(done.stdout), operator_graph(load_network("inception-cifar"))
    assert (
        found["operations"]
        == graph.operations
        == sum(of["operations"] for of in found["operators"])
    )
    assert len(found["edges"]) == len(graph.edges)
    assert {"from": "FP of conv1", "to": "FP of conv2_1x1", "shape": [32, 16, 16]} in found["edges"]
