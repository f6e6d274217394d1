"""Benchmarks: what they count, how they time and take turns, what they print. Nothing here asks how fast it is."""

import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from emuchain.emulator.bench import (
    chain,
    family,
    host,
    kernels,
    peer,
    report,
    shapes,
    stopwatch,
    torch_training,
    turns,
)
from emuchain.emulator.bench.stopwatch import Pace
from emuchain.emulator.commands.cli import main
from emuchain.emulator.common.errors import InputError
from emuchain.emulator.network.load import load_network

README = (Path(__file__).parents[2] / "benchmarks" / "README.md").read_text(encoding="utf-8")

# The layers


@pytest.mark.parametrize(("name", "network"), [("vgg-cifar-1", "vgg16-cifar"), ("imagenet-1", "vgg16")])
def test_lists_hold_the_networks_distinct_convolutions(name: str, network: str) -> None:
    expected = {
        (layer.input[0], layer.channels, layer.input[1:], layer.kernel, layer.stride, layer.pad, layer.index == 0)
        for layer in load_network(network).layers
        if not layer.is_fc
    }
    found = [
        (s.in_channels, s.out_channels, s.size, s.kernel, s.stride, s.pad, s.is_first)
        for s in shapes.LISTS[name]
        if s.network == "vgg16"
    ]
    assert len(found) == 9
    assert set(found) == expected


def test_micro_batches_of_16_are_the_same_layers() -> None:
    one, many = shapes.LISTS["vgg-cifar-1"], shapes.LISTS["vgg-cifar-16"]
    assert [dataclasses.replace(shape, samples=16) for shape in one] == list(many)


def test_alexnet_has_the_sizes_of_its_layers() -> None:
    layers = [shape for shape in shapes.LISTS["imagenet-1"] if shape.network == "alexnet"]
    ours = [layer for layer in load_network("alexnet").layers if not layer.is_fc]
    assert [shape.output for shape in layers] == [layer.output[1:] for layer in ours]
    assert [shape.flop for shape in layers] == [2 * layer.macs for layer in ours]
    assert [shape.is_first for shape in layers] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("name", "place", "flop", "phases", "has_bar"),
    [
        ("vgg-cifar-1", 0, 2 * 32 * 32 * 64 * 3 * 9, ("FP", "PG"), False),  # 3 channels
        ("vgg-cifar-1", 1, 75_497_472, ("FP", "EB", "PG"), True),  # 2 x 1024 pixels x 64 x 64 x 9
        ("vgg-cifar-1", 5, 75_497_472, ("FP", "EB", "PG"), True),  # 64 pixels, just enough
        ("vgg-cifar-1", 6, 37_748_736, ("FP", "EB", "PG"), False),  # 16 pixels
        ("vgg-cifar-16", 8, 301_989_888, ("FP", "EB", "PG"), True),  # 16 samples of 4 pixels
        ("imagenet-1", 9, 210_830_400, ("FP", "PG"), False),  # 2 x 55 x 55 x 96 x 3 x 11 x 11
    ],
)
def test_operations_phases_and_bars(name: str, place: int, flop: int, phases: tuple[str, ...], has_bar: bool) -> None:
    shape = shapes.LISTS[name][place]
    assert (shape.flop, shape.phases, shape.has_bar) == (flop, phases, has_bar)


# Timing


class Machine:
    """A clock, and calls that take their time on it; notes who was called."""

    def __init__(self) -> None:
        self.now, self.log = 0.0, ""

    def call(self, name: str, seconds: float):  # type: ignore[no-untyped-def]
        def run() -> None:
            self.now += seconds
            self.log += name

        return run


def test_calls_are_interleaved_and_short_ones_repeated() -> None:
    machine = Machine()
    calls = [machine.call("a", 1.0), machine.call("b", 0.25)]
    timings = stopwatch.interleaved(calls, Pace(7, least_s=1.0, enough_s=0.0), lambda: machine.now)
    assert timings == [[1.0] * 7, [0.25] * 7]
    # Each once, to compile; then how often to call each; then the rounds.
    assert machine.log == "ab" + "a" + "bbbbb" + "abbbb" * 7


def test_short_rounds_are_more() -> None:
    machine = Machine()
    (timings,) = stopwatch.interleaved([machine.call("a", 1.0)], Pace(7, 1.0, enough_s=10.0), lambda: machine.now)
    assert len(timings) == 10
    (timings,) = stopwatch.interleaved([machine.call("a", 1.0)], Pace(7, 1.0, enough_s=1e9), lambda: machine.now)
    assert len(timings) == stopwatch.MOST_ROUNDS


def test_ratios_are_taken_side_by_side() -> None:
    # A machine ten times slower in one round: the ratio of medians would be 6, the median of ratios is 2.
    assert stopwatch.median_ratio([2.0, 20.0, 12.0], [1.0, 10.0, 2.0]) == 2.0
    assert stopwatch.geometric_mean([4.0, 1.0, 0.25]) == pytest.approx(1.0)


def test_figures_of_a_row_and_their_summary() -> None:
    shape = shapes.LISTS["vgg-cifar-1"][1]
    peak_s = [1e-11, 2e-11, 1e-11]  # of one operation: 100, 50, 100 GFLOP/s
    ours_s = [shape.flop * s / 0.5 for s in peak_s]
    row = kernels.row_of("some", shape, "FP", peak_s, ours_s, [3 * s for s in ours_s])
    assert (row.gflops, row.peak_gflops, row.torch_gflops) == (
        pytest.approx(50),
        pytest.approx(100),
        pytest.approx(50 / 3),
    )
    assert (row.peak_share, row.ratio, row.rounds) == (pytest.approx(0.5), pytest.approx(3), 3)
    alone = kernels.row_of("some", shape, "FP", peak_s, ours_s)
    assert (alone.torch_seconds, alone.torch_gflops, alone.ratio) == (None, None, None)

    small = dataclasses.replace(row, has_bar=False, peak_share=0.1, ratio=12.0)
    (summary,) = kernels.summarise([row, small])
    assert (summary.layers, summary.bar_layers) == (2, 1)
    assert summary.ratio_geometric_mean == pytest.approx(6)
    assert summary.ratio_minimum == pytest.approx(3)
    assert summary.bar_share_minimum == pytest.approx(0.5)
    (summary,) = kernels.summarise([alone])
    assert (summary.ratio_geometric_mean, summary.ratio_minimum) == (None, None)


def test_the_peak_does_all_its_multiply_adds() -> None:
    from emuchain.kernels.llvm import peak

    # x -> (x + 1) / 2 in each chain: the distance of the chains' sum from CHAINS halves with each step.
    distances = [peak.CHAINS - peak.multiply_add(rounds) for rounds in (1, 2)]
    assert distances[0] > 0
    assert distances[1] / distances[0] == pytest.approx(2.0**-peak.UNROLLED, rel=0.1)


# Taking turns

COUNTING = """
import itertools, sys, time
for done in itertools.count(1):
    time.sleep(0.01)
    print(f"epoch 1/1  {done}/1000000 samples", flush=True)
    if len(sys.argv) > 1 and done == int(sys.argv[1]):
        sys.exit("emuchain: error: enough")
"""


def states(pid: int) -> set[str]:
    return {psutil.Process(member).status() for member in family.family(pid)}


def is_there(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def wait_until(condition) -> None:  # type: ignore[no-untyped-def]
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_run_goes_on_only_in_its_turns() -> None:
    launcher = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with turns.Run("it", [sys.executable, "-c", launcher, COUNTING], os.environ) as run:
        first = run.turn(0.0, look_at_memory=True)
        assert first.samples == turns.LEAST_COUNTED
        assert run.peak_bytes > 2**20
        members = family.family(run.pid)
        assert len(members) == 2
        wait_until(lambda: states(run.pid) == {psutil.STATUS_STOPPED})
        second = run.turn(0.05)
        assert second.samples >= turns.LEAST_COUNTED >= 5
        assert second.seconds >= 0.05
        assert second.rate == second.samples / second.seconds
    wait_until(lambda: not any(is_there(pid) for pid in members))


def test_a_run_that_ends_says_why() -> None:
    with (
        turns.Run("the chain", [sys.executable, "-c", COUNTING, "3"], os.environ) as run,
        pytest.raises(InputError, match=r"^the chain ended with status 1: enough$"),
    ):
        run.turn(math.inf)


def test_memory_that_is_shared_counts_once() -> None:
    pid = os.getpid()
    alone = family.memory_bytes([pid])
    assert alone == pytest.approx(psutil.Process(pid).memory_full_info().pss, rel=0.2)
    assert family.memory_bytes([pid, pid]) == pytest.approx(2 * alone, rel=0.05)
    assert family.memory_bytes([2**22 + 1]) == 0  # no such process


def test_sides_are_compared_turn_by_turn() -> None:
    fast = chain.side((turns.Turn(10, 1.0), turns.Turn(30, 10.0), turns.Turn(40, 4.0)), 300)
    slow = chain.side((turns.Turn(5, 1.0), turns.Turn(10, 10.0), turns.Turn(20, 4.0)), 400)
    assert fast.samples_per_s == 10
    compared = chain.compared(fast, slow)
    assert (compared.ratio, compared.memory_ratio) == (2.0, 0.75)
    assert chain.compared(fast, None) == chain.Comparison(fast, None, None, None)


SETTING = chain.Setting("quick-cifar", 4, 1, 16, 8, 1, 1)


def test_the_chain_runs_as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "find_mpiexec", lambda: "mpiexec")
    words = chain.ours_command(dataclasses.replace(SETTING, ranks=3))
    assert words[:7] == ["mpiexec", "-n", "3", sys.executable, "-m", "emuchain", "train"]
    assert {"--devices=4", "--schedule=fpdeep", "--batch=16", "--micro-batch=8", "--samples=10000"} <= set(words)
    assert chain.ours_command(SETTING) == words[3:]


def test_no_mpiexec_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"^no `mpiexec`.*install.*--ranks 1$"):
        chain.ours_command(dataclasses.replace(SETTING, ranks=2))
    (tmp_path / "mpiexec").touch(mode=0o755)
    assert chain.find_mpiexec() == str(tmp_path / "mpiexec")


# The commands


def run_main(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *arguments])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kernels", "--list", "vgg"], ["--list", "vgg-cifar-1", "imagenet-1"]),
        (["kernels", "--runs", "6"], ["--runs", "6", "7"]),
        (["kernels", "--form", "sse9"], ["--form", "sse9", "avx2", "portable"]),
        (["kernels", "--json", "--markdown"], ["--json", "--markdown"]),
        (["chain", "--runs", "3"], ["--runs", "3", "7"]),
        (["chain", "--network", "vgg61"], ["`network`", "vgg61", "vgg16-cifar"]),
        (["chain", "--network", "vgg16"], ["`network`", "3x224x224", "3x32x32", "1000", "10"]),
        (["chain", "--batch", "10001"], ["--batch", "10001"]),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMUCHAIN_KERNEL_FORM", "")  # as if unset; what the flag puts there goes with the test
    assert run_main(*arguments) == 2
    said = capfd.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("emuchain: error: ")
    assert all(word in line for word in words)
    assert said.out == ""


def test_forms_that_contradict(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from emuchain.kernels.form import FORM, FORMS

    other = next(name for name in FORMS if name != FORM.name)
    monkeypatch.setenv("EMUCHAIN_KERNEL_FORM", FORM.name)
    assert run_main("kernels", "--form", other) == 2
    assert f"EMUCHAIN_KERNEL_FORM is {FORM.name}" in capfd.readouterr().err
    monkeypatch.setenv("EMUCHAIN_KERNEL_FORM", "")
    assert run_main("kernels", "--form", other) == 2  # this process has its kernels already
    assert FORM.name in capfd.readouterr().err


def test_a_launcher_is_refused(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("emuchain.emulator.commands.bench.launcher_rank", lambda: 0)
    assert run_main("chain") == 2
    assert "launcher" in capfd.readouterr().err


def keys_of(heading: str) -> set[str]:
    """The keys that benchmarks/README.md explains in the first column of the table with that heading."""
    rows = re.search(rf"^\| {re.escape(heading)} \| meaning \|\n\|---\|---\|\n((?:\|.*\n?)+)", README, re.MULTILINE)
    assert rows is not None
    return {key for row in rows[1].splitlines() for key in re.findall(r"`(\w+)`", row.split(" | ")[0])}


TINY = shapes.Shape("tiny", 2, 5, 7, (6, 5), (3, 3), (2, 2), (1, 1), is_first=False)


@pytest.fixture
def tiny_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of two layers that take no time, and a pace that does not wait."""
    first = dataclasses.replace(TINY, in_channels=3, kernel=(5, 3), pad=(2, 0), is_first=True)
    monkeypatch.setitem(shapes.LISTS, "vgg-cifar-1", (first, TINY))
    monkeypatch.setattr(stopwatch, "Pace", lambda runs: Pace(runs, least_s=0.0, enough_s=0.0))


NEEDS_TORCH = pytest.mark.skipif(not peer.is_installed(), reason="PyTorch, the peer, is not installed")


@pytest.mark.parametrize("with_torch", [False, pytest.param(True, marks=NEEDS_TORCH)])
def test_kernels_from_end_to_end(tiny_list: None, with_torch: bool, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["kernels", "--list", "vgg-cifar-1", *([] if with_torch else ["--no-torch"])]
    assert run_main(*arguments, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert set(found) == {"host", "threads", "runs", "rows", "summary"}
    assert [(row["layer"], row["phase"], row["rounds"]) for row in found["rows"]] == [
        ("3->7 @6x5 5x3 stride 2 pad 2", "FP", 7),
        ("3->7 @6x5 5x3 stride 2 pad 2", "PG", 7),
        ("5->7 @6x5 3x3 stride 2 pad 1", "FP", 7),
        ("5->7 @6x5 3x3 stride 2 pad 1", "EB", 7),
        ("5->7 @6x5 3x3 stride 2 pad 1", "PG", 7),
    ]
    assert {key for row in found["rows"] for key in row} == keys_of("key of `rows`")
    assert {key for row in found["summary"] for key in row} == keys_of("key of `summary`")
    assert all((row["ratio"] is not None) is with_torch for row in found["rows"])
    assert all(row["gflops"] > 0 and row["peak_share"] > 0 for row in found["rows"])
    assert (found["host"]["versions"]["torch"] is not None) is with_torch

    assert run_main(*arguments, "--markdown") == 0
    said = capfd.readouterr().out
    assert "| tiny | 5->7 @6x5 3x3 stride 2 pad 1 | EB |" in said
    assert ("PyTorch was not measured" in said) is not with_torch


@NEEDS_TORCH
def test_wrong_results_are_not_timed(tiny_list: None, monkeypatch: pytest.MonkeyPatch) -> None:
    right = peer.PeerLayer.results
    monkeypatch.setattr(peer.PeerLayer, "results", lambda self, phase: right(self, phase) + 0.01)
    with pytest.raises(ArithmeticError, match="FP: differs from PyTorch"):
        next(kernels.measure(["vgg-cifar-1"], Pace(7, 0.0, 0.0), peer.load()))


@NEEDS_TORCH
def test_every_layer_agrees_with_pytorch() -> None:
    # The benchmark refuses to time what differs.
    rows = list(kernels.measure(["vgg-cifar-1"], Pace(1, 0.0, 0.0), peer.load()))
    assert [row.phase for row in rows] == ["FP", "PG", *("FP", "EB", "PG") * 8]


@NEEDS_TORCH
@pytest.mark.parametrize("name", ["vgg16-cifar", "alexnet-cifar", "quick-cifar"])
def test_pytorch_trains_the_same_network(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    network = load_network(name)
    model = torch_training.model(network)
    assert sum(parameter.numel() for parameter in model.parameters()) == network.parameters
    expected = [step.operation.type for layer in network.layers for step in layer.sfu]
    names = {"ReLU": "relu", "MaxPool2d": "max-pool", "AvgPool2d": "average-pool", "Dropout": "dropout"}
    names["LocalResponseNorm"] = "lrn"
    found = [names[type(module).__name__] for module in model if type(module).__name__ in names]
    assert found == expected
    torch_training.train(name, batch=4, threads=1, steps=2)
    assert re.findall(r"^(\d+)/10000 samples", capfd.readouterr().out, re.MULTILINE) == ["4", "8"]


def test_the_page_names_every_key_of_the_chain() -> None:
    keys = {field.name for of in (chain.Setting, chain.Comparison) for field in dataclasses.fields(of)}
    assert keys_of("key") >= {field.name for field in dataclasses.fields(chain.Comparison)}
    inner = {field.name for of in (chain.Side, turns.Turn) for field in dataclasses.fields(of)}
    for key in keys | inner | {"command", "torch_command", "host", *host.describe_host(None)}:
        assert f"`{key}`" in README, key


def test_tables_for_people_and_pages() -> None:
    ours = chain.side((turns.Turn(10, 1.0), turns.Turn(30, 2.0)), 3 * 2**20)
    torch = chain.side((turns.Turn(5, 1.0), turns.Turn(15, 2.0)), 2**20)
    sheet = report.chain_sheet(SETTING, chain.compared(ours, torch))
    assert sheet.rows[0] == ("emuchain, 4 devices in 1 rank", "2", "12.5", "10.0 to 15.0", "3.00 MiB")
    assert sheet.rows[-1] == ("ratio", "", "2.00", "", "3.00")
    lines = sheet.markdown().splitlines()
    assert lines[2:4] == ["| side | turns | samples/s | least to most | memory |", "| --- | --: | --: | --: | --: |"]
    assert len(report.chain_sheet(SETTING, chain.compared(ours, None)).rows) == 1


@pytest.mark.slow
def test_chain_from_end_to_end(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from emuchain.emulator.commands.bench import run_chain

    with_torch = peer.is_installed()
    monkeypatch.setattr(chain, "TURN_S", 0.5)
    run_chain(dataclasses.replace(SETTING, ranks=2), with_torch, as_json=True, as_markdown=False)
    found = json.loads(capfd.readouterr().out)
    for side in ("ours", "torch") if with_torch else ("ours",):
        (turn,) = found[side]["turns"]
        assert turn["samples"] % SETTING.batch == 0
        assert turn["samples"] >= turns.LEAST_COUNTED * SETTING.batch
    assert found["ours"]["peak_bytes"] > 2**20
    assert (found["ratio"] is not None) is (found["memory_ratio"] is not None) is with_torch


@pytest.mark.slow
def test_sigterm_leaves_nothing_behind() -> None:
    command = [sys.executable, "-m", "emuchain", "bench", "chain", "--network", "quick-cifar", "--ranks", "1"]
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: any("quick-cifar" in command_line(child) for child in process.children()))
        children = process.children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[1].strip() == "emuchain: interrupted"
        assert process.returncode == 130
        wait_until(lambda: not any(is_there(child.pid) for child in children))
    finally:
        if process.is_running():
            process.kill()
