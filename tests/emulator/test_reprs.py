"""What objects say of themselves: one line that answers, and a small table for notebooks."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import format_bytes, format_time_ps, html_table

from .counted import COUNTED


def cells(html: str) -> dict[str, list[str]]:
    """The rows of a table, by their first cells; it is well-formed."""
    rows = ElementTree.fromstring(html).findall("tr")
    texts = [["".join(cell.itertext()) for cell in row] for row in rows]
    return {first: others for first, *others in texts}


def test_a_table() -> None:
    html = html_table("a < b", [["x & y", "1"], ["z", "<2>"]], ["name", "value"])
    assert ElementTree.fromstring(html).findtext("caption") == "a < b"
    assert cells(html) == {"name": ["value"], "x & y": ["1"], "z": ["<2>"]}


@pytest.fixture(scope="module")
def plan() -> emuchain.Plan:
    return emuchain.plan("vgg16-cifar", devices=15, samples=128, memory="ignored", changes=COUNTED)


def test_plan(plan: emuchain.Plan) -> None:
    found = cells(plan._repr_html_())
    assert found["rate"] == ["9491.3 images/s"]
    assert found["limited by"][0].startswith("FP of conv2_1[0:9] ICP on device 1, ")
    assert found["memory"] == [f"{format_bytes(plan.missing_bytes)} are missing"]
    stale = [late.stale_samples for late in plan.steady.staleness]
    assert found["use old weights"] == [f"{min(stale)} to {max(stale)} of 64 samples"]


def test_plan_of_replicas_that_drain() -> None:
    plan = emuchain.plan("quick-cifar", "vc709", devices=2, replicas=4, schedule="sync")
    assert f", at most {4e12 / plan.timing.interval_ps:.1f} images/s, limited by PG of " in repr(
        plan
    )
    keys: dict[str, Any] = {"schedule": "data-parallel-ring", "memory": "ignored"}
    slow = emuchain.plan("vgg16-cifar", "titan-xp-10gbe", devices=4, changes=COUNTED, **keys)
    assert ", limited by exchange of gradients on device 0" in repr(slow)
    found = cells(slow._repr_html_())
    assert found["limited by"][0].startswith("exchange of gradients on device 0, ")
    assert "use old weights" not in found


def test_plan_that_fits(plan: emuchain.Plan) -> None:
    small = emuchain.plan("quick-cifar", devices=2)
    assert "missing on chip" in repr(plan)
    assert "missing on chip" not in repr(small)
    assert cells(small._repr_html_())["memory"] == ["fits on chip"]
    assert cells(emuchain.plan("vgg16-cifar", devices=15)._repr_html_())["memory"][0].endswith(
        " off chip"
    )


def test_simulation_and_steady_state(plan: emuchain.Plan) -> None:
    simulation, state = emuchain.simulate(plan), emuchain.steady_state(plan)
    found = cells(simulation._repr_html_())
    assert found["virtual time"][0].endswith(f"({simulation.virtual_time_ps} ps)")
    assert found["rate, filling and draining included"] == [
        f"{simulation.images_per_s:.1f} images/s"
    ]
    assert found["busiest link"][0].endswith(" %")
    steady = cells(state._repr_html_())
    assert steady["rate"] == ["9491.3 images/s"]
    assert steady["limited by"][0].startswith("FP of conv2_1[0:9] ICP on device 1, ")
    assert steady["pipeline full after"] == [format_time_ps(state.fill_ps)]


def test_network_and_cluster(plan: emuchain.Plan) -> None:
    layers = cells(plan.network._repr_html_())
    assert [*layers] == ["layer", *(layer.name for layer in plan.network.layers), "all"]
    assert layers["all"][-2:] == ["313.7", "15.245"]
    cluster = cells(plan.cluster._repr_html_())
    assert cluster["boards"] == ["VC709"]
    assert cluster["links"] == ["150 Gb/s and 1.00 us"]
    assert cluster["between replicas"] == ["150 Gb/s and 1.00 us, chain"]


def test_results() -> None:
    keys: dict[str, Any] = {"samples": 32, "batch": 16, "epochs": 2, "devices": 2}
    results = emuchain.train("quick-cifar", test_samples=8, **keys)
    loss, accuracy = results.history["train_loss"][-1], results.test_accuracy
    time = format_time_ps(results.virtual_time_ps)
    assert (
        repr(results)
        == f"<Results of quick-cifar: 2 epochs in {time}, loss {loss:.4f}, test accuracy"
        f" {100 * accuracy:.1f} %>"
    )
    epochs = cells(results._repr_html_())
    assert [*epochs] == ["epoch", "1", "2"]
    assert epochs["2"] == [
        f"{loss:.4f}", f"{100 * results.history['train_accuracy'][-1]:.1f} %", f"{100 * accuracy:.1f} %", time,
    ]  # fmt: skip
    killed = dataclasses.replace(
        results, history={name: column[:1] for name, column in results.history.items()}
    )
    assert repr(killed).startswith("<Results of quick-cifar: 1 epoch in ")
    untested = {**results.history, "test_accuracy": np.full(2, np.nan)}
    assert repr(dataclasses.replace(results, history=untested)).endswith("test accuracy unknown>")
    assert (
        repr(dataclasses.replace(results, history={}))
        == "<Results of quick-cifar: no epoch finished>"
    )
    assert [*cells(dataclasses.replace(results, history={})._repr_html_())] == ["epoch"]


def test_retiming() -> None:
    results = emuchain.train(
        "quick-cifar", samples=32, batch=16, test_samples=8, devices=2, changes=COUNTED
    )
    slower = emuchain.retime(results, changes={"link.bandwidth_gbps": 0.001})
    found = cells(slower._repr_html_())
    assert found["virtual time"] == [
        format_time_ps(results.virtual_time_ps),
        format_time_ps(slower.virtual_time_ps),
    ]
    assert found["accuracy and loss"] == ["", "stay" if slower.same_staleness else "would differ"]
    assert found["limited by"][1].startswith("link ")
