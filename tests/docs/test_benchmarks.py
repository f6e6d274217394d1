"""benchmarks/: every data file says how it was made, the page links it, and the page's means are
those of its rows.
"""

import csv
import math
import re
from collections import defaultdict

import pytest

from .pages import ROOT, text_of

PAGE = "benchmarks/README.md"
FILES = sorted(path.name for path in (ROOT / "benchmarks").glob("*.csv"))
PHASES = ("FP", "EB", "PG")


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a data file, by column."""
    lines = text_of(f"benchmarks/{name}").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def means(name: str, *columns: str) -> dict[tuple[str, ...], float]:
    """Return the geometric means of the ratios in a data file, by the values of some columns."""
    ratios = defaultdict(list)
    for row in rows_of(name):
        ratios[tuple(row[column] for column in columns)].append(float(row["ratio"]))
    return {key: math.prod(values) ** (1 / len(values)) for key, values in ratios.items()}


def test_the_page_links_every_file() -> None:
    assert FILES
    assert set(re.findall(r"\]\(([\w-]+\.csv)\)", text_of(PAGE))) == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_how_it_was_made(name: str) -> None:
    lines = text_of(f"benchmarks/{name}").splitlines()
    head = [line for line in lines if line.startswith("# ")]
    assert lines[: len(head)] == head, "comments stand above the rows"
    assert any(line.startswith("# Host: ") for line in head)
    assert any(line.startswith("# Command: ") for line in head)
    assert all(None not in row and None not in row.values() for row in rows_of(name)), (
        "each row has each column"
    )


def test_the_summary_and_the_page_have_the_means_of_the_kernels() -> None:
    summary = {
        (row["form"], row["list"], row["phase"]): row["ratio_geometric_mean"]
        for row in rows_of("kernels-summary.csv")
    }
    ratios = means("kernels.csv", "form", "list", "phase")
    assert {key: float(mean) for key, mean in summary.items()} == pytest.approx(ratios, abs=0.02)
    for name in {key[1] for key in summary}:
        cells = [
            " / ".join(summary[form, name, phase] for phase in PHASES)
            for form in ("avx512", "avx2")
        ]
        assert f"| `{name}` | {cells[0]} | {cells[1]} |" in text_of(PAGE).splitlines()


def test_the_page_has_the_means_of_the_recurrent_layers() -> None:
    by_batch = means("recurrent.csv", "kind", "form", "batch")
    for kind, form in {key[:2] for key in by_batch}:
        few, many = (
            math.sqrt(by_batch[kind, form, least] * by_batch[kind, form, most])
            for least, most in (("1", "4"), ("16", "64"))
        )
        shown = {"avx512": "AVX-512", "avx2": "AVX2"}[form]
        cells = re.search(
            rf"^\| {kind.upper()} \| {shown} \| ([\d.]+) \(.*\) \| ([\d.]+) \(",
            text_of(PAGE),
            re.MULTILINE,
        )
        assert cells is not None
        assert (float(cells[1]), float(cells[2])) == pytest.approx((few, many), abs=0.01)
