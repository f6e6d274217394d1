"""`emuchain simulate` and `plan` under the schedules of pairs: answers, JSON, pictures, and what
they refuse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.commands.cli import main
from emuchain.emulator.timing.pair import Resource

Run = Callable[..., str]
FARNN = ("--schedule", "farnn", "--devices", "2", "--batch", "1")


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Run:
    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        [line] = capsys.readouterr().err.splitlines()
        return line

    return refused


@pytest.fixture
def network(tmp_path: Path) -> Callable[..., str]:
    """Writes the file of a network of LSTM layers and returns its path."""

    def described(
        layers: int = 5, cells: int = 1024, steps: int = 1600, inputs: int = 1024, more: str = ""
    ) -> str:
        path = tmp_path / f"lstm-{layers}-{cells}-{steps}.toml"
        lstm = f'{{ type = "lstm", units = {cells}{more} }}, ' * layers
        ends = '{ type = "fc", features = 10 }, { type = "softmax" }'
        path.write_text(
            f'name = "lstm"\ninput = [1, {steps}, {inputs}]\nlayers = [{{ type = "sequence" }},'
            f" {lstm}{ends}]\n"
        )
        return str(path)

    return described


def test_five_layers_of_lstm(printed: Run, network: Callable[..., str]) -> None:
    for cluster, ms in (("farnn-9p", 211.2), ("farnn-13p", 170.2)):
        words = ("simulate", network(), "--cluster", cluster, *FARNN)
        found: dict[str, Any] = json.loads(printed(*words, "--json"))
        assert found["mini_batch_ps"] / 1e9 == pytest.approx(ms, rel=0.01)
        assert (
            found["virtual_time_ps"]
            == found["mini_batch_ps"]
            == found["forward_ps"] + found["backward_ps"]
        )
        lines = printed(*words, "--range", "none").splitlines()
        assert lines[0].startswith("lstm on P100 + FARNN-")
        assert f"{found['mini_batch_ps'] / 1e9:.0f} ms for a mini-batch of 1 sample" in lines[0]
        assert f"utilisation: {100 * found['utilisation']:.1f} %" in "\n".join(lines[:8])
        assert lines[lines.index("") - 1].startswith("next: emuchain simulate")
        assert lines.index("") <= 8


def test_an_epoch_has_a_smaller_last_mini_batch(printed: Run, network: Callable[..., str]) -> None:
    short = network(layers=1, cells=64, steps=9, inputs=64)
    keys = ("simulate", short, "--schedule", "farnn", "--cluster", "farnn-9p", "--json")
    whole, last = (
        json.loads(printed(*keys, "--batch", batch))["mini_batch_ps"] for batch in ("4", "2")
    )
    found = json.loads(printed(*keys, "--batch", "4", "--samples", "10", "--epochs", "2"))
    assert found["virtual_time_ps"] == 2 * (2 * whole + last)


def test_cycles_of_a_plan(printed: Run, network: Callable[..., str], tmp_path: Path) -> None:
    keys = ("plan", "--schedule", "farnn", "--batch", "1", "--json")
    [layer] = json.loads(printed(*keys, network(layers=1), "--cluster", "farnn-9p"))["layers"]
    assert (layer["forward"]["cycles"], layer["words_of_a_pe"]) == (4096, 4096)
    [layer] = json.loads(printed(*keys, network(layers=1), "--cluster", "farnn-vs"))["layers"]
    assert (layer["forward"]["cycles"], layer["forward"]["unsplit_cycles"]) == (1536, 2048)
    encoder = network(layers=1, cells=2048, steps=10, inputs=640, more=", projection = 640")
    [layer] = json.loads(printed(*keys, encoder, "--cluster", "farnn-9p-8k"))["layers"]
    assert (layer["forward"]["cycles"], layer["backward"]["cycles"]) == (7040, 6827)
    text = printed(
        "plan", encoder, "--schedule", "farnn", "--cluster", "farnn-9p-8k", "--batch", "1"
    )
    assert "7,040" in text and "6,827" in text and "memory: fits, 8,534 of 9,216 words" in text


def test_what_if(printed: Run, network: Callable[..., str]) -> None:
    words = (
        "simulate",
        network(steps=100),
        "--cluster",
        "farnn-9p",
        *FARNN,
        "--what-if",
        "link.bandwidth_gbps=24",
    )
    found = json.loads(printed(*words, "--json"))
    assert found["what_if"]["run"]["mini_batch_ps"] > 1.5 * found["mini_batch_ps"]
    assert "if link.bandwidth_gbps = 24: " in printed(*words, "--range", "none").splitlines()[1]


def test_padding_makes_sequences_longer(printed: Run, network: Callable[..., str]) -> None:
    keys = ("simulate", "--schedule", "farnn", "--cluster", "farnn-9p", "--batch", "2", "--json")
    once = json.loads(printed(*keys, network(layers=2, steps=100)))
    padded = json.loads(printed(*keys, network(layers=2, steps=100), "--padding", "1.3"))
    steps = [
        [task for task in of["tasks"] if task["part"].startswith("R-MVM")] for of in (once, padded)
    ]
    taken = [sum(task["end_ps"] - task["start_ps"] for task in of) - 4 * 2_000_000 for of in steps]
    assert taken[1] == 1.3 * taken[0]


def test_time_steps(printed: Run) -> None:
    keys = (
        "plan",
        "lstm-5x1024",
        "--schedule",
        "farnn",
        "--cluster",
        "farnn-9p",
        "--batch",
        "1",
        "--json",
    )
    assert json.loads(printed(*keys))["layers"][0]["steps"] == 1600
    assert json.loads(printed(*keys, "--time-steps", "100"))["layers"][0]["steps"] == 100


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_pictures(printed: Run, network: Callable[..., str], command: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = tmp_path / "pair.svg"
    printed(
        command,
        network(steps=100),
        "--schedule",
        "farnn",
        "--cluster",
        "farnn-9p",
        "--plot",
        str(drawn),
    )
    assert drawn.stat().st_size > 10_000


def test_a_timeline(printed: Run, network: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = (
        network(layers=2, steps=400),
        "--schedule",
        "farnn",
        "--cluster",
        "farnn-9p",
        "--batch",
        "1",
    )
    drawn = tmp_path / "pair.svg"
    answer, parts, _, gpu, to_fpga, fpga, to_gpu, *legend, last = printed(
        "timeline", *words, "--plot", str(drawn)
    ).splitlines()
    assert [answer, parts.removeprefix("farnn: ")] == printed(
        "simulate", *words, "--range", "none"
    ).splitlines()[:2]
    assert [line[:12].rstrip() for line in (gpu, to_fpga, fpga, to_gpu)] == [
        resource.value for resource in Resource
    ]
    assert "r" in fpga and "R" in fpga and "i" not in fpga and "w" in to_fpga
    assert any("r R-MVM and activations" in line for line in legend)
    assert max(map(len, (answer, parts, gpu, to_fpga, fpga, to_gpu, *legend))) <= 80
    assert last == f"drawn in {drawn}" and drawn.stat().st_size > 10_000


def test_a_trace(printed: Run, network: Callable[..., str], tmp_path: Path) -> None:
    words = (
        network(layers=2, steps=400),
        "--schedule",
        "farnn",
        "--cluster",
        "farnn-9p",
        "--batch",
        "1",
    )
    trace = tmp_path / "run.json"
    said = printed("simulate", *words, "--trace", str(trace))
    assert f"trace in {trace}; open it with https://ui.perfetto.dev" in " ".join(said.split())
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize("schedule", ["gpu-standard", "gpu-persistent"])
def test_a_gpu_alone(printed: Run, network: Callable[..., str], schedule: str) -> None:
    words = (
        "simulate",
        network(steps=100),
        "--schedule",
        schedule,
        "--cluster",
        "p100",
        "--batch",
        "1",
    )
    found = json.loads(printed(*words, "--json"))
    assert found["utilisation"] is None and found["limit"] == "GPU"
    assert found["resources"]["GPU"]["busy_ps"] == found["mini_batch_ps"]
    assert "limit: GPU, busy 100.0 % of the time" in printed(*words)


def test_refusals(refusal: Run, network: Callable[..., str]) -> None:
    lstm = network(layers=1, cells=64, steps=9, inputs=64)
    pair = ("--schedule", "farnn", "--cluster", "farnn-9p")
    for words, message in {
        ("simulate", network(layers=1, cells=2048), *pair): "48,234,496 bytes too much",
        ("plan", network(layers=1, cells=2048), *pair): "48,234,496 bytes too much",
        ("simulate", lstm, "--cluster", "farnn-9p", "--schedule", "fpdeep"): "board P100: a GPU",
        ("plan", lstm, "--cluster", "farnn-9p", "--schedule", "fpdeep"): "board P100: a GPU",
        ("simulate", "quick-cifar", *pair): "`network` = 'quick-cifar': has no recurrent layer",
        (
            "simulate",
            lstm,
            "--schedule",
            "farnn",
        ): "device 0 is a VC709, where `schedule` = 'farnn' needs a GPU",
        (
            "simulate",
            lstm,
            "--schedule",
            "farnn",
            "--cluster",
            "p100",
        ): "device 1, P100, is a GPU, too",
        ("simulate", lstm, *pair, "--devices", "3"): "`devices` = 3: ",
        (
            "simulate",
            lstm,
            *pair,
            "--replicas",
            "2",
        ): "`replicas` has no effect with `schedule` = 'farnn'",
        (
            "simulate",
            lstm,
            *pair,
            "--trace",
            "x.json",
            "--trace-level",
            "row",
        ): "`trace_level` = 'row': the trace of a",
        (
            "simulate",
            lstm,
            *pair,
            "--trace-samples",
            "0-3",
        ): "`trace_samples` = '0-3': the trace of a pair",
        ("simulate", lstm, *pair, "--trace", "/no/x.json"): "`trace` = '/no/x.json'",
        (
            "train",
            lstm,
            *pair,
            "--trace",
            "x.json",
        ): "`--trace`: of a pair, `emuchain simulate --trace` writes it",
        ("schedule", lstm, *pair): "is what `emuchain train`, `simulate`, `plan`, `timeline`",
        (
            "simulate",
            lstm,
            "--padding",
            "2",
            "--samples",
            "64",
        ): "`padding` = 2: applies to a GPU or a pair only",
        ("simulate", network(), *pair, "--batch", "512"): "bytes of P100's memory, ",
        (
            "timeline",
            lstm,
            *pair,
            "--samples-shown",
            "0-3",
        ): "`--samples-shown`: the timeline of a pair",
        ("timeline", lstm, *pair, "--all-lanes"): "`--all-lanes`: the timeline of a pair",
    }.items():
        assert message in refusal(*words), words
