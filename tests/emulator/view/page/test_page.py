"""Pages as data: the answer, the sections and their numbers, for one run and for several."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.run import Results
from emuchain.emulator.view.page import Chart, Page, Run, Section, grouped, make_page

Trained = Callable[..., Results]

OF_A_PLAN = [
    "What limits the rate",
    "Utilisation",
    "Links",
    "Memory",
    "Weights",
    "Timeline of the first samples",
]


def section(page: Page, title: str) -> Section:
    """The section of a page's first run, or what is shared, with this title."""
    return next(each for each in (*page.shared, *page.runs[0].sections) if each.title == title)


def titles(page: Page) -> list[str]:
    return [each.title for each in page.runs[0].sections]


def figure(page: Page, name: str) -> Any:
    return next(each for each in page.runs[0].figures if each.name == name)


def changed(run: Run, name: str, **tables: Any) -> Run:
    """A run with other tables; an empty one where a value is None."""
    tables = {key: {} if value is None else value for key, value in tables.items()}
    return Run.of(name, dataclasses.replace(run.results, **tables))


def test_the_answer(chain: Run) -> None:
    page = make_page(grouped([chain]))
    accuracy = f"{100 * chain.results.test_accuracy:.1f} %"
    assert page.title == "quick-cifar on 3 \N{MULTIPLICATION SIGN} VC709"
    assert page.headline.startswith(
        f"{accuracy} test accuracy on shapes after 2 epochs of 64 images"
    )
    assert figure(page, "Test accuracy").value == accuracy
    assert figure(page, "Fits").value.startswith("yes")
    assert chain.steady is not None
    assert figure(page, "Limited by").value == chain.steady.bottleneck.slowest.name
    assert (
        figure(page, "Rate on the cluster").value
        == f"{128e12 / chain.results.virtual_time_ps:,.0f} images/s"
    )
    assert figure(page, "Old weights").value.endswith("of 32 samples")
    assert titles(page) == [*OF_A_PLAN, "Configuration and versions"]


def test_what_does_not_fit_is_said_first(trained_results: Trained) -> None:
    small = {
        "name": "small",
        "boards": [{"name": "b", "clock_mhz": 200, "dsp": 3000, "on_chip_memory_kbit": 1500}],
        "links": {"bandwidth_gbps": 150, "latency_ns": 1000},
    }
    run = Run.of("run", trained_results(cluster=small, devices=2))
    page = make_page(grouped([run]))
    assert run.plan is not None and not run.plan.fits
    assert figure(page, "Fits").is_warning
    assert figure(page, "Fits").value.startswith("no, memory ignored, ")
    assert "do not fit on chip" in section(page, "Memory").said
    missing = sum(device["missing"] for device in section(page, "Memory").charts[0].data["devices"])
    assert missing == run.plan.missing_bytes


def test_rates_of_roofs_and_links(chain: Run) -> None:
    page = make_page(grouped([chain]))
    assert chain.steady is not None and chain.plan is not None
    points = section(page, "What limits the rate").charts[0].data["points"]
    assert min(point["rate"] for point in points) == pytest.approx(chain.steady.images_per_s)
    slices = sum(len(held) for held in chain.plan.mapping.devices)
    # The first layer has no EB; each of two links has two directions.
    assert sorted({point["kind"] for point in points}) == ["EB", "FP", "PG", "link"]
    assert len(points) == 3 * slices - len(chain.plan.mapping.devices[0][:1]) + 4
    bars = section(page, "Links").charts[0].data["bars"]
    assert [(bar["name"], bar["bandwidth"]) for bar in bars[:2]] == [("0 → 1", 150), ("1 → 0", 150)]
    carried = bars[0]["bytes"] * 8 * chain.steady.images_per_s / 1e9
    assert bars[0]["demand"] == pytest.approx(carried)


def test_shares_of_the_heat_map(chain: Run) -> None:
    chart = section(make_page(grouped([chain])), "Utilisation").charts[0]
    shares = {(cell["device"], cell["of"]): cell["share"] for cell in chart.data["cells"]}
    assert shares[1, "FP"] == chain.results.devices["fp_busy"][1]
    assert shares[2, "link →"] is None
    assert shares[0, "link →"] == chain.results.links["utilisation"][0]
    busy = [
        shares[0, phase] for phase in ("FP", "EB", "PG")
    ]  # device 0 has no EB of its first layer
    assert 1 - max(busy) < shares[0, "idle"] < 1 - min(busy)


def test_gradients_and_codec(replicas: Run) -> None:
    found = section(make_page(grouped([replicas])), "Gradients and codec")
    histogram, widths = found.charts
    assert histogram.data["bound"] == -10
    first, last = histogram.data["curves"]
    counts = replicas.results.exchange["histogram"]
    assert (first["name"], last["name"]) == ("epoch 1", "epoch 2")
    both = counts[-1].sum(axis=0)
    assert sum(last["shares"]) == pytest.approx(1 - both[0] / both.sum())
    below = both[: 1 + 30].sum() / both.sum()  # zeros, and 2^-40 to 2^-11
    assert f"{100 * below:.1f} % are below" in found.said
    assert all(sum(epoch["values"]) > 0 and epoch["ratio"] > 1 for epoch in widths.data["epochs"])


def test_weights_where_there_are_no_gradients(chain: Run) -> None:
    [curve] = section(make_page(grouped([chain])), "Weights").charts[0].data["curves"]
    weights = np.concatenate(
        [arrays["weight"].ravel() for arrays in chain.results.weights.values()]
    )
    of_2_to_minus_5 = np.count_nonzero((np.abs(weights) >= 2.0**-5) & (np.abs(weights) < 2.0**-4))
    assert curve["shares"][40 - 5] == pytest.approx(of_2_to_minus_5 / weights.size)


def test_an_older_file_without_some_columns(replicas: Run) -> None:
    exchange = {
        name: column for name, column in replicas.results.exchange.items() if name != "histogram"
    }
    found = section(
        make_page(grouped([changed(replicas, "old", exchange=exchange)])), "Gradients and codec"
    )
    assert [chart.kind for chart in found.charts] == ["widths"]


def test_a_run_without_a_plan(chain: Run) -> None:
    page = make_page(grouped([changed(chain, "lost", descriptions=None)]))
    assert titles(page) == ["Utilisation", "Memory", "Weights", "Configuration and versions"]
    assert figure(page, "Plan").is_warning
    assert page.title == "quick-cifar on 3 devices (vc709)"


def test_a_run_that_was_ended(chain: Run) -> None:
    ten = changed(chain, "ended", config={**chain.results.config, "epochs": 10})
    assert "after 2 of 10 epochs" in make_page(grouped([ten])).headline
    none = changed(chain, "none", history=None, devices=None, links=None, weights=None)
    page = make_page(grouped([none]))
    assert page.headline == "No epoch was finished."
    assert not page.shared
    assert titles(page) == [
        title for title in OF_A_PLAN if title not in ("Utilisation", "Weights")
    ] + ["Configuration and versions"]


def test_no_test_images(chain: Run) -> None:
    history = {
        **chain.results.history,
        "test_accuracy": np.array([np.nan] * 2),
        "test_loss": np.array([np.nan] * 2),
    }
    page = make_page(grouped([changed(chain, "untested", history=history)]))
    assert "no test images" in page.headline
    curves: list[Chart] = list(page.shared[0].charts)
    assert [curve["y"] for curve in curves[0].data["curves"] if curve["kind"] == "test"] == [
        [None, None]
    ]


def test_several_runs(chain: Run, replicas: Run) -> None:
    better = {**chain.results.history, "test_accuracy": np.array([0.25, 0.75])}
    worse = {**replicas.results.history, "test_accuracy": np.array([0.125, 0.25])}
    runs = [changed(chain, "a", history=better), changed(replicas, "b", history=worse)]
    page = make_page(grouped(runs))
    assert page.title == "2 runs of quick-cifar"
    assert page.headline.startswith("a has the highest test accuracy, 75.0 %; ")
    table, settings = page.comparison
    first, second = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    of_first, of_second = (dict(zip(settings.columns, row, strict=True)) for row in settings.rows)
    assert (of_first["devices"], of_second["devices"]) == ("3", "2")
    assert (of_first["compress"], of_second["compress"]) == ("none", "inceptionn:-10")
    assert "seed" not in settings.columns and "out" not in settings.columns
    times = [run.results.history["virtual_time_ps"] for run in runs]
    assert first["time to 25.0 %"] == f"{times[0][0] / 1e9:.3g} ms"  # after its first epoch
    assert second["time to 25.0 %"] == second["virtual time"]
    assert [curve["run"] for curve in page.shared[0].charts[0].data["curves"]] == ["a", "b"]
