"""Figures for print: a PDF and an SVG of each chart, a column wide, always the same, and no other
file is replaced.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.view.page import Run, draw_figures, grouped, make_page

pytest.importorskip("matplotlib", reason="matplotlib, which draws figures, is not installed")

OVER = [
    f"{measure}-over-{axis}"
    for measure in ("accuracy", "loss")
    for axis in ("epochs", "virtual-time")
]
OF_A_RUN = ["rates", "utilisation", "links", "memory"]


def test_a_figure_for_each_chart(
    chain: Run, replicas: Run, seeds: list[Run], tmp_path: Path
) -> None:
    one = draw_figures(make_page(grouped([replicas])), tmp_path / "one")
    assert [path.name for path in one] == [
        f"{name}.{form}"
        for name in (*OVER, *OF_A_RUN, "gradients", "widths", "timeline")
        for form in ("pdf", "svg")
    ]
    several = draw_figures(make_page(grouped([*seeds, replicas])), tmp_path / "several")
    assert {path.name for path in several if path.suffix == ".svg"} == {
        *(f"{name}.svg" for name in OVER),
        *(f"run-{name}.svg" for name in (*OF_A_RUN, "weights", "timeline")),
        *(f"replicas-{name}.svg" for name in (*OF_A_RUN, "gradients", "widths", "timeline")),
    }
    assert sorted(path.name for path in (tmp_path / "several").iterdir()) == sorted(
        path.name for path in several
    )
    for path in (*one, *several):
        content = path.read_bytes()
        assert content.startswith(b"%PDF" if path.suffix == ".pdf" else b"<?xml")
        width = (
            re.search(rb"MediaBox \[ 0 0 252 ", content)
            if path.suffix == ".pdf"
            else re.search(rb'width="252pt"', content)
        )  # 3.5 inches
        assert width, path
        assert b"Date" not in content and b"dc:date" not in content


def test_the_same_page_gives_the_same_files(
    replicas: Run, seeds: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib

    page = make_page(grouped([*seeds, replicas]))
    first = draw_figures(page, tmp_path / "first")
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)  # as a user's settings may have it
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 9)
    second = draw_figures(page, tmp_path / "second")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    again = draw_figures(page, tmp_path / "second")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again], (
        "its own are replaced"
    )


def test_other_files_are_not_replaced(chain: Run, tmp_path: Path) -> None:
    mine = tmp_path / "memory.pdf"
    mine.write_bytes(b"%PDF-1.4 drawn by hand")
    with pytest.raises(
        InputError, match=r"memory\.pdf: is there already, and no figure of `emuchain report`"
    ):
        draw_figures(make_page(grouped([chain])), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["memory.pdf"]
    mine.unlink()
    mine.mkdir()
    with pytest.raises(InputError, match="is there already"):
        draw_figures(make_page(grouped([chain])), tmp_path)


def test_names_of_runs_are_names_of_files(chain: Run, tmp_path: Path) -> None:
    names = ("../a b", "../a_$x^2$", "../a b.h5", "/a/b", "a/b", "é" * 300)
    drawn = draw_figures(
        make_page(grouped([Run.of(name, chain.results) for name in names])), tmp_path / "in"
    )
    assert all(path.parent == tmp_path / "in" for path in drawn)
    assert len(set(drawn)) == 2 * (4 + len(names) * 6)


def test_without_matplotlib(chain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make_page(grouped([chain]))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        InputError, match=r"`--figures` needs matplotlib: pip install 'emuchain\[plot\]'"
    ):
        draw_figures(page, tmp_path / "none")
    assert not (tmp_path / "none").exists()
