"""Random networks as plain dictionaries, with the keys of files."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Table = dict[str, Any]

CHANNELS = st.one_of(st.integers(1, 5), st.integers(16, 20))
"""Few input channels, which are cut by output channels, or enough to be cut themselves."""

SCALES: list[Table] = [{}, {"scale": False}, {"offset": 1.0}]
"""Keys of head-norm."""


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
        window = draw(windows(shape[1:], 2, dilated=True))
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
        *("group-norm", "global-response-norm"),
        "lrn",
        *("scale", "prelu", "shift", "affine"),
        *(["max-pool", "average-pool"] if min(shape[1:]) > 1 else []),
    ]
    kinds += ["upsample", "zeros", "adaptive-average-pool"] if max(shape[1:]) <= 4 else []
    scales = [n for n in (2, 3) if shape[0] % n**2 == 0 and max(shape[1:]) <= 4]
    squares = [n for n in (2, 3) if shape[1] % n == shape[2] % n == 0]
    kinds += ["shuffle"] + ["pixel-shuffle"] * bool(scales) + ["pixel-unshuffle"] * bool(squares)
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
    if kind == "pixel-shuffle":
        by = draw(st.sampled_from(scales))
        return add(kind, last, [shape[0] // by**2, by * shape[1], by * shape[2]], scale=by)
    if kind == "pixel-unshuffle":
        by = draw(st.sampled_from(squares))
        return add(kind, last, [shape[0] * by**2, shape[1] // by, shape[2] // by], scale=by)
    if kind == "zeros":
        scale = [draw(st.integers(1, 2)) for _ in range(2)]
        sides = {side: draw(st.integers(0, 2)) for side in ("above", "left", "below", "right")}
        around = sides["above"] + sides["below"], sides["left"] + sides["right"]
        larger = [
            (size - 1) * by + 1 + more
            for size, by, more in zip(shape[1:], scale, around, strict=True)
        ]
        return add(kind, last, [shape[0], *larger], scale=scale, **sides)
    if kind == "adaptive-average-pool":
        size = [draw(st.integers(1, 6)) for _ in range(2)]
        return add(kind, last, [shape[0], *size], size=size)
    if kind == "global-average-pool":
        return add(kind, last, [shape[0], 1, 1])
    if kind == "prelu":
        return add(kind, last, shape, shared=draw(st.booleans()) and shape[0] > 1)
    if kind in ("group-norm", "shuffle"):
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
def windows(
    draw: st.DrawFn, size: list[int], most_pad: int, *, dilated: bool = False
) -> dict[str, list[int]]:
    """A kernel that fits a map, with stride and padding; windows may overlap, leave gaps, and leave
    out the end, and be `dilated`.
    """
    if draw(st.booleans()):
        same = [3 if min(size) >= 2 else 1] * 2  # keeps the map's size, so that others can join it
        return {"kernel": same, "stride": [1, 1], "pad": [side // 2 for side in same]}
    kernel = [draw(st.integers(1, min(3, side))) for side in size]
    stride, gaps = [draw(st.integers(1, 3)) for _ in size], [1, 1]
    if dilated and draw(st.booleans()):
        most = [(side - 1) // max(1, k - 1) for side, k in zip(size, kernel, strict=True)]
        gaps = [draw(st.integers(1, max(1, min(3, count)))) for count in most]
    pad = [draw(st.integers(0, min(most_pad, side - 1))) for side in reach(kernel, gaps)]
    window = {"kernel": kernel, "stride": stride, "pad": pad}
    return window if gaps == [1, 1] else {**window, "dilation": gaps}


def reach(kernel: list[int], dilation: list[int]) -> list[int]:
    """The rows and columns that a kernel reaches over."""
    return [(side - 1) * by + 1 for side, by in zip(kernel, dilation, strict=True)]


def shrunk(
    size: list[int],
    kernel: list[int],
    stride: list[int],
    pad: list[int],
    dilation: list[int] | None = None,
) -> list[int]:
    """The rows and columns of what a window makes."""
    sides = zip(size, reach(kernel, dilation or [1, 1]), stride, pad, strict=True)
    return [(s + 2 * p - k) // t + 1 for s, k, t, p in sides]


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
def attention_networks(draw: st.DrawFn) -> Table:
    """Blocks of attention, each maybe with a norm, a GELU and a shortcut, on any number of tokens;
    or of layers over tokens, and then maybe without any attention.

    There are any number of heads, which may share keys and values.
    """
    width, tokens = draw(st.integers(1, 20)), draw(st.integers(1, 9))
    operations: list[Table] = [{"type": "conv", "channels": width, "kernel": 1, "name": "x"}]
    last, tabled = "x", dict[tuple[int, int, int], Table]()
    drawn_sizes = st.integers(1, 4), st.sampled_from([1, 1, 2, 3]), st.integers(1, 6)
    sizes = draw(st.tuples(*drawn_sizes))
    for n in range(draw(st.integers(1, 2))):
        sizes = sizes if draw(st.booleans()) else draw(st.tuples(*drawn_sizes))
        groups, sharing, size = sizes
        heads = {
            "heads": groups * sharing,
            **({"kv_heads": groups} if sharing > 1 or draw(st.booleans()) else {}),
        }
        if draw(st.booleans()):
            kind = draw(st.sampled_from(["layer-norm", "rms-norm", "gelu"]))
            operations.append({"type": kind, "name": f"n{n}"})
        block = draw(st.integers(0, 4))
        if block == 0:
            last, tokens = draw(mixed(operations, n, last, tokens))
            continue
        if block < 3:
            last, tokens = draw(crossed(operations, n, last, groups, size, width, tokens))
            continue
        operations += [
            {"type": "conv", "channels": groups * (sharing + 2) * size, "kernel": 1},
            *draw(
                st.sampled_from([[], *([{"type": "head-norm", **heads, **own}] for own in SCALES)])
            ),
            *([{"type": "rotary", **heads}] if size % 2 == 0 and draw(st.booleans()) else []),
        ]
        if draw(st.booleans()):  # a table of terms, maybe that of the block before
            operations[-1] |= {"name": f"q{n}"}
            if sizes not in tabled:
                tabled[sizes] = {"name": f"t{n}", "buckets": 2 * draw(st.integers(2, 9))}
                operations.append({"type": "score-table", **heads, **tabled[sizes]})
            table = tabled[sizes]
            operations.append({"type": "concat", "axis": "rows", "from": [table["name"], f"q{n}"]})
            heads = {**heads, "buckets": table["buckets"]}
        operations += [
            {"type": "attention", **heads, "causal": draw(st.booleans()), "name": f"a{n}"},
            *draw(
                st.sampled_from(
                    [[], [{"type": "gelu"}], [{"type": "dropout", "rate": 0.1}, {"type": "relu"}]]
                )
            ),
            {"type": "conv", "channels": width, "kernel": 1, "name": f"p{n}"},
            *(gate(draw(CHANNELS), width, n) if draw(st.booleans()) else []),
        ]
        if draw(st.booleans()):
            made = operations[-1]["name"]
            operations.append({"type": "add", "from": [made, last], "name": f"s{n}"})
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


def gate(half: int, width: int, number: int) -> list[Table]:
    """Return layers between which one half of channels is the factor of the other."""
    return [
        {"type": "conv", "channels": 2 * half, "kernel": 1, "name": f"g{number}"},
        {"type": "channels", "count": half, "name": f"h{number}"},
        {"type": "channels", "first": half, "count": half, "from": f"g{number}"},
        {"type": "silu", "name": f"i{number}"},
        {"type": "multiply", "from": [f"h{number}", f"i{number}"]},
        {"type": "conv", "channels": width, "kernel": 1, "name": f"d{number}"},
    ]


@st.composite
def mixed(
    draw: st.DrawFn, operations: list[Table], number: int, last: str, tokens: int
) -> tuple[str, int]:
    """Add layers over tokens; return their result and its rows."""
    made = draw(st.integers(1, 20))
    layers: list[Table] = [{"type": "conv", "channels": made, "kernel": 1}]
    if shortcut := draw(st.booleans()):
        layers += [{"type": "gelu"}, {"type": "conv", "channels": tokens, "kernel": 1}]
        made = tokens
    turns: list[Table] = [{"type": "transpose"}, {"type": "transpose", "name": f"t{number}"}]
    operations += [turns[0], *layers, turns[1]]
    if shortcut:
        operations.append({"type": "add", "from": [f"t{number}", last], "name": f"s{number}"})
    return str(operations[-1]["name"]), made


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
