"""A sweep's picture: shapes by what limits, hollow where it does not fit, and ticks that can be
read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.studies.sweep import SweepResult, draw_sweep, picture

from .rows import line, result, row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

pytest.importorskip("matplotlib")
KINDS = ("engine", "link", "memory", "exchange")


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Draws a sweep and returns its axes, in place of writing only."""

    def draw(of: SweepResult) -> Axes:
        kept: list[Any] = []

        def save(figure: Any, path: Path, *_: Any, **__: Any) -> None:
            figure.savefig(path)
            kept.append(figure)

        monkeypatch.setattr(picture, "save_figure", save)
        draw_sweep(of, tmp_path / "x.png")
        assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
        return kept[0].axes[0]

    return draw


def marks(axes: Axes) -> set[tuple[str, int]]:
    """Shapes of marks of points, and how many there are of each."""
    return {
        (str(drawn.get_marker()), len(drawn.get_xdata()))  # type: ignore[arg-type]
        for drawn in axes.lines
        if drawn.get_marker() != "None" and drawn.get_markersize() == 4 and len(drawn.get_xdata())  # type: ignore[arg-type]
    }


def texts(axes: Axes) -> list[str]:
    """All texts in the picture."""
    legend = axes.get_legend()
    return [text.get_text() for text in (*axes.texts, *(legend.get_texts() if legend else ()))]


def labels(axis: Any) -> list[str]:
    """The labels of ticks that can be seen."""
    low, high = axis.get_view_interval()
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label.get_text() for place, label in ticks if low <= place <= high and label.get_text()]


def test_shapes_by_what_limits(drawn: Any) -> None:
    rows = [row(n, 10.0 * n, bottleneck_kind=KINDS[n // 2 % 4]) for n in range(2, 10)] + [
        row(10, None)
    ]
    axes = drawn(result(rows))
    assert marks(axes) == {("o", 2), ("s", 2), ("^", 2), ("D", 2)}
    assert {f"{kind} limits" for kind in KINDS} <= {*texts(axes)}
    assert axes.get_xlabel() == "boards"


def test_shapes_are_those_of_causes(drawn: Any) -> None:
    axes = drawn(result([row(n, 10.0, cause="link" if n > 2 else "draining") for n in range(1, 6)]))
    assert marks(axes) == {("v", 2), ("s", 3)}
    assert {"draining limits", "link limits"} <= {*texts(axes)}


def test_no_knee_where_the_least_is_the_best(drawn: Any) -> None:
    rows = [row(2, 100.0 / n, **{"link.latency_ns": n}) for n in (1, 2, 4, 8)]
    axes = drawn(result(rows, **{"link.latency_ns": (1, 2, 4, 8)}))
    assert not any("knee" in text for text in texts(axes))


def test_lines_that_coincide_are_one_with_both_names(drawn: Any) -> None:
    rows = [row(n, float(n * min(gbps, 20)), gbps=gbps) for gbps in (10, 20, 40) for n in (1, 2, 3)]
    axes = drawn(result(rows, gbps=(10, 20, 40)))
    assert {"gbps = 10", "gbps = 20, 40"} <= {*texts(axes)}
    lines = [line for line in axes.lines if line.get_linestyle() != "None"]
    assert [[*line.get_ydata()] for line in lines] == [[10, 20, 30], [20, 40, 60]]
    wide, narrow = (line.get_linewidth() for line in lines)
    assert wide > 2 * narrow > 0  # so that both show where they meet


def test_several_keys_of_lines_that_coincide(drawn: Any) -> None:
    kinds = [("sync", 8), ("fpdeep", 16)]
    rows = [row(n, 10.0 * n, schedule=name, batch=batch) for name, batch in kinds for n in (1, 2)]
    axes = drawn(result(rows, schedule=("sync", "fpdeep"), batch=(8, 16)))
    assert "schedule = sync, batch = 8 | schedule = fpdeep, batch = 16" in texts(axes)


def test_a_kind_that_is_new_has_a_shape_of_its_own(drawn: Any) -> None:
    axes = drawn(
        result([row(n, 1.0, bottleneck_kind="engine" if n < 2 else "cooling") for n in (1, 2)])
    )
    assert marks(axes) == {("o", 1), ("P", 1)}
    assert "cooling limits" in texts(axes)


def test_knee_and_memory_are_marked(drawn: Any) -> None:
    axes = drawn(result([row(n, 10.0 * min(n, 4), fits=n > 2) for n in range(1, 9)]))
    assert {"knee: 4", "all on chip from 3", "hollow: does not fit, memory ignored"} <= {
        *texts(axes)
    }
    whole = drawn(line([10, 20, 30]))
    assert not any("knee" in text or "chip" in text for text in texts(whole))


def test_a_line_for_each_combination_of_other_keys(drawn: Any) -> None:
    rows = [row(n, 10.0 * n * batch, batch=batch) for batch in (8, 16) for n in (1, 2)]
    assert {"batch = 8", "batch = 16"} <= {*texts(drawn(result(rows, batch=(8, 16))))}


def test_boards_have_whole_ticks(drawn: Any) -> None:
    assert labels(drawn(line([10, 20, 30])).xaxis) == ["1", "2", "3"]


def test_doubling_values_have_logarithmic_axes_with_labels(drawn: Any) -> None:
    axes = drawn(result([row(1 << n, 2000.0 + n) for n in range(8)]))
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert labels(axes.xaxis) == ["1", "2", "4", "8", "16", "32", "64", "128"]
    assert len(labels(axes.yaxis)) >= 3


def test_words_have_bars(drawn: Any) -> None:
    rows = [
        row(4, rate, schedule=name)
        for name, rate in (("sync", 10.0), ("fpdeep", 20.0), ("gpipe", None))
    ]
    axes = drawn(result(rows, schedule=("sync", "fpdeep", "gpipe")))
    assert [bar.get_height() for bar in axes.patches] == [10, 20]
    assert labels(axes.xaxis) == ["sync", "fpdeep", "gpipe"]


def test_one_point(drawn: Any) -> None:
    assert [bar.get_height() for bar in drawn(line([10])).patches] == [10]


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`--plot` .* does not exist"):
        draw_sweep(line([1, 2]), tmp_path / "no" / "x.png")
