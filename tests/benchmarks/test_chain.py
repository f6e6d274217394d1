"""The benchmark of the chain: what it starts, compares and prints; training runs that take turns go
on only in theirs, and their memory is counted. No test asks for a speed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from emuchain.benchmarks import chain, frame, programs
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.kernels.current_folder import RUN_MODULE
from emuchain.launch import family, send

from .helpers import NEEDS_TORCH, README, is_there, keys_of, wait_until

COUNTING = """
import itertools, sys, time
for done in itertools.count(1):
    time.sleep(0.01)
    print(f"epoch 1/1  {done}/1000000 samples", flush=True)
    if len(sys.argv) > 1 and done == int(sys.argv[1]):
        sys.exit("emuchain: error: enough")
"""


def states(pid: int) -> set[str]:
    return {member.status() for member in family(pid)}


def test_a_run_goes_on_only_in_its_turns() -> None:
    launcher = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with chain.Run("it", [sys.executable, "-c", launcher, COUNTING], os.environ) as run:
        first = run.turn(0.0, look_at_memory=True)
        assert first.samples == chain.LEAST_COUNTED
        assert run.peak_bytes > 2**20
        members = family(run.pid)
        assert len(members) == 2
        wait_until(lambda: states(run.pid) == {psutil.STATUS_STOPPED})
        second = run.turn(0.05)
        assert second.samples >= chain.LEAST_COUNTED >= 5
        assert second.seconds >= 0.05
        assert second.rate == second.samples / second.seconds
    wait_until(lambda: not any(is_there(member.pid) for member in members))


def test_a_run_that_ends_says_why() -> None:
    with (
        chain.Run("the chain", [sys.executable, "-c", COUNTING, "3"], os.environ) as run,
        pytest.raises(InputError, match=r"^the chain ended with status 1: enough$"),
    ):
        run.turn(math.inf)


def test_memory_that_is_shared_counts_once() -> None:
    process = psutil.Process()
    once = chain.memory_bytes([process])
    assert once == pytest.approx(_pss_bytes(process.pid), rel=0.2)
    assert chain.memory_bytes([process, process]) == pytest.approx(2 * once, rel=0.05)


def test_processes_that_have_ended_have_no_memory_and_take_no_signals() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as started:
        gone = family(started.pid)
    assert chain.memory_bytes(gone) == 0
    send(signal.SIGCONT, gone)
    assert family(started.pid) == []


def _pss_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * int(re.findall(r"^Pss:\s+(\d+) kB$", text, re.MULTILINE)[0])


SETTING = chain.Setting("quick-cifar", 4, 1, 16, 8, 1, 1)


def test_sides_are_compared_turn_by_turn() -> None:
    fast = chain.side((chain.Turn(10, 1.0), chain.Turn(30, 10.0), chain.Turn(40, 4.0)), 300)
    slow = chain.side((chain.Turn(5, 1.0), chain.Turn(10, 10.0), chain.Turn(20, 4.0)), 400)
    assert fast.samples_per_s == 10
    peak = chain.side((chain.Turn(30, 1.0), chain.Turn(30, 10.0), chain.Turn(80, 4.0)), 200)
    compared = chain.compared(fast, peak, slow)
    assert (compared.ratio, compared.peak_ratio, compared.memory_ratio) == (2.0, 4.0, 0.75)
    assert chain.compared(fast, peak, None) == chain.Comparison(fast, peak, None, None, None, None)


def test_the_chain_runs_as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emuchain.launch.launch.find_mpiexec", lambda: "mpiexec")
    words = chain.ours_command(dataclasses.replace(SETTING, ranks=3))
    begin = ["mpiexec", "-n", "3", sys.executable, *RUN_MODULE, "emuchain", "train"]
    assert words[: len(begin)] == begin
    assert {
        "--devices=4",
        "--schedule=fpdeep",
        "--batch=16",
        "--micro-batch=8",
        "--samples=10000",
    } <= set(words)
    assert chain.ours_command(SETTING) == words[3:]


def test_no_mpiexec_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"^no `mpiexec`.*install.*--ranks 1$"):
        chain.ours_command(dataclasses.replace(SETTING, ranks=2))
    (tmp_path / "mpiexec").touch(mode=0o755)
    assert chain.ours_command(dataclasses.replace(SETTING, ranks=2))[0] == str(tmp_path / "mpiexec")


def test_the_peak_does_the_multiply_adds_of_training(capfd: pytest.CaptureFixture[str]) -> None:
    """Of quick-cifar's five layers all but the first have EB."""
    network = load_network("quick-cifar")
    macs = [layer.macs for layer in network.layers]
    assert programs.flop_of_sample(network) == 2 * (3 * sum(macs) - macs[0])
    programs.multiply_as_training("quick-cifar", batch=4, processes=2, steps=2)
    assert re.findall(r"^(\d+)/10000 samples", capfd.readouterr().out, re.MULTILINE) == ["4", "8"]


@NEEDS_TORCH
@pytest.mark.parametrize(
    "name", ["vgg16-cifar", "alexnet-cifar", "quick-cifar", "resnet18-cifar", "inception-cifar"]
)
def test_pytorch_trains_the_same_network(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    network = load_network(name)
    model = programs.model(network)
    assert sum(parameter.numel() for parameter in model.parameters()) == network.parameters
    expected = sorted(step.operation.type for layer in network.layers for step in layer.sfu)
    names = {
        "ReLU": "relu",
        "MaxPool2d": "max-pool",
        "AvgPool2d": "average-pool",
        "Dropout": "dropout",
    }
    names |= {"LocalResponseNorm": "lrn", "BatchNorm2d": "batch-norm"}
    found = [
        names[type(module).__name__] for module in model.modules() if type(module).__name__ in names
    ]
    assert sorted(found) == [kind for kind in expected if kind not in ("add", "concat")]
    programs.train_with_torch(name, batch=4, threads=1, steps=2)
    assert re.findall(r"^(\d+)/10000 samples", capfd.readouterr().out, re.MULTILINE) == ["4", "8"]


@NEEDS_TORCH
def test_pytorch_trains_the_same_transformer(capfd: pytest.CaptureFixture[str]) -> None:
    network = load_network("char-gpt")
    model = programs.model(network)
    assert sum(parameter.numel() for parameter in model.parameters()) == network.parameters
    programs.train_with_torch("char-gpt", batch=4, threads=1, steps=2)
    programs.multiply_as_training("char-gpt", batch=4, processes=2, steps=2)
    assert (
        re.findall(r"^(\d+)/2813 samples", capfd.readouterr().out, re.MULTILINE) == ["4", "8"] * 2
    )
    words = chain.ours_command(dataclasses.replace(SETTING, network="char-gpt", ranks=1))
    assert {"--data=text", "--samples=2800"} <= set(words)


def test_the_page_names_every_key_of_the_chain() -> None:
    keys = {
        field.name for of in (chain.Setting, chain.Comparison) for field in dataclasses.fields(of)
    }
    assert keys_of("key") >= {field.name for field in dataclasses.fields(chain.Comparison)}
    inner = {field.name for of in (chain.Side, chain.Turn) for field in dataclasses.fields(of)}
    for key in keys | inner | {"command", "torch_command", "host", *frame.describe_host(None)}:
        assert f"`{key}`" in README, key


def test_tables_for_people_and_pages() -> None:
    ours = chain.side((chain.Turn(10, 1.0), chain.Turn(30, 2.0)), 3 * 2**20)
    torch = chain.side((chain.Turn(5, 1.0), chain.Turn(15, 2.0)), 2**20)
    peak = chain.side((chain.Turn(20, 1.0), chain.Turn(60, 2.0)), 2**20)
    sheet = chain.sheet(SETTING, chain.compared(ours, peak, torch))
    assert sheet.rows[0] == (
        "emuchain, 4 devices in 1 rank",
        "2",
        "12.5",
        "10.0 to 15.0",
        "3.00 MiB",
    )
    assert sheet.rows[-2:] == (
        ("ratio", "", "2.00", "", "3.00"),
        ("ratio at the peak", "", "4.00", "", ""),
    )
    lines = sheet.markdown().splitlines()
    assert lines[2:4] == [
        "| side | turns | samples/s | least to most | memory |",
        "| --- | --: | --: | --: | --: |",
    ]
    assert len(chain.sheet(SETTING, chain.compared(ours, peak, None)).rows) == 2


@pytest.mark.slow
def test_chain_from_end_to_end(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_torch = frame.is_installed("torch")
    monkeypatch.setattr(chain, "TURN_S", 0.5)
    chain.report(dataclasses.replace(SETTING, ranks=2), no_torch=False).print(
        as_json=True, as_markdown=False
    )
    found = json.loads(capfd.readouterr().out)
    for side in ("ours", "peak", "torch") if with_torch else ("ours", "peak"):
        (turn,) = found[side]["turns"]
        assert turn["samples"] % SETTING.batch == 0
        assert turn["samples"] >= chain.LEAST_COUNTED * SETTING.batch
    assert found["ours"]["peak_bytes"] > 2**20
    for ratio in ("ratio", "peak_ratio", "memory_ratio"):
        assert (found[ratio] is not None) is with_torch


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


@pytest.mark.slow
def test_sigterm_leaves_nothing_behind() -> None:
    command = [
        sys.executable,
        "-m",
        "emuchain",
        "bench",
        "chain",
        "--network",
        "quick-cifar",
        "--ranks",
        "1",
    ]
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(
            lambda: any("quick-cifar" in command_line(child) for child in process.children())
        )
        children = process.children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[1].strip() == "emuchain: interrupted"
        assert process.returncode == 130
        wait_until(lambda: not any(is_there(child.pid) for child in children))
    finally:
        if process.is_running():
            process.kill()
