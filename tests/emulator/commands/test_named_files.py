"""An output that is also an input, or another output: refused in one line, before any file is
opened or locked.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import h5py
import numpy as np
import pytest

import emuchain
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.frame.command import FileCommand
from emuchain.emulator.commands.frame.flags import ConfiguredCommand
from emuchain.emulator.common import NO_FILE, InputError, Reads, Writes
from emuchain.emulator.config import Config, role_of

from .running import PIPELINE, status_of

Refused = Callable[..., str]

NETWORK = """name = "t"
input = [3, 16, 16]
layers = [
  { type = "conv", channels = 4, kernel = 3, stride = 2 }, { type = "relu" },
  { type = "fc", features = 4 }, { type = "softmax" },
]
"""
CLUSTER = (
    'name = "c"\n[[boards]]\ntype = "b.toml"\n[links]\nbandwidth_gbps = 10\nlatency_ns = 100\n'
)
BOARD = 'name = "b"\nclock_mhz = 200\ndsp = 900\non_chip_memory_kbit = 16000\n'


# What is declared


def leaves(group: click.Group, names: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{names}{name} ")
        else:
            yield f"{names}{name}", command


def test_every_command_checks_its_files() -> None:
    others = [name for name, command in leaves(commands) if not isinstance(command, FileCommand)]
    assert others == []


def test_every_text_of_a_command_is_declared() -> None:
    """A new argument or flag that is text has the type `Named` with its role, or WORD, or another
    type with a role.
    """
    undeclared = [
        f"{name}: {param.name}"
        for name, command in leaves(commands)
        for param in command.get_params(click.Context(command))
        if isinstance(param.type, click.types.StringParamType | click.Path | click.File)
    ]
    assert undeclared == []
    roles = {
        f"{name} {param.name}": param.type.role
        for name, command in leaves(commands)
        for param in command.get_params(click.Context(command))
        if hasattr(param.type, "role") and param.type.role != NO_FILE
    }
    writing = {name for name, role in roles.items() if isinstance(role, Writes)}
    assert {each for each in roles if each.startswith("export ")} == {"export file", "export out"}
    assert {each for each in writing if each.startswith("train ")} == {
        f"train {name}" for name in ("out", "checkpoint", "log", "trace")
    }
    assert {
        "data fetch to",
        "rtl out",
        "rtl waves",
        "sweep csv",
        "validate pictures",
        "report out",
    } <= writing
    assert "report figures" in writing


def test_every_text_of_the_configuration_is_declared() -> None:
    """A new key that is text is annotated with its role, or with NO_FILE."""
    texts = {
        key
        for key, field in Config.model_fields.items()
        if str in (field.annotation, *typing.get_args(field.annotation))
    }
    declared = {
        key
        for key, field in Config.model_fields.items()
        if any(isinstance(mark, Reads | Writes) for mark in field.metadata)
    }
    assert texts | {"schedule", "cut"} == declared  # whose values are objects, and text in files
    assert {key for key in declared if isinstance(role_of(key), Writes)} == {
        "out",
        "checkpoint",
        "log",
    }
    assert role_of("warm_up") == NO_FILE


def test_every_path_of_a_function_is_known() -> None:
    """A new argument that is a path is checked where its function begins, and tried below and by
    `same-files`.
    """
    paths = {
        (name, argument)
        for name in emuchain.__all__
        if inspect.isfunction(getattr(emuchain, name))
        for argument, kind in inspect.signature(getattr(emuchain, name)).parameters.items()
        if "PathLike" in str(kind.annotation)
        or kind.annotation in ("Run", "RunOfWeights", "AnyData")
    }
    reading = {
        ("results", "path"),
        ("retime", "run"),
        ("evaluate", "run"),
        ("evaluate", "data"),
        ("predict", "run"),
        ("generate", "run"),
        ("train", "data"),
        ("study", "data"),
    }
    reading |= {("load_network", "network"), ("load_cluster", "cluster"), ("load_data", "where")}
    writing = {
        ("simulate", "trace"),
        ("train", "trace"),
        ("sweep", "csv"),
        ("study", "csv"),
        ("export", "out"),
        ("report", "out"),
    }
    writing |= {("report", "figures")}
    assert paths == reading | writing | {("export", "run"), ("report", "runs")}


# What is refused


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file of each kind."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "t.toml": NETWORK,
        "c.toml": CLUSTER,
        "b.toml": BOARD,
        "s.csv": "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n",
        "f.toml": "[[faults.boards]]\nboard = 0\nfactor = 2.5\n",
        "run.toml": 'network = "t.toml"\ndata = "d.h5"\nout = "run.toml"\n',
        "d.txt": "to be, or not to be\n",
        "any": "some file of a run, which is not read: outputs are compared first",
    }.items():
        (tmp_path / name).write_text(text)
    images = np.zeros((8, 3, 16, 16), np.uint8)
    with h5py.File("d.h5", "w") as file:
        file["images"], file["labels"] = images, np.arange(8) % 4
    np.savez("d.npz", images=images.transpose(0, 2, 3, 1), labels=np.arange(8) % 4)
    (tmp_path / "sets" / "cat" / "deep").mkdir(parents=True)
    (tmp_path / "sets" / "cat" / "deep" / "1.PNG").write_bytes(b"an image")
    (tmp_path / "sets" / "more").symlink_to("../elsewhere")
    (tmp_path / "elsewhere" / "back").mkdir(parents=True)
    (tmp_path / "elsewhere" / "back" / "again").symlink_to("..")
    (tmp_path / "elsewhere" / "2.jpg").write_bytes(b"an image")
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"images")
    return tmp_path


@pytest.fixture
def refused(folder: Path, capsys: pytest.CaptureFixture[str], one_line: Any) -> Refused:
    """Runs a command that must end with one line and status 2, and touch nothing; returns the
    line.
    """

    def state() -> dict[Path, tuple[int, int, bytes]]:
        stats = ((path, path.lstat()) for path in folder.rglob("*"))
        return {
            path: (s.st_ino, s.st_ctime_ns, path.read_bytes() if path.is_file() else b"")
            for path, s in stats
        }

    def run(*words: str) -> str:
        before = state()
        assert status_of(*words) == 2
        line: str = one_line(capsys.readouterr().err)
        assert state() == before
        return line.removeprefix("emuchain: error: ")

    return run


TRAIN, UNITS = ["train", "t.toml", "--data", "d.h5"], ["--forward", "1", "--backward", "1"]
SAME = {
    "images": ([*TRAIN, "--out", "d.h5"], "`out` = 'd.h5'", "`data` = 'd.h5'"),
    "images in npz": (
        ["train", "t.toml", "--data", "d.npz", "--checkpoint", "d.npz"],
        "`checkpoint`",
        "`data`",
    ),
    "a text": (
        ["train", "--data", "d.txt", "--log", "csv:./d.txt"],
        "`log` = 'csv:./d.txt'",
        "`data` = 'd.txt'",
    ),
    "an image": (
        ["train", "--data", "sets", "--out", "sets/cat/deep/1.PNG"],
        "`out`",
        "`data` = 'sets' (sets/cat/d",
    ),
    "an image by a link": (
        ["train", "--data", "sets", "--out", "elsewhere/2.jpg"],
        "`out`",
        "(sets/more/2.jpg)",
    ),
    "a data set's file": (
        ["train", "--data", ".", "--out", "mnist/train-images-idx3-ubyte.gz"],
        "`out`",
        "`data` = '.' (mnist/train-images-idx3-ubyte.gz)",
    ),
    "a network": (
        ["train", "t.toml", "--out", "t.toml"],
        "`out` = 't.toml'",
        "`network` = 't.toml'",
    ),
    "a configuration": (
        ["train", "run.toml"],
        "run.toml: `out` = 'run.toml'",
        "`CONFIG.toml` = 'run.toml'",
    ),
    "its network": (
        ["train", "run.toml", "--out", "t.toml"],
        "`out` = 't.toml'",
        "`network` = 't.toml'",
    ),
    "a cluster": (
        [*TRAIN, "--cluster", "c.toml", "--trace", "c.toml"],
        "`trace` = 'c.toml'",
        "`cluster` = 'c.toml'",
    ),
    "its board": (
        [*TRAIN, "--cluster", "c.toml", "--out", "b.toml"],
        "`out` = 'b.toml'",
        "(b.toml)",
    ),
    "faults": ([*TRAIN, "--faults", "f.toml", "--out", "f.toml"], "`out`", "`faults`"),
    "a schedule": (
        ["train", "--schedule", "s.csv", "--out", "s.csv"],
        "`out`",
        "`schedule` = 's.csv'",
    ),
    "a pipeline": (
        ["pipeline", "--schedule", "s.csv", *UNITS, "--plot", "s.csv"],
        "`plot`",
        "`schedule`",
    ),
    "weights": ([*TRAIN, "--init", "any", "--checkpoint", "any"], "`checkpoint`", "`init`"),
    "a checkpoint": ([*TRAIN, "--resume", "any", "--out", "any"], "`out`", "`resume`"),
    "a trace": (["simulate", "t.toml", "--trace", "t.toml"], "`trace`", "`network`"),
    "what if": (
        ["simulate", "--what-if", "cluster=c.toml", "--trace", "b.toml"],
        "`trace`",
        "`what_if`",
    ),
    "a range": (
        ["simulate", "t.toml", "--devices", "1-2", "--plot", "t.toml"],
        "`plot`",
        "`network`",
    ),
    "a timeline": (["timeline", "t.toml", "--plot", "t.toml"], "`plot`", "`network`"),
    "a layout": (["plan", "t.toml", "--plot", "t.toml"], "`plot`", "`network`"),
    "a description": (["network", "t.toml", "--out", "t.toml"], "`out`", "`name`"),
    "a sweep": (
        ["sweep", "quick-cifar,t.toml", "--csv", "t.toml"],
        "`csv`",
        "`network` = 'quick-cifar,t.toml'",
    ),
    "its clusters": (
        ["sweep", "t.toml", "--cluster", "vc709,c.toml", "--csv", "c.toml"],
        "`csv`",
        "`cluster`",
    ),
    "a preview": (["data", "preview", "--data", "d.npz", "--out", "d.npz"], "`out`", "`data`"),
    "an export": (["export", "any", "any"], "`out`", "`file`"),
    "a report": (["report", "d.h5", "any", "-o", "any"], "`out`", "`files`"),
    "a comparison": (["study", "compare", "t.toml", "--plot", "t.toml"], "`plot`", "`network`"),
    "a topology": (["study", "topology", "t.toml", "--plot", "t.toml"], "`plot`", "`network`"),
    "an exchange": (["study", "exchange", "t.toml", "--plot", "t.toml"], "`plot`", "`network`"),
}


@pytest.mark.parametrize("case", SAME)
def test_an_output_that_is_an_input(refused: Refused, case: str) -> None:
    words, output, read = SAME[case]
    line = refused(*words)
    assert line.startswith(output) and read in line and line.endswith(" names; give another path")


SEEDS = [*TRAIN, "--seed", "4", "--seeds", "2"]
CODEC = ["--replicas", "2", "--compress", "topk:0.1", "--control"]
EXPANDED = {
    "a seed's results": ([*SEEDS, "--out", "run.h5"], "run-seed5.h5", "`out` = 'run-seed5.h5'"),
    "a seed's checkpoint": ([*SEEDS, "--checkpoint", "a.b.ckpt"], "a.b-seed4.ckpt", "`checkpoint`"),
    "a seed's log": ([*SEEDS, "--log", "csv:log"], "log-seed5", "`log` = 'csv:log-seed5'"),
    "a control's checkpoint": (
        [*TRAIN, *CODEC, "--checkpoint", "run.ckpt"],
        "run-control.ckpt",
        "`checkpoint`",
    ),
    "that of a seed": (
        [*SEEDS, *CODEC, "--checkpoint", "run"],
        "run-seed4-control",
        "`checkpoint`",
    ),
    "one without flips": (
        [*TRAIN, "--checkpoint", "run.ckpt"],
        "run-without-flips.ckpt",
        "`checkpoint`",
    ),
}


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("case", EXPANDED)
def test_an_expanded_name_that_is_an_input(
    folder: Path, refused: Refused, case: str, make: Any
) -> None:
    words, name, output = EXPANDED[case]
    make(folder / name, folder / "d.h5")
    line = refused(*words)
    assert line.startswith(output) and name in line and "`data` = 'd.h5' names" in line


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_expanded_names_of_one_file(
    folder: Path, refused: Refused, make: Callable[[Path, Path], None]
) -> None:
    for one, other in (("run-seed4.h5", "run-seed5.h5"), ("log-seed4", "run-seed5.ckpt")):
        (folder / one).write_text("any")
        make(folder / other, folder / one)
    several = ["--out", "run.h5", "--checkpoint", "run.ckpt", "--log", "csv:log"]
    assert "`out` = 'run-seed5.h5': this run writes another file there" in refused(
        *SEEDS, *several[:2]
    )
    assert (
        "`checkpoint` = 'run-seed5.ckpt': this run writes another file there, that of `log`"
        in refused(*SEEDS, *several[2:])
    )


NO_NAMES = {
    "/dev/null": "is a device",
    "/dev/full": "is a device",
    "linked": "is a device",
    "pipe": "is a pipe",
    "sets": "is a folder",
    "sets/": "is a folder",
    "no/run": "does not exist",
    "t.toml/run": "does not exist",
    "..": "is a folder",
    ".": "is a folder",
    "/": "is a folder",
}


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_before_they_are_expanded(folder: Path, refused: Refused, name: str) -> None:
    """What would be refused of one run is refused of several, of which each has its own name."""
    (folder / "linked").symlink_to("/dev/null")
    os.mkfifo(folder / "pipe")
    for key in ("out", "checkpoint", "log"):
        value = f"csv:{name}" if key == "log" else name
        line = refused(*SEEDS, f"--{key}", value)
        assert line.startswith(f"`{key}` = '{value}") and NO_NAMES[name] in line
    if name in ("/dev/null", "linked", "pipe"):
        assert "is no folder" in refused(*SEEDS, "--log", f"tensorboard:{name}")
    assert not list(Path("/dev").glob("*-seed*"))
    with pytest.raises(InputError, match=NO_NAMES[name]):
        emuchain.train("t.toml", data="d.h5", seeds=2, out=name)


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_links_to_inputs(
    folder: Path, refused: Refused, make: Callable[[Path, Path], None]
) -> None:
    make(folder / "link", folder / "d.h5")
    assert "`out` = 'link': is a file of the data" in refused(*TRAIN, "--out", "link")
    assert "`data` = 'link' names" in refused("train", "t.toml", "--data", "link", "--out", "d.h5")


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_folders_that_hold_links_to_inputs(
    folder: Path, refused: Refused, make: Callable[[Path, Path], None]
) -> None:
    (folder / "out").mkdir()
    (folder / "runs").mkdir()
    make(folder / "runs" / "r.h5", folder / "d.h5")
    make(folder / "out" / "tile.sv", folder / "t.toml")
    make(folder / "out" / "w-device3.vcd", folder / "t.toml")
    make(folder / "out" / "fig8.png", folder / "d.h5")
    assert "`out` = 'out' (out/tile.sv)" in refused("rtl", "t.toml", "--out", "out")
    assert "`waves` = 'out/w.vcd' (out/w-device3.vcd)" in refused(
        "rtl", "t.toml", "--out", "rtl", "--simulate", "--waves", "out/w.vcd"
    )
    assert "`runs` = 'runs' (runs/r.h5)" in refused(
        "validate", "fpdeep", "--pictures", "out", "--runs", "runs"
    )
    for name in ("memory.pdf", "links.svg"):
        make(folder / "out" / name, folder / "d.h5")
        assert f"`figures` = 'out' (out/{name})" in refused("report", "d.h5", "--figures", "out")
        (folder / "out" / name).unlink()


def test_arrays_beside_an_onnx_file(folder: Path, refused: Refused) -> None:
    onnx = pytest.importorskip(
        "onnx", reason="onnx, which builds the file of this test, is not installed"
    )
    weights = onnx.numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    constant = onnx.helper.make_node(
        "Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.ones(3), "c")
    )
    node = onnx.helper.make_node("Gemm", ["x", "w", "c"], ["y"])
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3]) for name in "xy"
    ]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([constant, node], "g", ends[:1], ends[1:], [weights])
    )
    for tensor, name in (
        (model.graph.initializer[0], "m.weights"),
        (model.graph.node[0].attribute[0].t, "m.other"),
    ):
        (folder / name).write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=name)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    for name in ("m.onnx", "m.weights", "m.other"):
        assert f"`out` = '{name}': is a network's file" in refused("train", "m.onnx", "--out", name)
    assert "`out` = 'm.weights': is a file of weights" in refused(
        *TRAIN, "--init", "m.onnx", "--out", "m.weights"
    )


@pytest.mark.parametrize("name", ["new", "any"])
def test_two_outputs(refused: Refused, name: str) -> None:
    outputs = {"out": name, "checkpoint": f"./{name}", "log": f"csv:{name}", "trace": name}
    for one, first in outputs.items():
        for other, second in outputs.items():
            if one != other:
                line = refused(*TRAIN, f"--{one}", first, f"--{other}", second)
                assert f"`{one}` = '{first}'" in line and f"`{other}` = '{second}'" in line
    for words in (["simulate", "t.toml"], ["pipeline", *PIPELINE]):
        assert "this run writes another file there" in refused(
            *words, "--plot", name, "--trace", name
        )
    assert "this run writes another file there" in refused(
        "sweep", "t.toml", "--plot", name, "--csv", name
    )


def test_what_is_no_input_may_be_written_over(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the data, in a folder of events, and where a name is that of something else."""
    words = ["--devices", "1", "--samples", "4", "--progress", "none", "--batch", "4"]
    for name in ("old.h5", "shapes", "quick-cifar", "vc709", "none"):
        (folder / name).write_text("old")
        assert (
            status_of(
                "train", "t.toml", "--data", "d.h5", *words, "--log", "tensorboard:.", "--out", name
            )
            == 0
        )
        assert (folder / name).read_bytes().startswith(b"\x89HDF")
    assert status_of("simulate", "t.toml", "--samples", "8", "--trace", "sets/notes.json") == 0
    assert status_of("simulate", "t.toml", "--samples", "8", "--trace", "sets/notes.json") == 0
    capsys.readouterr()


def test_a_run_that_goes_on(
    refused: Refused, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It replaces its own checkpoint; what its settings of then name is not to be touched."""
    words = ["--devices", "1", "--batch", "4", "--progress", "none", "--checkpoint", "run.ckpt"]
    assert status_of("train", "t.toml", "--data", "d.h5", *words) == 0
    assert (
        status_of("train", "--resume", "run.ckpt", "--checkpoint", "run.ckpt", "--epochs", "2") == 0
    )
    assert status_of("train", "--resume", "run.ckpt", "--epochs", "3") == 0
    (folder / "link").hardlink_to("run.ckpt")
    assert status_of("train", "--resume", "run.ckpt", "--checkpoint", "link", "--epochs", "4") == 0
    capsys.readouterr()
    for output in ("out", "checkpoint", "trace"):
        assert f"`{output}` = 'd.h5': is a file of the data" in refused(
            "train", "--resume", "run.ckpt", f"--{output}", "d.h5"
        )
    assert "`out` = 'run.ckpt'" in refused("train", "--resume", "run.ckpt", "--out", "run.ckpt")
    with pytest.raises(InputError, match="`out` = 'd.h5': is a file of the data"):
        emuchain.train(resume="run.ckpt", out="d.h5")


CALLS: dict[str, tuple[Callable[[], object], str, str]] = {
    "data": (lambda: emuchain.train("t.toml", data=Path("d.h5"), out="d.h5"), "`out`", "`data`"),
    "log": (lambda: emuchain.train("t.toml", data="d.h5", log="csv:d.h5"), "`log`", "`data`"),
    "network": (lambda: emuchain.train("t.toml", checkpoint="t.toml"), "`checkpoint`", "`network`"),
    "trace": (
        lambda: emuchain.train("t.toml", data="d.h5", trace=Path("d.h5")),
        "`trace`",
        "`data`",
    ),
    "two outputs": (lambda: emuchain.train("t.toml", out="new", trace="new"), "`trace`", "`out`"),
    "board": (lambda: emuchain.train("t.toml", "c.toml", out="b.toml"), "`out`", "`cluster`"),
    "plan": (lambda: emuchain.plan("t.toml", data="d.h5", out="d.h5"), "`out`", "`data`"),
    "of a plan": (
        lambda: emuchain.train(emuchain.plan("t.toml", data="d.h5"), trace="d.h5"),
        "`trace`",
        "`data`",
    ),
    "simulate": (
        lambda: emuchain.simulate("t.toml", samples=8, trace="t.toml"),
        "`trace`",
        "`network`",
    ),
    "sweep": (
        lambda: emuchain.sweep(["quick-cifar", "t.toml"], csv="t.toml"),
        "`csv`",
        "`network`",
    ),
    "export": (lambda: emuchain.export(Path("any"), "any"), "`out`", "`run`"),
}


@pytest.mark.parametrize("case", CALLS)
def test_functions(folder: Path, one_line: Any, case: str) -> None:
    call, output, read = CALLS[case]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(InputError) as error:
        call()
    line = one_line(error)
    assert line.startswith(f"{output} = ") and f"{read} = " in line
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_configured_commands_know_the_keys_of_the_configuration() -> None:
    assert {
        name for name, command in leaves(commands) if isinstance(command, ConfiguredCommand)
    } == {
        *("train", "simulate", "plan", "timeline", "schedule", "precision"),
    }
