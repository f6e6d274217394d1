"""Links of README.md, docs/ and benchmarks/README.md lead to files that there are, and to
headings.
"""

import re

import pytest

from .pages import PAGES, ROOT, text_of

DRAWN = "convergence.png"
"""A long run draws it."""


def anchors_of(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, "benchmarks/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(
        r"^\+.*$", "", text_of(page), flags=re.MULTILINE
    )  # of differences, which are for other pages
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    for target in targets:
        path, _, anchor = target.partition("#")
        if "://" in target or path.endswith(DRAWN):
            continue
        file = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        assert file.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors_of(str(file.relative_to(ROOT))), f"{page}: {target}"
