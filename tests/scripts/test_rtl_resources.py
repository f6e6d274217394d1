"""`scripts/rtl-resources`: what it prints stands in docs/rtl-resources.md."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "rtl-resources.md"


@pytest.mark.slow
def test_the_document_has_its_table(run_script: Any, tmp_path: Path) -> None:
    yosys = shutil.which("yosys")
    version = subprocess.run([yosys, "-V"], capture_output=True, text=True, check=False).stdout if yosys else "none"
    if not version.startswith("Yosys 0.23 "):
        pytest.skip(f"the document has what Yosys 0.23 makes; here is {version.strip()}")
    printed = run_script("rtl-resources", cwd=tmp_path).stdout
    assert printed.count("\n| ") == 3
    assert printed in DOCUMENT.read_text(encoding="utf-8")
