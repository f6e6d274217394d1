"""`scripts/throttle`: the throttle takes as long as a link that is really so slow."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("tc") is None or shutil.which("ip") is None,
        reason="needs root, ip and tc",
    ),
    pytest.mark.skipif(
        not Path(sys.executable).with_name("mpiexec.hydra").exists(), reason="needs MPICH"
    ),
]


def test_the_throttle_is_within_5_percent_of_a_shaped_link(run_script: Any, tmp_path: Path) -> None:
    printed = run_script("throttle", "--turns", "1", "--samples", "240", cwd=tmp_path).stdout
    found = {
        what: float(ratio)
        for what, ratio in re.findall(r"^\| ([a-z, ]+) \|.*\| ([\d.]+) \|$", printed, re.M)
    }
    assert found["neither"] < 0.5, "the link holds the run back"
    assert found["throttled"] == pytest.approx(1, abs=0.05)
    assert found["throttled, no headers"] < found["throttled"]
