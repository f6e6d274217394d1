"""MkDocs' hooks: pages from outside of docs/, the notebook as a page, and links that lead somewhere
on the site.

Pages are written for the repository, where links to sources and to pages are paths. On the site,
links to pages lead to pages, and those to sources lead to the repository, if `repo_url` names one,
or become their text.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Pages by their paths in the repository, which are not in docs/, and their places on the site."""

NOTEBOOK = "docs/tutorial.ipynb"
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(
    r"\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)"
)


def on_config(config: Any) -> None:
    """Let mkdocstrings find this checkout, whatever its name, as the package `emuchain`.

    Of a package, mkdocstrings reads all modules; environments and tests in the checkout would be
    among them.
    """
    packages = Path(tempfile.mkdtemp())
    package = packages / "emuchain"
    package.mkdir()
    for room in ROOT.glob("*/__init__.py"):
        if room.parent.name != "tests":
            (package / room.parent.name).symlink_to(room.parent, target_is_directory=True)
    for file in [*ROOT.glob("*.py"), *ROOT.glob("*.pyi")]:
        shutil.copy(file, package)  # a link would lead to the checkout
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [str(packages)]


on_config.mkdocs_priority = 100  # type: ignore[attr-defined]  # before mkdocstrings takes its settings


def on_files(files: Files, config: Any) -> None:
    """Add the pages from outside of docs/, and the notebook."""
    from mkdocs.structure.files import File

    for path, place in OUTSIDE.items():
        files.append(
            File.generated(config, place, content=(ROOT / path).read_text(encoding="utf-8"))
        )
    notebook = json.loads((ROOT / NOTEBOOK).read_text(encoding="utf-8"))
    files.append(File.generated(config, place_of(NOTEBOOK), content=as_markdown(notebook)))


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Let a page's links lead to pages of the site, and to the repository."""
    return relinked(markdown, page.file.src_uri, config.repo_url)


def as_markdown(notebook: dict[str, Any]) -> str:
    """Return a notebook without its outputs as a page."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    return "\n\n".join(
        f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells
    )


def place_of(path: str) -> str | None:
    """Return the place on the site of a file of the repository; None if it has none there."""
    if path == NOTEBOOK:
        return "tutorial.md"
    return OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)


def relinked(markdown: str, place: str, repository: str | None) -> str:
    """Return the page at a place of the site with its links as they are there."""
    source = next((path for path, page in OUTSIDE.items() if page == place), f"docs/{place}")

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["path"]))
        anchor = match["anchor"] or ""
        if not os.path.exists(ROOT / path):
            return match[0]
        target = place_of(path)
        if target is not None:
            return (
                f"[{match['text']}]({posixpath.relpath(target, posixpath.dirname(place))}{anchor})"
            )
        if not repository:
            return match["text"]
        return f"[{match['text']}]({repository.rstrip('/')}/blob/HEAD/{path}{anchor})"

    code: list[str] = []

    def hide(match: re.Match[str]) -> str:
        code.append(match[0])
        return f"\0{len(code) - 1}\0"

    text = _LINK.sub(link, _CODE.sub(hide, markdown))
    text = text.replace("][", "]\\[")  # an index of an index is no reference
    return re.sub("\0(\\d+)\0", lambda match: code[int(match[1])], text)
