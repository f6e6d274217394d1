"""Spools: what a list of records does, with little of it in memory."""

import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.run import history as module
from emuchain.emulator.run.history import Spool

RECORD = np.dtype([("a", np.int64), ("b", [("c", np.float64)])])


def records(count: int, first: int = 0) -> np.ndarray:
    """Records that all differ."""
    made = np.zeros(count, RECORD)
    made["a"] = made["b"]["c"] = np.arange(first, first + count)
    return made


@given(
    st.lists(st.one_of(st.integers(0, 9), st.floats(0, 1)), max_size=30),
    st.integers(1, 200),
    st.data(),
)
def test_records_come_back_as_they_were(does: list[int | float], kept_bytes: int, data: st.DataObject) -> None:
    """A whole number adds as many records, another cuts to this share of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_KEPT_BYTES", kept_bytes)
        patch.setattr(module, "_PIECE_BYTES", kept_bytes)
        spool, expected = Spool(RECORD), records(0)
        for number, what in enumerate(does):
            if isinstance(what, int):
                spool.add(records(what, 100 * number))
                expected = np.concatenate([expected, records(what, 100 * number)])
            else:
                spool.cut(int(what * len(expected)))
                expected = expected[: int(what * len(expected))]
            assert len(spool) == len(expected)
        np.testing.assert_array_equal(spool.read(), expected)
        np.testing.assert_array_equal(np.concatenate([records(0), *spool.pieces()]), expected)
        first = data.draw(st.integers(0, len(expected)))
        last = data.draw(st.integers(0, len(expected)))
        np.testing.assert_array_equal(spool.read(first, last), expected[first:last])


def test_memory_does_not_grow() -> None:
    spool, some = Spool(RECORD), records(1000)
    spool.add(some)
    tracemalloc.start()
    try:
        for _ in range(100):
            for _ in range(100):
                spool.add(some)
            assert tracemalloc.get_traced_memory()[1] < 1 << 17  # at any time
    finally:
        tracemalloc.stop()
    assert spool.nbytes == 10_001 * some.nbytes


def test_no_room_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    spool = Spool(RECORD)
    with pytest.raises(InputError, match=r"gone: cannot be written: No such file or directory; .* TMPDIR$"):
        for _ in range(10):
            spool.add(records(1000))
