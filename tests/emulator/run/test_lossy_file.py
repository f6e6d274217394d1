"""Results files where writes fail: each failure is reported, and HDF5 lives on."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from emuchain.emulator.run.results.lossy_file import LossyFile

FILLS = """
import errno, os, sys, tempfile
import numpy as np
from emuchain.emulator.run.results.schema import Growing
from emuchain.emulator.run.results.results import Results
from emuchain.emulator.run.results.results_file import fill_results

pwrite, left = os.pwrite, 0

def fails(*given):
    global left
    left -= 1
    if left == 0:
        raise OSError(errno.ENOSPC, "No space left on device")
    return pwrite(*given)

def pieces():
    for number in range(3):
        yield {"steps": {"loss": np.arange(1000.0)}, "messages": {"bytes": np.full((1000, 40), number)}}

def fill(after):
    global left
    left = after
    with tempfile.TemporaryFile() as file:
        weights = {f"layer {number}": {"weight": np.ones(100, np.float32)} for number in range(3)}
        results = Results({"a": 1}, {"b": "c"}, {}, {}, {}, {}, weights)
        fill_results(file, results, Growing({"steps": 3000, "messages": 3000}, pieces()))
    return left

os.pwrite = fails
count = 1_000_000 - fill(1_000_000)
for after in range(1, count + 1):
    try:
        fill(after)
    except OSError as error:
        assert error.errno == errno.ENOSPC
    else:
        sys.exit(f"write {after} has failed, and nobody knows")
fill(0)
print(count, "writes")
"""


def test_any_write_may_fail() -> None:
    """In a process of its own, which HDF5 would take with it."""
    done = subprocess.run(
        [sys.executable, "-c", FILLS], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 50


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with open(tmp_path / "file.h5", "w+b") as file:
        with h5py.File(LossyFile(file), "w") as written:
            written["column"] = np.arange(1000)
            written["packed"] = written.create_dataset(
                "more", data=np.ones((50, 50)), compression="gzip"
            )
        with h5py.File(tmp_path / "file.h5") as found:
            assert found["column"][()].tolist() == [*range(1000)]
            assert found["packed"][()].sum() == 2500


def test_the_first_failure_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All that was written before is there; later writes lose what they have."""
    with open(tmp_path / "file", "w+b") as file:
        lossy = LossyFile(file)
        lossy.write(b"good")
        lossy.check()

        def fails(*_: object) -> int:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

        monkeypatch.setattr(os, "pwrite", fails)
        assert lossy.write(b"lost") == 4
        monkeypatch.undo()
        assert lossy.write(b"late") == 4
        assert lossy.seek(0, os.SEEK_END) == 12
        with pytest.raises(OSError, match="quota"):
            lossy.check()
    assert (tmp_path / "file").read_bytes() == b"good"
