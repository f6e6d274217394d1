"""Chains of tests of RTL: networks, clusters, and mini-batches on the Verilated devices of their
plan.
"""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import emuchain
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.rtl import (
    MINI_BATCHES,
    Rtl,
    RtlResult,
    build_models,
    drawn_images,
    find_tools,
    lint,
    simulate_rtl,
    sources,
)
from emuchain.emulator.run import trained_mini_batches

RELU, SOFTMAX = {"type": "relu"}, {"type": "softmax"}


def conv(channels: int, kernel: int | Sequence[int] = 3, **keys: Any) -> dict[str, Any]:
    """A convolution."""
    return {"type": "conv", "channels": channels, "kernel": kernel, **keys}


def pool(kernel: int, **keys: Any) -> dict[str, Any]:
    """A max pool."""
    return {"type": "max-pool", "kernel": kernel, **keys}


def fc(features: int) -> dict[str, Any]:
    """A fully connected layer."""
    return {"type": "fc", "features": features}


def network(size: Sequence[int], *layers: dict[str, Any]) -> dict[str, Any]:
    """A network on images of (channels, rows, columns)."""
    return {"name": "drawn", "input": list(size), "layers": [*layers, SOFTMAX]}


def cluster(dsp: int, gbps: float = 8, latency_ns: int = 100, mhz: int = 200) -> dict[str, Any]:
    """A cluster of boards with `dsp` multipliers each."""
    board = {"name": "small", "clock_mhz": mhz, "dsp": dsp, "on_chip_memory_kbit": 52_920}
    return {
        "name": "small",
        "boards": [board],
        "links": {"bandwidth_gbps": gbps, "latency_ns": latency_ns},
    }


TWO_LAYERS = network([3, 4, 4], conv(16, 1), RELU, conv(4, 2), RELU, fc(3))
"""Its second convolution has 16 input channels, so it is cut by them."""

QUICK = network(
    [3, 16, 16],
    *(conv(8, pad=1), RELU, pool(2)),
    *(conv(16, pad=1), RELU, pool(2)),
    *(conv(32, pad=1), RELU, pool(2)),
    *(fc(32), RELU, fc(10)),
)
"""quick-cifar with a quarter of its channels, on images of half the size."""


def plan(of: Any, boards: Any, devices: int, batch: int = 2, **settings: Any) -> ChainPlan:
    """The plan of mini-batches under `sync`."""
    sizes = {"batch": batch, "samples": MINI_BATCHES * batch, "micro_batch": batch}
    found = emuchain.plan(
        of, boards, devices=devices, schedule="sync", **{"learning_rate": 0.05, **sizes, **settings}
    )
    assert isinstance(found, ChainPlan)
    return found


@dataclasses.dataclass(frozen=True)
class Mutation:
    """What stands in a module, and what stands there instead."""

    module: str
    old: str
    new: str


def modules_beside(top: Path) -> list[Path]:
    """The modules that a device was written with, packages first."""
    return [top.parent / module.name for module in sources()]


def built(rtl: Rtl, folder: Path, mutation: Mutation | None = None) -> list[Path]:
    """Write, lint and build the RTL of a plan in a folder; a mutation is not linted."""
    tools, tops = find_tools(), rtl.write(folder / "rtl")
    if mutation is not None:
        path = folder / "rtl" / f"{mutation.module}.sv"
        text = path.read_text(encoding="utf-8")
        assert text.count(mutation.old) == 1, path
        path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    for top in tops if mutation is None else ():
        assert lint(tools, top, modules_beside(top)) == ""
    return build_models(rtl, tops, tools, folder / "models")


def simulated(
    of: ChainPlan, folder: Path, latency: int = 0, mutation: Mutation | None = None
) -> RtlResult:
    """Simulate the RTL of a plan, built in a folder, on drawn images."""
    rtl = Rtl.of(of, latency)
    libraries = built(rtl, folder, mutation)
    result = simulate_rtl(rtl, libraries, trained_mini_batches(of, drawn_images(of)))
    shutil.rmtree(folder / "models")
    return result
