"""Progress in a notebook, in the output of a cell, and nothing of it elsewhere; the library's
log.
"""

from __future__ import annotations

import logging
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

import emuchain
from emuchain.emulator.view import call_announce, call_progress
from emuchain.emulator.view.notebook import NotebookProgress, in_notebook
from emuchain.emulator.view.progress import PlainProgress, SilentProgress

pytest.importorskip("IPython")
SHORT: Any = {"samples": 64, "test_samples": 32, "epochs": 2, "batch": 32, "devices": 2}


class Cell:
    """The output of a cell: what is displayed, and each form that it takes."""

    def __init__(self) -> None:
        self.displays, self.forms = 0, list[str]()

    def display(self, shown: Any, *, display_id: bool) -> Cell:
        assert display_id
        self.displays += 1
        self.update(shown)
        return self

    def update(self, shown: Any) -> None:
        self.forms.append(shown.data)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A notebook's cell, whose kernel is this process."""
    import IPython
    import IPython.display

    cell = Cell()
    monkeypatch.setattr(IPython, "get_ipython", lambda: type("Shell", (), {"kernel": True})())
    monkeypatch.setattr(IPython.display, "display", cell.display)
    return cell


def test_a_run_in_a_cell(cell: Cell) -> None:
    assert in_notebook()
    run = emuchain.train(**SHORT)
    assert cell.displays == 1
    assert '<progress max="128" value="0">' in cell.forms[0]
    last = cell.forms[-1]
    assert '<progress max="128" value="128">' in last
    assert "epoch 2/2  loss " in last and "<br>epoch 1/2 done: loss " in last
    assert f"test accuracy {100 * run.test_accuracy:.2f} %" in last


def test_it_is_redrawn_now_and_then(cell: Cell) -> None:
    times = iter([0.0, 0.05, 0.1, 0.35, 0.4, 0.5])
    progress = NotebookProgress(clock=lambda: next(times))
    progress.start(100, 1)
    for done in (10, 20, 30, 40):
        progress.step(done, 1, 1.0, 0.5, 1000)
    progress.close()
    values = [re.findall(r'value="(\d+)"', form) for form in cell.forms]
    assert values == [["0"], ["30"], ["40"]]


def test_text_of_others_is_no_html(cell: Cell) -> None:
    progress = NotebookProgress()
    progress.start(1, 1)
    progress.note("<script>")
    assert "<script>" not in cell.forms[-1] and "&lt;script&gt;" in cell.forms[-1]


def test_points_in_a_cell(cell: Cell) -> None:
    emuchain.sweep("quick-cifar", devices=[1, 2, 3], jobs=1)
    assert cell.displays == 1 and "sweep: 3 of 3 points" in cell.forms[-1]
    emuchain.study(data="shapes", samples=32, test_samples=32, seeds=2, jobs=1)
    assert cell.displays == 2 and "study: 2 of 2 points" in cell.forms[-1]


def test_elsewhere(capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    """Nothing is printed unless a call says so, and then by lines as those of the command."""
    assert not in_notebook() and isinstance(call_progress("auto"), SilentProgress)
    assert isinstance(call_progress("plain"), PlainProgress)
    assert isinstance(call_progress("plain", rank=1), SilentProgress)
    with call_announce("sweep")(3, 0) as advance:
        advance()
    emuchain.train(**SHORT)
    assert capfd.readouterr() == ("", "")
    emuchain.train(**SHORT, progress="plain")
    shown = capfd.readouterr().out.splitlines()
    assert [line.partition(" done")[0] for line in shown] == ["epoch 1/2", "epoch 2/2"]


def test_the_log_of_a_run(caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path) -> None:
    keys = {**SHORT, "checkpoint": str(tmp_path / "run.ckpt")}
    with caplog.at_level(logging.DEBUG, logger="emuchain"):
        run = emuchain.train(**keys, on_epoch=lambda result, _: result.epoch == 1)
    said = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert {name for name, _, _ in said} == {"emuchain.train"}
    infos = [text for _, level, text in said if level == "INFO"]
    assert infos[0] == "quick-cifar on 2 x VC709, fpdeep, shapes: 64 samples, seed 1"
    assert infos[1].startswith(f"epoch 1/2 done: loss {run.history['train_loss'][0]:.4f}")
    steps = [text for _, level, text in said if level == "DEBUG"]
    assert steps == [
        f"mini-batch {number}: loss {loss:.4f}, virtual time {time_ps} ps"
        for number, (loss, time_ps) in enumerate(
            zip(run.steps["loss"], run.steps["virtual_time_ps"], strict=True), 1
        )
    ]


def test_the_log_of_points(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="emuchain"):
        emuchain.sweep("quick-cifar", devices=[1, 2], jobs=1)
    said = [record.getMessage() for record in caplog.records if record.name == "emuchain.sweep"]
    assert said[0] == "2 points, 0 of them in the file" and len(said) == 3
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="emuchain.study"):
        emuchain.study(data="shapes", samples=32, test_samples=32, seeds=2, jobs=1)
    said = [record.getMessage() for record in caplog.records if record.name == "emuchain.study"]
    assert said[0] == "2 runs, 0 of them in the file" and len(said) == 3


def test_a_program_without_a_log(tmp_path: pathlib.Path) -> None:
    """Neither lines nor warnings about handlers."""
    text = "import emuchain; emuchain.sweep('quick-cifar', devices=[1], jobs=1)\n"
    text += "import logging; assert logging.getLogger('emuchain').handlers, 'none'"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
