"""One timing of a plan, for all who ask: `plan`, `simulate`, `sweep` and a run's page say one
interval and one rate.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.run import read_results
from emuchain.emulator.view.page.source import Run

Said = dict[str, Any]
Ask = Callable[[str, Mapping[str, object]], "Said | str"]

NETWORKS = (
    "quick-cifar",
    "vgg11-cifar",
    "alexnet-cifar",
    "resnet8-cifar",
    "vgg16-cifar",
    "vit-tiny-cifar",
)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Gives what a command prints as JSON for some flags, or the reason why it refuses them."""

    def run(command: str, flags: Mapping[str, object]) -> Said | str:
        words = [
            word
            for key, value in flags.items()
            for word in (f"--{key}", str(value))
            if key != "network"
        ]
        with pytest.raises(SystemExit) as ended:
            main([command, str(flags["network"]), *words, "--json"])
        out, err = capsys.readouterr()
        return json.loads(out) if not ended.value.code else err

    return run


def drawn(rng: random.Random) -> dict[str, object]:
    """A network, boards, and how they train."""
    replicas = rng.choice([1, 1, 1, 2, 3])
    flags: dict[str, object] = {
        "network": rng.choice(NETWORKS),
        "cluster": rng.choice(["vc709", "vc709-10g", "u280"]),
        "devices": rng.randint(1, 16),
        "batch": replicas * rng.choice([4, 16, 48]),
        "schedule": rng.choice(["fpdeep", "fpdeep", "sync", "gpipe", "2bw"]),
    }
    if replicas > 1:
        flags["replicas"] = replicas
    if rng.random() < 0.3:
        flags["balancing"] = "none"
    if rng.random() < 0.2:
        flags["precision"] = rng.choice(["bf16", "fp8"])
    if rng.random() < 0.2:
        flags["set"] = "links.topology=ring"
    if rng.random() < 0.15:
        flags["engines"] = "turns"
    return flags


def check(ask: Ask, flags: Mapping[str, object]) -> Said | None:
    """Check that the readers of a plan agree; return what `simulate` says, None where all
    refuse.
    """
    planned, swept = ask("plan", flags), ask("sweep", flags)
    simulated = ask("simulate", {**flags, "samples": 2 * int(str(flags["batch"]))})
    if isinstance(planned, str) or isinstance(simulated, str):
        assert planned == simulated or "does not fit" in planned + simulated, (
            flags,
            planned,
            simulated,
        )
        return None
    assert isinstance(swept, dict), (flags, swept)
    [row] = swept["rows"]
    assert planned["images_per_s"] == row["images_per_s"], flags
    if "engines" not in flags:  # whose range is of 40 draws, each timed, and in a sweep of slopes
        ranges = (
            [planned["range"]["low"], planned["range"]["high"]],
            [row["range_low"], row["range_high"]],
        )
        assert ranges[0] == pytest.approx(ranges[1], rel=1e-9), flags
        assert planned["interval_ps"] == simulated["interval_ps"], flags
        assert planned["images_per_s"] == simulated["steady"]["images_per_s"], flags
        slowest = simulated["steady"]["bottleneck"]["slowest"]["name"]
        assert planned["limit"] == row["bottleneck"] == slowest, flags
    return simulated


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(13)
@pytest.mark.slow
def test_all_readers_of_a_plan_agree(ask: Ask, seed: int) -> None:
    """With memory modelled, left out, and as in FPDeep; a run that leaves it out is never
    slower.
    """
    rng = random.Random(seed)
    for _ in range(4):
        flags = drawn(rng)
        modelled, ignored, _ = (
            check(ask, {**flags, "memory": memory}) for memory in ("modelled", "ignored", "fpdeep")
        )
        if modelled is not None and ignored is not None:
            assert ignored["virtual_time_ps"] <= modelled["virtual_time_ps"], flags


CASES: dict[str, dict[str, object]] = {
    "parameters that fit nowhere": {"network": "vgg11-cifar", "devices": 8, "memory": "fpdeep"},
    "memory left out": {
        "network": "vgg16-cifar",
        "devices": 13,
        "cluster": "u280",
        "memory": "ignored",
    },
    "a pipeline that drains": {"network": "quick-cifar", "devices": 4, "schedule": "sync"},
    "replicas": {"network": "quick-cifar", "devices": 4, "replicas": 2},
    "an exchange that limits": {
        "network": "alexnet-cifar",
        "devices": 4,
        "replicas": 4,
        "cluster": "titan-xp-10gbe",
    },
    "actions": {"network": "quick-cifar", "devices": 4, "engines": "turns"},
    "actions in a format that has times alone": {
        **{"network": "vit-tiny-cifar", "devices": 13, "cluster": "vc709"},
        **{"precision": "bf16", "engines": "turns"},
    },
}


@pytest.mark.parametrize("flags", CASES.values(), ids=CASES)
def test_readers_of_these_plans_agree(ask: Ask, flags: dict[str, object]) -> None:
    assert check(ask, {"batch": 64, **flags}) is not None


FAST = """\
name = "fast"
links = { bandwidth_gbps = 100, latency_ns = 1000 }
[[boards]]
name = "b"
clock_mhz = 200
dsp = 9_024
on_chip_memory_kbit = 349_056
bram = 2_016
uram = 960
off_chip_memory_gbytes = 8
off_chip_gbytes_per_s = 460
"""
"""Boards with a U280's memory, and one multiplier a DSP, so that memory limits."""


def test_memory_that_is_left_out_costs_no_time(ask: Ask, tmp_path: Path) -> None:
    """Balanced parameters took 272 us a sample here, where memory that was modelled took 43.8."""
    cluster = tmp_path / "fast.toml"
    cluster.write_text(FAST)
    flags = {"network": "vgg16-cifar", "devices": 13, "cluster": cluster}
    ignored, modelled = (
        ask("plan", {**flags, "memory": memory}) for memory in ("ignored", "modelled")
    )
    assert isinstance(ignored, dict) and isinstance(modelled, dict)
    assert ignored["interval_ps"] == 40_320_000 < modelled["interval_ps"]
    assert ignored["balanced_parameters"] == []


@pytest.mark.parametrize("memory", ["modelled", "ignored", "fpdeep"])
def test_a_page_has_the_interval_of_the_run(memory: str, tmp_path: Path) -> None:
    out = tmp_path / "run.h5"
    keys: dict[str, Any] = {
        "devices": 4,
        "memory": memory,
        "batch": 16,
        "samples": 32,
        "test_samples": 2,
    }
    emuchain.train("quick-cifar", out=str(out), **keys)
    run, plan = Run.of("run", read_results(out)), emuchain.plan("quick-cifar", **keys)
    assert run.plan is not None and run.layout is not None and run.steady is not None
    assert run.layout.interval_ps == run.plan.timing.interval_ps == plan.timing.interval_ps
    assert run.steady.images_per_s == emuchain.steady_state(plan).images_per_s


TIED = """
name = "tied"
input = [{symbols}, 4, 1]
layers = [
    {{ type = "embedding", features = 16, name = "table" }},
    {{ type = "conv", channels = 96, kernel = 1 }},
    {{ type = "conv", channels = 16, kernel = 1 }},
    {{ type = "conv", channels = {symbols}, kernel = 1, tied = "table", bias = false }},
    {{ type = "last-step" }},
    {{ type = "softmax" }},
]
"""


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled(4)
@pytest.mark.slow
def test_the_run_named_next_takes_the_time_that_was_explored(
    ask: Ask,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """Of boards of one kind there is a next run; tables of tied weights are exchanged in both."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    Path("tied.toml").write_text(TIED.format(symbols=rng.choice([10, 300, 5000])))
    networks = ["tied.toml", "tied.toml", "quick-cifar", "char-gpt", "resnet8-cifar", "lenet-mnist"]
    words = [rng.choice(networks), "--cluster", rng.choice(["vc709", "vc709-10g", "u280"])]
    words += [
        "--devices",
        str(rng.randint(1, 4)),
        "--batch",
        str(rng.choice([4, 6, 8])),
        "--range",
        "none",
    ]
    if rng.random() < 0.4:
        words += [
            "--set",
            rng.choice(
                ["links.topology=ring", "link.latency_ns=300000", "link.bandwidth_gbps=0.5"]
            ),
        ]
    if rng.random() < 0.3:
        words += ["--engines", rng.choice(["turns", "shared"])]
    if rng.random() < 0.3:
        words += rng.choice(
            [["--transport", "stored"], ["--whole-layers"], ["--optimizer", "adam"]]
        )
    said = []
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main(["explore", *words, *more])
        said.append(capsys.readouterr().out)
    assert not ended.value.code, words
    explored = json.loads(said[1])["winner"]["time_ps"]
    [line] = (line for line in said[0].splitlines() if line.startswith("next: "))
    with pytest.raises(SystemExit):
        main([*shlex.split(line.removeprefix("next: emuchain ")), "--json"])
    assert json.loads(capsys.readouterr().out)["virtual_time_ps"] == explored, line
