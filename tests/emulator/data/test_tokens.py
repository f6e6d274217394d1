"""Masked words, and symbols of a text that a tokenizer's file makes; of the latter some run on a
stand-in of the package, which not every environment has.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset, Reading, load_data, symbol_count
from emuchain.emulator.data.text import sentences
from emuchain.emulator.data.tokens import read_tokenizer

STEPS, SHARE = 20, 0.15
WORDS = ["[PAD]", "[UNK]", "[MASK]", "the", "a", "board", "link", "sends"]


def masked(seed: int = 1, share: float = SHARE, **keys: Any) -> Dataset:
    return load_data("text", STEPS, reading=Reading(masked_share=share, seed=seed), **keys)


def test_shares_of_masked_words() -> None:
    """Of a share of the symbols the targets are the symbols themselves; of these, 80 % are masked,
    10 % another symbol; all others are as they are in the text, and have no target.
    """
    data, plain = masked(), load_data("text", STEPS)
    assert data.classes == (*plain.classes, "[MASK]") and data.symbols == plain.symbols + 1
    assert data.symbols == symbol_count("text", masks=True)
    whole = sentences()
    points = {symbol: number for number, symbol in enumerate(plain.classes)}
    text = np.array([points[symbol] for symbol in whole])[: data.n_train * STEPS]
    text = text.reshape(-1, STEPS)
    inputs, labels = np.asarray(data.train_images)[:, 0, :, 0], data.train_labels
    chosen = labels >= 0
    assert (labels[chosen] == text[chosen]).all() and (inputs[~chosen] == text[~chosen]).all()
    count = chosen.sum()
    assert abs(count / chosen.size - SHARE) < 0.005
    is_mask = inputs[chosen] == data.symbols - 1
    kept = inputs[chosen] == text[chosen]
    assert abs(is_mask.mean() - 0.8) < 0.01
    assert abs(kept.mean() - (0.1 + 0.1 / plain.symbols)) < 0.01
    replaced = inputs[chosen][~is_mask & ~kept]
    assert set(np.unique(replaced)) == set(range(plain.symbols))


def test_draws_follow_from_the_seed() -> None:
    one, again, other = masked(), masked(), masked(seed=2)
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
    assert (one.train_labels != other.train_labels).any()
    first = len(one.test_labels)
    assert ((one.train_labels[:first] >= 0) != (one.test_labels >= 0)).any()


def test_lines_of_masked_words(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("ab\n\nabcdefg\nc\n" + "dd\n")
    reading = Reading(masked_share=0.999999)
    data = load_data(str(path), 4, lines=True, reading=reading)
    said = [
        "".join(data.classes[symbol] for symbol in row if symbol >= 0) for row in data.train_labels
    ]
    assert said == ["ab\n", "\n", "abcd", "efg\n", "c\n"]
    assert data.train_lengths is not None and data.train_lengths.tolist() == [3, 1, 4, 4, 2]


def test_what_is_for_texts(tmp_path: Path) -> None:
    for keys in ({"masked_share": 0.15}, {"tokenizer": "t.json"}):
        with pytest.raises(InputError, match=f"`{next(iter(keys))}` is for a text"):
            load_data("shapes", reading=Reading(**keys))


LAYERS = [
    {"type": "embedding", "features": 16, "name": "words"},
    {"type": "positions", "name": "x"},
    {"type": "conv", "channels": 48, "kernel": 1, "name": "qkv"},
    {"type": "attention", "heads": 2},
    {"type": "conv", "channels": 16, "kernel": 1, "name": "project"},
    {"type": "add", "from": ["project", "x"]},
    {"type": "layer-norm"},
    {"type": "conv", "channels": "symbols", "kernel": 1, "name": "head"},
    {"type": "softmax"},
]
BERT = {"name": "small-bert", "input": ["symbols", STEPS, 1], "symbols": 29, "layers": LAYERS}


def trained(**keys: Any) -> emuchain.Results:
    given = {"masked_share": SHARE, "samples": 64, "test_samples": 16, "batch": 16, **keys}
    return emuchain.train(BERT, data="text", schedule="sync", progress="none", **given)


def test_masked_words_train_alike_on_any_devices() -> None:
    one = trained()
    for keys in ({"devices": 3}, {"devices": 2, "micro_batch": 4}, {"devices": 2, "replicas": 2}):
        other = trained(**keys)
        if "devices" in keys and "replicas" not in keys and "micro_batch" not in keys:
            for name, arrays in one.weights.items():
                for kind, array in arrays.items():
                    np.testing.assert_array_equal(other.weights[name][kind], array)
        np.testing.assert_allclose(
            other.history["train_loss"], one.history["train_loss"], rtol=1e-4
        )
    fitted = trained(epochs=8, optimizer="adam", learning_rate=0.01)
    assert fitted.history["train_loss"][-1] < fitted.history["train_loss"][0]
    again = emuchain.evaluate(one)
    assert again.test_loss == pytest.approx(float(one.history["test_loss"][-1]), rel=1e-6)


class StandIn:
    """A tokenizer of words, with the calls that are made of the package's."""

    @staticmethod
    def from_str(said: str) -> StandIn:
        StandIn.names = json.loads(said)["model"]["vocab"]
        return StandIn()

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        assert not add_special_tokens
        numbers = [self.names.get(word, 1) for word in text.split()]
        return types.SimpleNamespace(ids=numbers)

    def encode_batch(self, texts: list[str], *, add_special_tokens: bool) -> list[Any]:
        return [self.encode(text, add_special_tokens=add_special_tokens) for text in texts]

    def decode(self, numbers: list[int]) -> str:
        return " ".join(WORDS[number] for number in numbers)

    def token_to_id(self, name: str) -> int | None:
        return self.names.get(name)

    def get_vocab(self) -> dict[str, int]:
        return dict(self.names)

    def get_vocab_size(self) -> int:
        return len(self.names)


@pytest.fixture(params=["stand-in", "tokenizers"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The path of a tokenizer's file: of the stand-in, or of the package, where it is installed."""
    model = {"type": "WordLevel", "unk_token": "[UNK]"}
    said = {
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {**model, "vocab": {word: number for number, word in enumerate(WORDS)}},
    }
    if request.param == "stand-in":
        monkeypatch.setitem(sys.modules, "tokenizers", types.SimpleNamespace(Tokenizer=StandIn))
    else:
        pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(said))
    return str(path)


def test_a_text_of_tokens(tokenizer: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("the board sends a link\n\na what sends the board\n" * 6)
    data = load_data(str(path), 4, reading=Reading(tokenizer=tokenizer))
    assert data.classes == tuple(WORDS) and data.shape == (8, 4, 1)
    assert symbol_count(str(path), tokenizer) == 8
    inputs = np.asarray(data.train_images)[:, 0, :, 0]
    assert inputs[:2].tolist() == [[3, 5, 7, 4], [6, 4, 1, 7]]
    assert data.train_labels[:2].tolist() == [[5, 7, 4, 6], [4, 1, 7, 3]]
    lines = load_data(str(path), 8, lines=True, reading=Reading(tokenizer=tokenizer))
    assert lines.train_lengths is not None and set(lines.train_lengths.tolist()) == {4}
    hidden = load_data(str(path), 5, reading=Reading(tokenizer=tokenizer, masked_share=0.5))
    assert hidden.classes == tuple(WORDS) and (np.asarray(hidden.train_images) == 2).any()


def test_a_run_of_tokens_goes_on_with_words(
    tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("the board sends a link\na link sends the board\n" * 60)
    keys: Any = {"data": "a.txt", "tokenizer": tokenizer, "schedule": "sync", "batch": 8}
    network = "char-gpt"
    run = emuchain.train(network, time_steps=8, progress="none", out="run.h5", **keys)
    assert run.weights["head"]["weight"].shape[0] == len(WORDS)
    said = emuchain.generate("run.h5", "the board", length=5, temperature=0)
    assert said.startswith("the board ") and len(said.split()) == 7
    with pytest.raises(InputError, match="makes no symbol of it"):
        emuchain.generate(run, " ", length=5)


def test_bad_tokenizers(tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_tokenizer(str(tmp_path / "none.json"))
    bad = tmp_path / "bad.json"
    for content in (b"\xff\xfe", b"{}", b"[1]", b"cos\nsystem\n(S'true'\ntR."):
        bad.write_bytes(content)
        with pytest.raises(InputError, match="`tokenizer` = ") as error:
            read_tokenizer(str(bad))
        assert len(str(error.value).splitlines()) == 1
    said = json.loads(Path(tokenizer).read_text())
    del said["model"]["vocab"]["[MASK]"]
    bad.write_text(json.dumps(said))
    with pytest.raises(InputError, match=r"has no symbol \[MASK\]"):
        load_data("text", 4, reading=Reading(tokenizer=str(bad), masked_share=0.15))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match="extra `tokenizers`"):
        read_tokenizer(tokenizer)
