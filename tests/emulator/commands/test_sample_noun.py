"""What samples are called: images where the data are images, samples where they are text; JSON keys
stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.view.page import Run, alone
from emuchain.emulator.view.page.boards import roofs
from emuchain.emulator.view.page.outcome import comparison, figures, headline

from .running import with_network

Said = Callable[..., str]
PAIR = ("--schedule", "farnn", "--cluster", "farnn-9p")
FEW = ("--samples", "64", "--test-samples", "20")
COMMANDS = [
    ("simulate", "--devices", "2", "--samples", "100"),
    (
        "simulate",
        "--devices",
        "2",
        "--samples",
        "64",
        "--schedule",
        "sync",
        "--what-if",
        "link.bandwidth_gbps=1",
    ),
    (
        "simulate",
        "--devices",
        "2",
        "--samples",
        "64",
        "--schedule",
        "1f1b-so",
        "--engines",
        "turns",
    ),
    ("simulate", *PAIR, "--samples", "64"),
    ("plan", "--devices", "2"),
    ("plan", "--devices", "2", "--schedule", "1f1b-so"),
    ("sweep", "--devices", "1-2"),
    ("study", "topology", "--devices", "2-3"),
    ("train", "--devices", "2", *FEW),
    ("train", *PAIR, *FEW),
]
"""Commands, which say a rate or count samples, without their network."""


@pytest.fixture
def said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Said:
    monkeypatch.chdir(tmp_path)

    def said(*arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        found = capsys.readouterr()
        assert ended.value.code == status, found.err
        return found.out + found.err

    return said


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_text_has_no_images(said: Said, words: tuple[str, ...]) -> None:
    found = said(*with_network(words, "char-lstm"))
    assert "image" not in found
    assert "samples" in found


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_images_read_by_rows_are_images(said: Said, words: tuple[str, ...]) -> None:
    found = said(*with_network(words, "lstm-rows"))
    assert re.search(r"images/s|\d images", found)
    assert "samples/s" not in found


def test_results(said: Said) -> None:
    for network, noun, other in (
        ("char-lstm", "sample", "image"),
        ("lstm-rows", "image", "sample"),
    ):
        said("train", network, "--devices", "2", *FEW, "--out", f"{network}.h5")
        shown, again = (
            said("show", f"{network}.h5"),
            said("retime", f"{network}.h5", "--cluster", "vc709-10g"),
        )
        for found in (shown, again):
            assert f"{noun}s/s" in found and f"{other}s/s" not in found
        assert f"(64 {noun}s)" in shown
        retimed = emuchain.retime(f"{network}.h5", "vc709-10g")
        assert f"{noun}s/s" in repr(retimed) and f"{noun}s/s" in retimed._repr_html_()


def test_a_page() -> None:
    runs = {}
    for network in ("char-lstm", "lstm-rows"):
        results = emuchain.train(network, devices=2, samples=64, test_samples=20)
        runs[network] = Run.of(network, results)
    text, images = runs["char-lstm"], runs["lstm-rows"]
    for run, noun in ((text, "sample"), (images, "image")):
        [rate] = [
            figure.value
            for figure in figures(*alone([run]))
            if figure.name == "Rate on the cluster"
        ]
        assert rate.endswith(f" {noun}s/s")
        assert f" of 64 {noun}s, in " in headline(*alone([run]))
        section = roofs(run)
        assert section is not None
        assert section.charts[0].data["unit"] == f"{noun}s/s" and section.charts[0].title.endswith(
            f", in {noun}s/s"
        )
        assert f"{noun}s/s" in comparison(alone([run, run]))[0].columns
    assert "samples/s" in comparison(alone([text, images]))[0].columns


def test_objects() -> None:
    for network, noun in (("char-lstm", "samples"), ("lstm-rows", "images")):
        plan = emuchain.plan(network, devices=2, samples=64)
        assert f" {noun}/s, limited by " in repr(plan) and f" {noun}/s</td>" in plan._repr_html_()
        state, found = emuchain.steady_state(plan), emuchain.simulate(plan)
        assert f" {noun}/s, limited by " in repr(state) and f" {noun}/s</td>" in state._repr_html_()
        assert f" x 64 {noun} in " in repr(found) and f" {noun}/s</td>" in found._repr_html_()


def test_keys_of_json_stay(said: Said) -> None:
    flags = ("char-lstm", "--devices", "2", "--samples", "64", "--json")
    assert json.loads(said("simulate", *flags))["images_per_s"] > 0
    assert (
        json.loads(said("sweep", "char-lstm", "--devices", "1-2", "--json"))["best"]["images_per_s"]
        > 0
    )


def test_too_many_samples(said: Said) -> None:
    message = "but text has 2813 training samples"
    assert message in said("train", "char-lstm", "--samples", "9999", status=2)
    assert message in said("simulate", "char-lstm", "--data", "text", "--samples", "9999", status=2)
    assert "but shapes has 10000 training images" in said("train", "--samples", "99999", status=2)
