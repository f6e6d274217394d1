"""Descriptions as TOML: written and read again, they are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import find, read_toml, tomllib, validate
from emuchain.emulator.network import zoo
from emuchain.emulator.network.description import Description, to_toml, with_symbols

PAIRS = st.tuples(st.integers(1, 9), st.integers(1, 9))
NAMES = st.text(
    st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=200
).filter(str.strip)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(0, 1, exclude_min=True)
OPERATIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "conv": {
        "channels": st.integers(1, 9),
        "kernel": PAIRS,
        "stride": PAIRS,
        "pad": PAIRS,
        "bias": st.booleans(),
    },
    "fc": {"features": st.integers(1, 9), "bias": st.booleans()},
    "relu": {},
    "max-pool": {"kernel": PAIRS, "stride": PAIRS},
    "average-pool": {"kernel": PAIRS, "pad": PAIRS},
    "global-average-pool": {},
    "lrn": {"size": st.integers(1, 9), "alpha": NUMBERS, "beta": NUMBERS, "k": POSITIVE},
    "dropout": {"rate": st.floats(0, 0.99)},
    "batch-norm": {"epsilon": POSITIVE, "momentum": POSITIVE},
    "add": {"from": st.lists(NAMES, min_size=2)},
    "concat": {"from": st.lists(NAMES, min_size=2)},
    "softmax": {},
}


@st.composite
def operations(draw: st.DrawFn) -> dict[str, Any]:
    """An operation with all keys that it needs, and now and then a name or inputs."""
    kind = draw(st.sampled_from(sorted(OPERATIONS)))
    keys = {"type": kind} | {key: draw(values) for key, values in OPERATIONS[kind].items()}
    extra = st.fixed_dictionaries({}, optional={"name": NAMES, "from": st.lists(NAMES, min_size=1)})
    return {**draw(extra), **keys}


DESCRIPTIONS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "input": st.tuples(*[st.integers(1, 999)] * 3),
        "layers": st.lists(operations(), max_size=4),
    },
    optional={"start": st.sampled_from(["he", "xavier"])},
)


@given(DESCRIPTIONS)
def test_written_and_read(keys: dict[str, Any]) -> None:
    description = validate(Description, keys, "keys")
    assert validate(Description, tomllib.loads(to_toml(description)), "text") == description


@pytest.mark.parametrize("name", zoo())
def test_the_zoo_written_and_read(tmp_path: Path, name: str) -> None:
    description = validate(
        Description, with_symbols(read_toml(find("network", name, "network/zoo"))), name
    )
    path = tmp_path / "again.toml"
    path.write_text(to_toml(description), encoding="utf-8")
    assert validate(Description, read_toml(path), name) == description


def test_how_it_looks() -> None:
    text = """\
name = "tiny"
input = [3, 8, 8]  # channels, rows, columns
start = "he"
layers = [
  { type = "conv", channels = 4, kernel = 3, stride = [2, 1], pad = 1, bias = false, name = "one", from = "images" },
  { type = "max-pool", kernel = 2 },
  { type = "add", name = "total", from = ["one", "one"] },
  { type = "dropout", rate = 0.25 },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""
    assert to_toml(validate(Description, tomllib.loads(text), "text")) == text
