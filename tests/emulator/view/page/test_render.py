"""The HTML of a page: whole, without addresses elsewhere, and safe from what is in results."""

from __future__ import annotations

import dataclasses
import html
import html.parser
import json
import sys

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.view.page import Run, grouped, make_page, render

pytest.importorskip("jinja2", reason="jinja2, which renders pages, is not installed")

NASTY = """</script><script>alert(1)</script><!-- "'& <b>"""


class Parsed(html.parser.HTMLParser):
    """The tags of a page with their attributes, and the text in each kind of tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def charts_of(parsed: Parsed) -> list[dict[str, object]]:
    """The data of a page's charts; the last two scripts are the library and what draws."""
    return [json.loads(text) for text in parsed.texts["script"][:-2]]


def test_a_page_is_whole(chain: Run, replicas: Run) -> None:
    text = render(make_page(grouped([chain, replicas])))
    parsed = Parsed(text)
    assert not parsed.open  # every tag is closed
    assert len(text.encode()) < 1_000_000
    assert parsed.texts["title"] == ["2 runs of quick-cifar \N{EN DASH} emuchain"]
    assert ("html", {"lang": "en"}) in parsed.tags
    kinds = [attributes["data-kind"] for tag, attributes in parsed.tags if tag == "figure"]
    assert len(kinds) == len(charts_of(parsed)) == 4 + 6 + 7
    assert sum(tag == "h1" for tag, _ in parsed.tags) == 1
    anchors = [attributes["href"] for tag, attributes in parsed.tags if tag == "a"]
    assert {f"#{attributes['id']}" for _, attributes in parsed.tags if "id" in attributes} >= set(
        anchors
    )


def test_a_page_asks_for_nothing_from_elsewhere(chain: Run) -> None:
    for tag, attributes in Parsed(render(make_page(grouped([chain])))).tags:
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)


def test_every_copy_of_the_library_has_its_licence(chain: Run) -> None:
    text = render(make_page(grouped([chain])))
    for author in ("Mike Bostock", "Observable, Inc."):
        assert author in text
    assert text.count("Permission to use, copy, modify, and/or distribute") == 2


def test_names_in_results_are_text(chain: Run) -> None:
    config = {**chain.results.config, "data": NASTY}
    descriptions = {**chain.results.descriptions, "note": NASTY}
    versions = {**chain.results.versions, "command": NASTY}
    nasty = dataclasses.replace(
        chain.results, config=config, descriptions=descriptions, versions=versions
    )
    text = render(make_page(grouped([Run.of(NASTY, nasty), chain])))
    assert "<script>alert" not in text
    parsed = Parsed(text)
    assert not parsed.open
    assert sum(tag == "script" for tag, _ in parsed.tags) == len(charts_of(parsed)) + 2
    assert charts_of(parsed)[0]["curves"][0]["run"] == NASTY  # type: ignore[index]
    assert html.escape(NASTY)[:30] in text
    assert NASTY in parsed.texts["pre"]


def test_without_jinja2(chain: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(InputError, match=r"pip install 'emuchain\[report\]'"):
        render(make_page(grouped([chain])))
