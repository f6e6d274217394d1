"""`train --control`: the same run without codec, and what the codec changes, first in the
answer.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import emuchain

KEYS: dict[str, Any] = {"samples": 64, "test_samples": 32, "batch": 16, "replicas": 2, "seed": 4}
WORDS = [f"--{key.replace('_', '-')}={value}" for key, value in KEYS.items()]


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_control_is_the_run_without_codec(mpiexec: Any, tmp_path: Any, ranks: int) -> None:
    codec = ["--compress", "topk:0.05", "--error-feedback", "--out", str(tmp_path / "run.h5")]
    said = mpiexec(
        ranks, ["-m", "emuchain", "train", *WORDS, *codec, "--control", "--progress", "none"]
    ).stdout
    answer = said[said.rindex("\ncodec changes ") + 1 :].replace("\n  ", " ").split("\n")
    lossy, plain = (
        emuchain.train(compress="topk:0.05", error_feedback=True, **KEYS),
        emuchain.train(**KEYS),
    )
    tests = [found.test_accuracy for found in (lossy, plain)]
    points = 100 * (tests[0] - tests[1])
    assert answer[0].startswith(
        f"codec changes test accuracy by {points:+.2f} points, {100 * tests[1]:.2f} % without"
    )
    assert answer[0].endswith("gradients by topk:0.05 with error feedback")
    loss = float(plain.history["train_loss"][-1])
    assert (
        f"control without codec: test accuracy {100 * tests[1]:.2f} %, train loss {loss:.4f}; "
        in answer[1]
    )
    assert re.search(r" on the cluster, .* with it$", answer[1])
    assert str(emuchain.results(str(tmp_path / "run.h5")).config["compress"]) == "topk:0.05"


def test_without_codec_there_is_nothing_to_control(mpiexec: Any, one_line: Any) -> None:
    ended = mpiexec(1, ["-m", "emuchain", "train", *WORDS, "--control"], status=2)
    assert (
        "`--control`: trains once more without codec, but there is none; add `compress`"
        in one_line(ended.stderr)
    )
