"""The RTL's arithmetic against the host's: corner cases, drawn numbers, and mutations that must be seen."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3] / "emulator" / "rtl" / "sv"
MODULES = sorted(path.stem for path in SOURCES.glob("fp32_*.sv"))

MUTATIONS = {
    "no sticky bit of the addend": ("fp32", "(moved[50:0] != 51'd0) || sticky", "moved[50:0] != 51'd0"),
    "no sticky bit of the sum": ("fp32", "(moved[50:0] != 51'd0) || sticky", "sticky"),
    "no borrow of what fell out": ("fp32", "- {76'd0, sticky}", ""),
    "ties away from zero": ("fp32", "half && (rest || fraction[0])", "half"),
    "normalised below the smallest exponent": ("fp32", "{3'd0, zeros} < exponent ?", "1'b1 ?"),
    "x - x is -0": ("fp32", "product_is_negative && (difference != 77'd0)", "product_is_negative"),
    "a product of 0 hides the addend": ("fp32", "a_is_zero || b_is_zero || distance <= 0", "distance <= 0"),
    "no remainder in a quotient": ("fp32_div", "|| remainder != 25'd0", ""),
    "ties away from zero in a quotient": ("fp32_div", "shifted[0] && (rest || shifted[1])", "shifted[0]"),
    "a quotient too small shifts one place less": ("fp32_div", "5'(10'sd1 - exponent)", "5'(-exponent)"),
    "-0 below +0": ("fp32_greater", "any_is_nan || both_are_zero", "any_is_nan"),
    "-0 stays": ("fp32_relu", "x[31] && ", "x[31] && x[30:0] != 31'd0 && "),
}
"""A file, what stands there, and what stands there instead."""

TRIALS = {"fp32": "fma", "fp32_fma": "fma", "fp32_div": "div", "fp32_greater": "compare", "fp32_relu": "compare"}


def compare(program: Path, trial: str, drawn: int) -> subprocess.CompletedProcess[str]:
    """Run a trial of `arithmetic.cpp`."""
    return subprocess.run([program, trial, str(drawn)], capture_output=True, text=True, check=False)


def test_every_module_is_tried() -> None:
    assert set(MODULES) == set(TRIALS) - {"fp32"}
    assert {file for file, _, _ in MUTATIONS.values()} == set(TRIALS) - {"fp32_fma"}  # which is registers alone


@pytest.mark.parametrize(
    ("module", "parameters"),
    [(module, []) for module in MODULES] + [("fp32_fma", [f"-GLATENCY={latency}"]) for latency in (0, 1, 2, 3, 7)],
)
def test_no_warnings(verilator: str, module: str, parameters: list[str]) -> None:
    files = [str(SOURCES / "fp32.sv"), str(SOURCES / f"{module}.sv")]
    arguments = ["--lint-only", "-Wall", "--quiet", "--top-module", module, *parameters, "-y", str(SOURCES)]
    done = subprocess.run([verilator, *arguments, *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trial", "drawn"),
    [
        ("fma", 1_000_000),
        ("div", 1_000_000),
        ("compare", 1_000_000),
        pytest.param("fma", 10_000_000, marks=pytest.mark.exhaustive),
    ],
)
def test_bits_are_the_hosts(arithmetic: Path, trial: str, drawn: int) -> None:
    """Zeros, subnormals, ties, cancellation, infinities, NaN; every latency of the multiply-add."""
    done = compare(arithmetic, trial, drawn)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(": 0 mismatches\n")


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutations_are_seen(
    arithmetic: Path, build: Callable[[Path, Path], Path], tmp_path: Path, mutation: str
) -> None:
    file, old, new = MUTATIONS[mutation]
    sources = shutil.copytree(SOURCES, tmp_path / "sv")
    text = (sources / f"{file}.sv").read_text(encoding="utf-8")
    assert text.count(old) == 1
    (sources / f"{file}.sv").write_text(text.replace(old, new), encoding="utf-8")
    shutil.copytree(arithmetic.parent, tmp_path / "built")  # with Verilator's own library, which takes longest
    done = compare(build(sources, tmp_path / "built"), TRIALS[file], 100_000)
    assert done.returncode == 1
    assert " is " in done.stdout or " rectified " in done.stdout
