"""`scripts/validation-pages`: pages are those that it makes, of what was recorded of each claim."""

import json
from typing import Any

import pytest

from emuchain.papers import Claim, load_claims, papers, validate

PAPERS = papers()


@pytest.mark.parametrize("paper", PAPERS)
def test_a_page_is_what_the_script_makes(paper: str, load: Any) -> None:
    pages = load("validation-pages")
    assert pages.made(paper) == pages.page_of(paper).read_text(encoding="utf-8"), (
        "run scripts/validation-pages"
    )


@pytest.mark.parametrize("paper", PAPERS)
def test_each_claim_is_recorded(paper: str, load: Any) -> None:
    pages = load("validation-pages")
    text = (pages.folder(paper) / "results.json").read_text(encoding="utf-8")
    recorded = json.loads(text)
    assert pages.as_text(recorded) == text
    assert list(recorded["measured"]) == [
        name for name, claim in load_claims(paper).items() if claim.expect
    ]
    known = {freedom.key: freedom for freedom in pages.freedoms_of(paper)}
    verdicts_by_key = recorded.get("sensitivity", {})
    assert list(verdicts_by_key) in ([], list(known))
    for key, rows in verdicts_by_key.items():
        assert all(len(verdicts) == len(known[key].values) for verdicts in rows.values())


def test_rows_are_recorded_as_they_are_measured(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    pages = load("validation-pages")
    some: dict[str, Claim] = dict(list(load_claims("hardware").items())[:3])
    monkeypatch.setattr(pages, "load_claims", lambda paper: some)
    monkeypatch.setattr(pages, "folder", lambda paper: tmp_path)
    pages.record("hardware", with_sensitivity=False)
    recorded = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert list(recorded) == ["measured"]
    assert pages.results_of("hardware", recorded["measured"]) == list(
        validate("hardware", some.values())
    )


def test_a_line_stands_for_a_table(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    pages = load("validation-pages")
    (tmp_path / "page.md").write_text(
        "# Title\n<!-- table: one -->\n<!-- other -->\n", encoding="utf-8"
    )
    monkeypatch.setattr(pages, "folder", lambda paper: tmp_path)
    monkeypatch.setattr(pages, "blocks_of", lambda paper: {"one": ["| a |", "|---|"]})
    assert pages.made("hardware") == "# Title\n| a |\n|---|\n<!-- other -->\n"
    (tmp_path / "page.md").write_text("<!-- table: two -->\n", encoding="utf-8")
    with pytest.raises(KeyError, match="two"):
        pages.made("hardware")
