"""`import emuchain` on a GPU, alone or with an FPGA: what the commands say, from objects."""

from __future__ import annotations

import dataclasses
import json
import typing
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.api import OfPairs
from emuchain.emulator.schedule import schedules

Run = Callable[..., str]
KEYS: dict[str, dict[str, Any]] = {
    "plan": {"time_steps": 40, "batch": 4},
    "simulate": {"time_steps": 40, "batch": 4, "samples": 10, "epochs": 2},
}
ON = {"farnn": "farnn-9p", "farnn-no-overlap": "farnn-13p", "gpu-standard": "p100"}


def words_of(command: str, schedule: str, *more: str) -> list[str]:
    keys = {"schedule": schedule, "cluster": ON[schedule], **KEYS[command]}
    flags = [
        word for key, value in keys.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    return [command, "lstm-5x1024", *flags, *more]


def call(command: str, schedule: str) -> Any:
    return getattr(emuchain, command)(
        "lstm-5x1024", ON[schedule], schedule=schedule, **KEYS[command]
    )


@pytest.mark.parametrize("schedule", ON)
@pytest.mark.parametrize("command", KEYS)
def test_json_is_the_commands(printed: Run, command: str, schedule: str) -> None:
    """But for the range of the rate of mini-batches, which Python has from `rate_range`."""
    found, said = (
        call(command, schedule),
        json.loads(printed(*words_of(command, schedule, "--json"))),
    )
    sure = emuchain.rate_range(found if command == "plan" else found.plan).to_dict()
    assert json.loads(json.dumps({**found.to_dict(), **sure})) == said
    assert sure.keys() == {"range", "classes", "share_of_width"}
    if command == "simulate":
        assert found.virtual_time_ps == said["virtual_time_ps"]
        assert found.images_per_s == pytest.approx(20e12 / said["virtual_time_ps"])


@pytest.mark.parametrize("schedule", ON)
@pytest.mark.parametrize("command", KEYS)
def test_text_is_the_commands_answer(printed: Run, command: str, schedule: str) -> None:
    answer, _, _ = printed(*words_of(command, schedule, "--range", "none")).partition("\nnext: ")
    text = str(call(command, schedule))
    assert text.split() == answer.split()
    assert ("epoch of 10 samples: " in text) is (command == "simulate")


def test_a_plan_is_simulated_and_trained() -> None:
    plan = emuchain.plan(
        "char-lstm", "farnn-9p", schedule="farnn", samples=32, test_samples=8, batch=16
    )
    found, trained = emuchain.simulate(plan), emuchain.train(plan)
    assert found.plan is plan
    assert trained.virtual_time_ps == found.virtual_time_ps == plan.epoch_ps(32)
    assert found.images_per_s == trained.images_per_s


def test_an_epoch_is_a_mini_batch_unless_samples_or_data_are_named() -> None:
    on: dict[str, Any] = {"schedule": "farnn", "batch": 16}
    assert emuchain.simulate("char-lstm", "farnn-9p", **on).samples == 16
    assert emuchain.simulate("char-lstm", "farnn-9p", data="text", **on).samples == 2813


def test_objects_and_changes_as_on_chains() -> None:
    faster = {"link.bandwidth_gbps": 1000}
    by_name = emuchain.plan(
        "lstm-5x1024", "farnn-9p", schedule="farnn", time_steps=40, batch=4, changes=faster
    )
    network, cluster = (
        emuchain.load_network("lstm-5x1024", time_steps=40),
        emuchain.load_cluster("farnn-9p", faster),
    )
    own = emuchain.plan(network, cluster, schedule="farnn", batch=4)
    slower = emuchain.plan(network, "farnn-9p", schedule="farnn", batch=4)
    assert by_name.times.mini_batch_ps == own.times.mini_batch_ps < slower.times.mini_batch_ps


def test_what_they_say_of_themselves() -> None:
    plan = emuchain.plan("char-lstm", "farnn-9p", schedule="farnn", batch=16, samples=32)
    found = emuchain.simulate(plan)
    assert repr(plan).startswith("<PairPlan char-lstm on P100 + FARNN-9P LSTM, ")
    assert repr(plan).endswith(" for a mini-batch of 16 samples, limited by FPGA>")
    assert repr(found).startswith("<PairSimulation of 1 x 32 samples in ")
    assert repr(found).endswith(" samples/s>")
    images = emuchain.simulate("lstm-rows", "farnn-9p", schedule="farnn", samples=32)
    assert "<PairSimulation of 1 x 32 images in " in repr(images) and "epoch of 32 images: " in str(
        images
    )
    for value in (plan, found):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, None)
        rows = ElementTree.fromstring(value._repr_html_()).findall("tr")
        cells = {"".join(row[0].itertext()): "".join(row[1].itertext()) for row in rows}
        assert cells["rate"].endswith(" samples/s")


def test_a_trace_is_the_commands(printed: Run, tmp_path: Path) -> None:
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    plan = emuchain.plan("lstm-5x1024", "farnn-9p", schedule="farnn", **KEYS["plan"])
    emuchain.simulate(plan, trace=here)
    printed(*words_of("simulate", "farnn", "--trace", str(there)))
    assert here.read_text() == there.read_text()
    with pytest.raises(emuchain.InputError, match="`trace_level` = 'row': the trace of a pair"):
        emuchain.simulate(
            "lstm-5x1024", "farnn-9p", schedule="farnn", batch=1, trace=here, trace_level="row"
        )


def test_a_sweep_has_the_rates_of_its_plans() -> None:
    steps, names = [20, 40], ["farnn", "gpu-standard"]
    found = emuchain.sweep(
        "lstm-5x1024", "farnn-9p", schedule=names, time_steps=steps, batch=2, jobs=1
    )
    assert [(row["schedule"], row["time_steps"], row["devices"]) for row in found.rows] == [
        ("farnn", 20, 2), ("farnn", 40, 2), ("gpu-standard", 20, 1), ("gpu-standard", 40, 1),
    ]  # fmt: skip
    for row in found.rows:
        plan = emuchain.plan(
            "lstm-5x1024",
            "farnn-9p",
            schedule=row["schedule"],
            time_steps=row["time_steps"],
            batch=2,
        )
        assert row["images_per_s"] == plan.to_dict()["samples_per_s"]
    assert " samples/s on " in repr(found)


def test_the_hint_names_all_schedules_of_pairs() -> None:
    assert {*typing.get_args(OfPairs)} == {
        name for name, kind in schedules().items() if kind.offload is not None
    }


LSTM: dict[str, Any] = {
    "network": "char-lstm",
    "cluster": "farnn-9p",
    "schedule": "farnn",
    "samples": 32,
}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: emuchain.plan(**LSTM, replicas=2),
            "`replicas` has no effect with `schedule` = 'farnn'",
        ),
        (lambda: emuchain.plan(**{**LSTM, "cluster": "vc709"}), "needs a GPU"),
        (
            lambda: emuchain.simulate(emuchain.plan(**LSTM), batch=3),
            "`batch`: a plan has its settings",
        ),
        (
            lambda: emuchain.simulate(**LSTM, observer=print),
            "`observer`: a pair has tasks and no rows",
        ),
        (
            lambda: emuchain.train(**LSTM, trace="run.json"),
            "`trace`: of a pair, `emuchain.simulate` writes it",
        ),
        (
            lambda: emuchain.steady_state(emuchain.plan(**LSTM)),
            "a steady state shows rows on split engines",
        ),
        (
            lambda: emuchain.retime(emuchain.train(**{**LSTM, "test_samples": 8})),
            "`schedule` = 'farnn'",
        ),
    ],
)
def test_what_cannot_be_used_is_reported_in_a_line(one_line: Any, call: Any, message: str) -> None:
    with pytest.raises(emuchain.InputError) as error:
        call()
    assert message in one_line(error)
