"""A text that a trained network continues: each symbol follows from the logits behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.run import generation

from ..commands.running import status_of

KEYS: dict[str, Any] = {"samples": 32, "test_samples": 8, "batch": 8, "schedule": "sync"}
RUNS: dict[str, dict[str, Any]] = {
    "char-gpt": {"network": "char-gpt", "optimizer": "adamw", "learning_rate": 0.002},
    "char-lstm": {"network": "char-lstm", "time_steps": 12, "learning_rate": 0.1},
}

STEPS = {"char-gpt": 64, "char-lstm": 12}


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> emuchain.Results:
    return emuchain.train(**{**KEYS, **RUNS[request.param]})


def test_the_likeliest_symbols_are_those_of_predict(run: emuchain.Results) -> None:
    """Also where the text has become longer than what the network sees."""
    symbols = emuchain.load_data("text").classes
    steps = STEPS[run.config["network"]]
    prompt = "the boards "
    text = emuchain.generate(run, prompt, length=steps + 5, temperature=0)
    assert text.startswith(prompt)
    assert len(text) == len(prompt) + steps + 5
    numbers = [symbols.index(symbol) for symbol in text]
    for place in range(len(prompt), len(text)):
        seen = numbers[max(0, place - steps) : place]
        # Symbols that come after are none of the network's business.
        window = np.array([seen + [3] * (steps - len(seen))])
        logits = emuchain.predict(run, window)[0, len(seen) - 1]
        assert numbers[place] == int(logits.argmax())


def test_draws_follow_from_the_seed(run: emuchain.Results) -> None:
    first, again, other = (emuchain.generate(run, "a", length=40, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert {*first} <= {*emuchain.load_data("text").classes}


def test_numbers_are_those_of_the_text(run: emuchain.Results) -> None:
    symbols, prompt = emuchain.load_data("text").classes, "the "
    numbers = [symbols.index(symbol) for symbol in prompt]
    text = emuchain.generate(run, prompt, length=30)
    for given_numbers in (numbers, tuple(numbers), np.array(numbers)):
        more = emuchain.generate(run, given_numbers, length=30)
        assert "".join(symbols[number] for number in more) == text


def test_own_symbols_go_on(one_line: Callable[[object], str]) -> None:
    """What follows a symbol is the next number, which the likeliest numbers are after training."""
    inputs = (np.arange(64)[:, None] + np.arange(6)) % 9
    layers: list[dict[str, Any]] = [
        {"type": "embedding", "features": 12},
        {"type": "conv", "channels": 9, "kernel": 1},
        {"type": "softmax"},
    ]
    network = {"name": "next", "input": [9, 6, 1], "layers": layers}
    keys: dict[str, Any] = {"batch": 8, "epochs": 10, "learning_rate": 1.0, "schedule": "sync"}
    data = inputs, (inputs + 1) % 9
    run = emuchain.train(network, data=data, progress="none", **keys)
    assert emuchain.generate(run, [7], length=8, temperature=0) == [7, 8, *range(7)]
    layers[1] = {**layers[1], "channels": 10}
    more = emuchain.train(network, data=data, progress="none", **keys)
    with pytest.raises(InputError, match="next takes 9 symbols and predicts 10") as error:
        emuchain.generate(more, [7])
    one_line(error)


@given(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=8),
    st.floats(0.1, 4),
    st.floats(0, 1, exclude_max=True),
)
def test_a_draw_takes_the_symbol_at_its_place(
    logits: list[float], temperature: float, draw: float
) -> None:
    """Shares of softmax side by side, from 0 to 1."""
    scores = np.array(logits, np.float32)
    drawn = generation._drawn(scores, temperature, draw)
    shares = np.exp(scores.astype(np.float64) / temperature)
    ends = np.cumsum(shares) / shares.sum()
    begin = ends[drawn - 1] if drawn else 0.0
    assert begin - 1e-9 <= draw <= ends[drawn] + 1e-9


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"prompt": ""}, "`prompt` = '': should be symbols of the run's text, .*; there is none"),
        ({"prompt": "ab\u03a9"}, "'\u03a9' is not one of these"),
        ({"length": 0}, "`length` = 0: should be from 1"),
        ({"length": 10**9}, "`length` = 1000000000: should be from 1"),
        ({"temperature": -1.0}, "`temperature` = -1: should be a number, at least 0"),
        ({"temperature": float("nan")}, "`temperature` = nan: should be a number"),
        ({"prompt": 5}, "`prompt`: is 5; should be text, or a list of symbols' numbers from 0"),
        ({"prompt": []}, "should be text, or a list of symbols' numbers"),
        ({"prompt": [0.5]}, "should be text, or a list of symbols' numbers"),
        ({"prompt": [0, 28]}, "should be text, or a list of symbols' numbers from 0 to 27"),
        ({"prompt": [[0], [1, 2]]}, "should be text, or a list of symbols' numbers"),
    ],
)
def test_what_is_refused(
    run: emuchain.Results, keys: dict[str, Any], message: str, one_line: Callable[[object], str]
) -> None:
    with pytest.raises(InputError, match=message) as error:
        emuchain.generate(run, **{"prompt": "a", **keys})
    one_line(error)


def test_networks_that_predict_no_next_symbol(one_line: Callable[[object], str]) -> None:
    images = emuchain.train("quick-cifar", samples=8, test_samples=8)
    with pytest.raises(InputError, match="quick-cifar does not predict each next symbol") as error:
        emuchain.generate(images, "a")
    one_line(error)
    layers: list[dict[str, Any]] = [
        {"type": "embedding", "features": 8},
        {"type": "conv", "channels": 24, "kernel": 1},
        {"type": "attention", "name": "mix", "heads": 2},
        {"type": "conv", "channels": 28, "kernel": 1},
        {"type": "softmax"},
    ]
    seeing = {"name": "seeing", "input": [28, 8, 1], "layers": layers}
    both_ways = emuchain.train(seeing, data="text", **KEYS)
    with pytest.raises(InputError, match="mix of seeing sees the symbols that come after"):
        emuchain.generate(both_ways, "a")


def test_the_command(
    run: emuchain.Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "run.h5")
    emuchain.train(**{**KEYS, **RUNS["char-gpt"]}, out=file)
    expected = emuchain.generate(file, "of ", length=30, seed=3)
    words = (file, "--prompt", "of ", "--length", "30", "--seed", "3")
    capsys.readouterr()
    assert status_of("generate", *words) == 0
    assert capsys.readouterr().out == expected + "\n"
    assert status_of("generate", *words, "--json") == 0
    assert json.loads(capsys.readouterr().out)["text"] == expected
    assert status_of("generate", file, "--length", "5") == 0
    line = emuchain.generate(file, "\n", length=5)
    assert capsys.readouterr().out == line[1:] + "\n"
