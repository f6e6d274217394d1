"""The benchmark of simulation: what it counts and prints. Nothing here asks how fast it is."""

from __future__ import annotations

import itertools
import json

import pytest
from click import Context
from click.testing import CliRunner

from emuchain.benchmarks import simulate as bench
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.config import load_config
from emuchain.emulator.plan import make_plan

SMALL = (("quick-cifar", 1, 8), ("quick-cifar", 3, 8))


def test_rows_on_one_device_are_those_of_its_engines() -> None:
    """FP and PG take a layer's output rows, EB its input rows, a fully connected layer one each."""
    plan = make_plan(load_config(None, {"network": "quick-cifar", "devices": 1, "batch": 2}), 1)
    expected = 0
    for layer in plan.network.layers:
        rows_in, rows_out = (layer.input[1], layer.output[1]) if layer.convolves else (1, 1)
        expected += 2 * rows_out + (rows_in if layer.index else 0)
    assert bench.sample_rows(plan.timing) == expected


def test_costs_are_counted_for_each_row_and_device() -> None:
    cost = bench.Cost(
        "n", devices=4, samples=10, sample_rows=50, plan_seconds=0.2, run_seconds=0.001
    )
    assert cost.device_plan_ms == pytest.approx(50)
    assert cost.row_ns == pytest.approx(2000)
    [cells] = bench.sheet([cost]).rows
    assert cells == ("n", "4", "10", "50", "0.20 s", "50.00 ms", "0.00 s", "2000.0 ns")


@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_the_command(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(bench.measure, "__defaults__", (SMALL,))
    outcome = CliRunner().invoke(commands, ["bench", "simulate", "--runs", "1", form])
    assert outcome.exit_code == 0, outcome.output
    if form == "--markdown":
        assert outcome.output.count("| quick-cifar | ") == 2
        return
    rows = json.loads(outcome.output)["rows"]
    assert [(row["network"], row["devices"], row["samples"]) for row in rows] == list(SMALL)
    assert rows[0]["sample_rows"] < rows[1]["sample_rows"]
    assert all(row["plan_seconds"] > 0 and row["run_seconds"] >= 0 for row in rows)


@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_the_curve(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    small = ((3, "simulate quick-cifar --devices 3 --samples 8"),)
    monkeypatch.setattr(bench.measure_commands, "__defaults__", (small,))
    outcome = CliRunner().invoke(commands, ["bench", "simulate", "--curve", form])
    assert outcome.exit_code == 0, outcome.output
    if form == "--markdown":
        assert outcome.output.count("| simulate quick-cifar") == 1
        return
    [row] = json.loads(outcome.output)["curve"]
    assert (row["boards"], row["command"]) == small[0]
    assert row["processor_seconds"] > 0
    assert row["peak_bytes"] > 1 << 20  # bytes, whatever the operating system counts in


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="status 2"):
        list(bench.measure_commands(((0, "simulate quick-cifar --devices 0"),)))


def test_the_curves_commands_are_of_emuchain() -> None:
    """Each command's options exist, and name as many boards as its row says."""
    for boards, words in bench.CURVE:
        name, *rest = words.split()
        given = dict(itertools.pairwise(rest))
        counted = int(given.get("--devices", given.get("--stages", 2))) * int(
            given.get("--replicas", 1)
        )
        assert counted == boards
        command = commands.commands[name]
        known = {option for each in command.get_params(Context(command)) for option in each.opts}
        assert {word for word in rest if word.startswith("--")} <= known


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "part", ["--cluster farnn", "lstm-5x1024 --devices 16 ", "--stages 64 ", "--stages 1024 "]
)
def test_the_curves_commands_succeed(part: str) -> None:
    """The smallest of each kind, and the largest pipeline; other tests simulate VGG-16."""
    [command] = [line for _, line in bench.CURVE if part in line]
    outcome = CliRunner().invoke(commands, command.split())
    assert outcome.exit_code == 0, outcome.output
