"""Machine code that is called without Numba: arguments and results, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emuchain.kernels.jit import announced, compiled

PROGRAM = """
import json, sys
import numpy as np
from emuchain.kernels.jit import announced, compiled

@compiled
def scaled(total, factor):
    return total * factor

@compiled
def mix(a, whole, one, double, truth, pair, deep, out):
    own = np.empty(a.shape[0], np.float32)
    for row in range(a.shape[0]):
        own[row] = 0
        for column in range(a.shape[1]):
            own[row] += a[row, column]
    for row in range(own.size):
        out[row] = scaled(own[row], one)
    out[own.size] = whole
    out[own.size + 1] = double
    out[own.size + 2] = 1 if truth else 0
    out[own.size + 3] = pair[0] - pair[1]
    out[own.size + 4] = deep[1][1]

@compiled
def count(a, more):
    return a.size + more

a = np.arange(6, dtype=np.float32).reshape(2, 3)
out, told = np.zeros(7, np.float32), []
with announced(lambda: told.append("compiling")):
    mix(a, np.int64(-3), np.float32(2), 0.25, np.bool_(True), (7, np.int64(2)), ((1, 2), (3, 4)), out)
    number = count(np.zeros(5, np.uint8), 10)
print(json.dumps([out.tolist(), number, told, "numba" in sys.modules]))
"""


def run(program: str, cache: Path) -> list[object]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


def test_arguments_and_results_without_numba(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    expected = [6, 24, -3, 0.25, 1, 5, 4]
    assert run(str(program), tmp_path / "cache") == [expected, 15, ["compiling"], True]
    assert run(str(program), tmp_path / "cache") == [expected, 15, [], False]


@compiled
def _first(a: "np.ndarray") -> None:  # type: ignore[type-arg]
    a[0, 0] = 1


def test_arrays_of_another_kind_are_refused() -> None:
    _first(np.zeros((2, 2), np.float32))
    read_only = np.zeros((2, 2), np.float32)
    read_only.flags.writeable = False
    others = [
        np.zeros((2, 2)),
        np.zeros(4, np.float32),
        np.zeros((4, 4), np.float32)[::2],
        read_only,
    ]
    for other in others:
        with pytest.raises(TypeError, match="float32 in 2 dimensions"):
            _first(other)
    _first(np.zeros((2, 2), np.float32))


def test_a_kernel_takes_no_text() -> None:
    @compiled
    def kernel(word: str) -> None:
        pass

    with pytest.raises(TypeError, match="not <class 'str'>"), announced(lambda: None):
        kernel("word")
