"""Random cases as plain dictionaries, with the keys of files: a network (`drawn_networks`), a cluster,
and the keys of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import hypothesis
from hypothesis import strategies as st

from .described import FORMATS, OPENS
from .drawn_networks import Table, attention_networks, networks, sequence_networks

PORTS = st.sampled_from([{}, *({"off_chip_gbytes_per_s": rate} for rate in (0.011, 0.1, 0.7, 5))])


class Case(NamedTuple):
    """What a run is given."""

    network: Table
    cluster: Table
    keys: Table


@st.composite
def clusters(draw: st.DrawFn) -> Table:
    """Unlike boards and links; little or much on-chip memory, with or without a memory port that is
    known.
    """
    uphill = draw(
        st.booleans()
    )  # room on the left, slow memory ports behind it, and fast links: balanced parameters
    boards = [
        {
            "name": f"b{number}",
            "clock_mhz": draw(st.integers(50, 300)),
            "dsp": draw(st.integers(40, 800)),
            "on_chip_memory_kbit": draw(st.sampled_from([8, 40, 200, 400, 800, 4000])),
            **draw(PORTS),
        }
        for number in range(draw(st.integers(1, 3)))
    ]
    if uphill:
        boards = [
            {
                **board,
                "on_chip_memory_kbit": 4000 if number == 0 else 40,
                "off_chip_gbytes_per_s": 0.02,
            }
            for number, board in enumerate([*boards, *boards])
        ]
    share = draw(st.sampled_from(["bytes", "paths"]))
    links = [
        {
            "share": share,
            "bandwidth_gbps": draw(
                st.sampled_from([20, 100] if uphill else [0.05, 0.3, 1, 7, 100])
            ),
            "latency_ns": draw(st.sampled_from([0, 0.5, 40, 800, 3000])),
            "message_ns": draw(COSTS),
            "count": draw(st.integers(1, 2)),
        }
        for _ in range(draw(st.integers(1, 3)))
    ]
    return {"name": "drawn", "boards": boards, "links": links}


COSTS = st.sampled_from([[], [], [[1, 90]], [[40, 10], [200, 700], [201, 50]]])
"""What messages cost beside their bytes."""


def chain_keys(
    draw: st.DrawFn, schedules: Sequence[str], most_samples: int = 9, most_batch: int = 4
) -> Table:
    """The keys of a run of one chain; the last mini-batch may be short."""
    return {
        "devices": draw(st.integers(1, 6)),
        "samples": draw(st.integers(1, most_samples)),
        "batch": draw(st.integers(1, most_batch)),
        "epochs": draw(st.integers(1, 2)),
        "schedule": draw(st.sampled_from(schedules)),
    }


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """A run of one chain."""
    keys = chain_keys(draw, ["sync", "gpipe", "fpdeep", "fpdeep"], 12, 5)
    return Case(draw(networks()), draw(clusters()), keys)


@st.composite
def array_chains(draw: st.DrawFn) -> Case:
    """A run of one chain on boards with arrays of any shape, with starts, drains and loads that
    wait in part.
    """
    network, cluster, keys = draw(chains())
    small, cycles = st.integers(1, 4), st.integers(0, 40)
    for board in cluster["boards"]:
        board["dsp"] *= 10
        if draw(st.integers(0, 3)):
            board |= {"convolution_engines": "arrays", "array_outputs": draw(small)}
            board |= {"array_positions": draw(small)}
            board |= {"drain_cycles": draw(cycles), "start_cycles": draw(cycles)}
        board["load_exposed"] = draw(st.sampled_from([0, 0.24, 0.64, 1]))
    return Case(network, cluster, keys)


@st.composite
def built_chains(draw: st.DrawFn) -> Case:
    """A run of one chain on boards whose multipliers are built, with LUTs for few or for all."""
    case = draw(chains())
    for board in case.cluster["boards"]:
        board |= {
            "dsp_type": draw(st.sampled_from(["DSP48E1", "DSP48E2", "DSP58", "Stratix 10"])),
            "dsp": 4 * board["dsp"],
            "lut": draw(st.sampled_from([30_000, 100_000, 400_000])),
            "lut_share": draw(st.sampled_from([0.6, 1.0])),
        }
    return case


@st.composite
def frozen_chains(draw: st.DrawFn) -> Case:
    """A run with frozen layers: the first ones, or any but the last."""
    case = draw(st.one_of(chains(), chains(), replicas()))
    *layers, last = [
        each["name"] for each in case.network["layers"] if each["type"] in ("conv", "fc")
    ]
    hypothesis.assume(layers)
    first = layers[: draw(st.integers(1, len(layers)))]
    others = draw(st.sets(st.sampled_from([*layers, last]), min_size=1, max_size=len(layers)))
    frozen = first if draw(st.booleans()) else sorted(others)
    return case._replace(keys={**case.keys, "freeze": frozen})


@st.composite
def narrow_chains(draw: st.DrawFn) -> Case:
    """A run of one chain in any formats, its data on chip."""
    network, cluster, keys = draw(chains())
    for board in cluster["boards"]:
        board.pop("off_chip_gbytes_per_s", None)
    kinds = "activations", "weights", "errors", "master"
    names = st.sampled_from([name for name in FORMATS if name != "int32"])
    words = [f"{kind}={draw(names)}" for kind in draw(st.sets(st.sampled_from(kinds)))]
    words += draw(st.sampled_from([[], ["accumulate=bf16"]]))
    return Case(network, cluster, {**keys, "precision": " ".join([draw(names), *words])})


@st.composite
def formats_by_layer(draw: st.DrawFn) -> Case:
    """A run of one chain whose layers differ in formats, with attention or without."""
    network, cluster, keys = draw(st.one_of(narrow_chains(), narrow_attention_chains()))
    opening = [layer for layer in network["layers"] if layer["type"] in OPENS]
    names = [layer["name"] for layer in opening if "name" in layer and "tied" not in layer]
    tied = {layer.get("tied") for layer in opening}
    free = sorted({*names} - tied)
    hypothesis.assume(free)
    formats, words = st.sampled_from([name for name in FORMATS if name != "int32"]), []
    for name in sorted(draw(st.sets(st.sampled_from(free), min_size=1))):
        kinds = draw(st.sets(st.sampled_from(["activations", "weights", "errors"])))
        words += [f"layer.{name}.{kind}={draw(formats)}" for kind in sorted(kinds)]
        words += [f"layer.{name}={draw(formats)}"] * draw(st.integers(0 if kinds else 1, 1))
    return Case(network, cluster, {**keys, "precision": " ".join([keys["precision"], *words])})


@st.composite
def dot_chains(draw: st.DrawFn) -> Case:
    """A run of one chain whose products are summed in blocks, its data on chip; maybe with
    attention.
    """
    network, cluster, keys = draw(st.one_of(chains(), attention_chains(), tied_chains()))
    hypothesis.assume(not {layer["type"] for layer in network["layers"]} & {"gru"})
    for board in cluster["boards"]:
        board.pop("off_chip_gbytes_per_s", None)
    formats = st.sampled_from(["mxfp6", "q2.5", "mxfp4 master=bf16", "mxfp8"])
    words = [draw(formats), f"accumulate=dot:{draw(st.sampled_from([8, 16, 32]))}"]
    keys = {**keys, "devices": min(keys["devices"], len(network["layers"]) // 2 + 1)}
    return Case(network, cluster, {**keys, "precision": " ".join(words)})


@st.composite
def replicas(draw: st.DrawFn) -> Case:
    """Replicas, each a chain or a device, and how they exchange gradients."""
    count = draw(st.integers(2, 5))
    keys = {
        "samples": draw(st.integers(1, 12)),
        "batch": count * draw(st.integers(1, 4)),
        "epochs": draw(st.integers(1, 2)),
    }
    kind = draw(st.sampled_from(["ring", "aggregator"]))
    if draw(st.integers(0, 2)) == 0:
        keys |= {"schedule": f"data-parallel-{kind}", "devices": count}
    else:
        keys |= {
            "schedule": draw(st.sampled_from(["sync", "fpdeep", "fpdeep"])),
            "devices": draw(st.integers(1, 4)),
        }
        keys |= {"replicas": count, "exchange": kind}
    if draw(st.booleans()):  # no mini-batch with fewer samples than replicas
        keys["samples"] = max(keys["samples"] // keys["batch"], 1) * keys["batch"] + draw(
            st.integers(count, 2 * count)
        )
    else:
        keys["samples"] = keys["batch"] * draw(st.integers(1, 3))
    cluster = draw(clusters())
    if draw(st.booleans()):
        cluster["network"] = draw(interconnects())
    return Case(draw(networks()), cluster, keys)


@st.composite
def interconnects(draw: st.DrawFn) -> Table:
    """Any of the keys of `[network]` that say how long an uncompressed message takes."""
    every = {
        "topology": draw(st.sampled_from(["chain", "switch"])),
        "bandwidth_gbps": draw(st.sampled_from([0.1, 1, 10])),
        "latency_us": draw(st.sampled_from([0, 0.3, 20])),
        "packet_bytes": draw(st.sampled_from([64, 100, 4096])),
        "packet_overhead_bytes": draw(st.sampled_from([0, 78])),
        "packet_stack_ns": draw(st.sampled_from([0, 1.5, 900])),
        "message_ns": draw(COSTS),
        "blocking": draw(st.sampled_from([True, False, True])),
        "sum_gbytes_per_s": draw(st.sampled_from([0.01, 0.7, 30])),
    }
    return {key: value for key, value in every.items() if key == "blocking" or draw(st.booleans())}


@st.composite
def on_topologies(draw: st.DrawFn, cases: st.SearchStrategy[Case]) -> Case:
    """A case on a ring, a torus or a switch; replicas without a `[network]` exchange on links like
    these.
    """
    case = draw(cases)
    kind = draw(st.sampled_from(["ring", "torus", "switch"]))
    links: Table = {**case.cluster["links"][0], "topology": kind}
    keys, replicas = {**case.keys}, case.keys.get("replicas")
    if "data-parallel" not in keys["schedule"] and replicas is None:
        keys["devices"] = draw(st.integers(2, 9))
    if (
        kind == "torus"
        and keys["schedule"] != "data-parallel-aggregator"
        and (keys["devices"] > 1 or not replicas)
    ):
        rows = draw(
            st.sampled_from([n for n in range(1, keys["devices"] + 1) if keys["devices"] % n == 0])
        )
        links |= draw(st.sampled_from([{}, {"shape": [rows, keys["devices"] // rows]}]))
    cluster = {**case.cluster, "links": links}
    if "network" in cluster:
        cluster["network"] = {
            **cluster["network"],
            "topology": draw(st.sampled_from(["chain", kind])),
        }
    return Case(case.network, cluster, keys)


VOCABULARY_PARALLEL: Table = {"type": "softmax", "vocabulary_parallel": True}
SEQUENCE_SCHEDULES = ["sync", "gpipe", "1f1b-as", "1f1b-so", "pipedream", "2bw", "fpdeep"]


@st.composite
def sequences(draw: st.DrawFn) -> Case:
    """A run of one chain on a network with recurrent layers."""
    keys = {**chain_keys(draw, SEQUENCE_SCHEDULES), "micro_batch": draw(st.integers(1, 3))}
    cluster = draw(clusters())
    for board in cluster["boards"]:
        if draw(st.booleans()):
            board["activation_cycles"] = draw(st.integers(1, 400))
    return Case(draw(sequence_networks()), cluster, keys)


@st.composite
def attention_chains(draw: st.DrawFn) -> Case:
    """A run of one chain on a transformer of a few layers."""
    keys = chain_keys(draw, ["sync", "gpipe", "fpdeep"])
    keys["rows_at_once"] = draw(st.sampled_from([1, 2, 3, 64]))
    return Case(draw(attention_networks()), draw(clusters()), keys)


@st.composite
def narrow_attention_chains(draw: st.DrawFn) -> Case:
    """The same in any formats, its data on chip; maybe with tied weights."""
    case = draw(st.one_of(attention_chains(), tied_chains()))
    hypothesis.assume(not {layer["type"] for layer in case.network["layers"]} & {"gru"})
    network, cluster, keys = case
    for board in cluster["boards"]:
        board.pop("off_chip_gbytes_per_s", None)
    names = st.sampled_from([name for name in FORMATS if name != "int32"])
    kinds = draw(st.sets(st.sampled_from(["activations", "weights", "errors", "master"])))
    words = [draw(names), *(f"{kind}={draw(names)}" for kind in sorted(kinds))]
    return Case(network, cluster, {**keys, "precision": " ".join(words)})


@st.composite
def vocabulary_chains(draw: st.DrawFn) -> Case:
    """A run whose classifier's slices compute their own parts of the loss: each token's, or one of
    a sample.
    """
    case = draw(st.one_of(attention_chains(), chains(), replicas(), tied_chains()))
    *operations, _ = case.network["layers"]
    if operations[-1]["type"] not in ("conv", "fc") or draw(st.booleans()):
        operations.append(
            {
                "type": "fc",
                "name": "logits",
                "features": draw(st.integers(2, 40) | st.integers(40, 900)),
            }
        )
    operations[-1] = {**operations[-1], "bias": draw(st.booleans())}
    return case._replace(network={**case.network, "layers": [*operations, VOCABULARY_PARALLEL]})


@st.composite
def tied_chains(draw: st.DrawFn) -> Case:
    """A run of an embedding, layers behind it, and a head with its weights; maybe of several
    chains.
    """
    features, symbols, steps = (
        draw(st.integers(1, 40)),
        draw(st.integers(1, 40)),
        draw(st.integers(1, 5)),
    )
    between: list[Table] = [
        draw(
            st.sampled_from(
                [{"type": "conv", "channels": 7, "kernel": 1}, {"type": "gru", "units": 5}]
            )
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    layers = [{"type": "embedding", "features": features, "name": "table"}]
    kinds = ["positions", *(["sinusoids"] if features % 2 == 0 else [])]
    layers.append({"type": draw(st.sampled_from(kinds))})
    layers += [{"name": f"o{number}", **operation} for number, operation in enumerate(between)]
    layers.append({"type": "conv", "channels": features, "kernel": 1})
    heads, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    if draw(st.booleans()):
        layers[-1]["channels"] = 3 * heads * size
        layers += [
            {"type": "attention", "heads": heads, "causal": draw(st.booleans())},
            {"type": "conv", "channels": features, "kernel": 1},
        ]
    layers.append(
        {
            "type": "conv",
            "channels": symbols,
            "kernel": 1,
            "tied": "table",
            "bias": draw(st.booleans()),
        }
    )
    looks_back = any(layer["type"] in ("gru", "attention") for layer in layers)
    layers += [{"type": "softmax"}] if looks_back else [{"type": "last-step"}, {"type": "softmax"}]
    keys = chain_keys(draw, ["sync", "gpipe", "fpdeep", "2bw"])
    if keys["schedule"] in ("sync", "gpipe") and draw(st.booleans()):
        keys["clip_norm"] = 1.0
    return Case(
        {"name": "drawn", "input": [symbols, steps, 1], "layers": layers}, draw(clusters()), keys
    )
