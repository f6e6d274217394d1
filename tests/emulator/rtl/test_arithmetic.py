"""The RTL's arithmetic against the host's: corner cases, drawn numbers, and mutations that must be
seen.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3] / "emulator" / "rtl" / "sv"

MUTATIONS = {
    "no sticky bit of the addend": ("(moved[50:0] != 51'd0) || sticky", "moved[50:0] != 51'd0"),
    "no sticky bit of the sum": ("(moved[50:0] != 51'd0) || sticky", "sticky"),
    "no borrow of what fell out": ("- ({76'd0, sticky} << cut)", ""),
    "no sticky bit of what a narrow window cuts": ("|| addend != whole", ""),
    "ties away from zero": ("half && (rest || fraction[0])", "half"),
    "normalised below the smallest exponent": ("{3'd0, zeros} < exponent ?", "1'b1 ?"),
    "x - x is -0": ("product_is_negative && (difference != 77'd0)", "product_is_negative"),
    "a product of 0 hides the addend": ("a_is_zero || b_is_zero || distance <= 0", "distance <= 0"),
}
"""What stands in `fp32.sv`, and what stands there instead."""

TRIED = ["no sticky bit of the sum", "ties away from zero", "x - x is -0"]
"""Those that are tried each time: of alignment, rounding and signs."""


def compare(program: Path, drawn: int) -> subprocess.CompletedProcess[str]:
    """Run `arithmetic.cpp`."""
    return subprocess.run([program, str(drawn)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("latency", [0, 1, 2, 3, 7])
def test_no_warnings(verilator: str, latency: int) -> None:
    arguments = [
        "--lint-only",
        "-Wall",
        "--quiet",
        "--top-module",
        "fp32_fma",
        f"-GLATENCY={latency}",
    ]
    files = ["-y", str(SOURCES), str(SOURCES / "fp32.sv"), str(SOURCES / "fp32_fma.sv")]
    done = subprocess.run(
        [verilator, *arguments, *files], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "drawn", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.exhaustive)]
)
def test_bits_are_the_hosts(arithmetic: Path, drawn: int) -> None:
    """Zeros, subnormals, ties, cancellation, infinities, NaN; every latency of the multiply-add."""
    done = compare(arithmetic, drawn)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(": 0 mismatches\n")


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    [
        *TRIED,
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in MUTATIONS
            if name not in TRIED
        ),
    ],
)
def test_mutations_are_seen(
    arithmetic: Path, build: Callable[[Path, Path], Path], tmp_path: Path, mutation: str
) -> None:
    old, new = MUTATIONS[mutation]
    sources = shutil.copytree(SOURCES, tmp_path / "sv")
    text = (sources / "fp32.sv").read_text(encoding="utf-8")
    assert text.count(old) == 1
    (sources / "fp32.sv").write_text(text.replace(old, new), encoding="utf-8")
    shutil.copytree(
        arithmetic.parent, tmp_path / "built"
    )  # with Verilator's own library, which takes longest
    done = compare(build(sources, tmp_path / "built"), 100_000)
    assert done.returncode == 1
    assert " is " in done.stdout
