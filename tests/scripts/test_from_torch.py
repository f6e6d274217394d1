"""`scripts/from-torch`: a model in memory is copied once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "from-torch"


@pytest.mark.slow
def test_a_model_takes_less_than_three_times_its_memory() -> None:
    """With the model itself; what does not grow with it is a part of that."""
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    command = [sys.executable, str(SCRIPT), "--parameters", "50"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert float(re.findall(r"([\d.]+) times", done.stdout)[0]) < 2
