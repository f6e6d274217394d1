"""Pages in Chromium: all charts are drawn, in light and dark, on phones and desktops, and nothing
is asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.view.page import Run, grouped, make_page, render

pytest.importorskip("jinja2", reason="jinja2, which renders pages, is not installed")

ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()
SCHEMES, WIDTHS = ("light", "dark"), (1280, 390)

MARKS = """
figure => {
    const svg = figure.querySelector(".plot svg");
    const drawn = svg ? [...svg.querySelectorAll("g:not([aria-label*='axis']):not([aria-label*='grid']) > *")] : [];
    const boxes = drawn.filter(mark => ["rect", "path", "circle"].includes(mark.tagName)).map(mark => mark.getBBox());
    const place = figure.getBoundingClientRect();
    const seen = element => { const box = element.getBoundingClientRect();
        return [element.textContent, box.left, box.right, box.top, box.bottom]; };
    return {
        kind: figure.dataset.kind,
        label: svg?.getAttribute("aria-label"),
        role: svg?.getAttribute("role"),
        marks: boxes.filter(box => box.width > 0 && box.height > 0).length,
        place: [place.left, place.right],
        texts: svg ? [...svg.querySelectorAll("text")].flatMap(text =>
            text.textContent ? [seen(text)] : []) : [],
        ticks: svg ? ["x", "y"].map(axis =>
            [...svg.querySelectorAll(`g[aria-label='${axis}-axis tick label'] text`)].map(seen)) : [],
    };
}
"""


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """Opens a page of some runs; in the end, fails where anything was said or asked for."""
    said: list[str] = []
    contexts = []

    def open_(runs: list[Run], scheme: str = "light", width: int = 1280) -> Any:
        file = tmp_path / "report.html"
        file.write_text(render(make_page(grouped(runs))), encoding="utf-8")
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "request",
            lambda request: said.append(request.url) if request.url != file.as_uri() else None,
        )
        page.goto(file.as_uri())
        page.evaluate(
            "document.querySelectorAll('details').forEach(details => details.open = true)"
        )
        settle(page)
        return page

    yield open_
    for context in contexts:
        context.close()
    # The empty icon is within the page.
    assert [line for line in said if line != "data:,"] == []


def settle(page: Any) -> None:
    """Wait until every figure is drawn as wide as it is."""
    page.wait_for_function(
        """() => [...document.querySelectorAll("figure[data-kind]")].every(figure =>
            figure.querySelector(".failed") || Number(figure.querySelector(".plot svg")?.getAttribute("width")) ===
                Math.floor(figure.getBoundingClientRect().width))""",
        timeout=20_000,
    )


def check(page: Any, width: int) -> list[dict[str, Any]]:
    """Check all charts of a page, and that it does not scroll sideways; return what was drawn."""
    figures = [
        page.evaluate(MARKS, figure) for figure in page.query_selector_all("figure[data-kind]")
    ]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for figure in figures:
        assert figure["marks"] > 0, figure["kind"]
        assert figure["role"] == "img" and figure["label"]
        for text, left, right, _, _ in figure["texts"]:
            assert left >= -1 and right <= width + 1, (figure["kind"], text)
        assert any(figure["ticks"])
        for ticks, (begin, end) in zip(figure["ticks"], ((1, 2), (3, 4)), strict=True):
            inside = sorted(ticks, key=lambda tick: tick[begin])
            for before, behind in itertools.pairwise(inside):
                assert before[end] <= behind[begin] + 1, (figure["kind"], before[0], behind[0])
    return figures


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_charts_are_drawn(
    opened: Opened, chain: Run, replicas: Run, scheme: str, width: int
) -> None:
    figures = check(opened([replicas, chain], scheme, width), width)
    assert {figure["kind"] for figure in figures} == {
        *("curves", "roofs", "heat", "demand", "memory", "histogram", "widths", "gantt"),
    }
    heat = next(figure for figure in figures if figure["kind"] == "heat")
    assert heat["marks"] >= 2 * 6  # two devices: FP, EB, PG, idle and two links
    gantt = [figure for figure in figures if figure["kind"] == "gantt"]
    bars = [len(section.charts[0].data["bars"][0]) for run in make_page(grouped([replicas, chain])).runs
            for section in run.sections if section.title.startswith("Timeline")]  # fmt: skip
    assert [figure["marks"] for figure in gantt] == bars


def test_light_and_dark_differ_and_can_be_read(opened: Opened, chain: Run) -> None:
    rgb = "text => text.match(/\\d+/g).map(Number)"
    inks = []
    for scheme in SCHEMES:
        page = opened([chain], scheme)
        ink, ground, tick = (
            sum(
                page.evaluate(
                    f"({rgb})(getComputedStyle(document.querySelector({place!r})).{name})"
                )
            )
            for place, name in (
                ("body", "color"),
                ("body", "backgroundColor"),
                (".plot svg text", "fill"),
            )
        )
        assert abs(ink - ground) > 500
        assert abs(tick - ground) > 500
        inks.append(ink)
    assert inks[0] != inks[1]


def test_charts_follow_the_width(opened: Opened, chain: Run) -> None:
    page = opened([chain])
    page.set_viewport_size({"width": 390, "height": 800})
    settle(page)
    check(page, 390)


@pytest.mark.parametrize("width", WIDTHS)
def test_many_runs_and_many_devices(
    opened: Opened, chain: Run, plan_of: Callable[..., Any], width: int
) -> None:
    """Twelve runs, of which one has thirty devices and another has finished no epoch."""
    from emuchain.emulator.run import results_of

    none = dataclasses.replace(chain.results, history={}, devices={}, links={}, weights={})
    wide = results_of(
        plan_of(network="vgg16-cifar", devices=30, samples=64), 64, [], {}, chain.results.versions
    )
    runs = [
        Run.of(f"a run with a rather long name {number}", chain.results) for number in range(10)
    ]
    check(opened([*runs, Run.of("none", none), Run.of("wide", wide)], width=width), width)


@pytest.mark.parametrize("width", [1400, 800])
def test_no_run_is_clipped(
    opened: Opened, chain: Run, replicas: Run, seeds: list[Run], width: int
) -> None:
    """The tables that compare runs fit beside one another, with long names, seeds, and many keys
    that differ.
    """
    long = {
        "schedule": "sync",
        "batch": 16,
        "network": "folder/of/networks/with-a-long-name.toml",
        "epochs": 3,
    }
    config = {
        **chain.results.config,
        **long,
        "learning_rate": 0.003,
        "optimizer": "adam",
        "cluster": "vc709-10g",
    }
    other = dataclasses.replace(chain.results, config=config)
    runs = [Run.of(f"a-run-with-a-rather-long-name-{number}", chain.results) for number in range(8)]
    page = opened([*runs, *seeds, replicas, Run.of("other", other)], width=width)
    tables = page.query_selector_all(".scroll:has(.fitted)")
    assert [table.get_attribute("aria-label") for table in tables] == ["The runs", "What differs"]
    for table in tables:
        assert table.evaluate("table => table.scrollWidth <= table.clientWidth")
    assert page.query_selector_all(".below td")[0].inner_text() == "seed 1"


@pytest.mark.parametrize("epochs", [1, 3, 60])
def test_bands_of_seeds(opened: Opened, chain: Run, seeds: list[Run], epochs: int) -> None:
    numbers, longer = np.arange(1, epochs + 1), []
    for run in seeds:
        history = {name: np.resize(column, epochs) for name, column in run.results.history.items()}
        history |= {"epoch": numbers, "virtual_time_ps": numbers * 10**10}
        longer.append(Run.of(run.name, dataclasses.replace(run.results, history=history)))
    page = opened([*longer, chain])
    check(page, 1280)
    [curve, _] = page.query_selector_all("figure[data-kind=curves]")[0].query_selector_all(
        "[aria-label=line]"
    )[:2]
    assert curve.get_attribute("stroke") == "var(--run-0, var(--other))"
    bands = page.query_selector_all("figure[data-kind=curves] [aria-label=area]")
    assert len(bands) == 4
    if epochs > 1:
        box = bands[0].bounding_box()
        assert box["height"] > 20 and box["width"] > 100


def test_log_axes_and_terms(opened: Opened, replicas: Run) -> None:
    page = opened([replicas])
    for kind in ("roofs", "histogram"):
        text = page.query_selector(f"figure[data-kind={kind}] .plot svg").text_content()
        assert "log scale" in text
    text = page.inner_text("main")
    assert text.count("forward propagation") == text.count("back-propagation") == 1


@pytest.mark.parametrize("epochs", [1, 200])
def test_one_epoch_and_many(opened: Opened, replicas: Run, epochs: int) -> None:
    history, exchange = (
        {name: np.resize(column, (epochs, *column.shape[1:])) for name, column in table.items()}
        for table in (replicas.results.history, replicas.results.exchange)
    )
    numbers = np.arange(1, epochs + 1)
    history |= {"epoch": numbers, "virtual_time_ps": numbers * 10**11}
    results = dataclasses.replace(
        replicas.results, history=history, exchange={**exchange, "epoch": numbers}
    )
    for width in WIDTHS:
        check(opened([Run.of("run", results)], width=width), width)
