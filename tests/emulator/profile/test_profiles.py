"""Profiles: of TOML files, of PipeDream's graphs, and the stages that follow from them; bad ones
are refused.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.profile import (
    DoesNotFit,
    LayerTimes,
    ProfileStages,
    load_graph,
    load_profile,
)
from emuchain.kernels.number import FP16

PROFILE = """
name = "two"
[devices.v100]
memory_gbytes = 0.000002
[devices.p100]
[[layers]]
name = "a"
output_bytes = 100
feature_bytes = 50
parameter_bytes = 400
times = [
  { device = "v100", micro_batch = 4, forward_us = 1.5, backward_us = 3, gradient_us = 1 },
  { device = "p100", micro_batch = 4, forward_us = 3, backward_us = 6 },
]
[[layers]]
name = "b"
output_bytes = 10
feature_bytes = 20
parameter_bytes = 200
times = [
  { device = "v100", micro_batch = 4, forward_us = 2, backward_us = 4, gradient_us = 2 },
  { device = "p100", micro_batch = 4, forward_us = 4, backward_us = 8 },
]
"""


def node(
    name: str, operation: str, forward: str, backward: str, activations: str, parameters: str
) -> str:
    """A line of a graph."""
    times = f"forward_compute_time={forward}, backward_compute_time={backward}"
    return (
        f"{name} -- {operation} -- {times}, activation_size={activations},"
        f" parameter_size={parameters}"
    )


GRAPH = "\n".join(
    [
        node("node1", "Input0", "0.000", "0.000", "0.0", "0.000"),
        node("node2", "Conv2d(3, 8)", "1.500", "2.500", "800.0", "96.000"),
        node("node4", "Add", "0.100", "0.200", "400.0", "0.000"),
        node("node3", "LSTM(8, 8)", "1.000", "2.000", "[400.0; 16.0]", "64.000") + " -- stage_id=0",
        *("\tnode1 -- node2", "\tnode2 -- node3", "\tnode2 -- node4", "\tnode3 -- node4", ""),
    ]
)


def of(tmp_path: Path, text: str, name: str = "p.toml") -> Path:
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return path


def test_a_toml_profile(tmp_path: Path) -> None:
    profile = load_profile(of(tmp_path, PROFILE))
    assert [layer.name for layer in profile.layers] == ["a", "b"]
    assert profile.times("v100", 4)[1] == LayerTimes(2_000_000, 4_000_000, 2_000_000)
    assert profile.times("v100", 2)[0] == LayerTimes(750_000, 1_500_000, 500_000)
    assert profile.whole_ps("p100", 4) == 21_000_000
    assert profile.memory_bytes == {"v100": 2000, "p100": None}
    assert profile.micro_batches == (4,)
    with pytest.raises(InputError, match="no times on 'k80'; there are those on v100, p100"):
        profile.times("k80", 4)


def test_stages_of_a_profile_are_sums(tmp_path: Path) -> None:
    stages = ProfileStages(load_profile(of(tmp_path, PROFILE)), ["v100", "p100"], 4)
    first, second = stages.starts[1:]
    whole = stages.costs(0, second, 0, 2)
    assert (whole.forward_ps, whole.backward_ps, whole.pg_ps) == (3_500_000, 7_000_000, 3_000_000)
    assert (whole.feature_bytes, whole.parameter_bytes) == (4 * 70, 600)
    assert stages.costs(0, second, 1, 2).pg_ps is None
    assert stages.message_bytes(first) == 4 * 100
    half = stages.costs(0, first // 2, 0, 1)
    assert (half.forward_ps, half.parameter_bytes) == (750_000, 200)
    assert stages.message_bytes(first + first // 2) == 4 * (100 // 2 + 10)
    with pytest.raises(DoesNotFit, match=r"^stage 0: needs 2,040 bytes of memory; v100 has 2,000$"):
        stages.costs(0, second, 0, 3)


def test_bytes_come_from_the_network_where_the_profile_has_none(tmp_path: Path) -> None:
    network = load_network("lenet-mnist")
    times = 'times = [{ device = "g", micro_batch = 1, forward_us = 1, backward_us = 2 }]'
    tables = "".join(f'[[layers]]\nname = "{layer.name}"\n{times}\n' for layer in network.layers)
    profile = load_profile(of(tmp_path, f'name = "p"\n[devices.g]\n{tables}'), network, FP16)
    assert sum(layer.parameter_bytes for layer in profile.layers) == 2 * network.parameters
    assert profile.layers[0].feature_bytes == 2 * 28 * 28


def test_a_graph_of_pipedream(tmp_path: Path) -> None:
    profile = load_graph(of(tmp_path, GRAPH, "graph.txt"), 16, ["v100"])
    assert [layer.name for layer in profile.layers] == [
        "node1 Input0",
        "node2 Conv2d",
        "node3 LSTM",
        "node4 Add",
    ]
    assert profile.times("v100", 16)[2] == LayerTimes(10**9, 2 * 10**9)
    assert [layer.output_bytes for layer in profile.layers] == [0, 800, 800 + 416, 0]
    assert [layer.parameter_bytes for layer in profile.layers] == [0, 96, 64, 0]
    stages = ProfileStages(profile, ["v100"], 8)
    assert stages.message_bytes(stages.starts[2]) == 400


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("forward_us = 1.5", "forward_us = -1.5", "layer a: `forward_us` = -1.5: must not be negative"),
        ("forward_us = 1.5", "forward_us = 1e30", "layer a: `forward_us` = 1e+30: must be at most 1e+12"),
        ("forward_us = 1.5", "forward_us = nan", "times[0].forward_us` = nan: should be a finite number"),
        ("gradient_us = 2 }", "gradient_us = 5 }", "layer b: `gradient_us` = 5: is part of `backward_us`"),
        ('device = "p100", micro_batch = 4, forward_us = 4', 'device = "p100", micro_batch = 8, forward_us = 4',
         "layer a: `times` lacks p100 with `micro_batch` = 8, which layer b has"),
        ("feature_bytes = 20\n", "", "layer b: key `feature_bytes` is missing, and no network has"),
        ("output_bytes = 10\n", "output_byte = 10\n", "unknown key `layers[1].output_byte`"),
        ("[devices.p100]\n", "", "layer a: `device` = 'p100': must be one of v100"),
    ],
)  # fmt: skip
def test_bad_profiles_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in PROFILE
    with pytest.raises(InputError) as refused:
        load_profile(of(tmp_path, PROFILE.replace(old, new)))
    assert said in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\tnode1 -- node2", "\tnode4 -- node2", "its edges form a cycle: node"),
        ("\tnode1 -- node2", "\tnode1 -- node9", ":5: 'node9' is not a node of the lines before"),
        (
            "forward_compute_time=1.500",
            "forward_compute_time=-1.500",
            ":2: node2: `forward_compute_time` = -1.500: must",
        ),
        (
            "parameter_size=96.000",
            "parameter_size=x",
            ":2: node2: `parameter_size` = 'x': must be a number",
        ),
        (", parameter_size=96.000", "", ":2: node2: `parameter_size` is missing"),
        ("\tnode1 -- node2", "node1", ":5: neither"),
    ],
)
def test_bad_graphs_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GRAPH
    path = tmp_path / "graph.txt"
    path.write_text(GRAPH.replace(old, new))
    with pytest.raises(InputError) as refused:
        load_graph(path, 1, ["g"])
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_circle_names_its_nodes(tmp_path: Path) -> None:
    path = tmp_path / "graph.txt"
    path.write_text(GRAPH + "\tnode4 -- node3\n")
    with pytest.raises(
        InputError, match=r"cycle: (node3 -> node4 -> node3|node4 -> node3 -> node4)$"
    ):
        load_graph(path, 1, ["g"])
