"""Random cases as plain dictionaries, with the keys of files: a network, a cluster, and the keys of
a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import hypothesis
from hypothesis import strategies as st

from .described import FORMATS, OPENS

Table = dict[str, Any]

CHANNELS = st.one_of(st.integers(1, 5), st.integers(16, 20))
"""Few input channels, which are cut by output channels, or enough to be cut themselves."""
PORTS = st.sampled_from([{}, *({"off_chip_gbytes_per_s": rate} for rate in (0.011, 0.1, 0.7, 5))])


class Case(NamedTuple):
    """What a run is given."""

    network: Table
    cluster: Table
    keys: Table


@st.composite
def networks(draw: st.DrawFn) -> Table:
    """Layers with units of the SFU behind them; maps of one shape, whichever they are, may be
    joined later on.
    """
    shape = [draw(CHANNELS), draw(st.integers(3, 9)), draw(st.integers(3, 9))]
    operations: list[Table] = []
    maps = {"images": shape}

    def add(kind: str, source: str | list[str], made: list[int], **more: Any) -> str:
        name = f"{kind}{len(operations)}"
        operations.append({"type": kind, "name": name, "from": source, **more})
        maps[name] = made
        return name

    last = "images"
    for _ in range(draw(st.integers(1, 4))):
        shape = maps[last]
        window = draw(windows(shape[1:], 2))
        channels = draw(CHANNELS | st.just(shape[0]))
        last = add("conv", last, [channels, *shrunk(shape[1:], **window)], **window)
        groups = st.sampled_from(
            [n for n in range(1, channels + 1) if channels % n == shape[0] % n == 0]
        )
        operations[-1] |= {"channels": channels, "groups": draw(groups)}
        for _ in range(draw(st.integers(0, 2))):
            last = draw(units(last, maps, add))
        if draw(st.integers(0, 3)) == 0:  # squeeze and excitation
            whole, made = last, maps[last]
            pooled = add("global-average-pool", last, [made[0], 1, 1])
            gate = add("conv", pooled, [made[0], 1, 1], channels=made[0], kernel=[1, 1])
            last = add("multiply", draw(st.permutations([whole, gate])), made)
        if draw(st.integers(0, 3)) == 0:  # a side branch from any map that there is
            side = draw(st.sampled_from(sorted(maps)))
            if pooled := min(maps[side][1:]) > 1 and draw(st.booleans()):
                window = draw(windows(maps[side][1:], 1))
                side = add(
                    "max-pool", side, [maps[side][0], *shrunk(maps[side][1:], **window)], **window
                )
            window = draw(windows(maps[side][1:], 2))
            made = [maps[last][0], *shrunk(maps[side][1:], **window)]
            if made[1:] != maps[last][1:] and pooled:
                del maps[operations.pop()["name"]]
            elif made[1:] == maps[last][1:]:
                other = add("conv", side, made, channels=made[0], **window)
                last = add(draw(st.sampled_from(["add", "concat"])), [last, other], made)
                if operations[-1]["type"] == "concat":
                    maps[last] = [2 * made[0], *made[1:]]
    for _ in range(draw(st.integers(1, 2))):
        last = add("fc", last, [draw(CHANNELS), 1, 1])
        operations[-1]["features"] = maps[last][0]
        if draw(st.booleans()):
            last = draw(units(last, maps, add))
    used = {
        name
        for each in operations
        for name in ([each["from"]] if isinstance(each["from"], str) else each["from"])
    }
    assert set(maps) - used - {"images"} == {last}
    return {"name": "drawn", "input": maps["images"], "layers": [*operations, {"type": "softmax"}]}


@st.composite
def units(draw: st.DrawFn, last: str, maps: dict[str, list[int]], add: Any) -> str:
    """A unit of the SFU on the last map; joins take others, too: shortcuts past any number of
    layers.
    """
    shape = maps[last]
    alike = sorted(name for name in maps if maps[name] == shape and name != last)
    wide = sorted(name for name in maps if maps[name][1:] == shape[1:] and name != last)
    kinds = [
        "relu",
        "batch-norm",
        "group-norm",
        "lrn",
        *("scale", "shift", "affine"),
        *(["max-pool", "average-pool"] if min(shape[1:]) > 1 else []),
    ]
    kinds += ["upsample", "zeros"] if max(shape[1:]) <= 4 else []
    kinds += 3 * (["add"] if alike else []) + (["concat"] if wide else [])
    kinds += ["multiply"] if alike else []
    kind = draw(
        st.sampled_from([*kinds, "global-average-pool"] if draw(st.integers(0, 5)) == 0 else kinds)
    )
    if kind in ("add", "multiply"):
        return add(kind, [last, draw(st.sampled_from(alike))], shape)
    if kind == "concat":
        others = draw(st.lists(st.sampled_from(wide), min_size=1, max_size=2, unique=True))
        return add(
            kind, [*others, last], [sum(maps[name][0] for name in [*others, last]), *shape[1:]]
        )
    if kind == "upsample":
        scale = [draw(st.integers(1, 3)) for _ in range(2)]
        larger = [side * by for side, by in zip(shape[1:], scale, strict=True)]
        mode = draw(st.sampled_from(["nearest", "bilinear"]))
        return add(kind, last, [shape[0], *larger], scale=scale, mode=mode)
    if kind == "zeros":
        scale = [draw(st.integers(1, 2)) for _ in range(2)]
        sides = {side: draw(st.integers(0, 2)) for side in ("above", "left", "below", "right")}
        around = sides["above"] + sides["below"], sides["left"] + sides["right"]
        larger = [
            (size - 1) * by + 1 + more
            for size, by, more in zip(shape[1:], scale, around, strict=True)
        ]
        return add(kind, last, [shape[0], *larger], scale=scale, **sides)
    if kind == "global-average-pool":
        return add(kind, last, [shape[0], 1, 1])
    if kind == "group-norm":
        groups = [count for count in range(1, shape[0] + 1) if shape[0] % count == 0]
        return add(kind, last, shape, groups=draw(st.sampled_from(groups)))
    if kind.endswith("pool"):
        window = draw(windows(shape[1:], 1))
        sides = [*zip(shape[1:], window["kernel"], window["stride"], window["pad"], strict=True)]
        ceil, made = draw(st.booleans()), shrunk(shape[1:], **window)
        if ceil:  # one more window where values are left, and it begins among them
            made = [
                count + ((size + 2 * pad - kernel) % step > 0 and count * step < size + pad)
                for count, (size, kernel, step, pad) in zip(made, sides, strict=True)
            ]
        return add(kind, last, [shape[0], *made], ceil=ceil, **window)
    return add(kind, last, shape)


@st.composite
def windows(draw: st.DrawFn, size: list[int], most_pad: int) -> dict[str, list[int]]:
    """A kernel that fits a map, with stride and padding; windows may overlap, leave gaps, and leave
    out the end.
    """
    if draw(st.booleans()):
        same = [3 if min(size) >= 2 else 1] * 2  # keeps the map's size, so that others can join it
        return {"kernel": same, "stride": [1, 1], "pad": [side // 2 for side in same]}
    kernel = [draw(st.integers(1, min(3, side))) for side in size]
    pad = [draw(st.integers(0, min(most_pad, side - 1))) for side in kernel]
    return {"kernel": kernel, "stride": [draw(st.integers(1, 3)) for _ in size], "pad": pad}


def shrunk(size: list[int], kernel: list[int], stride: list[int], pad: list[int]) -> list[int]:
    """The rows and columns of what a window makes."""
    return [(s + 2 * p - k) // t + 1 for s, k, t, p in zip(size, kernel, stride, pad, strict=True)]


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
def sequence_networks(draw: st.DrawFn) -> Table:
    """Recurrent layers behind images' rows, convolutions, an embedding or nothing, and what makes
    results of them.
    """
    sizes, operations = st.integers(1, 9), list[Table]()
    entry = draw(st.sampled_from(["sequence", "rows", "convolution", "embedding"]))
    shape = [
        draw(sizes),
        draw(st.integers(2, 7)),
        1 if entry in ("sequence", "embedding") else draw(sizes),
    ]
    if entry == "embedding":
        operations.append({"type": "embedding", "features": draw(sizes)})
    elif entry != "sequence":
        if entry == "convolution":
            window = draw(windows(shape[1:], 2))
            operations += [{"type": "conv", "channels": draw(CHANNELS), **window}, {"type": "relu"}]
            size = shrunk(shape[1:], **window)
            if min(size) > 1 and draw(st.booleans()):
                operations.append({"type": "max-pool", **draw(windows(size, 1))})
        operations.append({"type": "sequence"})
    for _ in range(draw(st.integers(1, 3))):
        operations.append(draw(recurrent_layers()))
        if draw(st.integers(0, 4)) == 0:
            operations.append({"type": "conv", "channels": draw(CHANNELS), "kernel": 1})
            operations += draw(st.sampled_from([[], [{"type": "relu"}], [{"type": "batch-norm"}]]))
    end = draw(st.sampled_from(["last step", "each step", "all steps", "states"]))
    if end == "last step":
        operations += [{"type": "last-step"}, {"type": "fc", "features": draw(CHANNELS)}]
    elif end == "each step":
        operations.append({"type": "conv", "channels": draw(CHANNELS), "kernel": 1})
    elif end == "all steps":
        operations.append({"type": "fc", "features": draw(CHANNELS)})
    named = [{"name": f"o{number}", **operation} for number, operation in enumerate(operations)]
    return {"name": "drawn", "input": shape, "layers": [*named, {"type": "softmax"}]}


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
def attention_networks(draw: st.DrawFn) -> Table:
    """Blocks of attention, each maybe with a norm, a GELU and a shortcut, on any number of tokens.

    There are any number of heads, which may share keys and values.
    """
    width, tokens = draw(st.integers(1, 20)), draw(st.integers(1, 9))
    operations: list[Table] = [{"type": "conv", "channels": width, "kernel": 1, "name": "x"}]
    last = "x"
    for n in range(draw(st.integers(1, 2))):
        groups, sharing, size = (
            draw(st.integers(1, 4)),
            draw(st.sampled_from([1, 1, 2, 3])),
            draw(st.integers(1, 6)),
        )
        heads = {
            "heads": groups * sharing,
            **({"kv_heads": groups} if sharing > 1 or draw(st.booleans()) else {}),
        }
        if draw(st.booleans()):
            kind = draw(st.sampled_from(["layer-norm", "rms-norm", "gelu"]))
            operations.append({"type": kind, "name": f"n{n}"})
        if draw(st.integers(0, 2)) == 0:
            last, tokens = draw(crossed(operations, n, last, groups, size, width, tokens))
            continue
        operations += [
            {"type": "conv", "channels": groups * (sharing + 2) * size, "kernel": 1},
            *([{"type": "head-norm", **heads}] if draw(st.booleans()) else []),
            *([{"type": "rotary", **heads}] if size % 2 == 0 and draw(st.booleans()) else []),
            {"type": "attention", **heads, "causal": draw(st.booleans()), "name": f"a{n}"},
            *draw(
                st.sampled_from(
                    [[], [{"type": "gelu"}], [{"type": "dropout", "rate": 0.1}, {"type": "relu"}]]
                )
            ),
            {"type": "conv", "channels": width, "kernel": 1, "name": f"p{n}"},
        ]
        if draw(st.booleans()):
            operations.append({"type": "add", "from": [f"p{n}", last], "name": f"s{n}"})
        last = str(operations[-1]["name"])
    end = draw(st.sampled_from(["each step", "all steps", "last-step", "first-step"]))
    if end == "each step":
        operations.append({"type": "conv", "channels": draw(CHANNELS), "kernel": 1})
    else:
        operations += [] if end == "all steps" else [{"type": end}]
        operations.append({"type": "fc", "features": draw(CHANNELS)})
    named = [{"name": f"o{number}", **operation} for number, operation in enumerate(operations)]
    return {
        "name": "drawn",
        "input": [draw(st.integers(1, 9)), tokens, 1],
        "layers": [*named, {"type": "softmax"}],
    }


@st.composite
def crossed(
    draw: st.DrawFn,
    operations: list[Table],
    number: int,
    last: str,
    heads: int,
    size: int,
    width: int,
    tokens: int,
) -> tuple[str, int]:
    """Add attention of some of a sequence's rows to some others; return its result and its rows."""
    own = f"q{number}", f"k{number}", f"v{number}"
    counts, sources = dict[str, int](), dict[str, str]()
    for part, taken in (("memory", last), ("queries", operations[-1]["name"])):
        counts[part], sources[part] = tokens, taken
        if draw(st.booleans()):
            counts[part] = draw(st.integers(1, tokens))
            sources[part] = f"{part}{number}"
            keys = {"count": counts[part], "first": draw(st.integers(0, tokens - counts[part]))}
            operations.append({"type": "rows", "from": taken, "name": sources[part], **keys})
    of_layers = dict(zip(own, (sources["queries"], *[sources["memory"]] * 2), strict=True))
    layer: Table = {"type": "conv", "channels": heads * size, "kernel": 1}
    operations += [
        {**layer, "name": name, "from": of_layers[name]} for name in draw(st.permutations(own))
    ]
    q, k, v = own
    heads_of: Table = {"heads": heads, "keys": counts["memory"]}
    operations += [
        {"type": "concat", "axis": "rows", "from": [k, v, q]},
        {"type": "attention", **heads_of, "name": f"a{number}"},
        {"type": "conv", "channels": width, "kernel": 1, "name": f"p{number}"},
    ]
    if draw(st.booleans()):
        whole = sources["queries"] if counts["queries"] < tokens else last
        operations.append({"type": "add", "from": [f"p{number}", whole], "name": f"s{number}"})
    return str(operations[-1]["name"]), counts["queries"]


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
    layers = [{"type": "embedding", "features": features, "name": "table"}, {"type": "positions"}]
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


@st.composite
def recurrent_layers(draw: st.DrawFn) -> Table:
    """An LSTM or a GRU, of any kind."""
    layer: Table = {
        "type": draw(st.sampled_from(["lstm", "gru"])),
        "units": draw(st.integers(1, 12)),
    }
    kind = draw(
        st.sampled_from(["plain", "plain", "plain", "bidirectional", "projection", "before"])
    )
    if kind == "bidirectional":
        layer["bidirectional"] = True
    if kind == "projection" and layer["type"] == "lstm":
        layer["projection"] = draw(st.integers(1, layer["units"]))
    if kind == "before" and layer["type"] == "gru":
        layer["reset"] = "before"
    return layer
