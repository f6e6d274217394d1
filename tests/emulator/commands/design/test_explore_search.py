"""`emuchain explore --schedule search`: orders for planned times, within a memory; what is written
is trained with the bits of `sync`, in the time that was explored.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emuchain

from ..running import status_of

CLUSTER = """
name = "small"
boards = [
  { type = "vc709", clock_mhz = 100, off_chip_gbytes_per_s = 10 },
  { type = "vc709", clock_mhz = 150, off_chip_gbytes_per_s = 10 },
  { type = "vc709", clock_mhz = 150, off_chip_gbytes_per_s = 10 },
]
links = { bandwidth_gbps = 10, latency_ns = 1000 }
"""
BATCH, MICRO_BATCH = 16, 2
ON_TWO = ("--cluster", "small.toml", "--devices", "2", "--batch", str(BATCH))

command = functools.partial(status_of, "explore")
Explored = Callable[..., dict[str, Any]]


@pytest.fixture
def explored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Explored:
    """Explores a network on a small cluster, and gives the winner."""
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(CLUSTER)

    def winner(network: str, *flags: str) -> dict[str, Any]:
        words = ["--cluster", "small.toml", "--batch", str(BATCH), "--range", "none"]
        words += [] if "--devices" in flags else ["--devices", "2"]
        assert command(network, *words, *flags, "--json") == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert {one["schedule"] for one in answer["candidates"]} == {answer["winner"]["schedule"]}
        return answer["winner"]

    return winner


@pytest.mark.parametrize("network", ["quick-cifar", "resnet8-cifar", "char-gpt"])
def test_an_order_is_trained_as_it_was_explored(explored: Explored, network: str) -> None:
    """Batch normalisation and a transformer with tied weights among the networks."""
    size = ("--micro-batch", str(MICRO_BATCH))
    found = explored(network, "--schedule", "search", *size, "-o", "order.csv")
    check_trained(network, found["time_ps"], devices=2)


BLOCK = ("qkv", "attention", "project", "expand", "contract")
R_SAVES = {
    "batch norm": ("resnet8-cifar", "all", "1.3MB"),
    "attention": ("char-gpt", "all", "2.5MB"),
    "some layers": (
        "char-gpt",
        ",".join(f"{name}{n}" for n in (1, 2, 3) for name in BLOCK),
        "2.5MB",
    ),
}


@pytest.mark.parametrize("name", R_SAVES)
def test_r_saves_time_where_memory_is_short(explored: Explored, name: str) -> None:
    """Within the memory, and trained as it was explored."""
    network, layers, memory = R_SAVES[name]
    size = ("--micro-batch", str(MICRO_BATCH), "--devices", "3", "--memory", memory)
    plain = explored(network, "--schedule", "search", *size)
    again = explored(
        network, "--schedule", "search", *size, "--recompute", layers, "-o", "order.csv"
    )
    assert again["order_bound_ps"] <= again["time_ps"] < plain["time_ps"]
    assert needed_bytes(again) <= float(memory.removesuffix("MB")) * 10**6
    assert sum(one["recompute_ps"] for one in again["stages"]) > 0
    assert "recompute_ps" not in plain["stages"][0]
    recompute = {} if layers == "all" else {"recompute": layers}
    check_trained(network, again["time_ps"], devices=3, **recompute)


def check_trained(network: str, time_ps: int, devices: int, **recompute: str) -> None:
    """An order that was written takes the time that was explored, with the bits of `sync`."""
    keys: dict[str, Any] = {
        "cluster": "small.toml",
        "samples": BATCH,
        "batch": BATCH,
        "micro_batch": MICRO_BATCH,
        "devices": devices,
    }
    searched = {**keys, "engines": "turns", "transport": "hidden", "schedule": "order.csv"}
    searched |= recompute
    assert emuchain.simulate(network, **searched).virtual_time_ps == time_ps
    run = emuchain.train(network, **searched, test_samples=4)
    assert run.history["virtual_time_ps"][-1] == time_ps
    plain = emuchain.train(network, **keys, schedule="sync", test_samples=4)
    assert list(run.history["train_loss"]) == list(plain.history["train_loss"])
    for layer, arrays in plain.weights.items():
        for name, array in arrays.items():
            assert (run.weights[layer][name] == array).all(), (layer, name)


def needed_bytes(winner: dict[str, Any]) -> int:
    """The most that a stage takes: weights and gradients, and the features that it keeps."""
    return max(2 * one["parameter_bytes"] + one["feature_bytes"] for one in winner["stages"])


def test_an_order_keeps_to_the_memory(explored: Explored) -> None:
    size = ("--micro-batch", str(MICRO_BATCH))
    ample = explored("quick-cifar", "--schedule", "search", *size)
    zero_bubble = explored("quick-cifar", "--schedule", "zero-bubble", *size)
    assert ample["order_bound_ps"] <= ample["time_ps"] <= zero_bubble["time_ps"]
    most = needed_bytes(ample)
    assert most == needed_bytes(zero_bubble)
    same = explored("quick-cifar", "--schedule", "search", *size, "--memory", f"{most}B")
    assert same["time_ps"] <= ample["time_ps"], "another board may keep more than zero-bubble does"
    tight = explored("quick-cifar", "--schedule", "search", *size, "--memory", f"{most - 1}B")
    assert needed_bytes(tight) < most
    assert tight["time_ps"] > same["time_ps"]


@pytest.mark.parametrize("name", ["search", "1f1b-as", "gpipe"])
def test_memory_over_time(explored: Explored, name: str) -> None:
    pytest.importorskip("matplotlib")
    size = ("--micro-batch", str(MICRO_BATCH), "--plot", "x.svg")
    winner = explored("quick-cifar", "--schedule", name, *size)
    for stage, course in zip(winner["stages"], winner["memory"], strict=True):
        assert course["peak_bytes"] == max(course["kept_bytes"]) == stage["feature_bytes"]
        assert course["kept_bytes"][-1] == 0 and course["times_ps"][-1] <= winner["time_ps"]
    drawn = Path("x.svg").read_text()
    assert f"quick-cifar, {winner['schedule']}: " in drawn and "features kept" in drawn


def test_data_parallelism_has_no_picture(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    Path("fast.toml").write_text(
        'name = "fast"\nboards = [{ type = "vc709" }]\n'
        "links = { bandwidth_gbps = 400, latency_ns = 0 }\n"
    )
    size = ("--devices", "2", "--batch", "2", "--micro-batch", "1", "--engines", "shared")
    assert command("quick-cifar", "--cluster", "fast.toml", *size, "--plot", "x.svg") == 2
    said = "`plot` = 'x.svg': data-parallel wins, which has no timeline; leave it out"
    assert said in one_line(capsys.readouterr().err)


def test_schedules_that_ship_keep_to_the_memory(
    explored: Explored, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ("--micro-batch", str(MICRO_BATCH), "--schedule", "gpipe")
    most = needed_bytes(explored("quick-cifar", *size))
    assert needed_bytes(explored("quick-cifar", *size, "--memory", f"{most}B")) == most
    words = ("quick-cifar", *ON_TWO, *size)
    assert command(*words, "--memory", f"{most - 1}B") == 2
    error = capsys.readouterr().err
    assert f"needs {most:,} bytes of `memory`; VC709 has {most - 1:,}" in error
    assert error.count("\n") == 1


def test_it_says_how_near_it_is(explored: Explored, capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--schedule", "search", "--micro-batch", "1")
    found = explored("quick-cifar", *size)
    words = ("quick-cifar", *ON_TWO, *size)
    assert command(*words, "--range", "none") == 0
    said = capsys.readouterr().out
    within = 100 * (found["time_ps"] / found["order_bound_ps"] - 1)
    assert 0 < within < 1 and f"order: within {within:.1f} % of " in said
    assert "changes: no other schedule is explored" in said


PROFILE = """
name = "two"
[devices.vc709]
[[layers]]
name = "a"
output_bytes = 1000
feature_bytes = 1000
parameter_bytes = 1000
times = [{ device = "vc709", micro_batch = 1, forward_us = 100, backward_us = 200GRADIENT }]
[[layers]]
name = "b"
output_bytes = 1000
feature_bytes = 1000
parameter_bytes = 1000
times = [{ device = "vc709", micro_batch = 1, forward_us = 100, backward_us = 200GRADIENT }]
"""
OF_PROFILE = "--profile p.toml --cluster gpus.toml --batch 8 --whole-layers --schedule search"
GPUS = """
name = "gpus"
boards = [{ name = "vc709", count = 2 }]
links = { bandwidth_gbps = 100, latency_ns = 0 }
"""


def test_measured_times(explored: Explored, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two equal stages, as zero-bubble H1 fills the bubble: M (F + B) + F + B - 2 W."""
    Path("gpus.toml").write_text(GPUS)
    Path("p.toml").write_text(PROFILE.replace("GRADIENT", ", gradient_us = 80"))
    assert command(*OF_PROFILE.split(), "--json", "-o", "order.csv") == 0
    winner = json.loads(capsys.readouterr().out)["winner"]
    assert winner["time_ps"] >= (8 * 300 + 300 - 2 * 80) * 10**6
    assert winner["time_ps"] < (8 * 300 + 300) * 10**6
    assert Path("order.csv").read_text().startswith("0F0,")
    Path("p.toml").write_text(PROFILE.replace("GRADIENT", ""))
    assert command(*OF_PROFILE.split()) == 2
    assert "a profile should have `gradient_us`" in capsys.readouterr().err


BAD = {
    "no search": ("--recompute all", "`recompute` = 'all': is for an order that is searched"),
    "no layer": ("--schedule search --recompute conv9", "quick-cifar has no layer 'conv9'"),
    "auto": ("--schedule search --recompute auto", "the search chooses micro-batches"),
    "no order": ("--out o.csv", "`out` = 'o.csv': writes a searched order; add --schedule search"),
    "unit": ("--memory 3", "`memory` = '3': must have a unit, such as 4GiB or 512MB"),
    "no size": ("--memory much", "`memory` = 'much': must be a number above 0, of bytes"),
    "no room": ("--schedule search --memory 1kB", "bytes of `memory`; VC709 has 1,000"),
    "engines": ("--schedule search --engines shared", "`schedule` = 'search': searches orders"),
    "chunks": ("--schedule interleaved", "must be `search`, or have one stage on each device"),
    "name": ("--schedule zero", "`schedule` = 'zero': "),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(
    capsys: pytest.CaptureFixture[str], name: str, one_line: Callable[[str], str]
) -> None:
    flags, message = BAD[name]
    words = f"quick-cifar --cluster vc709 --devices 2 {flags}"
    assert command(*words.split()) == 2
    assert message in one_line(capsys.readouterr().err)
