"""`emuchain timeline`, and `--trace` of `train` and `simulate`: answers first, the same traces, bad
input.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.commands.cli import main
from emuchain.emulator.common import format_bytes, format_time_ps

OneLine = Callable[[str], str]

KEYS = {"devices": 4, "samples": 48, "batch": 16, "micro-batch": 5, "epochs": 2}
FLAGS = [word for key, value in KEYS.items() for word in (f"--{key}", str(value))]
TRACE = ["--trace-samples", "10-20"]


def command(*arguments: str) -> int:
    """Run a command and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code if isinstance(ended.value.code, int) else 0


def test_the_answer_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("timeline", "quick-cifar", "--devices", "3") == 0
    answer, what, axis, *chart, legend = capsys.readouterr().out.splitlines()
    plan = emuchain.plan("quick-cifar", devices=3)
    filled, every = format_time_ps(plan.steady.fill_ps), format_time_ps(plan.timing.interval_ps)
    assert answer == f"pipeline full after {filled}, then a sample every {every}"
    assert what == "quick-cifar on 3 x VC709, fpdeep: samples 0-7"
    assert axis.split()[:2] == ["0", "ps"]
    assert [line[:11] for line in chart[:4]] == [
        "device 0 FP",
        "         EB",
        "         PG",
        "device 1 FP",
    ]
    assert len(chart) == 9
    assert legend.startswith("column: ")
    assert max(map(len, (answer, what, axis, *chart, legend))) <= 80


def test_a_pipeline_that_drains(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--devices",
        "2",
        "--schedule",
        "sync",
        "--batch",
        "4",
        "--samples-shown",
        "4-5",
        "--width",
        "60",
    ]
    assert command("timeline", "quick-cifar", *flags) == 0
    answer, what, _, *chart, _ = capsys.readouterr().out.splitlines()
    assert answer.endswith("on average, as it drains at each update")
    assert what.endswith("sync: samples 4-5")
    marks = set("".join(line[11:] for line in chart))
    assert {"4", "5"} <= marks <= set("4567. "), "the mini-batch before has drained"


def test_all_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("timeline", "quick-cifar", "--devices", "2", "--all-lanes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "device 0 (VC709)" in lines
    for start in (
        "  FP of conv1",
        "  EB of conv2",
        "  PG of conv2",
        "  link 0 -> 1, path 1",
        "  link 1 -> 0, path 4",
    ):
        assert any(line.startswith(start) for line in lines), start


@pytest.mark.parametrize(
    ("name", "begin"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
)
def test_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, begin: bytes
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / name
    assert command("timeline", "quick-cifar", "--devices", "2", "--plot", str(path)) == 0
    assert path.read_bytes().startswith(begin)
    assert capsys.readouterr().out.splitlines()[-1] == f"drawn in {path}"


def test_boards_that_take_actions_as_a_whole_show_memory(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.svg"
    keys = {"devices": 2, "engines": "turns", "schedule": "gpipe", "batch": 4, "micro-batch": 2}
    words = [word for key, value in keys.items() for word in (f"--{key}", str(value))]
    assert command("timeline", "quick-cifar", *words, "--plot", str(path)) == 0
    stages = emuchain.plan(
        "quick-cifar", **{k.replace("-", "_"): v for k, v in keys.items()}
    ).stages
    assert stages is not None
    for device in range(2):
        kept = format_bytes(stages.stage(device, stages.samples).kept_bytes)
        assert f"device {device}: {kept}" in path.read_text()


BAD = {
    "unknown network": (["timeline", "quick-cifer"], "did you mean `quick-cifar`"),
    "window is no range": (
        ["timeline", "quick-cifar", "--samples-shown", "some"],
        "`samples_shown` = 'some'",
    ),
    "empty window": (
        ["timeline", "quick-cifar", "--samples-shown", "5-2"],
        "`samples_shown` = '5-2'",
    ),
    "window beyond the run": (
        ["timeline", "quick-cifar", "--samples", "64", "--samples-shown", "64-70"],
        "`samples_shown` = '64-70': the run has samples 0-63 only",
    ),
    "narrow": (["timeline", "quick-cifar", "--width", "10"], "--width"),
    "missing folder of a picture": (
        ["timeline", "quick-cifar", "--plot", "nowhere/a.svg"],
        "`--plot` = 'nowhere/a.svg'",
    ),
    "missing folder of a trace": (
        ["simulate", "--trace", "nowhere/run.json"],
        "`trace` = 'nowhere/run.json'",
    ),
    "a folder as trace": (["simulate", "--trace", "."], "`trace` = '.': is a folder"),
    "missing folder in training": (
        ["train", "--trace", "nowhere/run.json"],
        "`trace` = 'nowhere/run.json'",
    ),
    "unknown level": (["simulate", "--trace", "a.json", "--trace-level", "rows"], "--trace-level"),
    "level without a trace": (["train", "--trace-level", "row"], "`trace_level` = 'row'"),
    "window without a trace": (["simulate", "--trace-samples", "0-3"], "`trace_samples` = '0-3'"),
    "empty window of a trace": (
        ["train", "--trace", "a.json", "--trace-samples", "3-1"],
        "`trace_samples` = '3-1'",
    ),
    "a trace beyond the run": (
        ["train", "--trace", "a.json", "--samples", "64", "--trace-samples", "64-70"],
        "`trace_samples` = '64-70': the run has samples 0-63 only",
    ),
    "no number": (
        ["simulate", "--trace", "a.json", "--trace-samples", "a-b"],
        "`trace_samples` = 'a-b'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_line: OneLine,
    tmp_path: Path,
    case: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[case]
    assert command(*arguments) == 2
    said = capsys.readouterr()
    assert message in one_line(said.err)
    assert said.out == "", "the run has not begun"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("mpiexec", "ranks", "level"),
    [("mpich", 1, "row"), ("mpich", 2, "sample"), ("openmpi", 2, "row")],
    indirect=["mpiexec"],
)
def test_traces_of_ranks_and_of_simulation_are_the_same(  # type: ignore[no-untyped-def]  # a fixture
    mpiexec, small_cifar: Path, tmp_path: Path, ranks: int, level: str
) -> None:
    data = ["--data", str(small_cifar), *FLAGS, *TRACE, "--trace-level", level]
    trained, simulated = tmp_path / "trained.json", tmp_path / "simulated.json"
    finished = mpiexec(
        ranks, ["-m", "emuchain", "train", "--test-samples", "8", *data, "--trace", trained]
    )
    assert (
        f"trace in {trained}; open it with https://ui.perfetto.dev" in finished.stdout.splitlines()
    )
    assert command("simulate", *data, "--trace", str(simulated), "--json") == 0
    assert trained.read_bytes() == simulated.read_bytes()
    assert len(trained.read_bytes()) > 10_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["simulated.json", "trained.json"]


@pytest.mark.parametrize(
    ("mpiexec", "codec"), [("mpich", "bf16"), ("openmpi", "inceptionn:-10")], indirect=["mpiexec"]
)
def test_traces_of_ranks_with_real_sizes(
    mpiexec, tmp_path: Path, small_cifar: Path, codec: str
) -> None:  # type: ignore[no-untyped-def]  # a fixture
    """Where sizes depend on values, those of training are in the trace: on two ranks the same as on
    one.
    """
    data = [
        "--data",
        str(small_cifar),
        "--replicas",
        "2",
        *FLAGS,
        "--compress",
        codec,
        "--test-samples",
        "8",
    ]
    traces = []
    for ranks in (1, 2):
        path = tmp_path / f"{ranks}.json"
        mpiexec(ranks, ["-m", "emuchain", "train", *data, *TRACE, "--trace", path])
        traces.append(path.read_bytes())
    assert traces[0] == traces[1]
    assert b"exchange of gradients" in traces[0]
    assert (
        command(
            "simulate", *data[:-2], *TRACE, "--trace", str(tmp_path / "simulated.json"), "--json"
        )
        == 0
    )
    simulated = (tmp_path / "simulated.json").read_bytes()
    assert (simulated == traces[0]) == (codec == "bf16"), (
        "a simulation has no gradients to compress"
    )


def test_json_alone_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--samples", "64", "--devices", "2", "--json"]
    assert command("simulate", *flags) == 0
    without = json.loads(capsys.readouterr().out)
    assert command("simulate", *flags, "--trace", str(tmp_path / "run.json")) == 0
    assert json.loads(capsys.readouterr().out) == without, "a trace changes no figure"


def test_traces_in_python(tmp_path: Path, small_cifar: Path) -> None:
    settings: dict[str, Any] = {"devices": 3, "samples": 32, "batch": 16, "data": str(small_cifar)}
    paths = [tmp_path / name for name in ("simulated.json", "trained.json", "other.json")]
    seen: list[str] = []
    emuchain.simulate(
        **settings, trace=paths[0], observer=lambda served: seen.append(served.resource)
    )
    emuchain.train(**settings, test_samples=4, trace=paths[1])
    emuchain.simulate(**settings, trace=str(paths[2]), trace_level="row", trace_samples=(0, 1))
    assert paths[0].read_bytes() == paths[1].read_bytes() != paths[2].read_bytes()
    assert seen


def test_bad_input_in_python(tmp_path: Path) -> None:
    with pytest.raises(emuchain.InputError, match="`trace_level` = 'rows': is one of sample, row"):
        emuchain.simulate(samples=64, trace=tmp_path / "a.json", trace_level="rows")
    with pytest.raises(emuchain.InputError, match="`trace_samples` = '3-1'"):
        emuchain.simulate(samples=64, trace=tmp_path / "a.json", trace_samples=(3, 1))
    with pytest.raises(emuchain.InputError, match="`trace` = .*does not exist"):
        emuchain.train(samples=64, trace=tmp_path / "nowhere" / "a.json")
    assert not list(tmp_path.iterdir())
