"""The search for formats by layer: what it ends with can be narrowed no further, and is what
training gives; runs that are killed go on.
"""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.number import Precision, precision_of
from emuchain.emulator.run import RunCheckpoints, runs_of, seed_variants, simulate
from emuchain.emulator.studies import FormatOutcome, formats_by_layer, search_formats
from emuchain.emulator.studies.formats_by_layer import in_layers
from emuchain.launch import SingleProcess

WIDE, NARROW, NARROWEST = map(precision_of, ("fp32", "mxint8", "int4@32"))
LAYERS = "conv1", "conv2", "conv3", "fc1", "fc2"
LIMIT = 0.1


@pytest.fixture
def searched(plan_of: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a search in which a run's loss is 1 and what each layer adds in its format."""

    def search(added: dict[tuple[str, str], float], formats: list[Precision], seeds: int) -> Any:
        trained: list[tuple[str, int]] = []

        def outcome(plan: Any, *_: Any) -> FormatOutcome:
            precision, seed = plan.config.precision, plan.config.seed
            loss = 1.0 + 0.001 * seed
            for layer in plan.network.layers:
                loss += added.get((layer.name, precision.of(layer.formats).weights.name), 0.0)
            trained.append((str(precision), seed))
            end_ps = simulate(plan, 64).virtual_time_ps
            return FormatOutcome(
                precision, (0.5,), (end_ps,), 1e12 / end_ps, 0, 0, 0, None, (loss,)
            )

        monkeypatch.setattr(formats_by_layer, "trained_in", outcome)
        config = plan_of(network="quick-cifar", devices=3, samples=64, schedule="sync").config
        settings = seed_variants(config, seeds)
        runs = runs_of(config, {name: {**own, "precision": WIDE} for name, own in settings.items()})
        return search_formats(runs, formats, LIMIT, SingleProcess()), trained

    return search


@pytest.mark.parametrize("number", range(3))
def test_no_layer_can_be_narrowed_further(searched: Any, plan_of: Any, number: int) -> None:
    rng = random.Random(number)
    added = {
        (name, one.name): rng.choice([0, 0, 0.03, 0.2])
        for name in LAYERS
        for one in (NARROW.weights, NARROWEST.weights)
    }
    search, trained = searched(added, [WIDE, NARROW, NARROWEST], 2)
    assert len(trained) == len({*trained}) == 2 * len(search.mappings)
    assert len(search.mappings) <= 3 + 2 * len(LAYERS)
    assert search.reference.precision == WIDE and search.reference.above == 0

    def plan(precision: Precision) -> Any:
        return plan_of(network="quick-cifar", devices=3, schedule="sync", precision=precision)

    def above(precision: Precision) -> float:
        layers = plan(precision).network.layers
        named = ((layer.name, precision.of(layer.formats).weights.name) for layer in layers)
        return sum(added.get(pair, 0.0) for pair in named) / search.reference.loss.value

    for mapping in search.mappings:
        assert mapping.above == pytest.approx(above(mapping.precision))
        assert mapping.holds == (mapping.above <= LIMIT)
    best = search.cheapest.precision
    assert above(best) <= LIMIT
    formats = {
        name: best.of(layer.formats).weights.name
        for name, layer in zip(LAYERS, plan(best).network.layers, strict=True)
    }
    for name in LAYERS:
        if formats[name] != NARROWEST.weights.name:
            narrower = in_layers(best, [name], NARROWEST)
            slower = simulate(plan(narrower), 64).virtual_time_ps > search.cheapest.time_ps
            assert above(narrower) > LIMIT or slower, name


def test_what_holds_everywhere_is_tried_in_no_single_layer(searched: Any) -> None:
    search, trained = searched({}, [WIDE, NARROW, NARROWEST], 3)
    assert [str(mapping.precision) for mapping in search.mappings] == ["fp32", "int4@32"]
    assert len(trained) == 6 and search.cheapest.precision == NARROWEST


def test_the_front(searched: Any) -> None:
    """Of equal accuracies, the fastest alone is on it."""
    search, _ = searched({("fc2", "int4@32"): 1.0}, [WIDE, NARROWEST], 1)
    on_front = {
        mapping.precision: mapping.time_ps for mapping in search.mappings if mapping.on_front
    }
    assert NARROWEST in on_front and len({*on_front.values()}) == 1
    slower = [mapping for mapping in search.mappings if mapping.precision not in on_front]
    assert slower and all(mapping.time_ps > on_front[NARROWEST] for mapping in slower)
    assert not search.mappings[1].holds and search.cheapest.holds


def test_layers_take_all_of_a_format() -> None:
    base = precision_of("bf16 loss_scale=16 layer.a=fp8 layer.b=fp16")
    own = in_layers(base, ["a"], precision_of("mxfp4 rounding=stochastic loss_scale=2"))
    expected = "bf16 loss_scale=16 layer.b=fp16 layer.a=mxfp4 layer.a.rounding=stochastic"
    assert own == precision_of(expected)
    assert dataclasses.replace(own, layers=()) == dataclasses.replace(base, layers=())


KEYS = ["quick-cifar", "--devices", "2", "--samples", "32", "--test-samples", "16", "--batch", "8"]
KEYS += ["--schedule", "sync", "--learning-rate", "0.003"]
SEARCH = ["--formats", "fp32,mxfp4", "--search", "0", "--seeds", "2"]


def test_losses_are_those_of_training(printed: Any) -> None:
    said = json.loads(printed("precision", *KEYS, *SEARCH, "--progress", "none", "--json"))
    by_name = {mapping["precision"]: mapping for mapping in said["mappings"]}
    assert len(by_name) == len(said["mappings"]) > 2
    best = by_name[said["cheapest"]]
    assert best["holds"] and best["above"] <= 0 and best["time_ps"] <= by_name["fp32"]["time_ps"]
    runs = [
        emuchain.train(
            "quick-cifar",
            precision=said["cheapest"],
            seed=seed,
            devices=2,
            samples=32,
            test_samples=16,
            batch=8,
            schedule="sync",
            learning_rate=0.003,
            progress="none",
        )
        for seed in (1, 2)
    ]
    assert best["losses"] == [float(run.history["test_loss"][-1]) for run in runs]
    assert best["time_ps"] == runs[0].history["virtual_time_ps"][-1]
    answer = printed("precision", *KEYS, *SEARCH, "--progress", "none")
    assert answer.splitlines()[0] in by_name and "Mappings, the fastest first" in answer


def test_a_search_without_a_number(printed: Any) -> None:
    """It allows two percent; what follows it is no number of it."""
    keys = ["precision", *KEYS, "--formats", "fp32,bf16", "--seeds", "1", "--progress", "none"]
    assert printed(*keys, "--search", "--json") == printed(*keys, "--search", "2", "--json")


def test_a_killed_search_goes_on(
    printed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [*KEYS, *SEARCH, "--json", "--progress", "none"]
    whole, file = printed("precision", *keys), str(tmp_path / "run.ckpt")
    reach, reached = RunCheckpoints.reach, list[object]()

    def reach_or_end(self: RunCheckpoints, *where: Any) -> bool:
        ends = reach(self, *where)
        reached.append(where)
        if len(reached) == 5:
            raise KeyboardInterrupt
        return ends

    monkeypatch.setattr(RunCheckpoints, "reach", reach_or_end)
    with pytest.raises(SystemExit) as ended:
        main(["precision", *keys, "--checkpoint", file])
    assert (ended.value.code, len(reached)) == (130, 5)
    assert printed("precision", *SEARCH, "--json", "--progress", "none", "--resume", file) == whole
    assert len(reached) == 2 * len(json.loads(whole)["mappings"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--seeds", "2"], "`--seeds` = 2: is for `--search`"),
        (["--search", "2000"], "--search"),
        (
            ["--search", "1", "--formats", "fp16,fp8", "--precision.loss-scale", "16777216"],
            "fp16 loss_scale=16777216, with which others are compared",
        ),
    ],
    ids=lambda given: str(given)[:20],
)
def test_what_is_refused(
    capsys: pytest.CaptureFixture[str], one_line: Any, flags: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["precision", *KEYS, *flags, "--progress", "none"])
    assert ended.value.code == 2
    assert said in one_line(capsys.readouterr().err)
