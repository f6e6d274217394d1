"""Random chains for tests of times: networks, clusters, and plans with data on other devices and
off chip.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import assume
from hypothesis import strategies as st

from emuchain.emulator.cluster import Cluster, load_cluster
from emuchain.emulator.common import InputError
from emuchain.emulator.config import load_config
from emuchain.emulator.mapping import BalancedParameters, OffChip, channel_bytes
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.plan import ChainPlan, find_steady, make_plan
from emuchain.emulator.schedule import dry_run
from emuchain.emulator.timing import Timing

CHANNELS = st.one_of(st.integers(1, 5), st.integers(16, 20))
"""Few input channels, which are cut by output channels, or enough to be cut themselves."""
PORTS = st.sampled_from([{}, *({"off_chip_gbytes_per_s": rate} for rate in (0.011, 0.1, 0.7, 5))])
Operations = list[dict[str, Any]]


class Run(NamedTuple):
    """A plan, and the samples of an epoch."""

    plan: ChainPlan
    samples: int


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Some convolutions, with shortcuts, branches and pools here and there, and fully connected
    layers.
    """
    channels, size = draw(CHANNELS), [draw(st.integers(3, 9)), draw(st.integers(3, 9))]
    operations: Operations = []
    shape, before = [channels, *size], "images"
    for n in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["conv", "conv", "shortcut", "branch"]))
        join = draw(st.sampled_from(["add", "concat"]))
        made = channels if (kind, join) == ("shortcut", "add") else draw(CHANNELS)
        window = draw(windows(size, 2))
        if kind == "conv":
            size = shrunk(size, **window)
        else:
            window = {"kernel": [3, 1], "stride": [1, 1], "pad": [1, 0]}
        operations.append(
            {"type": "conv", "name": f"c{n}", "from": before, "channels": made, **window}
        )
        if kind == "branch" or (kind == "shortcut" and draw(st.booleans())):
            far = "images" if size == shape[1:] and draw(st.booleans()) else before
            source = far if kind == "branch" else f"c{n}"
            operations.append(
                {"type": "conv", "name": f"d{n}", "from": source, "channels": made, "kernel": 1}
            )
        if kind != "conv":
            joined = [f"c{n}" if kind == "branch" else before, operations[-1]["name"]]
            operations.append({"type": join, "name": f"j{n}", "from": joined})
            if join == "concat":
                made += made if kind == "branch" else channels
        if draw(st.booleans()):
            operations.append({"type": "relu", "name": f"r{n}"})
        if min(size) > 1 and draw(st.booleans()):
            window = draw(windows(size, 1))
            operations.append({"type": "max-pool", "name": f"p{n}", **window})
            size = shrunk(size, **window)
        channels, before = made, operations[-1]["name"]
    operations += [
        {"type": "fc", "features": draw(CHANNELS)} for _ in range(draw(st.integers(1, 2)))
    ]
    return load_network({"name": "n", "input": shape, "layers": [*operations, {"type": "softmax"}]})


@st.composite
def windows(draw: st.DrawFn, size: Sequence[int], most_pad: int) -> dict[str, list[int]]:
    """A kernel that fits a map, with stride and padding; windows may overlap, leave gaps, and leave
    out the end.
    """
    kernel = [draw(st.integers(1, min(3, side))) for side in size]
    pad = [draw(st.integers(0, min(most_pad, side - 1))) for side in kernel]
    return {"kernel": kernel, "stride": [draw(st.integers(1, 3)) for _ in size], "pad": pad}


def shrunk(
    size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> list[int]:
    """The rows and columns of what a window makes."""
    return [(s + 2 * p - k) // t + 1 for s, k, t, p in zip(size, kernel, stride, pad, strict=True)]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Unlike boards and links; little or much on-chip memory, with or without a memory port that is
    known.
    """
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
    share = draw(st.sampled_from(["bytes", "paths"]))
    links = [
        {
            "bandwidth_gbps": draw(st.sampled_from([0.05, 0.3, 1, 7, 100])),
            "latency_ns": draw(st.integers(0, 3000)),
            "share": share,
        }
        for _ in range(draw(st.integers(1, 3)))
    ]
    return load_cluster({"name": "c", "boards": boards, "links": links})


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A network on a cluster, placed by the plan or at random, and some mini-batches; the last one
    may be short.
    """
    samples = draw(st.integers(1, 12))
    keys = {
        "devices": draw(st.integers(1, 6)),
        "samples": samples,
        "batch": draw(st.integers(1, 5)),
        "epochs": draw(st.integers(1, 2)),
        "schedule": draw(st.sampled_from(["sync", "gpipe", "fpdeep", "fpdeep"])),
    }
    try:
        plan = make_plan(
            load_config(None, keys), network=draw(networks()), cluster=draw(clusters())
        )
        if draw(st.booleans()):
            plan = draw(scattered(plan))
            dry_run(plan.schedule(samples), plan.timing.stores)
    except InputError:
        assume(False)
    return Run(plan, samples)


@st.composite
def scattered(draw: st.DrawFn, plan: ChainPlan) -> ChainPlan:
    """The plan with any weights stored on other devices, and any data off chip where the board has
    a port.
    """
    blocks: list[BalancedParameters] = []
    off_chip: list[tuple[OffChip, ...]] = []
    for device, slices in enumerate(plan.mapping.devices):
        port = plan.cluster.board(device).off_chip_gbytes_per_s
        held = [
            (draw(st.integers(0, part.channels)), draw(st.booleans())) if port else (0, False)
            for part in slices
        ]
        off_chip.append(tuple(OffChip(*each) for each in held))
        for part in [part for part in slices if part.layer.weights and not part.layer.frozen][
            : device * draw(st.integers(0, 2))
        ]:
            begin = draw(st.integers(part.begin, part.end - 1))
            end, store = draw(st.integers(begin + 1, part.end)), draw(st.integers(0, device - 1))
            size = (end - begin) * channel_bytes(part)
            blocks.append(BalancedParameters(part.layer, begin, end, device, store, size))
    timing = Timing.of(
        plan.mapping,
        plan.cluster,
        tuple(blocks),
        tuple(off_chip) if any(map(any, off_chip)) else (),
    )
    return dataclasses.replace(plan, timing=timing, steady=find_steady(timing, plan.batch))
