"""Axes that can be read, and the picture of a steady state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.commands.design.simulate import run_simulation
from emuchain.emulator.common import InputError
from emuchain.emulator.run import SteadyState, steady_state
from emuchain.emulator.view import (
    draw_steady_state,
    log_ticks,
    picture_file,
    simulation,
    whole_ticks,
)

from ..counted import COUNTED

pytest.importorskip("matplotlib")
LIMITS = (0xD5 / 255, 0x5E / 255, 0, 1)


def seen(axis: Any) -> list[str]:
    """The labels of ticks within an axis."""
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label.get_text() for place, label in ticks if low <= place <= high and label.get_text()]


def axes_of(values: list[float], **scales: str) -> Any:
    """Axes with a line through values."""
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.plot(range(1, len(values) + 1), values)
    axes.set(**scales)
    return axes


@pytest.mark.parametrize(
    "values",
    [
        [1, 1e6],
        [2, 3],
        [90, 110],
        [0.011, 0.012],
        [3e-9, 2],
        [999, 1001],
        [5, 5],
        [150, 9000],
        [1.0, 30.0],
    ],
)
def test_logarithmic_axes_have_at_least_three_labels(values: list[float]) -> None:
    axes = axes_of(values, yscale="log")
    log_ticks(axes.yaxis)
    axes.figure.draw_without_rendering()
    labels = seen(axes.yaxis)
    assert len(set(labels)) >= 3, labels
    assert len(labels) <= 13


def test_numbers_of_ticks_are_plain() -> None:
    axes = axes_of([0.5, 2e5], yscale="log")
    log_ticks(axes.yaxis)
    axes.figure.draw_without_rendering()
    assert {"1", "10", "100", "1,000", "10,000", "100,000"} <= {*seen(axes.yaxis)}


@pytest.mark.parametrize("count", [2, 3, 5, 64])
def test_what_is_counted_has_whole_ticks(count: int) -> None:
    axes = axes_of([1.0] * count)
    whole_ticks(axes.xaxis)
    axes.figure.draw_without_rendering()
    assert all(float(label).is_integer() for label in seen(axes.xaxis))


def test_pictures_are_checked_before_the_work(tmp_path: Path) -> None:
    with picture_file(tmp_path / "x.PNG", "--plot"):
        pass
    for path, message in (
        (tmp_path / "x.abc", ".png"),
        (tmp_path / "no" / "x.png", "does not exist"),
        (tmp_path / "x", ".svg"),
    ):
        with pytest.raises(InputError, match=f"`--plot` .*{message}"):
            picture_file(path, "--plot")


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Draws a steady state and returns the axes."""

    def draw(state: SteadyState) -> list[Any]:
        kept: list[Any] = []
        monkeypatch.setattr(simulation, "save_figure", lambda figure, *_: kept.append(figure))
        draw_steady_state(state, "title", tmp_path / "x.png")
        kept[0].savefig(tmp_path / "x.png")
        return list(kept[0].axes)

    return draw


def limiting(axes: Any) -> list[Any]:
    """The bars that are drawn as the limit."""
    return [bar for bar in axes.patches if bar.get_facecolor() == LIMITS and bar.get_height()]


def test_an_engine_limits(plan_of: Any, drawn: Any) -> None:
    state = steady_state(plan_of(network="quick-cifar", devices=3))
    engines, links = drawn(state)
    [bar] = limiting(engines)
    assert bar.get_height() == pytest.approx(100)
    assert round(bar.get_x() + bar.get_width() / 2) == state.bottleneck.slowest.device  # type: ignore[union-attr]
    assert not limiting(links)
    assert sum(bool(bar.get_height()) for bar in links.patches) == 4


def test_a_link_limits(plan_of: Any, drawn: Any, tmp_path: Path) -> None:
    state = steady_state(
        plan_of(network="quick-cifar", devices=3, cluster="vc709-10g", changes=COUNTED)
    )
    engines, links = drawn(state)
    assert not limiting(engines)
    [bar] = limiting(links)
    assert bar.get_height() == pytest.approx(10, rel=0.01)
    assert seen(links.xaxis) == ["0", "1", "2"]


def test_simulate_draws(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    flags = {"network": "quick-cifar", "devices": 2, "samples": 64}
    draw = run_simulation(None, flags, (), 1000, full=False, trace={}).draw
    assert draw is not None
    with picture_file(path, "--plot") as file:
        assert file is not None
        draw(file)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_one_device(plan_of: Any, drawn: Any) -> None:
    [engines] = drawn(steady_state(plan_of(network="quick-cifar", devices=1)))
    assert len(limiting(engines)) == 1
