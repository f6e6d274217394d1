"""Tests of compiled kernels keep code in folders of their own."""

from pathlib import Path

import pytest

from emuchain.kernels.jit import store


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lets the store keep this test's code in a folder of its own."""
    monkeypatch.setenv(store.SETTING, str(tmp_path / "cache"))
