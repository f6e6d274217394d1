"""A second reader of the RTL, slang: one tool's leniency hides what others refuse, as names used
before declared.

It gives no error and no warning for the designs that others simulate. A cast to a width that
follows from parameters is useless wherever they make it that of what is cast.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from emuchain.emulator.rtl import SOURCES, Rtl, sources

from .chains import QUICK, TWO_LAYERS, cluster, modules_beside, plan
from .conftest import HERE
from .test_drawn import drawn_chain
from .test_formats import DRAWN as FORMATS
from .test_yosys import NUMBERS


@pytest.fixture(autouse=True)
def _slang() -> None:
    """Skip where there is no slang."""
    pytest.importorskip("pyslang")


def slang(top: str, files: Sequence[Path]) -> str:
    """What slang says of a module and those below it; "" if nothing."""
    from pyslang import TextDiagnosticClient, driver

    reader, said = driver.Driver(), TextDiagnosticClient()
    reader.addStandardArgs()
    words = ["slang", "--top", top, "-Wextra", "-Wno-useless-cast", *map(str, files)]
    assert reader.parseCommandLine(" ".join(words)) and reader.processOptions()
    reader.diagEngine.clearClients()
    reader.diagEngine.addClient(said)
    reader.parseAllSources()
    compilation = reader.createCompilation()
    reader.reportCompilation(compilation, True)
    reader.runAnalysis(compilation)
    return said.getString()


def check(rtl: Rtl, folder: Path) -> None:
    """Check what slang says of each device."""
    for top in rtl.write(folder):
        assert slang(top.stem, [*modules_beside(top), top]) == ""


@pytest.mark.parametrize(
    ("network", "dsp", "devices"), [(TWO_LAYERS, 40, 2), (QUICK, 90, 4), ("lenet-mnist", 200, 3)]
)
def test_named_networks(tmp_path: Path, network: object, dsp: int, devices: int) -> None:
    check(Rtl.of(plan(network, cluster(dsp), devices)), tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_drawn_chains(tmp_path: Path, seed: int) -> None:
    of, latency = drawn_chain(seed)
    check(Rtl.of(of, latency), tmp_path)


@pytest.mark.parametrize("precision", FORMATS)
def test_formats(tmp_path: Path, precision: str) -> None:
    of, latency = drawn_chain(FORMATS.index(precision), precision=precision)
    check(Rtl.of(of, latency), tmp_path)


def test_every_module_by_itself() -> None:
    """With its default parameters, also where no design has it: but for packages, and blocks of a
    format without.
    """
    for module in sources():
        if module.stem not in ("fp32", "formats", "weight_blocks"):
            assert slang(module.stem, sources()) == "", module


def test_modules_of_test_benches(tmp_path: Path) -> None:
    assert slang("arithmetic", [SOURCES / "fp32.sv", HERE / "arithmetic.sv", *sources()[2:]]) == ""
    stream = tmp_path / "stream.sv"
    stream.write_text(NUMBERS, encoding="utf-8")
    assert slang("stream", [*sources(), stream]) == ""


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.sv"
    wrong.write_text(
        "module wrong (output logic a);\n    wrong_too one (.b(c), .a(a));\n    logic"
        " c;\nendmodule\nmodule wrong_too (input logic b, output logic a);\n    assign a ="
        " b;\nendmodule\n",
        encoding="utf-8",
    )
    assert "error: identifier 'c' used before its declaration" in slang("wrong", [wrong])
