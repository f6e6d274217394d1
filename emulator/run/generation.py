"""Text that a trained network continues, one symbol after another.

Each symbol is drawn by the shares that the network gives to what may follow; it then stands at the
end of what the network sees, a window of as many symbols as it takes steps:

    prompt "To be" -> logits behind "e" -> "," -> logits behind "," -> " " -> ...
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ..common import InputError, described
from ..data import read_tokenizer
from ..device import TextSource
from ..network import Network
from .evaluation import predicting, symbols_of
from .state import RunWeights

_MOST_SYMBOLS = 1_000_000


def generate(
    run: RunWeights, prompt: Any, length: int, temperature: float = 1.0, seed: int = 1
) -> str | list[int]:
    """Return a text that begins with `prompt`, continued by `length` symbols; or, of a prompt of
    numbers, the numbers of the symbols.

    Args:
        run: weights of a network that predicts each next symbol.
        prompt: at least one symbol, of those of the text on which the run trained; or a list of
            their numbers, from 0 on, such as a tokenizer's.
        length: number of symbols to add.
        temperature: logits are divided by it before a symbol is drawn; 0 takes the likeliest.
        seed: of the draws; the same seed continues a prompt in the same way.

    Raises:
        InputError: the network does not predict each next symbol, the run's text is not there, the
            prompt has other symbols, or a number is out of range.
    """
    _check_numbers(length, temperature)
    _check_network(run.network)
    if not isinstance(prompt, str):
        begin = _numbers_of(run.network, prompt)
        return begin + _continued(run, begin, length, temperature, seed)
    if tokenizer := run.settings.get("tokenizer"):
        return _of_tokens(run, read_tokenizer(tokenizer), prompt, length, temperature, seed)
    symbols = symbols_of(run)
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    unknown = [symbol for symbol in prompt if symbol not in numbers]
    if unknown or not prompt:
        problem = f"{unknown[0]!r} is not one of these" if unknown else "there is none"
        raise InputError(
            f"`prompt` = {prompt[:40]!r}: should be symbols of the run's text,"
            f" {''.join(symbols)[:200]!r}; {problem}"
        )
    after = _continued(run, [numbers[symbol] for symbol in prompt], length, temperature, seed)
    return prompt + "".join(symbols[number] for number in after)


def _of_tokens(
    run: RunWeights, tokenizer: Any, prompt: str, length: int, temperature: float, seed: int
) -> str:
    """Return what `generate` does, of the symbols of a tokenizer."""
    begin = tokenizer.encode(prompt, add_special_tokens=False).ids
    if not begin:
        raise InputError(f"`prompt` = {prompt[:40]!r}: the run's tokenizer makes no symbol of it")
    numbers = begin + _continued(run, begin, length, temperature, seed)
    said: str = tokenizer.decode(numbers)
    return said


def _numbers_of(network: Network, prompt: Any) -> list[int]:
    """Return the symbols of a prompt in numbers.

    Raises:
        InputError: it is no list of them, or what the network predicts is not what it takes.
    """
    symbols = network.input[0]
    if network.classes > symbols:
        raise InputError(
            f"generate: {network.name} takes {symbols:,} symbols and predicts {network.classes:,};"
            " what is predicted should be symbols that it takes"
        )
    try:
        numbers = np.asarray(prompt)
    except Exception:  # of whatever it is made of
        numbers = np.empty(())
    fits = numbers.ndim == 1 and numbers.size and numbers.dtype.kind in "iu"
    if not fits or not 0 <= numbers.min() <= numbers.max() < symbols:
        raise InputError(
            f"`prompt`: is {described(prompt)}; should be text, or a list of symbols' numbers from 0"
            f" to {symbols - 1:,}"
        )
    return [int(number) for number in numbers]


def _continued(
    run: RunWeights, prompt: Sequence[int], length: int, temperature: float, seed: int
) -> list[int]:
    draws = np.random.Generator(np.random.Philox(seed))
    steps, entry = run.network.input[1], run.network.entry
    text = [*prompt]
    with predicting(run, 1) as logits_of:
        for _ in range(length):
            window = np.zeros((1, 1, steps, 1), np.int32)
            seen = text[-steps:]
            window[0, 0, : len(seen), 0] = seen
            logits = logits_of(TextSource(window, Arena(), entry, one_hot=False))
            text.append(_drawn(logits[0, len(seen) - 1], temperature, draws.random()))
    return text[len(prompt) :]


def _drawn(logits: NDArray[np.float32], temperature: float, draw: float) -> int:
    """Return the symbol at a place from 0 to 1 among the shares of all symbols."""
    scores = logits.astype(np.float64)
    if not np.isfinite(scores).all():
        raise InputError("generate: logits are not finite; these weights have diverged")
    if temperature == 0:
        return int(scores.argmax())
    shares = np.exp((scores - scores.max()) / temperature).cumsum()
    return int(np.searchsorted(shares, draw * shares[-1], side="right"))


def _check_numbers(length: int, temperature: float) -> None:
    if not 1 <= length <= _MOST_SYMBOLS:
        raise InputError(f"`length` = {length}: should be from 1 to {_MOST_SYMBOLS:,}")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(f"`temperature` = {temperature:g}: should be a number, at least 0")


def _check_network(network: Network) -> None:
    """Check that a network predicts each next symbol of what it has seen so far.

    Raises:
        InputError: it does not.
    """
    if not network.takes_symbols or network.result_steps == 1:
        raise InputError(
            f"generate: {network.name} does not predict each next symbol of a text; train one that"
            " does, such as char-gpt"
        )
    for layer in network.layers:
        looks_back = layer.operation.looks_back and not layer.operation.recurs
        if (looks_back and not getattr(layer.operation, "causal", False)) or layer.kernel[0] > 1:
            raise InputError(
                f"generate: {layer.name} of {network.name} sees the symbols that come after, which"
                " it should predict; attention does not with `causal = true`"
            )
