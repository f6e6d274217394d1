"""`emuchain train --checkpoint` and `--resume`: runs that are killed or stopped go on, and end as
others do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.common import InputError
from emuchain.emulator.run import Results, read_results

OneLine = Callable[[str], str]
Stop = Callable[[Path], None]

SETTINGS: dict[str, Any] = {
    "samples": 160,
    "test_samples": 20,
    "epochs": 2,
    "batch": 32,
    "checkpoint_every": 2,
}
FLAGS = [
    word for key, value in SETTINGS.items() for word in (f"--{key.replace('_', '-')}", str(value))
]


class Interrupted(Exception):
    """What ends a run in Python."""


def interrupt(*_: object) -> None:
    """A callback after an epoch that ends the run."""
    raise Interrupted


def same(found: Results, expected: Results, bits: Any) -> bool:
    """Whether two runs ended alike, but for the host's time."""
    columns = found.history.keys() - {"host_time_s"}
    alike = [(found.history[name] == expected.history[name]).all() for name in columns]
    return (
        all(alike)
        and bits(found.weights) == bits(expected.weights)
        and found.usage == expected.usage
    )


@pytest.fixture
def whole(small_cifar: Path) -> Callable[..., Results]:
    """Trains without an interruption."""
    return lambda **settings: emuchain.train(data=str(small_cifar), **{**SETTINGS, **settings})


@pytest.mark.parametrize("schedule", ["fpdeep", "sync", "1f1b-so"])
def test_in_python(
    small_cifar: Path, tmp_path: Path, bits: Any, whole: Callable[..., Results], schedule: str
) -> None:
    file, settings = str(tmp_path / "run.ckpt"), {**SETTINGS, "devices": 3, "schedule": schedule}
    engines = {"engines": "turns"} if schedule == "1f1b-so" else {}
    expected = whole(devices=3, schedule=schedule, **engines)
    with pytest.raises(
        Interrupted
    ):  # after its first epoch, whose end is not in a checkpoint, but its middle is
        emuchain.train(
            data=str(small_cifar), checkpoint=file, on_epoch=interrupt, **settings, **engines
        )
    steps: list[int] = []
    found = emuchain.train(resume=file, on_epoch=lambda result, _: steps.append(result.epoch))
    assert same(found, expected, bits)
    assert steps == [1, 2]
    assert same(emuchain.train(resume=file, epochs=2), expected, bits), "nothing is left to train"
    assert emuchain.train(resume=file, epochs=3).epochs == 3


def test_simulation_drains_as_training_does(
    small_cifar: Path, whole: Callable[..., Results]
) -> None:
    times = [
        emuchain.simulate(**{**SETTINGS, "devices": 4, "checkpoint_every": every}).virtual_time_ps
        for every in (1, 2, None)
    ]
    assert times[0] > times[1] > times[2]
    assert times[1] == whole(devices=4).virtual_time_ps


@pytest.fixture(scope="module")
def written(small_cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint of a run that stopped after its first epoch, and its results
    file.
    """
    folder = tmp_path_factory.mktemp("written")
    keys = {**SETTINGS, "devices": 2, "checkpoint": str(folder / "run.ckpt"), "epochs": 1}
    emuchain.train(data=str(small_cifar), out=str(folder / "run.h5"), **keys)
    return folder


BAD = [
    (["--resume", "none.ckpt"], ["`resume`", "none.ckpt", "no such file"]),
    (["--resume", "run.h5"], ["`resume`", "run.h5", "not a readable checkpoint"]),
    (["--resume", "."], ["`resume`", "is a folder; give a file"]),
    (["--resume", "run.ckpt", "--batch", "16"], ["`batch` = 16", "run.ckpt", "with 32"]),
    (["--resume", "run.ckpt", "--devices", "3"], ["`devices` = 3", "with 2", "fpdeep"]),
    (["--resume", "run.ckpt", "--schedule", "sync"], ["`schedule` = 'sync'", "'fpdeep'"]),
    (["--resume", "run.ckpt", "--network", "lenet-cifar"], ["`network`", "quick-cifar"]),
    (["--resume", "run.ckpt", "--seed", "2"], ["`seed` = 2", "with 1"]),
    (["--resume", "run.ckpt", "--data", "shapes"], ["`resume`", "other training data", "`data`"]),
    (["--checkpoint", "no/run.ckpt"], ["`checkpoint`", "does not exist"]),
    (["--checkpoint", "."], ["`checkpoint`", "folder"]),
    (["--checkpoint", "held.ckpt"], ["`checkpoint`", "held.ckpt", "another run"]),
    (["--checkpoint-every", "0"], ["`checkpoint_every`", "1"]),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_input(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_line: OneLine,
    written: Path,
    arguments: list[str],
    words: list[str],
) -> None:
    monkeypatch.chdir(written)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, "held.ckpt"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["train", *arguments])
    holder.communicate("end")
    assert ended.value.code == 2
    line = one_line(capsys.readouterr().err)
    for word in words:
        assert word in line


CHECKPOINT = "but a checkpoint of emuchain; `emuchain train --resume run.ckpt` resumes from it"
RESULTS = "but a results file of emuchain; `emuchain show run.h5` prints it"
TORCH = (
    "but a file of torch.save; `emuchain train NETWORK --init model.pt` begins with the weights of a"
    " state_dict"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "run.ckpt"], f"run.ckpt: not a results file of emuchain, {CHECKPOINT}"),
        (["retime", "run.ckpt"], f"run.ckpt: not a results file of emuchain, {CHECKPOINT}"),
        (
            ["report", "run.ckpt", "--out", "run.html"],
            f"run.ckpt: not a results file of emuchain, {CHECKPOINT}",
        ),
        (
            ["train", "--resume", "run.h5"],
            f"`resume` = 'run.h5': not a readable checkpoint, {RESULTS}",
        ),
        (
            ["train", "--init", "model.pt"],
            "`init` = 'model.pt': quick-cifar has no tensor 'weight'",
        ),
        (
            ["train", "--resume", "model.pt"],
            f"`resume` = 'model.pt': not a readable checkpoint, {TORCH}",
        ),
        (["show", "model.pt"], f"model.pt: not a results file of emuchain, {TORCH}"),
        (["export", "model.pt", "model.onnx"], TORCH),
        (["evaluate", "model.pt"], TORCH),
    ],
)
def test_files_of_other_kinds_are_called_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_line: OneLine,
    written: Path,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(written)
    if "model.pt" in words:
        torch = pytest.importorskip("torch")
        torch.save(torch.nn.Linear(2, 2).state_dict(), "model.pt")
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    line = one_line(capsys.readouterr().err)
    assert said in line
    assert "damaged" not in line


_HOLD = """
import sys
from emuchain.emulator.common import WholeFile
file = WholeFile(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def _clock(text: dict[str, Any]) -> None:
    text["clocks"]["replica 0 device 1"]["clock"]["updated_ps"] = "soon"


DAMAGE: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (_clock, "updated_ps of clock of replica 0 device 1"),
    (lambda text: text["clocks"].pop("replica 0 device 0"), "no 'replica 0 device 0'"),
    (lambda text: text["history"][0].update(traffic=[]), "history has no 'spent_ps'"),
    (lambda text: text["history"].clear(), "history has 0 epochs, not 1"),
    (lambda text: text.update(history=7), "int"),
    (lambda text: text.update(network=[]), "network of it is list"),
    (lambda text: text.update(position=[1, 1]), "no checkpoint comes after 1 mini-batch of"),
    (lambda text: text.update(position=[1, 2]), "0 results of 2 mini-batches"),
    (lambda text: text.update(virtual_time_ps=2**70), "virtual_time_ps of it is out of range"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGE)
def test_damaged_text(
    written: Path, tmp_path: Path, damage: Callable[[dict[str, Any]], object], said: str
) -> None:
    """With a checksum that is right."""
    bad = tmp_path / "bad.ckpt"
    with zipfile.ZipFile(written / "run.ckpt") as source, zipfile.ZipFile(bad, "w") as copy:
        for name in source.namelist():
            content = source.read(name)
            if name == "checkpoint.json":
                text = json.loads(content)
                damage(text)
                content = json.dumps(text).encode()
            copy.writestr(name, content)
    with pytest.raises(InputError, match="damaged.*" + said):
        emuchain.train(resume=str(bad), epochs=2, out=None, checkpoint=None)


def test_in_python_errors_are_the_same(written: Path) -> None:
    file = written / "run.ckpt"
    with pytest.raises(InputError, match=r"^`batch` = 64: the checkpoint .* with 32; leave it out"):
        emuchain.train(resume=str(file), batch=64)
    with pytest.raises(InputError, match=r"^`network` = 'lenet-cifar': .*'quick-cifar'"):
        emuchain.train("lenet-cifar", resume=str(file))


def test_a_cosine_has_its_epochs(small_cifar: Path, tmp_path: Path) -> None:
    """Of which the learning rates before the checkpoint were, too."""
    file = str(tmp_path / "run.ckpt")
    emuchain.train(
        data=str(small_cifar),
        **{**SETTINGS, "epochs": 1, "lr_schedule": "cosine", "checkpoint": file},
    )
    with pytest.raises(
        InputError,
        match=r"^`epochs` = 2: .* was written with 1, over which the learning rate follows",
    ):
        emuchain.train(resume=file, epochs=2)
    assert emuchain.train(resume=file).epochs == 1


def command(*arguments: str) -> list[str]:
    """A command that trains."""
    return [sys.executable, "-m", "emuchain", "train", *arguments, "--progress", "plain"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_a_run_at_a_checkpoint(
    small_cifar: Path,
    tmp_path: Path,
    bits: Any,
    whole: Callable[..., Results],
    number: signal.Signals,
) -> None:
    file, out = tmp_path / "run.ckpt", tmp_path / "run.h5"
    flags = [
        "--data",
        str(small_cifar),
        *FLAGS,
        "--epochs",
        "60",
        "--devices",
        "3",
        "--out",
        str(out),
    ]
    process = subprocess.Popen(
        command(*flags, "--checkpoint", str(file)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not file.exists():
        time.sleep(0.01)
    process.send_signal(number)
    said, wrong = process.communicate(timeout=60)
    assert (process.returncode, wrong) == (128 + number, "")
    assert f"stopped by {number.name}: " in said
    assert f"next: emuchain train --resume {file}" in said
    done = read_results(out).epochs if out.exists() else 0
    assert done < 60
    subprocess.run(
        command("--resume", str(file), "--epochs", str(done + 2)), check=True, capture_output=True
    )
    assert same(read_results(out), whole(devices=3, epochs=done + 2), bits)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("mpiexec", "schedule", "replicas"),
    [
        ("mpich", "fpdeep", 1),
        ("openmpi", "sync", 1),
        ("mpich", "1f1b-so", 1),
        ("openmpi", "fpdeep", 2),
    ],
    indirect=["mpiexec"],
)
def test_a_killed_run_goes_on(  # type: ignore[no-untyped-def]
    mpiexec,
    small_cifar: Path,
    tmp_path: Path,
    bits: Any,
    whole: Callable[..., Results],
    schedule: str,
    replicas: int,
) -> None:
    """A rank is killed after some checkpoint; two ranks go on in place of three."""
    file, out = tmp_path / "run.ckpt", tmp_path / "run.h5"
    keys: dict[str, Any] = {"schedule": schedule, "devices": 3, "replicas": replicas}
    keys |= {"engines": "turns"} if schedule == "1f1b-so" else {}
    keys |= {"compress": "inceptionn:-10"} if replicas > 1 else {}
    flags = [word for key, value in keys.items() for word in (f"--{key}", str(value))]
    watcher = subprocess.Popen([sys.executable, "-c", _KILL, str(file), str(tmp_path / "pid")])
    program = (
        "import os, pathlib; from emuchain.launch.launch import launcher_rank; launcher_rank() =="
        f" 1 and pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); from"
        " emuchain.emulator.commands.cli import main; main()"
    )
    files = ["--out", str(out), "--checkpoint", str(file)]
    arguments = ["train", "--data", str(small_cifar), *FLAGS, *flags, *files, "--epochs", "1000"]
    assert mpiexec(3, ["-c", program, *arguments], status=None).returncode != 0
    assert watcher.wait(10) == 0
    done = read_results(out).epochs if out.exists() else 0
    mpiexec(2, ["-m", "emuchain", "train", "--resume", str(file), "--epochs", str(done + 2)])
    assert same(read_results(out), whole(epochs=done + 2, **keys), bits)


_KILL = """
import os, signal, sys, time
import pathlib
file, pid = map(pathlib.Path, sys.argv[1:])
seen = set()
while len(seen) < 3:
    if file.exists():
        seen.add(file.stat().st_ino)
    time.sleep(0.01)
os.kill(int(pid.read_text()), signal.SIGKILL)
"""


def test_a_config_file_may_be_given_again(
    small_cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a batch job does, which runs the same command again, with `--resume`."""
    config, file = tmp_path / "run.toml", tmp_path / "run.ckpt"
    keys = {
        **SETTINGS,
        "data": str(small_cifar),
        "devices": 2,
        "checkpoint": str(file),
        "epochs": 1,
    }
    config.write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items()))
    for arguments in ([str(config)], [str(config), "--resume", str(file), "--epochs", "2"]):
        with pytest.raises(SystemExit) as ended:
            main(["train", *arguments])
        assert ended.value.code == 0
    assert "resuming from" in capsys.readouterr().out
    assert sorted(os.listdir(tmp_path)) == ["run.ckpt", "run.toml"]


NETWORK = """# a network
name = "small"  # é
input = [3, 32, 32]
layers = [
  { type = "conv", channels = 8, kernel = 3, stride = 4 }, { type = "relu" },
  { type = "fc", features = 1_0 }, { type = "softmax" },
]
"""
CLUSTER = """name = 'mine'  # a cluster
boards = [ { type = "vc709", clock_mhz = 150.5 } ]
links = { bandwidth_gbps = 10, latency_ns = 1_000 }
"""
FAULTS = "[[faults.boards]]\nboard = 0\nfactor = 2.5\n"
CHANGED: list[dict[str, object]] = [
    {},
    {"link.bandwidth_gbps": 20},
    {"board.clock_mhz": 111.5, "link.latency_ns": 5},
]
OTHERS = strategies.fixed_dictionaries(
    {"devices": strategies.integers(1, 3)},
    optional={
        "precision": strategies.sampled_from(["bf16", {"format": "fp16", "loss_scale": 16}]),
        "schedule": strategies.sampled_from(["sync", "gpipe"]),
        "freeze": strategies.just(["conv1"]),
        "optimizer": strategies.just("adam"),
        "lr_schedule": strategies.just("steps:at=1"),
    },
)


@hypothesis.settings(max_examples=20)
@hypothesis.given(
    line_end=strategies.sampled_from(["\n", "\r\n"]),
    mark=strategies.sampled_from(["", "\ufeff"]),
    cluster=strategies.sampled_from(["cluster.toml", "vc709-10g"]),
    faults=strategies.sampled_from([None, "faults.toml"]),
    changes=strategies.sampled_from(CHANGED),
    others=OTHERS,
    repeats=strategies.booleans(),
)
def test_descriptions_stay_the_files_as_they_were(
    tmp_path_factory: pytest.TempPathFactory,
    small_cifar: Path,
    line_end: str,
    mark: str,
    cluster: str,
    faults: str | None,
    changes: dict[str, object],
    others: dict[str, Any],
    repeats: bool,
) -> None:
    """Also where the settings are given again, and of a run that goes on twice."""
    folder = tmp_path_factory.mktemp("described")
    for name, text in (
        ("network.toml", NETWORK),
        ("cluster.toml", CLUSTER),
        ("faults.toml", FAULTS),
    ):
        (folder / name).write_bytes((mark + text.replace("\n", line_end)).encode())
    keys = {
        **others,
        "network": str(folder / "network.toml"),
        "data": str(small_cifar),
        "samples": 32,
        "batch": 16,
    }
    keys |= {"cluster": cluster if "." not in cluster else str(folder / cluster), "test_samples": 4}
    keys |= {"faults": None if faults is None else str(folder / faults), "changes": changes or None}
    expected = emuchain.train(**keys, epochs=3).descriptions
    file, out = str(folder / "run.ckpt"), folder / "run.h5"
    emuchain.train(**keys, epochs=1, checkpoint=file, out=str(out))
    for epochs in (2, 3):
        again = keys if repeats else {}
        found = emuchain.train(**again, epochs=epochs, resume=file).descriptions
        assert found == expected == read_results(out).descriptions
    assert expected["network.toml"].encode() == (folder / "network.toml").read_bytes()
    if not changes and cluster == "cluster.toml":
        assert expected["cluster.toml"].encode() == (folder / "cluster.toml").read_bytes()
    emuchain.retime(out, cluster="vc709")
