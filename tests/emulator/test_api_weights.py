"""`emuchain.evaluate` and `emuchain.export`: the same as the commands, of files and of results in
memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.network import load_network
from emuchain.emulator.run import Weights, read_weights

Bits = Callable[[Weights], dict[str, bytes]]
SETTINGS: dict[str, Any] = {"samples": 40, "test_samples": 24, "batch": 20, "devices": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[emuchain.Results, Path]:
    """Results, and their folder with run.h5 and run.ckpt."""
    folder = tmp_path_factory.mktemp("run")
    files = {"out": str(folder / "run.h5"), "checkpoint": str(folder / "run.ckpt")}
    return emuchain.train(**SETTINGS, **files), folder


def test_all_sources_have_the_numbers_of_the_last_epoch(run: tuple[emuchain.Results, Path]) -> None:
    results, folder = run
    for source in (results, folder / "run.h5", str(folder / "run.ckpt")):
        found = emuchain.evaluate(source)
        assert found.test_loss == pytest.approx(results.history["test_loss"][-1], rel=1e-12)
        assert (found.test_accuracy, found.test_samples) == (results.test_accuracy, 24)
        assert found.bits is None


def test_networks_for_which_one_board_is_too_small(tmp_path: Path) -> None:
    """Evaluation emulates no board: five layers with kernels of 49 weights need 735 multipliers,
    and a VC709 has 576.
    """
    conv = '{ type = "conv", channels = 4, kernel = 7, stride = 2, pad = 3 }, '
    (tmp_path / "wide.toml").write_text(
        'name = "wide"\ninput = [3, 32, 32]\nlayers = [\n'
        f'  {5 * conv}\n  {{ type = "fc", features = 10 }}, {{ type = "softmax" }},\n]\n'
    )
    run = emuchain.train(tmp_path / "wide.toml", **{**SETTINGS, "devices": 4})
    assert emuchain.evaluate(run).test_loss == pytest.approx(
        run.history["test_loss"][-1], rel=1e-12
    )
    assert emuchain.predict(run, np.zeros((2, 3, 32, 32), np.float32)).shape == (2, 10)


def test_the_numbers_of_the_command(
    run: tuple[emuchain.Results, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    results, folder = run
    with pytest.raises(SystemExit):
        main(["evaluate", str(folder / "run.h5"), "--test-samples", "7", "--json"])
    printed = json.loads(capsys.readouterr().out)
    found = emuchain.evaluate(results, test_samples=7)
    for key in ("test_loss", "test_accuracy", "test_samples"):
        assert printed[key] == getattr(found, key)
    assert (
        repr(found) == "<Evaluation of quick-cifar on 7 test images of shapes: accuracy"
        f" {100 * found.test_accuracy:.2f} %, loss {found.test_loss:.4f}>"
    )


def test_a_data_set(run: tuple[emuchain.Results, Path], small_cifar: Path) -> None:
    results, _ = run
    data = emuchain.load_data(str(small_cifar))
    named, held = (
        emuchain.evaluate(results, of, test_samples=9) for of in (small_cifar, data.first(40))
    )
    assert named == held
    assert named.test_samples == 9
    assert named.data == "cifar10" != emuchain.evaluate(results, test_samples=9).data
    rows = emuchain.load_data("text")
    with pytest.raises(emuchain.InputError):
        emuchain.evaluate(results, rows)


def test_a_text() -> None:
    results = emuchain.train("char-lstm", time_steps=12, samples=20, test_samples=8, batch=20)
    found = emuchain.evaluate(results)
    assert results.bits is not None and found.bits is not None
    assert found.bits[0] == pytest.approx(results.bits[0], rel=1e-12)


def test_export(run: tuple[emuchain.Results, Path], tmp_path: Path, bits: Bits) -> None:
    pytest.importorskip("safetensors")
    results, folder = run
    written = []
    for source in (results, folder / "run.h5", str(folder / "run.ckpt")):
        out = tmp_path / f"{len(written)}.safetensors"
        emuchain.export(source, out)
        assert bits(read_weights(str(out), load_network("quick-cifar"), "here")) == bits(
            results.weights
        )
        written.append(out.read_bytes())
    with pytest.raises(SystemExit):
        main(["export", str(folder / "run.h5"), str(tmp_path / "c.safetensors")])
    assert {*written} == {(tmp_path / "c.safetensors").read_bytes()}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda folder, _: emuchain.evaluate(folder / "none.h5"), "no such file"),
        (
            lambda folder, _: emuchain.evaluate(5),
            "`run`: is int; it should be results, or the path of a file",
        ),
        (lambda folder, run: emuchain.evaluate(run, test_samples=0), "`test_samples` = 0"),
        (lambda folder, run: emuchain.evaluate(run, "nowhere"), "`data` = 'nowhere'"),
        (
            lambda folder, run: emuchain.export(run, folder / "w.bin"),
            "should end in .safetensors or .onnx",
        ),
        (
            lambda folder, run: emuchain.export(folder / "none.h5", folder / "w.safetensors"),
            "no such file",
        ),
        (lambda folder, run: emuchain.export(run, folder / "no" / "w.safetensors"), "`out` = "),
    ],
)
def test_one_line_of_what_is_wrong(
    run: tuple[emuchain.Results, Path],
    tmp_path: Path,
    one_line: Any,
    call: Callable[..., Any],
    message: str,
) -> None:
    with pytest.raises(emuchain.InputError) as error:
        call(tmp_path, run[0])
    assert message in one_line(error)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".bin", ".safetensors")]
