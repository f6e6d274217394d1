"""Training on texts: the same bits however samples are split, lengths that differ, bits per
character.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.data import load_data, ngram_bits
from emuchain.emulator.run import Results, read_results

EACH = """\
name = "each"
symbols = 2
input = ["symbols", 24, 1]
layers = [
  { type = "embedding", features = 6 },
  { type = "lstm", units = 10, bidirectional = BOTH },
  { type = "conv", channels = "symbols", kernel = 1 },
  { type = "softmax" },
]
"""
CLASSIFIER = '{ type = "conv", channels = "symbols", kernel = 1 }'
LAST = EACH.replace(CLASSIFIER, '{ type = "last-step" }, { type = "fc", features = "symbols" }')


@pytest.fixture
def networks(tmp_path: Path) -> Path:
    """A folder with networks for texts: with results of each step, or of the last; one of both
    directions.
    """
    for name, text in (("each", EACH), ("last", LAST)):
        for both in ("false", "true"):
            (tmp_path / f"{name}-{both}.toml").write_text(text.replace("BOTH", both))
    return tmp_path


def trained(network: Path, **keys: Any) -> Results:
    """Train a network on the lines of the built-in text."""
    keys = {
        "text_samples": "lines",
        "schedule": "sync",
        "samples": 96,
        "test_samples": 40,
        "batch": 32,
        **keys,
    }
    return emuchain.train(str(network), **keys)


def bits_of(results: Results) -> dict[str, bytes]:
    """Return all weights as bytes."""
    return {
        f"{layer}/{name}": of.tobytes()
        for layer, arrays in results.weights.items()
        for name, of in arrays.items()
    }


@pytest.mark.parametrize("both", ["false", "true"])
@pytest.mark.parametrize("kind", ["each", "last"])
def test_the_same_bits_however_samples_are_split(networks: Path, kind: str, both: str) -> None:
    network = networks / f"{kind}-{both}.toml"
    expected = trained(network, devices=1, micro_batch=32)
    for devices, micro_batch in ((1, 1), (2, 5), (3, 16)):
        found = trained(network, devices=devices, micro_batch=micro_batch)
        assert bits_of(found) == bits_of(expected)
        for column in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
            assert found.history[column].tolist() == expected.history[column].tolist()


@pytest.mark.parametrize("kind", ["each", "last"])
def test_padding_changes_nothing(networks: Path, kind: str) -> None:
    """More time steps are more padding, where lines are no longer than before."""
    lines = load_data("text", 24, lines=True)
    longest = networks / "lines.txt"
    rows = [
        "".join(lines.classes[symbol] for symbol in row[0, :length, 0])
        for row, length in zip(lines.train_images[:150], lines.train_lengths, strict=False)  # type: ignore[arg-type]
    ]
    longest.write_text("\n".join(rows) + "\n")
    keys = {"data": str(longest), "samples": 64, "test_samples": 10, "devices": 1}
    few = trained(networks / f"{kind}-false.toml", **keys)
    more = trained(networks / f"{kind}-false.toml", **keys, time_steps=40)
    assert bits_of(few) == bits_of(more)
    assert few.history["test_loss"].tolist() == more.history["test_loss"].tolist()


def test_a_network_that_learns_nothing_has_the_bits_of_its_symbols(networks: Path) -> None:
    found = trained(networks / "each-false.toml", devices=1, learning_rate=1e-9)
    assert found.bits is not None
    data = load_data("text", 24, lines=True).first(96).test_first(40)
    assert found.bits[1] == ngram_bits(data)
    assert math.log2(28) - 0.5 < found.bits[0] < math.log2(28) + 1
    assert found.history["test_bits"].tolist() == [found.bits[0]]


def test_one_label_a_sample_has_no_bits(networks: Path) -> None:
    found = trained(networks / "last-false.toml", devices=1)
    assert found.bits is None
    assert "test_bits" not in found.history


def test_bits_a_character_fall_below_those_of_ngrams(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.h5"
    arguments = [
        "--learning-rate",
        "0.5",
        "--batch",
        "16",
        "--epochs",
        "2",
        "--devices",
        "1",
        "--out",
        str(out),
    ]
    with pytest.raises(SystemExit) as ended:
        main(["train", "char-lstm", *arguments])
    assert not ended.value.code
    said = " ".join(capsys.readouterr().out.split())
    results = read_results(out)
    assert results.bits is not None
    test, ngrams = results.bits
    assert test < ngrams.bigram < ngrams.unigram
    line = (
        f"bits per character: {test:.3f}; unigram model {ngrams.unigram:.3f}, bigram model"
        f" {ngrams.bigram:.3f}"
    )
    assert line in said
    assert np.isclose(results.history["test_loss"][-1] / math.log(2), test)
    with pytest.raises(SystemExit):
        main(["show", str(out)])
    shown = " ".join(capsys.readouterr().out.split())
    assert line in shown
    assert "lstm2 weight_hh_l0 512x128" in shown
    with pytest.raises(SystemExit) as ended:
        main(["report", str(out), "-o", str(tmp_path / "run.html")])
    assert not ended.value.code
    assert "lstm2 weight_hh_l0" in (tmp_path / "run.html").read_text(encoding="utf-8")
