"""`text`: sentences drawn from a small grammar, which need no download.

Verbs agree with their subject, even if a clause stands between them: this takes more memory than the letter before. As
for `shapes`, all is integer arithmetic on a counter-based hash, so the text is the same on every machine.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from .shapes import splitmix64

SENTENCES = "text"
CHARACTERS = 200_000

_SEED = 1 << 40  # of the hash's counters, away from those of images
_ADJECTIVES = ("small", "large", "fast", "slow", "early", "late", "quiet", "narrow")
_NOUNS = ("board", "link", "engine", "buffer", "row", "layer", "sample", "device", "window", "kernel")
_VERBS = ("send", "take", "keep", "hold", "count", "read", "move", "need", "follow", "join")
_PLACES = ("on the left", "on the right", "at the end", "in the middle", "behind the port", "in memory")
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
