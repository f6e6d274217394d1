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
from emuchain.emulator.config import ELSEWHERE, OTHER_NAMES, Config

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
    "plan u55c resnet8-cifar": "have changed places: `emuchain plan resnet8-cifar --cluster u55c`",
    "plan u55c": "is a cluster, no network; give the network first, and `--cluster u55c` behind",
    "plan vgg16 --cluster resnet18": "is a network, no cluster; give it as `network`",
    "plan vgg16 u280": "Did you mean '--cluster u280'?",
    "plan vgg16 4": "Did you mean '--devices 4'?",
    "sweep vgg16 1-4": "Did you mean '--devices 1-4'?",
    "sweep vgg16 vgg19 --devices 4": "Did you mean 'vgg16,vgg19'?",
    "plan gpipe": "is a schedule, no network; give the network first, and `--schedule gpipe`",
    "plan vgg16 --set link.bandwidth_gbps 10": "Did you mean '--set link.bandwidth_gbps=10'?",
    "train vgg16 shapes": "Did you mean '--data shapes'?",
    "study train vgg16 lr=0.1,0.2": "Did you mean '--learning-rate 0.1,0.2'?",
    "study train vgg16 --seeds 1,2": "`--seed 1 --seeds 2`",
    "train --dropout 0.1": 'in the network\'s file: { type = "dropout", rate = 0.1 }',
    "train --hidden-size 64": "layers and their sizes stand in the network's file",
    "train --gpu": "`devices` is the number of boards that are emulated",
    "train --num-workers 4": "`mpiexec -n 4 emuchain train`",
    "train --max-steps 100": "a run has `epochs` of `samples`, in steps of `batch`",
    "train --shuffle": "each epoch has another order of samples, drawn by `seed`",
    "train --fp16": "give `precision` = fp16",
    "train --grad-clip 1": "Did you mean '--clip-norm'?",
    "train --pretrained model.pt": "Did you mean '--init'?",
    "train --warmup 3": "Did you mean '--lr-warm-up'?",
    "train --val-split 0.1": "Did you mean '--test-share'?",
    "train --loss cross-entropy": "did you mean `softmax`?",
    "export vgg16 out.onnx": "as `emuchain train vgg16 --out run.h5` writes it",
    "train --init vgg16": "a network, which has no weights yet",
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

LINKS = {"bandwidth_gbps": 10, "latency_ns": 1000}


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
    "a cluster first": (
        lambda: emuchain.plan("u55c", "vgg16"),
        "is a cluster, no network; give it as `cluster`: the two may have changed places",
    ),
    "a loaded cluster first": (
        lambda: emuchain.plan(emuchain.load_cluster("u55c"), network="vgg16"),
        "of type Cluster has its place; give that by its name, too",
    ),
    "a cluster and a network": (
        lambda: emuchain.plan(emuchain.load_cluster("u55c"), "vgg16"),
        "network and cluster may have changed places: give it as `cluster`",
    ),
    "a number of boards": (
        lambda: emuchain.plan("vgg16", 4),
        "numbers are given by their names, such as devices=4",
    ),
    "one of training": (
        lambda: emuchain.train("vgg16", 4),
        "numbers are given by their names, such as devices=4",
    ),
    "settings as a mapping": (
        lambda: emuchain.plan("vgg16", {"devices": 4}),
        "unknown key `devices` = 4; it is a key of a run",
    ),
    "too many places": (
        lambda: emuchain.plan("vgg16", "u280", 4),
        "too many positional arguments; give further ones by their names",
    ),
    "inputs, targets": (
        lambda: emuchain.train("quick-cifar", MAPS, NUMBERS),
        "inputs and targets are one argument, (inputs, targets)",
    ),
    "dropout": (lambda: emuchain.train(dropout=0.1), "dropout stands in the network's file"),
    "data to test with": (
        lambda: emuchain.train(validation_data=(MAPS, NUMBERS)),
        "`emuchain.as_data(train, test)` has both",
    ),
    "a data set to test with": (
        lambda: emuchain.train(test=(MAPS, NUMBERS)),
        "`emuchain.as_data(train, test)` has both",
    ),
    "ignored labels": (
        lambda: emuchain.train(ignore_index=255),
        "a target below 0, such as -100, is none",
    ),
    "callbacks": (lambda: emuchain.train(callbacks=[]), "`on_step` and `on_epoch` are called"),
    "a path that is True": (
        lambda: emuchain.train(checkpoint=True),
        "should be a valid string, the path of a file",
    ),
    "a function of rates": (
        lambda: emuchain.train(lr_schedule=lambda step: 0.1),
        "a function of your own is registered as a class",
    ),
    "a study of lr": (lambda: emuchain.study(lr=[0.1, 0.2]), "did you mean `learning_rate`?"),
    "a sweep of rates": (
        lambda: emuchain.sweep(learning_rate=[0.1, 0.2]),
        "it changes no times; `study` trains with several values of it",
    ),
    "predictions of a network": (
        lambda: emuchain.predict("quick-cifar", MAPS),
        "a network, which has no weights yet",
    ),
    "sizes as text": (
        lambda: emuchain.load_network(network(input="3x8x8")),
        "`input` = '3x8x8': should be a list: [3, 8, 8]",
    ),
    "no channels": (
        lambda: emuchain.load_network(network(input=[8])),
        "`input` = [8]: should have 3 values",
    ),
    "layers by name": (
        lambda: emuchain.load_network(network(layers=["fc"])),
        "`layers[0]` = 'fc': should be a table, { KEY = VALUE, … }",
    ),
    "a layer without type": (
        lambda: emuchain.load_network(network(layers=[{"features": 3}])),
        "key `layers[0].type` is missing",
    ),
    "a layer of PyTorch": (
        lambda: emuchain.load_network(network(layers=[{"type": "linear", "features": 3}])),
        "unknown type 'linear'; did you mean `fc`?",
    ),
    "flatten": (
        lambda: emuchain.load_network(network(layers=[{"type": "flatten"}])),
        "fc takes maps as they are; leave it out",
    ),
    "a layer's activation": (
        lambda: emuchain.load_network(
            network(layers=[{"type": "fc", "features": 3, "activation": "relu"}])
        ),
        'an activation is a table of its own, such as { type = "relu" } behind it',
    ),
    "a number in quotes": (
        lambda: emuchain.load_network(network(layers=[{"type": "fc", "features": "3"}])),
        "should be a valid integer, without quotes",
    ),
    "boards by name": (
        lambda: emuchain.load_cluster({"name": "x", "boards": "u280", "links": LINKS}),
        'should be a list, such as ["u280"]',
    ),
    "boards as names": (
        lambda: emuchain.load_cluster({"name": "x", "boards": ["u280"], "links": LINKS}),
        "`boards[0]` = 'u280': should be a table",
    ),
    "how many boards": (
        lambda: emuchain.load_cluster(
            {"name": "x", "boards": [{"type": "u280", "number": 3}], "links": LINKS}
        ),
        "did you mean `count`?",
    ),
    "a network's keys": (
        lambda: emuchain.load_cluster(network()),
        "it is a key of a network; give that as `network`",
    ),
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


FILES = {
    "run.toml": ("network = vgg16", "text stands in quotes"),
    "run.yaml": ("network: vgg16", "emuchain reads TOML, no .yaml file"),
    "run.json": ('{"network": "vgg16"}', "emuchain reads TOML, no .json file"),
    "lr.toml": ("lr = 0.1", "did you mean `learning_rate`? docs/configuration.md has all keys"),
    "layer.toml": ('[[layer]]\ntype = "fc"', "a file with `layers` is a network's"),
    "links.toml": ("[links]\nlatency_ns = 5", "the file is a cluster's; give it as `cluster`"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file(
    name: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text, said = FILES[name]
    pathlib.Path(name).write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["plan", name])
    [line] = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.startswith(f"emuchain: error: {name}: ") and said in line


def test_a_run_as_a_network(tmp_path: pathlib.Path, one_line: OneLine) -> None:
    (tmp_path / "run.toml").write_text('network = "vgg16"')
    with pytest.raises(emuchain.InputError) as error:
        emuchain.plan(tmp_path / "run.toml")
    assert "it is a key of a run; such a file is read by `emuchain plan`" in one_line(error)


def test_named_arrays_are_data() -> None:
    named = {"inputs": MAPS, "targets": NUMBERS}
    by_place, by_name = (
        emuchain.train("quick-cifar", *place, **name, batch=5)
        for place, name in (((named,), {}), ((), {"data": named}))
    )
    assert [*by_place.history["train_loss"]] == [*by_name.history["train_loss"]]


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
    assert len(COMMANDS) + len(CALLS) + len(FILES) >= 140


def test_no_key_is_said_to_be_elsewhere() -> None:
    assert not ELSEWHERE.keys() & {*Config.model_fields}
    assert {*OTHER_NAMES.values()} <= {*Config.model_fields}
