"""`scripts/coverage`: docs/calibration.md has the tables that it prints."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from emuchain import calibrate_link

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "calibration.md"


def test_the_document_has_its_cases(load: Any) -> None:
    """A case has a row of its own; what it says takes minutes to measure again."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for kind, (_, settings) in load("coverage").KINDS.items():
        for runs, noise in settings:
            assert f"| {kind}, {runs} run{'s' * (runs > 1)}, {100 * noise:g} % | 40 | " in text


def test_a_drawn_link_is_the_same_each_time(load: Any) -> None:
    script = load("coverage")
    for kind in script.KINDS:
        fitted, further = script.drawn(kind, 2, 0.01, np.random.default_rng(5))
        assert (fitted, further) == script.drawn(kind, 2, 0.01, np.random.default_rng(5))
        assert {one["run"] for one in fitted} == {0, 1}
        assert {one["run"] for one in further} == {2, 3}


def test_what_is_left_out_is_not_fitted(load: Any, tmp_path: Path) -> None:
    """Two runs that say 1 us, and one that says 2: only what is compared with it is off."""
    script = load("coverage")
    path = tmp_path / "m.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["run", "message_bytes", "message_ns"])
        for run, factor in ((1, 1), (2, 1), (3, 2)):
            rows.writerows([run, size, factor * (1000 + size)] for size in (64, 1024, 16384, 65536))
    done = [script.held(*case, calibrate_link) for case in script.left_out(path, "run")]
    assert [one.rows for one in done] == [4, 4, 4]
    assert done[2].mean_percent > 45
    assert done[2].in_range == 0
