"""R as an action of its own: the bits of `sync` wherever an order has it, the same time in both
clocks, memory as a replay has it, and time that it takes away from waits.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain import InputError
from emuchain.emulator.schedule import EditedKind, EpochShape, Kind, edited_kind, schedules, to_text
from emuchain.emulator.timing import timeline_of

from ..commands.running import status_of
from ..schedule.chains import actions_of, with_drawn_r
from .test_edited import check_same, timing_only
from .test_recompute import NETWORK

KEYS: dict[str, Any] = {
    "network": NETWORK,
    "samples": 32,
    "test_samples": 8,
    "batch": 16,
    "micro_batch": 4,
    "epochs": 2,
    "engines": "turns",
}
GPT = {"network": "char-gpt", "samples": 16, "epochs": 1}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    # name: the schedule in which R are drawn, and keys
    "one board": ("gpipe", {"devices": 1}),
    "two boards": ("gpipe", {"devices": 2}),
    "W apart": ("zero-bubble", {"devices": 3, "transport": "hidden"}),
    "a loop": ("interleaved", {"devices": 2}),
    "eight boards": ("1f1b-so", {"devices": 8}),
    "a shared pool": ("fbp-as", {"devices": 3, "engines": "shared"}),
    "engines of their own": ("fbp-as", {"devices": 2, "engines": "split", "transport": "stored"}),
    "tied weights": ("1f1b-sno", {"devices": 2, **GPT}),
    "attention on four boards": ("gpipe", {"devices": 4, **GPT}),
    "shortcuts": ("gpipe", {"network": "resnet8-cifar", "devices": 3, "epochs": 1}),
    "recurrent": ("zero-bubble", {"network": "lstm-rows", "devices": 2}),
    "some layers": ("gpipe", {"devices": 2, "recompute": "c2"}),
    "replicas": ("gpipe", {"devices": 2, "replicas": 2, "batch": 32}),
    "shared weights": ("zero-bubble", {"devices": 2, "replicas": 2, "batch": 32, "zero": 3}),
    "drawn roundings": (
        "gpipe",
        {
            "devices": 2,
            "precision": {
                **dict.fromkeys(("activations", "weights", "errors"), "fp16"),
                "rounding": {"activations": "stochastic", "errors": "stochastic"},
            },
        },
    ),
}


def drawn_order(name: str, devices: int, seed: int, share: float = 0.6) -> EditedKind:
    """Return an order of four micro-batches with R of some, as if it came from a file."""
    kind = schedules()[name]
    one = kind.generate(EpochShape(devices, 4, 4, 1, chunks=kind.chunks))
    return edited_kind("drawn.txt", to_text(with_drawn_r(one, random.Random(seed), share)))


@pytest.mark.parametrize("name", RUNS)
def test_bits_are_those_of_sync(name: str) -> None:
    drawn, own = RUNS[name]
    keys = {**KEYS, **own}
    others = "engines", "transport", "recompute", "zero"
    plain = {key: value for key, value in keys.items() if key not in others}
    synced = emuchain.train(**{**plain, "schedule": "sync"})
    for seed in range(2):
        order = drawn_order(drawn, keys["devices"], seed, 0.6 + 0.4 * seed)
        run = emuchain.train(**keys, schedule=order)
        check_same(run, synced)
        timing = timing_only(keys)
        simulated = emuchain.simulate(**timing, schedule=order)
        assert simulated.virtual_time_ps == run.history["virtual_time_ps"][-1]


@pytest.mark.parametrize("engines", ["turns", "split", "shared"])
@pytest.mark.parametrize("seed", range(3))
def test_both_clocks_agree(seed: int, engines: str) -> None:
    """The clocks of stages, which learn of messages as they come, and the timeline of the chain."""
    order = drawn_order("gpipe" if seed else "1f1b-so", 3, seed)
    keys = {"devices": 3, "engines": engines, "transport": "stored", "schedule": order}
    plan = emuchain.plan("vgg16-cifar", **keys, batch=16, micro_batch=4)
    schedule = order.schedule_of(EpochShape(3, 16, 16, 4))
    timed = timeline_of(schedule, plan.timing.loads, plan.timing.action_boards()).timed
    run = emuchain.simulate("vgg16-cifar", **keys, batch=16, micro_batch=4, samples=16)
    assert max(action.end_ps for action in timed) == run.virtual_time_ps
    assert any(action.step.kind is Kind.RECOMPUTE for action in timed)


def test_r_takes_what_f_of_its_layers_takes() -> None:
    plain, again = (
        emuchain.plan("vgg16-cifar", devices=1, engines="turns", batch=16, micro_batch=4, **more)
        for more in ({"schedule": "gpipe"}, {"schedule": drawn_order("gpipe", 1, 0, 1)})
    )
    kept, apart = plain.stages.costs(0, 4), again.stages.costs(0, 4)
    assert apart.recompute_ps == apart.forward_ps == kept.forward_ps
    assert apart.backward_ps == kept.backward_ps and kept.recompute_ps == 0


def test_r_in_b_and_just_ahead_of_it_are_the_same() -> None:
    """On a board that does all in turns; on a chain, R ahead of errors that are awaited gains."""

    def times(devices: int) -> tuple[int, int]:
        one = schedules()["1f1b-sno"].generate(EpochShape(devices, 4, 4, 1))
        words = []
        for word in to_text(one).split(" "):
            words.append(f"{word.replace('B', 'R')} {word}" if "B" in word else word)
        order = edited_kind("own.txt", " ".join(words))
        keys: dict[str, Any] = {
            "devices": devices,
            "engines": "turns",
            "transport": "stored",
            "batch": 16,
            "micro_batch": 4,
            "samples": 16,
        }
        inside = emuchain.simulate("vgg16-cifar", schedule="1f1b-sno", recompute="all", **keys)
        apart = emuchain.simulate("vgg16-cifar", schedule=order, **keys)
        return inside.virtual_time_ps, apart.virtual_time_ps

    inside, apart = times(1)
    assert inside == apart
    inside, apart = times(4)
    assert apart < 0.95 * inside


@pytest.mark.parametrize("name", ["gpipe", "1f1b-so", "zero-bubble"])
def test_memory_over_time_is_that_of_a_replay(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = drawn_order(name, 2, 5)
    file = tmp_path / "own.txt"
    file.write_text(order.text)
    keys = {"devices": 2, "engines": "turns", "batch": 8, "micro_batch": 2}
    stages = emuchain.plan("quick-cifar", **keys, schedule=order).stages
    words = [w for k, value in keys.items() for w in (f"--{k.replace('_', '-')}", str(value))]
    words += ["--schedule", str(file), "--json", "--range", "none"]
    assert status_of("plan", "quick-cifar", *words) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert stages is not None
    apart = stages.machine.frees_features is Kind.GRADIENT
    for device, program in enumerate(actions_of(order.schedule_of(EpochShape(2, 8, 8, 2)))):
        size = stages.feature_bytes(device, 2)
        whole, recomputed = size.whole, size.kept + size.again
        assert whole is not None and size.late == recomputed
        redone = {action.index for action in program if action.recomputed}
        held = most = Fraction(0)
        for action in program:
            if action.kind is Kind.FORWARD:
                held += size.kept if action.index in redone else whole
            elif action.kind is Kind.RECOMPUTE:
                held += size.again
            most = max(most, held)
            if action.kind is (Kind.GRADIENT if apart else Kind.BACKWARD):
                held -= recomputed if action.index in redone else whole
        assert held == 0
        assert memory[device]["peak_bytes"] == most <= stages.stage(device, 2).kept_bytes


def test_less_is_kept_than_without_r() -> None:
    keys = {"devices": 1, "engines": "turns", "batch": 64, "micro_batch": 16}
    plain = emuchain.plan("vgg16-cifar", schedule="gpipe", **keys)
    order = drawn_order("gpipe", 1, 0, 0)
    late = edited_kind("own.txt", order.text.replace("0B1v0", "0R1v0 0B1v0"))
    assert late.recomputes
    plan = emuchain.plan("vgg16-cifar", schedule=late, **keys)
    assert plan.memory_bytes[0] < plain.memory_bytes[0]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "rows": ({"engines": None}, "`schedule` = 'drawn.txt' has R: boards that stream rows keep"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, one_line: Callable[..., str]) -> None:
    keys, message = BAD[name]
    usual = {"engines": "turns", "schedule": drawn_order("gpipe", 2, 1, 1), "devices": 2}
    with pytest.raises(InputError) as error:
        emuchain.plan(
            "quick-cifar",
            **{**usual, "batch": 8 * keys.get("replicas", 1), "micro_batch": 2, **keys},
        )
    assert message in one_line(error)
