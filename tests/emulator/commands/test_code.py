"""Models of a user's own code on the command line: `FILE.py:FUNCTION` is run where it is named so,
and what is wrong with it is one line, with file and line.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network

from .running import status_of

torch = pytest.importorskip("torch", reason="PyTorch, in which models are written, is missing")
pytest.importorskip("onnxscript", reason="onnxscript, which PyTorch's exporter needs, is missing")

GOOD = """
import torch
from beside import CHANNELS

print("a word of the user's own")

def make_model():
    conv = torch.nn.Conv2d(3, CHANNELS, 3, 2, 1)
    return torch.nn.Sequential(conv, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(CHANNELS * 16, 10))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with code, where commands run."""
    (tmp_path / "my_model.py").write_text(GOOD)
    (tmp_path / "beside.py").write_text("CHANNELS = 4\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_take_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It trains, and its weights go back by PyTorch's names from the file of results alone."""
    named = ["my_model.py:make_model", "--input", "3x8x8", "--devices", "2"]
    data = folder / "data.npz"
    import numpy as np

    images = np.random.default_rng(1).integers(0, 256, (50, 3, 8, 8), np.uint8)
    np.savez(data, images=images, labels=np.arange(50) % 10)
    words = ["--data", str(data), "--samples", "40", "--batch", "20", "--freeze", "0"]
    assert status_of("train", *named, *words, "--out", "run.h5") == 0
    assert status_of("export", "run.h5", "w.pt") == 0
    assert "a word of the user's own" not in capsys.readouterr().out
    torch.manual_seed(1)
    model = emuchain.results("run.h5").config["network"] and _made()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.load_state_dict(torch.load("w.pt", weights_only=True), strict=True)
    assert torch.equal(model[0].weight, before["0.weight"])  # drawn by the seed, and frozen
    assert not torch.equal(model[3].weight, before["3.weight"])
    again = ["--init", "w.pt", "--batch", "20", "--samples", "40", "--data", str(data)]
    assert status_of("train", *named, *again) == 0


def _made() -> Any:
    from torch import nn

    return nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10))


SIDES = """\
import torch


class Crossed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9)
        self.attend = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, source, target):
        memory = self.table(source)
        return self.head(self.attend(self.table(target), memory, memory)[0])
"""


def test_code_takes_a_source_and_a_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "my_model.py").write_text(SIDES)
    assert status_of("plan", "my_model.py:Crossed", "--input", "3+2", "--devices", "2") == 0
    assert "attend" in capsys.readouterr().out
    assert status_of("plan", "my_model.py:Crossed", "--input", "3x4+2", "--devices", "2") == 2


WRONG: dict[str, tuple[str, list[str], str]] = {
    "no function": (GOOD, ["my_model.py"], "name the function that makes the model"),
    "no input": (GOOD, ["my_model.py:make_model"], "needs `input`, .* --input 3x8x8|needs `input`"),
    "no sizes": (GOOD, ["my_model.py:make_model", "--input", "3,8"], "should be the sizes"),
    "another function": (
        GOOD,
        ["my_model.py:make_modl", "--input", "3x8x8"],
        "my_model.py has no 'make_modl'; did you mean `?make_model",
    ),
    "a syntax error": (
        "def f(:\n    pass\n",
        ["my_model.py:f", "--input", "3"],
        "line 1: SyntaxError",
    ),
    "an error": (
        "import torch\n\ndef f():\n    return torch.nn.Linear(2, 'a')\n",
        ["my_model.py:f", "--input", "3"],
        "my_model.py, line 4: TypeError",
    ),
    "an error of the file": ("x = 1 / 0\n", ["my_model.py:f", "--input", "3"], "line 1: ZeroDiv"),
    "an exit": (
        "import sys\nsys.exit(3)\n",
        ["my_model.py:f", "--input", "3"],
        "line 2: SystemExit",
    ),
    "no model": (
        "def f():\n    return 3\n",
        ["my_model.py:f", "--input", "3"],
        "returns 3; should",
    ),
    "no callable": ("f = 3\n", ["my_model.py:f", "--input", "3"], "is 3; should be a function"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_code_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, one_line: Any
) -> None:
    text, words, message = WRONG[name]
    (folder / "my_model.py").write_text(text)
    assert status_of("plan", *words) == 2
    import re

    assert re.search(message, one_line(capsys.readouterr().err).replace("\n", " "))


def test_errors_of_forward_have_file_and_line(folder: Path, one_line: Any) -> None:
    (folder / "my_model.py").write_text(
        textwrap.dedent(
            """
            import torch

            class Net(torch.nn.Module):
                def forward(self, x):
                    return x.no_such_thing()
            """
        )
    )
    with pytest.raises(InputError, match=r"my_model\.py, line 6: model Net") as error:
        emuchain.plan("my_model.py:Net", input="3x8x8")
    assert one_line(error)


def test_input_is_for_code_alone(one_line: Any) -> None:
    with pytest.raises(InputError, match="is for a model of your own code") as error:
        emuchain.plan("quick-cifar", input="3x8x8")
    assert one_line(error)


def test_a_name_of_code_is_not_run_elsewhere(folder: Path, one_line: Any) -> None:
    (folder / "my_model.py").write_text("open('ran', 'w').close()\n")
    with pytest.raises(InputError, match=r"give its model to `emuchain\.from_torch`") as error:
        load_network("my_model.py:f")
    assert one_line(error)
    assert status_of("network", "my_model.py:f") == 2
    assert not (folder / "ran").exists()
