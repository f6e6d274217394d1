"""Text as samples: windows and lines, the built-in text, and what the simplest models reach on
them.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset, describe_data, load_data, ngram_bits, symbol_count


def written(folder: Path, content: str | bytes) -> str:
    """Write a text; return its path."""
    path = folder / "a.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read_back(data: Dataset, numbers: np.ndarray) -> list[str]:
    """Return rows of symbols as text; what is ignored is left out."""
    return ["".join(data.classes[number] for number in row if number >= 0) for row in numbers]


def test_windows(tmp_path: Path) -> None:
    text = "abcdefgh" * 8  # 64 characters, of which the last 6 are the test
    data = load_data(written(tmp_path, text), 5)
    assert data.classes == tuple("abcdefgh")
    assert data.shape == (8, 5, 1)
    windows = read_back(data, data.train_images[:, 0, :, 0])
    assert "".join(windows) == text[:55]
    assert read_back(data, data.train_labels) == [text[at + 1 : at + 6] for at in range(0, 55, 5)]
    assert read_back(data, data.test_images[:, 0, :, 0]) == [text[58:63]]
    assert read_back(data, data.test_labels) == [text[59:64]]
    assert data.train_lengths is None
    assert describe_data(written(tmp_path, text), 5)[:4] == (11, 1, (8, 5, 1), 8)


def test_lines_are_padded_and_masked(tmp_path: Path) -> None:
    text = "ab\n\nabcdefg\nc\n" + "dd\n"
    data = load_data(written(tmp_path, text), 4, lines=True)
    assert data.train_lengths is not None
    assert data.test_lengths is not None
    inputs = read_back(data, data.train_images[:, 0, :, 0])
    assert [row[:length] for row, length in zip(inputs, data.train_lengths, strict=True)] == [
        "ab",
        "abcd",
        "efg",
        "c",
    ]
    assert read_back(data, data.train_labels) == ["b\n", "bcde", "fg\n", "\n"]
    assert data.train_labels[0].tolist() == [2, 0, -1, -1]
    assert read_back(data, data.test_labels) == ["d\n"]
    assert data.test_lengths.tolist() == [2]
    last = data.last_labels()
    assert read_back(data, last.train_labels[:, None]) == ["\n", "e", "\n", "\n"]
    fewer = data.first(2)
    assert fewer.train_lengths is not None
    assert fewer.train_lengths.tolist() == [2, 4]


def test_the_last_labels_of_windows(tmp_path: Path) -> None:
    data = load_data(written(tmp_path, "abcdefgh" * 8), 5)
    assert data.last_labels().train_labels.tolist() == data.train_labels[:, -1].tolist()


def test_symbols_of_many_bytes(tmp_path: Path) -> None:
    text = "äß漢字😀" * 20
    data = load_data(written(tmp_path, "\ufeff" + text), 3)
    assert data.classes == tuple(sorted("äß漢字😀"))
    assert read_back(data, data.train_images[:, 0, :, 0])[:2] == ["äß漢", "字😀ä"]
    assert symbol_count(written(tmp_path, text)) == 5


@pytest.mark.parametrize(
    ("content", "lines", "message"),
    [
        (b"", False, "a.txt: empty"),
        (b"\xef\xbb\xbf", False, "a.txt: empty"),
        (b"abc\xff\xfe", False, "a.txt: not UTF-8: byte 0xff at offset 3; save the text as UTF-8"),
        (
            b"a" * 99,
            False,
            (
                "99 characters, of which the last 10 % are the test; for windows of 9 steps at"
                " least 100"
            ),
        ),
        (
            b"a" * 99,
            True,
            "99 characters, of which the last 10 % are the test; there should be whole lines",
        ),
        (b"\n\n\n", True, "there should be whole lines"),
    ],
)
def test_bad_texts(tmp_path: Path, content: bytes, lines: bool, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_data(written(tmp_path, content), 9, lines=lines)


def test_a_text_that_is_just_long_enough(tmp_path: Path) -> None:
    data = load_data(written(tmp_path, "a" * 100), 9)
    assert data.n_test == 1


def test_no_such_text(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="nowhere.txt: no such file; give a text in UTF-8, or `text`"
    ):
        load_data(str(tmp_path / "nowhere.txt"))


def test_the_built_in_text_is_the_same_everywhere() -> None:
    data = load_data("text")
    text = "".join(read_back(data, data.train_images[:, 0, :, 0]))
    assert text.startswith("a link reads an early device.\n")
    assert hashlib.sha256(text.encode()).hexdigest().startswith("ec22234423f0")
    assert data.n_classes == symbol_count("text") == 28


def test_lines_of_the_built_in_text_differ_in_length() -> None:
    data = load_data("text", 64, lines=True)
    assert data.train_lengths is not None
    assert len(set(data.train_lengths.tolist())) > 20
    assert ((data.train_labels >= 0).sum(axis=1) == data.train_lengths).all()


def test_ngrams_of_a_text_by_hand(tmp_path: Path) -> None:
    """Training: aab then a; test: ab then b. Two symbols, and one added to every count."""
    data = load_data(written(tmp_path, "aaba" * 5), 1)
    train, test = "aaba" * 4 + "aa", "ba"
    assert (data.n_train, data.n_test) == (17, 1)
    labels = train[1:]
    single = {symbol: (labels.count(symbol) + 1) / (len(labels) + 2) for symbol in "ab"}
    pairs = list(zip(train, labels, strict=False))
    before = [first for first, _ in pairs]
    pair = (pairs.count((test[0], test[1])) + 1) / (before.count(test[0]) + 2)
    found = ngram_bits(data)
    assert found.unigram == pytest.approx(-math.log2(single[test[1]]))
    assert found.bigram == pytest.approx(-math.log2(pair))


def test_a_pair_that_never_occurred(tmp_path: Path) -> None:
    found = ngram_bits(load_data(written(tmp_path, "aaaaaaaaaaaaaaaaaacd"), 1))
    assert found.bigram == pytest.approx(
        math.log2(3)
    )  # nothing follows c in training: all three alike
    assert found.unigram == pytest.approx(math.log2(17 + 3))


def test_a_text_that_was_not_written_to_its_end(tmp_path: Path) -> None:
    """A file whose room was taken before it was written ends in zero bytes, which are UTF-8."""
    (tmp_path / "own.txt").write_bytes(b"to be, or not to be\n" * 50 + bytes(24))
    with pytest.raises(
        InputError,
        match=r"own.txt: not a text, or not written to its end: byte 0x00 at offset 1,000",
    ):
        load_data(str(tmp_path / "own.txt"))
