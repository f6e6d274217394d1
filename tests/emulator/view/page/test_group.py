"""Runs that differ only in their seeds: one group, one line with a band, one row with its seeds
below.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.common import InputError, Mean
from emuchain.emulator.view.page import (
    Run,
    alone,
    check_seeds,
    comparison_as_json,
    grouped,
    make_page,
)
from emuchain.emulator.view.page.parts import share_text, time_text

ERROR = 0.125 / math.sqrt(3)
"""The standard error of 0.5, 0.75 and 0.625."""


def other(run: Run, name: str, **keys: Any) -> Run:
    """The run with other keys of its configuration."""
    return Run.of(name, dataclasses.replace(run.results, config={**run.results.config, **keys}))


def test_what_is_a_group(chain: Run, seeds: list[Run]) -> None:
    one, two, three = seeds
    [group] = grouped([three, one, two])
    assert (group.name, group.seeds, group.first) == ("run", (1, 2, 3), one)
    groups = grouped([other(three, "slow", learning_rate=0.5), three, chain, one])
    assert [(group.name, group.seeds) for group in groups] == [
        ("slow", (3,)),
        ("chain to run-seed3", (1, 3)),
        ("run-seed1", (1,)),
    ]
    again = other(one, "again", out="elsewhere.h5")
    assert [group.seeds for group in grouped([one, again, two])] == [(1, 2), (1,)], (
        "a seed counts once in a mean"
    )
    texts = {**two.results.descriptions, "network.toml": "another network of the same name"}
    changed = Run("changed", dataclasses.replace(two.results, descriptions=texts), None)
    assert [group.seeds for group in grouped([one, changed])] == [(1,), (2,)]


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (("run-seed1", "run-seed2", "run-seed3"), "run"),
        (("a/run_1.h5", "a/run_2.h5", "a/run_3.h5"), "a/run"),
        (("s1", "s2", "s3"), "s1 to s3"),
        (("x", "y", "z"), "x to z"),
    ],
)
def test_names_of_groups(seeds: list[Run], names: tuple[str, ...], common: str) -> None:
    [group] = grouped(
        [dataclasses.replace(run, name=name) for run, name in zip(seeds, names, strict=True)]
    )
    assert group.name == common


def test_names_of_groups_differ(seeds: list[Run]) -> None:
    slow = [other(run, f"{run.name}.h5", batch=16) for run in seeds]
    names = [group.name for group in grouped([*seeds, *slow])]
    assert len(set(names)) == 2


def test_one_line_with_a_band(chain: Run, seeds: list[Run]) -> None:
    page = make_page(grouped([*seeds, other(chain, "sync", schedule="sync")]))
    [curve, alone] = page.shared[0].charts[0].data["curves"]
    assert (curve["run"], curve["seeds"], alone["run"]) == ("run", 3, "sync")
    assert curve["y"] == [0.25, 0.625]
    assert curve["low"] == pytest.approx([0.25, 0.625 - ERROR])
    assert curve["high"] == pytest.approx([0.25, 0.625 + ERROR])
    assert "low" not in alone
    assert (curve["symbol"], alone["symbol"]) == ("circle", "square")
    assert [key.name for key in page.shared[0].legend] == ["run, n = 3", "sync"]
    assert "standard error" in page.shared[0].said
    runs, differing = page.comparison
    assert [row[:2] for row in runs.rows[:4]] == [
        ["run, 3 seeds", "62.5 ± 7.2 %"],
        ["seed 1", "50.0 %"],
        ["seed 2", "75.0 %"],
        ["seed 3", "62.5 %"],
    ]
    assert runs.below == {1, 2, 3}
    assert dict(zip(differing.columns, differing.rows[0], strict=True))["seed"] == "1, 2, 3"
    assert page.title == "2 runs of quick-cifar"


def test_a_page_of_one_group(seeds: list[Run]) -> None:
    page = make_page(grouped(seeds))
    assert page.title.endswith("VC709, 3 seeds")
    assert page.headline.startswith("62.5 ± 7.2 % test accuracy on shapes")
    assert page.headline.endswith("the mean of 3 seeds, ± standard error.")
    assert [curve["kind"] for curve in page.shared[0].charts[0].data["curves"]] == [
        "training",
        "test",
    ]
    assert page.runs[0].note.endswith("is of seed 1.")
    [table] = page.comparison
    assert len(table.rows) == 4
    [every] = page.shared[0].tables
    assert every.rows[1][5] == "62.5 ± 7.2 %"


def test_seeds_apart(seeds: list[Run]) -> None:
    page = make_page(alone(seeds))
    assert page.title == "3 runs of quick-cifar"
    assert [curve["run"] for curve in page.shared[0].charts[0].data["curves"]] == [
        run.name for run in seeds
    ]
    assert "seed" in page.comparison[1].columns


def test_seeds_of_different_lengths(seeds: list[Run]) -> None:
    short = {name: column[:1] for name, column in seeds[1].results.history.items()}
    begun = Run.of("run-seed2", dataclasses.replace(seeds[1].results, history=short))
    page = make_page(grouped([seeds[0], begun]))
    assert page.shared[0].charts[0].data["curves"][1]["y"] == [0.25]
    assert "Of run, 1 of 2 epochs are shown, which all seeds have finished." in page.shared[0].said
    none = Run.of(
        "run-seed2", dataclasses.replace(seeds[1].results, history={}, devices={}, links={})
    )
    page = make_page(grouped([seeds[0], none]))
    assert page.headline == "Seed 2 has finished no epoch."
    assert not page.shared


def test_missing_seeds(chain: Run, seeds: list[Run]) -> None:
    one, two, three = seeds
    check_seeds(grouped(seeds), 3)
    with pytest.raises(InputError, match="--seeds 3: run has 2 seeds: 1, 3; missing: 2$"):
        check_seeds(grouped([one, three]), 3)
    with pytest.raises(InputError, match="--seeds 2: run has 3 seeds: 1, 2, 3; leave some out$"):
        check_seeds(grouped(seeds), 2)
    late = [
        other(run, f"late-seed{seed}", seed=seed, batch=16)
        for run, seed in ((one, 7), (two, 8), (three, 9))
    ]
    with pytest.raises(InputError, match="late has 2 seeds: 7, 8; missing: 9$"):
        check_seeds(grouped(late[:2]), 3)
    sevenths = [other(run, f"x-seed{seed}", seed=seed) for run, seed in ((one, 7), (three, 9))]
    with pytest.raises(InputError, match="x has 2 seeds: 7, 9; missing: 8$"):
        check_seeds(grouped([*sevenths, *late]), 3)


def test_numbers_as_json(chain: Run, seeds: list[Run]) -> None:
    said = comparison_as_json(
        grouped([*seeds, other(chain, "sync", schedule="sync")]), {"run-seed2": "x/run-seed2.h5"}
    )
    group, alone = said["runs"]
    assert (group["name"], group["seeds"], group["epochs"]) == ("run", [1, 2, 3], 2)
    assert group["test_accuracy"] == 0.625
    assert group["test_accuracy_error"] == pytest.approx(ERROR)
    assert [run["test_accuracy"] for run in group["seed_runs"]] == [0.5, 0.75, 0.625]
    assert group["seed_runs"][1]["file"] == "x/run-seed2.h5"
    assert group["virtual_time_ps"] == chain.results.virtual_time_ps
    assert group["images_per_s"] == pytest.approx(chain.results.images_per_s)
    assert alone["test_accuracy_error"] is None
    assert (group["config"]["schedule"], alone["config"]["schedule"]) == ("fpdeep", "sync")
    assert chain.steady is not None
    assert group["limited_by"] == chain.steady.bottleneck.slowest.name


def test_means_as_text() -> None:
    assert share_text(Mean(0.5, math.inf)) == "50.0 %"
    assert share_text(Mean(0.5, 0)) == "50.0 ± 0.0 %"
    assert share_text(Mean(math.nan, math.inf)) == "\N{EN DASH}"
    assert time_text(Mean(11_400_000_000, 3_280_000_000)) == "11.4 ± 3.3 ms"
    assert time_text(Mean(17_300_000_000, 892_000)) == "17.3 ms", (
        "an error that cannot be seen is left out"
    )
    assert time_text(Mean(3e17, 6e13)) == "83 h 20 min ± 60.0 s"
    assert time_text(Mean(5e6, math.inf)) == "5.00 µs"
    assert np.isnan(Mean.over([math.nan, 1.0]).value)
