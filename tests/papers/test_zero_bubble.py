"""Zero Bubble: bubbles by hand, rows that are missing, and the page of the documentation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emuchain.papers import load_claims, tables, validate
from emuchain.papers.accl.rows import WITNESSES, witnesses
from emuchain.papers.claim import NoEvidence
from emuchain.papers.zero_bubble import bubbles, memory

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = load_claims("zero_bubble")
HEAD = (
    "model,stages,micro_batches,layers,samples_per_micro_batch,forward_us,backward_us,gradient_us,"
    "transfer_us,schedule,bubble,rate_measured,gbytes\n"
)
CHUNKS = (
    "model,stages,micro_batches,samples_per_micro_batch,chunk_forward_us,chunk_backward_us,"
    "chunk_gradient_us,transfer_us,schedule,bubble,rate_measured\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of rows that are worked out by hand: F = B = W = 10, two devices, four
    micro-batches.

    1F1B takes (M + N - 1) (F + B + W) = 150 of which 120 are work, H1 130; interleaved with two
    chunks 135.
    """
    rows = {"1f1b": (0.2, 80), "interleaved": (1 / 9, 80), "zb-h1": (1 / 13, 120)}
    lines = [
        f"1.5B,2,4,4,3,10,10,10,0,{name},{bubble},{rate},1\n"
        for name, (bubble, rate) in rows.items()
    ]
    (tmp_path / "zero_bubble.csv").write_text(HEAD + "".join(lines))
    (tmp_path / "zero_bubble_v.csv").write_text(CHUNKS)
    monkeypatch.setenv(WITNESSES, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "interleaved"])
def test_bubbles_by_hand(folder: Path, schedule: str) -> None:
    assert bubbles.bubble_points(schedule).ours == pytest.approx(0, abs=1e-12)


def test_a_changed_bubble_is_seen(folder: Path) -> None:
    file = folder / "zero_bubble.csv"
    file.write_text(file.read_text().replace("1f1b,0.2,", "1f1b,0.25,"))
    assert bubbles.bubble_points("1f1b").ours == pytest.approx(0.05)
    assert bubbles.bubble_percent("1f1b").ours == pytest.approx(20)


def test_speed_ups_by_hand(folder: Path) -> None:
    """150 / 130 is predicted, and 120 / 80 in the table."""
    measured = bubbles.speed_up_percent("zb-h1").ours
    assert measured == pytest.approx(100 * (1 - (150 / 130) / (120 / 80)))


@pytest.mark.parametrize(
    ("schedule", "kept", "ends"),
    [("1f1b", 2, 51328), ("zb-h1", 2, 51328), ("interleaved", 3, 50304)],
)
def test_memory_by_hand(folder: Path, schedule: str, kept: int, ends: int) -> None:
    """Of four layers the first and the last are the embedding and the classifier. Under 1F1B the
    first GPU keeps its layer's features of two micro-batches; interleaved, the last one keeps those
    of three, of the chunk that has a layer.
    """
    [row] = [row for row in witnesses("zero_bubble.csv") if row["schedule"] == schedule]
    features = 1024 * 3 * (34 * 2304 + 5 * 24 * 1024)
    parameters = 12 * 2304**2 + ends * 2304
    assert memory.gbytes(row) == pytest.approx(1e-9 * (kept * features + 18 * parameters))
    off = 100 * (memory.gbytes(row) - 1)
    assert memory.memory_percent(schedule).ours == pytest.approx(off)


def test_without_rows_there_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITNESSES, str(tmp_path))
    with pytest.raises(NoEvidence, match=r"set EMUCHAIN_WITNESSES to a folder with zero_bubble"):
        bubbles.bubble_points("1f1b")


def test_the_document_has_current_values() -> None:
    if WITNESSES not in os.environ:
        pytest.skip(f"needs {WITNESSES}")
    lines = (ROOT / "docs" / "validation-zero_bubble.md").read_text(encoding="utf-8").splitlines()
    results = list(validate("zero_bubble", CLAIMS.values()))
    assert [row for row in tables.markdown_tables(results) if row not in lines] == []
