"""A run's network and data: which data set a network gets, what fits, and time steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.config import load_config
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.plan import (
    ChainPlan,
    data_of,
    epoch_samples,
    make_plan,
    network_of,
    training_data,
)

PlanOf = Any

OWN = """\
name = "own"
input = [4, 8, 1]
layers = [
  { type = "lstm", units = 5 },
  { type = "conv", channels = 4, kernel = 1 },
  { type = "softmax" },
]
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    """The file of a network for texts of four symbols, in windows of eight."""
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return str(path)


def text(folder: Path, content: str) -> str:
    """Write a text; return its path."""
    path = folder / "a.txt"
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_default_data_follow_the_network(plan_of: PlanOf) -> None:
    assert data_of(plan_of(network="quick-cifar")) == "shapes"
    assert data_of(plan_of(network="char-lstm")) == "text"
    assert data_of(plan_of(network="lstm-rows")) == "shapes"
    data = training_data(plan_of(network="char-lstm", samples=7, test_samples=3))
    assert (data.name, data.shape, data.n_train, data.n_test) == ("text", (28, 64, 1), 7, 3)
    assert epoch_samples(plan_of(network="char-lstm")) == 2813


def test_the_zoo_has_the_symbols_of_the_built_in_text(plan_of: PlanOf) -> None:
    """So that plans without data are those with it."""
    symbols = training_data(plan_of(network="char-lstm")).symbols
    assert load_network("char-lstm") == load_network("char-lstm", symbols=lambda: symbols)


def test_a_network_gets_the_symbols_of_its_text(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(network="char-lstm", data=text(tmp_path, "äöü漢字" * 40), time_steps=12)
    assert plan.network.input == (5, 12, 1)
    assert plan.network.classes == 5
    data = training_data(plan)
    assert data.shape == plan.network.input
    assert data.train_labels.shape == (data.n_train, 12)


def test_a_result_for_the_last_step_alone_has_its_label(plan_of: PlanOf, tmp_path: Path) -> None:
    path = tmp_path / "last.toml"
    path.write_text(
        OWN.replace(
            '{ type = "conv", channels = 4, kernel = 1 }',
            '{ type = "last-step" }, { type = "fc", features = 4 }',
        )
    )
    where = text(tmp_path, "abcd\nab\n".replace("\n", "d") * 30)
    data = training_data(plan_of(network=str(path), data=where))
    assert data.train_labels.shape == (data.n_train,)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"network": "lenet-mnist", "data": "text"},
            "`data` = 'text': is a text, but network lenet-mnist takes images of 1x28x28",
        ),
        (
            {"network": "char-lstm", "data": "shapes"},
            "`data` = 'shapes': images are 3x32x32, but network char-lstm takes 28x64x1",
        ),
        (
            {"network": "lstm-5x1024", "data": "text"},
            "has 28 symbols, but network lstm-5x1024 takes 1,024 and has 10 outputs",
        ),
        (
            {"network": "char-lstm", "time_steps": 30_000},
            "200,059 characters, of which the last 10 % are the test; for windows of 30,000",
        ),
    ],
)
def test_what_does_not_fit(plan_of: PlanOf, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        training_data(plan_of(**keys))


def test_more_symbols_than_a_network_takes(plan_of: PlanOf, own: str, tmp_path: Path) -> None:
    fits, too_many = text(tmp_path, "abc" * 40), tmp_path / "b.txt"
    assert training_data(plan_of(network=own, data=fits)).symbols == 3
    too_many.write_text("abcde" * 40)
    with pytest.raises(
        InputError, match=r"has 5 symbols, but network own takes 4 .*`input` should be \[5, 8, 1\]"
    ):
        training_data(plan_of(network=own, data=str(too_many)))
    with pytest.raises(InputError, match="has 5 symbols"):
        epoch_samples(plan_of(network=own, data=str(too_many)))


def test_steps_that_have_results_and_images_that_have_one_label(
    plan_of: PlanOf, tmp_path: Path
) -> None:
    path = tmp_path / "rows.toml"
    path.write_text(
        OWN.replace("[4, 8, 1]", "[3, 32, 32]")
        .replace("layers = [", 'layers = [ { type = "sequence" },')
        .replace("channels = 4", "channels = 10")
    )
    with pytest.raises(
        InputError, match=r"has results for each of its 32 steps; put \{type = \"last-step\"\}"
    ):
        training_data(plan_of(network=str(path)))


def test_time_steps(plan_of: PlanOf) -> None:
    assert plan_of(network="lstm-5x1024", time_steps=100).network.input == (1024, 100, 1)
    with pytest.raises(
        InputError,
        match="`time_steps` = 9: network lstm-rows takes maps of 3x32x32; only a sequence",
    ):
        plan_of(network="lstm-rows", time_steps=9)
    loaded: Network = load_network("char-lstm", time_steps=9)
    assert network_of(loaded, 9) is loaded
    with pytest.raises(
        InputError, match="`time_steps` = 8: but char-lstm is loaded, with 9 of them"
    ):
        make_plan(load_config(None, {"time_steps": 8}), network=loaded)


def test_time_steps_in_python() -> None:
    plan: ChainPlan = emuchain.plan("char-lstm", time_steps=16)
    assert plan.network.input == (28, 16, 1)
    found = emuchain.sweep("char-lstm", devices=1, time_steps=[16, 32], jobs=1)
    assert [row["time_steps"] for row in found.rows] == [16, 32]
    assert found.rows[0]["images_per_s"] > found.rows[1]["images_per_s"]
    with pytest.raises(InputError, match="`time_steps` = 0: should be greater"):
        emuchain.plan("char-lstm", time_steps=0)
