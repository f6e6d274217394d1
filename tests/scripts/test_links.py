"""`scripts/links`: what it prints stands in docs/link-models.md."""

from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "link-models.md"


@pytest.mark.exhaustive  # docs/link-models.md is made by it
@pytest.mark.slow
def test_the_document_has_its_tables(run_script: Any, tmp_path: Path) -> None:
    printed = run_script("links", cwd=tmp_path).stdout
    assert printed.count("\n| ") > 20
    assert printed in DOCUMENT.read_text(encoding="utf-8")
