"""What it takes to read and to plan a network grows with its layers, hardly with its channels or
heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import emuchain
from emuchain.emulator.network import load_network

from ..counting import lines_run

LOSS = [{"type": "fc", "features": 3}, {"type": "softmax"}]


def deep(count: int) -> dict[str, Any]:
    layers = [{"type": "conv", "channels": 4, "kernel": 1} for _ in range(count)]
    return {"name": "deep", "input": [3, 8, 8], "layers": [*layers, *LOSS]}


def side_by_side(count: int) -> dict[str, Any]:
    """Residual blocks, each with a tensor that waits."""
    layers: list[dict[str, Any]] = [{"type": "conv", "channels": 4, "kernel": 1, "name": "b0"}]
    for i in range(count):
        layers.append({"type": "conv", "channels": 4, "kernel": 1, "name": f"c{i}"})
        layers.append({"type": "add", "from": [f"b{i}", f"c{i}"], "name": f"b{i + 1}"})
    return {"name": "blocks", "input": [3, 8, 8], "layers": [*layers, *LOSS]}


def wide(count: int) -> dict[str, Any]:
    first = {"type": "conv", "channels": count, "kernel": 1}
    return {"name": "wide", "input": [3, 8, 8], "layers": [first, {"type": "relu"}, *LOSS]}


def heads(count: int) -> dict[str, Any]:
    convs = [{"type": "conv", "channels": channels, "kernel": 1} for channels in (3 * count, 8)]
    layers = [convs[0], {"type": "attention", "heads": count}, convs[1], {"type": "last-step"}]
    return {"name": "heads", "input": [8, 16, 1], "layers": [*layers, *LOSS]}


@pytest.mark.parametrize("network", [deep, side_by_side])
def test_four_times_the_layers_are_read_in_four_times_the_work(
    network: Callable[[int], dict[str, Any]],
) -> None:
    load_network(network(3))
    taken = [lines_run(lambda count=count: load_network(network(count))) for count in (100, 400)]  # type: ignore[misc]
    assert taken[1] < 4.2 * taken[0]


@pytest.mark.parametrize("kbit", [500, 100_000])
@pytest.mark.parametrize("network", [deep, side_by_side])
def test_four_times_the_layers_are_planned_in_four_times_the_work(
    network: Callable[[int], dict[str, Any]], kbit: int
) -> None:
    """With room on chip for all data, and for a part of them."""
    changes: dict[str, object] = {
        "board.on_chip_memory_kbit": kbit,
        "board.shell_bram": 0,
        "link.core_bram": 0,
    }

    def work(count: int) -> None:
        emuchain.plan(network(count), "u280", devices=4, samples=16, batch=16, changes=changes)

    work(3)
    taken = [lines_run(lambda count=count: work(count)) for count in (20, 80)]  # type: ignore[misc]
    assert taken[1] < 4.2 * taken[0]


@pytest.mark.parametrize("network", [wide, heads])
def test_channels_and_heads_hardly_add_to_the_work(
    network: Callable[[int], dict[str, Any]],
) -> None:
    def work(count: int) -> None:
        emuchain.plan(network(count), "u280", devices=3, samples=16, batch=16)

    work(100)
    taken = [lines_run(lambda count=count: work(count)) for count in (1000, 4000)]  # type: ignore[misc]
    assert taken[1] < 1.5 * taken[0]
