"""What makes symbols of a text: its characters, or a tokenizer's file, which is JSON and runs
nothing; and masked words.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, read_file

Symbols = NDArray[np.int32]
MASK = "[MASK]"
_MASKS = MASK, "<mask>"
_MASKED, _REPLACED = 0.8, 0.1
"""Shares of chosen symbols that become the mask, and another symbol; the rest stay (BERT, 3.1)."""
_MOST_BYTES = 1 << 28
_LINES = 1000
_STREAM = 1 << 62


@dataclasses.dataclass(frozen=True)
class TextSymbols:
    """A text as numbers of symbols, the place of each line's last symbol, and the symbols' names;
    the number of the mask, or -1.
    """

    numbers: Symbols
    ends: NDArray[np.int64]
    names: tuple[str, ...]
    mask: int


def read_tokenizer(where: str) -> Any:
    """Return the `tokenizers.Tokenizer` of a file `tokenizer.json`.

    Raises:
        InputError: the package is missing, or the file cannot be read, or is none.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            f"`tokenizer` = {where!r}: needs the package tokenizers; install emuchain's extra"
            " `tokenizers`"
        ) from None
    try:
        said = read_file(Path(where), _MOST_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"`tokenizer` = {where!r}: cannot be read: {reason}") from None
    try:
        return Tokenizer.from_str(said)
    except Exception as error:  # the package raises no other class
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"`tokenizer` = {where!r}: is no file of the package tokenizers, such as Hugging Face's"
            f" tokenizer.json: {reason}"
        ) from None


def symbols_of_text(text: str, tokenizer: str | None, *, masks: bool) -> TextSymbols:
    """Return a text's symbols: characters by their code points, or a tokenizer's, line by line.

    With `masks` and without a tokenizer, one more symbol is the mask.

    Raises:
        InputError: as `read_tokenizer`, or `masks` and the tokenizer has no mask.
    """
    return _tokens(text, tokenizer, masks) if tokenizer else _characters(text, masks)


def symbol_names(text: str, tokenizer: str | None, *, masks: bool) -> tuple[str, ...]:
    """Return the names of the symbols alone; see `symbols_of_text`."""
    if tokenizer:
        return _names(read_tokenizer(tokenizer))
    return (*sorted(set(text)), *((MASK,) if masks else ()))


def _characters(text: str, masks: bool) -> TextSymbols:
    names = symbol_names(text, None, masks=masks)
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    known = [ord(name) for name in names if len(name) == 1]
    numbers = np.searchsorted(known, points).astype(np.int32)
    ends = np.flatnonzero(points == ord("\n"))
    return TextSymbols(numbers, ends, names, len(names) - 1 if masks else -1)


def _tokens(text: str, where: str, masks: bool) -> TextSymbols:
    tokenizer = read_tokenizer(where)
    found = [tokenizer.token_to_id(name) for name in _MASKS]
    mask = next((number for number in found if number is not None), -1)
    if masks and mask < 0:
        raise InputError(
            f"`tokenizer` = {where!r}: has no symbol {' or '.join(_MASKS)}, which `masked_share`"
            " needs; leave that out, or give another tokenizer"
        )
    lines, parts = text.splitlines(keepends=True), list[list[int]]()
    for first in range(0, len(lines), _LINES):
        made = tokenizer.encode_batch(lines[first : first + _LINES], add_special_tokens=False)
        parts += [line.ids for line in made]
    counts = np.array([len(part) for part in parts], np.int64)
    numbers = np.array([number for part in parts for number in part], np.int32)
    return TextSymbols(numbers, np.cumsum(counts) - 1, _names(tokenizer), mask)


def _names(tokenizer: Any) -> tuple[str, ...]:
    count = tokenizer.get_vocab_size()
    known = {number: name for name, number in tokenizer.get_vocab().items()}
    return tuple(known.get(number, f"[{number}]") for number in range(max([*known, count - 1]) + 1))


def masked(
    symbols: Symbols,
    labels: NDArray[np.int64],
    said: TextSymbols,
    share: float,
    draws: int,
    seed: int,
) -> tuple[Symbols, NDArray[np.int64]]:
    """Return the inputs and targets of BERT's objective: of a share of the symbols the network
    predicts what they were; 80 % of these are masked, 10 % are replaced by another symbol.

    Args:
        symbols: (n, steps).
        labels: (n, steps), the same symbols; -1 where a step is padding.
        said: the text that has them.
        share: of the symbols that are predicted; the targets of others are -1.
        draws: number of the part, so that training and test are drawn apart.
        seed: of the draws, which depend on nothing else, such as the number of ranks.
    """
    key = np.array([seed, _STREAM | draws], np.uint64)
    stream = np.random.Generator(np.random.Philox(key=key))
    chosen = stream.random(symbols.shape) < share
    chosen &= labels >= 0
    how, others = stream.random(symbols.shape), stream.random(symbols.shape)
    known = len(said.names) - 1  # all but the mask
    other = (others * known).astype(np.int32)
    other += other >= said.mask
    inputs = np.where(chosen & (how < _MASKED), said.mask, symbols)
    is_replaced = chosen & (how >= _MASKED) & (how < _MASKED + _REPLACED)
    inputs = np.where(is_replaced, other, inputs).astype(np.int32)
    return inputs, np.where(chosen, labels, -1)
