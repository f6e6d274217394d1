"""`emuchain validate`: tables, JSON, Markdown, pictures, and bad input as one line."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import results_of, write_results
from emuchain.papers import draw_pictures, load_claims
from emuchain.papers.commands import validate
from emuchain.papers.fpdeep import pictures


def printed(*arguments: str) -> str:
    """What the command prints when it succeeds."""
    result = CliRunner().invoke(validate, ["fpdeep", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tables() -> None:
    text = printed("--only", "t6-alexnet")
    words = " ".join(text.split())
    assert re.search(r"fpdeep-t6-alexnet-hours 0.17 h 0.1\d+ [+-]\d+.\d % off", words)
    assert re.search(
        r"fpdeep-t6-alexnet-gops 1157 GOPS 1\d+ [+-]\d+.\d % within, no better than a guess", words
    )
    assert "fpdeep, fitted: published and measured" in words
    assert words.startswith("predictions: ")
    assert re.search(r"other classes: .*fitted \d of \d; 0 not run", words)


def test_deviations_are_explained_and_claims_not_run_have_a_reason() -> None:
    text = printed("--only", "bram-util")
    assert load_claims("fpdeep")["fpdeep-bram-util-15"].explanation in " ".join(text.split())
    text = printed("--only", "t6-titanx")
    assert "not run: fpdeep-t6-titanx-alexnet-gops and 1 more: A baseline" in " ".join(text.split())


def test_json() -> None:
    [found] = json.loads(printed("--only", "t6-vgg16-gops", "--json"))[:1]
    assert found["id"] == "fpdeep-t6-vgg16-gops"
    assert (found["value"], found["unit"], found["expect"]) == (
        1197,
        "GOPS",
        {"near": 1197, "tolerance": 0.05},
    )
    assert found["ours"] == pytest.approx(1197 * (1 + found["deviation"]))
    assert found["verdict"] == ("within" if abs(found["deviation"]) <= 0.05 else "off")
    assert (found["class"], found["null"], found["guess_is_good"], found["confirmed"]) == (
        "fitted",
        1191,
        True,
        False,
    )
    assert {"where", "kind", "quantity", "setting", "not_run", "explanation", "how"} <= found.keys()
    [idle] = json.loads(printed("--only", "symbols", "--json"))
    assert (idle["verdict"], idle["ours"], idle["expect"]) == ("not run", None, None)


def test_markdown() -> None:
    lines = printed("--only", "eq", "--markdown").splitlines()
    assert lines[0] == "| claim | published | ours | deviation | verdict | class | how |"
    assert all(line.count(" | ") == 6 for line in lines[2 : lines.index("")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["other"], "`paper` = 'other': known: accl, bapipe, deepbench, farnn"),
        (["hardwear"], "did you mean `hardware`? known: accl, bapipe"),
        (["fpdeep", "--only", "nothing"], "no claim id of fpdeep begins with it"),
        (["../clusters/vc709"], "known: accl, bapipe, deepbench, farnn"),
    ],
)
def test_bad_input(arguments: list[str], message: str) -> None:
    error = CliRunner().invoke(validate, arguments).exception
    assert isinstance(error, InputError)
    assert message in str(error)


def test_scaling_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(pictures, "SIZES", (5, 15))
    monkeypatch.setattr(pictures.scaling, "linear_limit", lambda name: 10)
    pictures.draw_scaling(tmp_path / "fig15.png")
    assert (tmp_path / "fig15.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="does not exist"):
        pictures.draw_scaling(tmp_path / "none" / "fig15.png")


def write_run(path: Path, plan: ChainPlan) -> None:
    """Write the results of two epochs."""
    empty = results_of(plan, samples=100, history=[], weights={}, versions={"emuchain": "0"})
    history = {
        name: np.zeros(2, np.int64 if name.endswith("_ps") else np.float64)
        for name in empty.history
    }
    history |= {"epoch": np.array([1, 2]), "test_accuracy": np.array([0.5, 0.6])}
    write_results(path, dataclasses.replace(empty, history=history))


def test_convergence_is_drawn_from_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="has no results files"):
        pictures.draw_convergence(tmp_path, tmp_path / "fig16.png")
    for network in ("vgg16-cifar", "alexnet-cifar"):
        for schedule in ("sync", "fpdeep"):
            for seed in (1, 2):
                planned = emuchain.plan(network, devices=4, schedule=schedule, seed=seed, epochs=2)
                write_run(tmp_path / f"{network}-{schedule}-{seed}.h5", planned)
    write_run(tmp_path / "unfinished.h5", emuchain.plan("quick-cifar", devices=4, epochs=3))
    figures: list[Any] = []
    save = pictures.save_figure

    def kept(figure: Any, *arguments: Any) -> None:
        figures.append(figure)
        save(figure, *arguments)

    monkeypatch.setattr(pictures, "save_figure", kept)
    pictures.draw_convergence(tmp_path, tmp_path / "fig16.png")
    assert [axes.get_title() for axes in figures[0].axes] == ["alexnet-cifar", "vgg16-cifar"]
    labels = [text.get_text() for text in figures[0].axes[0].get_legend().get_texts()]
    assert labels == ["fpdeep, 4 FPGAs, 2 seeds", "sync, 4 FPGAs, 2 seeds"]
    assert (tmp_path / "fig16.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_need_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'emuchain\[plot\]'"):
        pictures.draw_scaling(tmp_path / "fig15.png")
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        draw_pictures("fpdeep", Path("/dev/null/x"), None)
