"""Text, character by character or by a tokenizer: any UTF-8 file, as windows or as lines.

A sample is a row of symbols, and the label of each is the symbol after it. Symbols are the
characters of the text in the order of their code points. The last tenth of the text is the test.

`text`: sentences drawn from a small grammar, which need no download. Verbs agree with their
subject, even if a clause stands between them: this takes more memory than the letter before. As for
`shapes`, all is integer arithmetic on a counter-based hash, so the text is the same on every
machine.

For comparison, n-grams are the simplest models of a text.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, format_bytes, free_room, looks_like_text, read_file
from .dataset import Dataset
from .files import other_data
from .lazy import Images
from .shapes import splitmix64
from .tokens import Symbols, masked, symbol_names, symbols_of_text

SENTENCES = "text"
CHARACTERS = 200_000

_SEED = 1 << 40  # of the hash's counters, away from those of images
_ADJECTIVES = ("small", "large", "fast", "slow", "early", "late", "quiet", "narrow")
_NOUNS = (
    "board",
    "link",
    "engine",
    "buffer",
    "row",
    "layer",
    "sample",
    "device",
    "window",
    "kernel",
)
_VERBS = ("send", "take", "keep", "hold", "count", "read", "move", "need", "follow", "join")
_PLACES = (
    "on the left",
    "on the right",
    "at the end",
    "in the middle",
    "behind the port",
    "in memory",
)
_LINKS = ("and", "but", "while", "so")


@functools.cache
def sentences(characters: int = CHARACTERS) -> str:
    """Return at least this many characters of sentences, one a line."""
    made, length, grammar = [], 0, _Grammar()
    while length < characters:
        made.append(grammar.sentence())
        length += len(made[-1])
    return "".join(made)


class _Grammar:
    """Draws sentences; each choice takes the hash's next number."""

    def __init__(self) -> None:
        self._numbers = self._drawn()

    def _drawn(self) -> Iterator[int]:
        for block in range(1 << 20):
            counters = np.arange(_SEED + (block << 16), _SEED + (block + 1 << 16), dtype=np.uint64)
            yield from (splitmix64(counters) >> np.uint64(33)).tolist()

    def _one_in(self, count: int) -> bool:
        return next(self._numbers) % count == 0

    def _one_of(self, words: tuple[str, ...]) -> str:
        return words[next(self._numbers) % len(words)]

    def sentence(self) -> str:
        """Return a sentence with its line feed."""
        words = self._clause()
        if self._one_in(3):
            words += f", {self._one_of(_LINKS)} {self._clause()}"
        return f"{words}.\n"

    def _clause(self) -> str:
        subject, is_plural = self._noun_phrase(may_have_clause=True)
        return f"{subject} {self._verb_phrase(is_plural)}"

    def _verb_phrase(self, is_plural: bool) -> str:
        words = self._one_of(_VERBS) + ("" if is_plural else "s")
        words += f" {self._noun_phrase(may_have_clause=False)[0]}"
        return f"{words} {self._one_of(_PLACES)}" if self._one_in(3) else words

    def _noun_phrase(self, *, may_have_clause: bool) -> tuple[str, bool]:
        """Return a noun with what belongs to it, and whether it is plural."""
        is_plural = self._one_in(2)
        article = self._one_of(("the", "some", "two") if is_plural else ("the", "a", "one"))
        noun = self._one_of(_NOUNS) + "s" * is_plural
        if self._one_in(2):
            noun = f"{self._one_of(_ADJECTIVES)} {noun}"
        words = f"{'an' if article == 'a' and noun[0] in 'ae' else article} {noun}"
        if may_have_clause and self._one_in(4):
            words += f" that {self._verb_phrase(is_plural)}"
        return words, is_plural


SUFFIX = ".txt"
IGNORED = -1
"""The label of padded steps."""

_TEST_SHARE = 10  # the last tenth of the characters is for test

_Samples = tuple[
    Symbols, NDArray[np.int64], NDArray[np.int64]
]  # symbols (n, steps), labels (n, steps), lengths (n,)

_MOST_BYTES = 2**30
_BYTES_OF_A_CHARACTER = (
    16  # of its symbol, 4, of its label, 8, and of one of both while they are made
)


def is_text(where: str) -> bool:
    """Return whether this names a text: the built-in one, or a file whose name ends in .txt."""
    return where == SENTENCES or where.endswith(SUFFIX)


def read_text(where: str) -> str:
    """Return the built-in text, or that of a file.

    Raises:
        InputError: the file cannot be read, is empty, or is not UTF-8.
    """
    if where == SENTENCES:
        return sentences()
    path = Path(where)
    try:
        content = read_file(path, _MOST_BYTES)
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; give a text in UTF-8, or `{SENTENCES}`, which is built in"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{where!r}: cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from None
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if not looks_like_text(content):
            raise other_data(path, "not a text") from None
        byte = content[error.start]
        raise InputError(
            f"{path}: not UTF-8: byte 0x{byte:02x} at offset {error.start:,}; save the text as"
            " UTF-8"
        ) from None
    if "\0" in text:
        raise InputError(
            f"{path}: not a text, or not written to its end: byte 0x00 at offset"
            f" {content.index(0):,}; write it again"
        )
    if not text:
        raise InputError(f"{path}: empty; a text has characters to learn from")
    return text


def symbol_count(where: str, tokenizer: str | None = None, *, masks: bool = False) -> int:
    """Return the number of different symbols of a text. Raises InputError as `read_text` and
    `symbols_of_text` do.
    """
    text = "" if tokenizer else read_text(where)
    return len(symbol_names(text, tokenizer, masks=masks))


def load_text(
    where: str,
    steps: int,
    *,
    lines: bool = False,
    tokenizer: str | None = None,
    masked_share: float = 0.0,
    seed: int = 1,
) -> Dataset:
    """Return a text as samples of `steps` symbols: windows side by side, or lines, which are padded
    at the end.

    Symbols are characters, or those of a `tokenizer`'s file. A line ends with its last symbol, a
    line feed mostly, which is a label and no input; of one that is longer, each `steps` symbols are
    a sample. With a `masked_share`, labels are those of masked words in place of the next symbols
    (`tokens.masked`), drawn by the seed. Raises InputError as `read_text` and `symbols_of_text` do,
    and for a text that is too short for a sample of each part.
    """
    text, masks = read_text(where), masked_share > 0
    size_bytes, room = _BYTES_OF_A_CHARACTER * len(text), free_room()
    if size_bytes > room.free_bytes:
        raise InputError(
            f"{where}: {len(text):,} characters would take about {format_bytes(size_bytes)} of"
            f" memory, and {room.limit} {format_bytes(room.free_bytes)}; give a shorter text"
        )
    said = symbols_of_text(text, tokenizer, masks=masks)
    count, ahead = len(said.numbers), 0 if masks else 1
    cut = count - count // _TEST_SHARE
    if lines:
        cut = int(max(said.ends[said.ends < cut], default=-1)) + 1
        pieces = [
            _line_pieces(begin, end + 1 - ahead, steps) for begin, end in _lines(said.ends, count)
        ]
        places = [place for piece in pieces for place in piece]
        train = [place for place in places if place[0] < cut]
        test = [place for place in places if place[0] >= cut]
    else:
        train, test = (
            _windows(begin, end - ahead, steps) for begin, end in ((0, cut), (cut, count))
        )
    if not train or not test:
        needed = (
            f"for windows of {steps:,} steps at least {_TEST_SHARE * (steps + ahead):,} are needed"
        )
        if lines:
            needed = "there should be whole lines before and among them"
        noun = "symbols" if tokenizer else "characters"
        raise InputError(
            f"{where}: {count:,} {noun}, of which the last {100 // _TEST_SHARE} % are the test;"
            f" {needed}"
        )
    (symbols, labels, lengths), (test_symbols, test_labels, test_lengths) = (
        _samples(said.numbers, part, steps, ahead) for part in (train, test)
    )
    if masks:
        symbols, labels = masked(symbols, labels, said, masked_share, 0, seed)
        test_symbols, test_labels = masked(test_symbols, test_labels, said, masked_share, 1, seed)
    name = where if where == SENTENCES else Path(where).name
    maps = symbols[:, None, :, None], test_symbols[:, None, :, None]
    differ = (lengths, test_lengths) if lines else (None, None)
    parts = maps[0], labels, maps[1], test_labels, said.names
    data = Dataset(name, *parts, symbols=len(said.names), by_targets=masks)
    return dataclasses.replace(data, train_lengths=differ[0], test_lengths=differ[1])


def _windows(begin: int, end: int, steps: int) -> list[tuple[int, int]]:
    """Return begin and length of each window between two places, all of whose labels lie there,
    too.
    """
    return [(first, steps) for first in range(begin, end - steps + 1, steps)]


def _lines(ends: NDArray[np.int64], characters: int) -> list[tuple[int, int]]:
    """Return begin and end of each line; its end is the place of its line feed, or its last
    character's.
    """
    begins = [0, *(ends + 1).tolist()]
    return list(zip(begins, [*ends.tolist(), characters - 1], strict=True))


def _line_pieces(begin: int, end: int, steps: int) -> Sequence[tuple[int, int]]:
    """Return begin and length of the samples of a line."""
    return [(first, min(steps, end - first)) for first in range(begin, end, steps)]


def _samples(
    numbers: Symbols, places: Sequence[tuple[int, int]], steps: int, ahead: int
) -> _Samples:
    begins, lengths = np.array(places, np.int64).T
    step = np.arange(steps)
    holds = step < lengths[:, None]
    at = np.minimum(begins[:, None] + step, len(numbers) - 1 - ahead)
    symbols = np.where(holds, numbers[at], 0).astype(np.int32)
    labels = np.where(holds, numbers[at + ahead], IGNORED).astype(np.int64)
    return symbols, labels, lengths


class NgramBits(NamedTuple):
    """Bits a character of both models on the test part."""

    unigram: float
    bigram: float


def ngram_bits(data: Dataset) -> NgramBits:
    """Return the mean cross-entropy, in bits, of the test's labels under models that count the
    training labels.

    The unigram model goes by how often a symbol is, the bigram model by how often it follows the
    one before it. One is added to every count (Laplace's rule), so that what never occurred has a
    probability.
    """
    before, symbols = _followed(data.train_images, data.train_labels)
    test_before, test_symbols = _followed(data.test_images, data.test_labels)
    single = np.bincount(symbols, minlength=data.symbols) + 1
    followed = np.bincount(before, minlength=data.symbols) + data.symbols
    codes, counts = np.unique(before * data.symbols + symbols, return_counts=True)
    test_codes = test_before * data.symbols + test_symbols
    places = np.minimum(np.searchsorted(codes, test_codes), len(codes) - 1)
    pairs = np.where(codes[places] == test_codes, counts[places], 0) + 1
    return NgramBits(
        _bits(single[test_symbols] / single.sum()), _bits(pairs / followed[test_before])
    )


def _followed(
    images: Images, labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all symbols that have a label, and their labels."""
    counts = labels >= 0
    return np.asarray(images)[:, 0, :, 0][counts].astype(np.int64), labels[counts]


def _bits(probabilities: NDArray[np.float64]) -> float:
    return float(-np.log2(probabilities).mean())
