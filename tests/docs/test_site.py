"""The documentation's site: its navigation holds every page, its reference every name, and links
lead somewhere.

`scripts/test` builds it, and any broken link fails the build.
"""

import importlib.util
import json
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml

import emuchain

from .pages import PAGES, ROOT, text_of


class Loader(yaml.SafeLoader):
    """Reads what it knows, and nothing for MkDocs' own tags."""


Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def places(nav: Any) -> Iterator[str]:
    """The places of all pages of a navigation, or of a part of it."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from places(part)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation(hooks: ModuleType) -> None:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    found = list(places(settings["nav"]))
    assert len(found) == len(set(found))
    assert set(found) == {
        hooks.place_of(page) for page in (*PAGES, "benchmarks/README.md", hooks.NOTEBOOK)
    }
    assert settings["docs_dir"] == "docs"


def test_the_reference_has_every_name() -> None:
    named = re.findall(r"^::: emuchain\.(\w+)$", text_of("docs/reference.md"), re.MULTILINE)
    assert len(named) == len(set(named))
    assert set(named) == set(emuchain.__all__) - {"__version__"}


REPOSITORY = "https://example.org/emuchain"


@pytest.mark.parametrize(
    ("place", "written", "found"),
    [
        ("index.md", "[a](docs/python.md#b)", "[a](python.md#b)"),
        ("index.md", "![a](docs/convergence.png)", "![a](convergence.png)"),
        ("index.md", "[a\nb](benchmarks/README.md)", "[a\nb](benchmarks.md)"),
        ("python.md", "[a](../CONTRIBUTING.md#c)", "[a](contributing.md#c)"),
        ("python.md", "[a](running.md)", "[a](running.md)"),
        ("python.md", "[a](tutorial.ipynb)", "[a](tutorial.md)"),
        (
            "python.md",
            "[`a`](../emulator/api.py)",
            f"[`a`]({REPOSITORY}/blob/HEAD/emulator/api.py)",
        ),
        ("contributing.md", "[a](emulator/plan)", f"[a]({REPOSITORY}/blob/HEAD/emulator/plan)"),
        ("python.md", "[a](nowhere.md)", "[a](nowhere.md)"),
        ("python.md", "[a](https://example.org)", "[a](https://example.org)"),
        ("python.md", "```python\nx[a](../LICENSE)[b][c]\n```\nP[b][c] `y[b][c]`", None),
    ],
)
def test_links(hooks: ModuleType, place: str, written: str, found: str | None) -> None:
    expected = written.replace("P[b][c]", r"P[b]\[c]") if found is None else found
    assert hooks.relinked(written, place, REPOSITORY) == expected


def test_links_to_sources_without_a_repository(hooks: ModuleType) -> None:
    assert hooks.relinked("See [the plan](../emulator/plan).", "python.md", "") == "See the plan."


def test_the_notebook_as_a_page(hooks: ModuleType) -> None:
    page = hooks.as_markdown(json.loads((ROOT / hooks.NOTEBOOK).read_text(encoding="utf-8")))
    assert page.startswith("# From a question to a picture\n")
    assert page.count("```python\n") == 8
