"""What only the papers' claims use: known to their own command line, and not to emuchain's."""

from __future__ import annotations

import subprocess

import pytest

from emuchain.kernels import python_command

WORDS = ("train", "--data", "shapes", "--samples", "64", "--test-samples", "8", "--replicas", "2")


def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(python_command(module, *words), capture_output=True, text=True)


@pytest.mark.slow
def test_runs_of_papers_know_their_codecs() -> None:
    done = run("emuchain.papers", *WORDS, "--compress", "truncate:16")
    assert done.returncode == 0, done.stderr
    assert "truncate:16" in done.stdout


def test_other_runs_do_not() -> None:
    done = run("emuchain", *WORDS, "--compress", "truncate:16")
    assert done.returncode == 2
    _, _, known = done.stderr.partition("there is no codec 'truncate:16'; known codecs: ")
    assert known.startswith("none, ")
    assert "truncate" not in known
