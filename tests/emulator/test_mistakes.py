"""The mistakes of a person, on the command line and in Python: one line that says what to do.

Those of files are in the tests of their readers; units that no hardware has get a note
(`cluster/constants.py`).
"""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.commands.cli import main

OneLine = Callable[..., str]
COMMANDS = {
    "train --lr 0.1": "Did you mean '--learning-rate'?",
    "train --learning_rate 0.1": "Did you mean '--learning-rate'?",
    "train --batch-size 32": "Did you mean '--batch'?",
    "train --epoch 2": "'--epochs'",
    "train --optimiser adam": "Did you mean '--optimizer'?",
    "train --test_samples 5": "'--test-samples'",
    "train --dataset x": "Did you mean '--data'?",
    "train --dtype bf16": "Did you mean '--precision'?",
    "train --wd 0.1": "Did you mean '--weight-decay'?",
    "train --output run.h5": "Did you mean '--out'?",
    "plan vgg16 --boards 4": "Did you mean '--devices'?",
    "plan vgg16 --gpus 4": "Did you mean '--devices'?",
    "plan vgg16 --device 4": "'--devices'",
    "plan vgg16 --platform u280": "Did you mean '--cluster'?",
    "simulate --bandwidth 10": "Did you mean '--set link.bandwidth_gbps=RATE'?",
    "simulate --clock 200": "Did you mean '--set board.clock_mhz=RATE'?",
    "simulate --link.bandwidth_gbps 10": "Did you mean '--set link.bandwidth_gbps=VALUE'?",
    "simulate --set link.bandwidth=10": "did you mean `link.bandwidth_gbps`?",
    "simulate --set board.clock=200": "did you mean `board.clock_mhz`?",
    "simulate --set link.latency_ns=-5": "should be greater than or equal to 0",
    "simulate --set link.bandwidth_gbps=10Gb/s": "should be a valid number",
    "simulate --set board.clock_mhz=200e6": "should be less than or equal to 1000000",
    "simulate --samples 1e6": "must be written as 1000000",
    "plan vgg16 --devices four": "a list of numbers of devices such as 2,4,8",
    "plan vgg16 --devices -3": "should be greater than or equal to 1",
    "plan vgg-16": "did you mean `vgg16`?",
    "plan vgg16 --cluster vc707": "did you mean `vc709`?",
    "plan vgg16 --cluster U280x": "did you mean `u280`?",
    "sweep vgg16 --devices 64-8": "runs downwards; write 8-64",
    "sweep vgg16 --devices 8:64:8": "a range such as 1-64",
    "train --learning-rate 0,1": "is not a valid float",
    "train --momentum 9": "should be less than 1",
    "train --seed abc": "is not a valid integer",
    "train --epochs 0": "should be greater than or equal to 1",
    "train --optimizer adamax": "is not one of 'adam'",
    "train --precision float16": "did you mean `fp16`?",
    "train --precision bfloat16": "did you mean `bf16`?",
    "train --schedule 1f1b": "is not one of '1f1b-as'",
    "train --loss mae": "should be 'softmax', 'mse' or 'bce'",
    "train --compress gzip": "known codecs: none",
    "train --data nowhere": "give `shapes`, `text`, or a directory with a data set",
    "train --out nowhere/run.h5": "nowhere does not exist; create it",
    "train missing.toml": "No such file",
    "train --resume none.ckpt": "a run with `checkpoint` = FILE writes one",
    "show missing.h5": "`emuchain train --out missing.h5` would write it",
    "retime missing.h5 --cluster u280": "`emuchain train --out missing.h5` would write it",
    "export none.h5 out.bin": "should end in .safetensors or .onnx",
    "tarin": "Did you mean 'train'?",
    "validate bapip": "did you mean `bapipe`?",
    "data fetch cifar100": "is not one of 'cifar10', 'mnist'",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command(
    command: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == ""
    [line] = said.err.splitlines()
    assert line.startswith("emuchain: error: ") and COMMANDS[command] in line
    assert not list(tmp_path.iterdir())


MAPS, NUMBERS = np.zeros((10, 3, 32, 32), np.float32), np.arange(10)


def network(**changed: Any) -> dict[str, Any]:
    layers = [{"type": "fc", "features": 3}, {"type": "softmax"}]
    return {"name": "a", "input": [3, 8, 8], "layers": layers, **changed}


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "lr": (lambda: emuchain.train(lr=0.1), "did you mean `learning_rate`?"),
    "a hyphen": (
        lambda: emuchain.train(**{"learning-rate": 0.1}),
        "did you mean `learning_rate`?",
    ),
    "batch_size": (lambda: emuchain.train(batch_size=32), "did you mean `batch`?"),
    "boards": (lambda: emuchain.plan(boards=4), "did you mean `devices`?"),
    "device": (lambda: emuchain.plan(device=4), "did you mean `devices`?"),
    "a key of a cluster": (
        lambda: emuchain.plan(**{"link.bandwidth_gbps": 10}),
        "did you mean `changes`?",
    ),
    "its short name": (lambda: emuchain.plan(bandwidth_gbps=10), "did you mean `changes`?"),
    "a change without its table": (
        lambda: emuchain.plan(changes={"bandwidth_gbps": 10}),
        "did you mean `link.bandwidth_gbps`?",
    ),
    "another unit": (
        lambda: emuchain.plan(changes={"link.bandwidth_mbps": 10}),
        "did you mean `link.bandwidth_gbps`?",
    ),
    "a unit": (
        lambda: emuchain.plan(changes={"link.bandwidth_gbps": "10Gb/s"}),
        "should be a valid number",
    ),
    "Hz": (
        lambda: emuchain.plan(changes={"board.clock_mhz": 200e6}),
        "should be less than or equal to 1000000",
    ),
    "text for a number": (lambda: emuchain.plan(devices="4"), "should be a valid integer"),
    "half a board": (lambda: emuchain.plan(devices=2.5), "should be a valid integer"),
    "several boards of a plan": (
        lambda: emuchain.plan(devices=[2, 4]),
        "should be a valid integer",
    ),
    "a rate below 0": (lambda: emuchain.train(learning_rate=-1), "should be greater than"),
    "no rate": (lambda: emuchain.train(learning_rate=float("nan")), "should be a finite number"),
    "boards as the cluster": (lambda: emuchain.plan("vgg16", 8), "a mapping of names or a Cluster"),
    "no network": (lambda: emuchain.load_network(None), "should be text, a path or a mapping"),
    "a format of PyTorch": (
        lambda: emuchain.plan(precision="bfloat16"),
        "did you mean `bf16`?",
    ),
    "channels last": (
        lambda: emuchain.train("quick-cifar", (MAPS.transpose(0, 2, 3, 1), NUMBERS)),
        "inputs are 32x32x3, but network quick-cifar takes 3x32x32",
    ),
    "classes as floats": (
        lambda: emuchain.train("quick-cifar", (MAPS, NUMBERS.astype(float))),
        "or classes as whole numbers",
    ),
    "too few targets": (
        lambda: emuchain.train("quick-cifar", (MAPS, NUMBERS[:9])),
        "has shape (9,); should be (10, …)",
    ),
    "classes from 1": (
        lambda: emuchain.train("quick-cifar", (MAPS, NUMBERS + 1)),
        "has 11 classes, but network quick-cifar has 10 outputs",
    ),
    "a layer of Keras": (
        lambda: emuchain.load_network(network(layers=[{"type": "conv2d"}])),
        "did you mean `conv`?",
    ),
    "a key of PyTorch": (
        lambda: emuchain.load_network(
            network(layers=[{"type": "conv", "out_channels": 3, "kernel": 3}])
        ),
        "did you mean `channels`?",
    ),
    "several seeds": (
        lambda: emuchain.train(seeds=[1, 2]),
        "`seeds`: is of type list; should be a whole number",
    ),
    "a range as text": (
        lambda: emuchain.sweep("quick-cifar", devices="1-8"),
        "should be a whole number, a list",
    ),
    "nothing to sweep": (lambda: emuchain.sweep("quick-cifar", devices=[]), "has no values"),
    "no seeds": (lambda: emuchain.study(seeds=0), "should be from 1 to 1,000"),
    "no results": (lambda: emuchain.results("no.h5"), "`emuchain train --out no.h5` would"),
    "a number as a run": (lambda: emuchain.evaluate(3), "it should be results, or the path"),
}


@pytest.mark.parametrize("mistake", CALLS)
def test_a_call(
    mistake: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, one_line: OneLine
) -> None:
    monkeypatch.chdir(tmp_path)
    call, said = CALLS[mistake]
    with pytest.raises(emuchain.InputError) as error:
        call()
    assert said in one_line(error)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("board.clock_mhz=300000", "`board.clock_mhz` = 300,000 MHz: what exists is 1 to 1,000"),
        ("link.bandwidth_gbps=100000", "100,000 Gb/s: what exists is 0.1 to 10,000 Gb/s"),
    ],
)
def test_what_no_hardware_has(change: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "quick-cifar", "--devices", "2", "--samples", "64", "--set", change])
    assert not ended.value.code
    printed = "".join(capsys.readouterr()).splitlines()
    [note] = [line for line in printed if " note: " in line]
    assert said in note


def test_how_many() -> None:
    assert len(COMMANDS) + len(CALLS) >= 80
